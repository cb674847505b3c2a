"""The structures whose outputs are the derivations of programs, for contract tests."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import Any

import torch
from enumerated_programs import (
    EnumeratedDependencies,
    EnumeratedSegmentations,
    EnumeratedSpans,
    random_dependencies,
    random_segmentations,
    random_spans,
    small_dependencies,
    small_segmentations,
    small_spans,
)
from enumeration import FORMS
from member import Index, Instance, Member
from torch import Tensor

from structsmooth import Constituents, ProjectiveTree, SemiMarkov, SpanningTree

BACKENDS = ("compiled", "torch")

# Of random instances, as in ``structure_members``.
SEGMENTS = {
    "single": (2, 1, 3, 3),
    "least": (2, 3, 3, 3),
    "tiny": (2, 4, 3, 3),
    "medium": (5, 7, 4, 3),
    "long": (4, 50, 9, 6),
    "large": (9, 50, 12, 8),
}
DEPENDENCIES = {
    "single": (3, 2, 2),
    "least": (2, 3, 2),
    "tiny": (2, 3, 2),
    "medium": (5, 6, 2),
    "long": (4, 16, 2),
    "large": (9, 16, 2),
}


def cyclic(first: Tensor) -> Tensor:
    """Labels for scores [B, V, S]."""
    batch, variables, states = first.shape
    return torch.arange(batch * variables, device=first.device).view(batch, variables) * 7 % 5 % states


def segmentations(size: str, **options: Any) -> Instance:
    lengths = {"least": [3, 2], "tiny": [4, 2], "medium": [1, 6, 3, 5, 6]}.get(size)
    return random_segmentations(*SEGMENTS[size], FORMS[0], lengths=lengths, **options)


def used_by_segmentation(
    unary: Tensor, transition: Tensor, durations: Tensor, segments: Tensor, lengths: Tensor
) -> tuple[Tensor, ...]:
    inside = torch.arange(unary.shape[1]) < lengths[:, None]
    everywhere = torch.ones(transition.shape, dtype=torch.bool)
    ends = torch.arange(unary.shape[1])[:, None] + torch.arange(durations.shape[-2]) + 1
    return (
        inside[..., None],
        inside[:, 1:, None, None] if transition.dim() == 4 else everywhere,
        torch.ones(durations.shape, dtype=torch.bool),
        (ends <= lengths[:, None, None])[..., None],
    )


def segmentation_alone(
    b: int, unary: Tensor, transition: Tensor, durations: Tensor, segments: Tensor, lengths: Tensor
) -> tuple[Instance, tuple[Index, ...]]:
    n, row = int(lengths[b]), slice(b, b + 1)
    own = transition if transition.dim() == 2 else transition[row]
    own, boundaries = (own[:, : n - 1], slice(n - 1)) if transition.dim() == 4 else (own, ...)
    own_durations = durations if durations.dim() == 2 else durations[row]
    return (unary[row, :n], own, own_durations, segments[row, :n], lengths[row]), (slice(n), boundaries, ..., slice(n))


def semi_markov(backend: Any) -> Member:
    return Member(
        partial(SemiMarkov, backend=backend),
        EnumeratedSegmentations,
        3,
        segmentations,
        lambda ties, many=False: small_segmentations(ties=ties, outputs=400 if many else 100),
        cyclic,
        ordered=frozenset(),
        used=used_by_segmentation,
        alone=segmentation_alone,
        examples=20,
    )


def dependencies(size: str, **options: Any) -> Instance:
    lengths = {"least": [3, 2], "tiny": [3, 2], "medium": [5, 3, 6, 2, 4]}.get(size)
    return random_dependencies(*DEPENDENCIES[size], lengths=lengths, **options)


def each_after_the_last(arcs: Tensor) -> Tensor:
    """The first word is the root, and each other one hangs on the one before it, with one of two labels."""
    batch, words, _ = arcs.shape
    m = torch.arange(words, device=arcs.device)
    return torch.where(m > 0, 1 + 2 * (m - 1) + m % 2, 0).repeat(batch, 1)


def used_by_dependencies(arcs: Tensor, root: Tensor, labels: Tensor, lengths: Tensor) -> tuple[Tensor, ...]:
    inside = torch.arange(arcs.shape[1]) < lengths[:, None]
    pairs = inside[:, :, None] & inside[:, None] & ~torch.eye(arcs.shape[1], dtype=torch.bool)
    return pairs, inside, pairs[..., None]


def dependencies_alone(
    b: int, arcs: Tensor, root: Tensor, labels: Tensor, lengths: Tensor
) -> tuple[Instance, tuple[Index, ...]]:
    row, own = slice(b, b + 1), slice(int(lengths[b]))
    pairs = (own, own)
    return (arcs[row, own, own], root[row, own], labels[row, own, own], lengths[row]), (pairs, own, pairs)


def projective_tree(backend: Any) -> Member:
    return Member(
        partial(ProjectiveTree, backend=backend),
        EnumeratedDependencies,
        4,
        dependencies,
        lambda ties, many=False: small_dependencies(3, ties=ties),
        each_after_the_last,
        ordered=frozenset(),
        block=(0,),
        used=used_by_dependencies,
        alone=dependencies_alone,
        examples=20,
    )


SPANNING_TREE = replace(
    projective_tree("auto"), build=SpanningTree, twin=partial(EnumeratedDependencies, projective=False)
)


def spans(size: str, **options: Any) -> Instance:
    lengths = {"least": [3, 2], "tiny": [3, 2], "medium": [5, 3, 6, 2, 4]}.get(size)
    return random_spans(*DEPENDENCIES[size], lengths=lengths, **options)


def binary_tree(spans: Tensor, offset: Tensor, lengths: Tensor | None = None, **options: Any) -> Constituents:
    return Constituents(spans, lengths, offset=offset, binary=True, **options)


def beginnings(scores: Tensor) -> Tensor:
    """The tree whose constituents are single words and beginnings of the sentence."""
    batch, words, _, labels = scores.shape
    i, j = torch.arange(words, device=scores.device)[:, None], torch.arange(words, device=scores.device)
    return torch.where((i == 0) | (i == j), (i + j) % labels, -1).repeat(batch, 1, 1)


def used_by_spans(scores: Tensor, offset: Tensor, lengths: Tensor) -> tuple[Tensor, ...]:
    inside = torch.arange(scores.shape[1]) < lengths[:, None]
    return (inside[:, :, None] & inside[:, None]).triu()[..., None], torch.ones_like(offset, dtype=torch.bool)


def spans_alone(b: int, scores: Tensor, offset: Tensor, lengths: Tensor) -> tuple[Instance, tuple[Index, ...]]:
    row, own = slice(b, b + 1), slice(int(lengths[b]))
    return (scores[row, own, own], offset[row], lengths[row]), ((own, own), ...)


def constituents(backend: Any) -> Member:
    return Member(
        partial(binary_tree, backend=backend),
        EnumeratedSpans,
        3,
        spans,
        lambda ties, many=False: small_spans(3, ties=ties),
        beginnings,
        ordered=frozenset(),
        block=(0,),
        used=used_by_spans,
        alone=spans_alone,
        examples=20,
    )


PROGRAMS = {
    **{f"SemiMarkov {backend}": semi_markov(backend) for backend in BACKENDS},
    **{f"ProjectiveTree {backend}": projective_tree(backend) for backend in BACKENDS},
    "SpanningTree": SPANNING_TREE,
    **{f"Constituents {backend}": constituents(backend) for backend in BACKENDS},
}
