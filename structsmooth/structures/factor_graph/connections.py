"""Edges by a rule: neighbours in an image, and equal tokens of a sequence."""

from collections.abc import Callable, Hashable, Iterable, Sequence
from typing import NamedTuple, TypeVar

import torch
from torch import Tensor

from structsmooth.structures import checks

Token = TypeVar("Token")


def grid_edges(height: int, width: int, *, diagonals: bool = False, device: torch.device | None = None) -> Tensor:
    """Edges between the neighbours of a grid, whose nodes are counted row by row: int64 [E, 2].

    First come the edges along rows, then those along columns, and with ``diagonals``, which make eight neighbours of
    four, those down to the right and down to the left. ``image.flatten()[edges]`` has the pixels at both ends of each.

    Raises:
        ValueError: a height or width below 1.

    Example:
        >>> grid_edges(2, 2).tolist()
        [[0, 1], [2, 3], [0, 2], [1, 3]]
    """
    height, width = checks.require_count("height", height), checks.require_count("width", width)
    nodes = torch.arange(height * width, device=device).view(height, width)
    pairs = [(nodes[:, :-1], nodes[:, 1:]), (nodes[:-1], nodes[1:])]
    if diagonals:
        pairs += [(nodes[:-1, :-1], nodes[1:, 1:]), (nodes[:-1, 1:], nodes[1:, :-1])]
    return torch.cat([torch.stack([a.flatten(), b.flatten()], 1) for a, b in pairs])


class SkipEdges(NamedTuple):
    """Pairs of positions in each of B sequences, int64 [B, E, 2], and a mask [B, E], false at padding."""

    edges: Tensor
    mask: Tensor


def skip_edges(
    sequences: Iterable[Sequence[Token]],
    rule: Callable[[Token], Hashable | None],
    *,
    least: int = 2,
    every: bool = False,
) -> SkipEdges:
    """Pairs of positions whose tokens are alike by a rule, such as equal words with capitals.

    Args:
        sequences: tokens of B sequences, such as words.
        rule: what a token must have in common with another one; ``None`` for a token that is like no other.
        least: least distance of the positions; neighbours have transitions.
        every: join all pairs of positions that are alike, as Sutton and McCallum do. Otherwise each is joined to the
            next one alone, which mostly leaves graphs that exact oracles solve.

    Reference:
        Sutton and McCallum (2004), "Collective Segmentation and Labeling of Distant Entities in Information
        Extraction".

    Example:
        >>> words = ["Ohio", "is", "near", "Lake", "Erie", "and", "Ohio", "is", "Ohio"]
        >>> capitalized = lambda word: word if word[0].isupper() else None
        >>> skip_edges([words], capitalized).edges.tolist()
        [[[0, 6], [6, 8]]]
    """
    found = [_alike([rule(token) for token in tokens], max(1, least), every) for tokens in sequences]
    counts = torch.tensor([len(pairs) for pairs in found], dtype=torch.int64)
    longest = max([0, *map(len, found)])
    padded = [pairs + [(0, 0)] * (longest - len(pairs)) for pairs in found]
    edges = torch.tensor(padded, dtype=torch.int64).view(len(found), longest, 2)
    return SkipEdges(edges, checks.length_mask(counts, longest))


def _alike(keys: Sequence[Hashable | None], least: int, every: bool) -> list[tuple[int, int]]:
    """Pairs of positions with equal keys that are at least so far from each other."""
    earlier: dict[Hashable, list[int]] = {}
    pairs = []
    for position, key in enumerate(keys):
        if key is not None:
            before = [other for other in earlier.setdefault(key, []) if position - other >= least]
            pairs += [(other, position) for other in (before if every else before[-1:])]
            earlier[key].append(position)
    return pairs
