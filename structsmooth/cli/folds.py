"""Folds of cross-validation that keep texts whole."""

from collections.abc import Sequence
from itertools import pairwise

import torch


def folds(texts: Sequence[int] | None, n: int, count: int, seed: int) -> list[list[int]]:
    """Divide examples 0 to n - 1 into folds of about equal size; within each, they keep their order.

    Texts are dealt out whole, in random order, the largest first. Without texts, folds are blocks of neighbours.

    Args:
        texts: number of the text of each example, if it is known: [n].
        n: number of examples.
        count: number of folds.
        seed: same seed, same folds.

    Raises:
        ValueError: fewer than two folds, or more folds than texts.

    Example:
        >>> folds(None, 5, 2, 0)
        [[0, 1], [2, 3, 4]]
    """
    names = sorted(set(texts)) if texts is not None else range(n)
    if not 2 <= count <= len(names):
        kind = "examples" if texts is None else "texts"
        raise ValueError(f"--folds must be from 2 to the number of {kind}, {len(names)}, got {count}")
    if texts is None:
        bounds = [n * i // count for i in range(count + 1)]
        return [list(range(*pair)) for pair in pairwise(bounds)]
    members: dict[int, list[int]] = {name: [] for name in names}
    for example, name in enumerate(texts):
        members[name].append(example)
    order = torch.randperm(len(names), generator=torch.Generator().manual_seed(seed)).tolist()
    dealt: list[list[int]] = [[] for _ in range(count)]
    for name in sorted((names[i] for i in order), key=lambda name: -len(members[name])):
        min(dealt, key=len).extend(members[name])
    return [sorted(fold) for fold in dealt]
