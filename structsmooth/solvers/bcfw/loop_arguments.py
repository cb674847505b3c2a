"""Arguments of compiled loops, whatever the problem: blocks of steps, weights of the average, steps, the cache."""

from typing import Any

import torch
from torch import Tensor

from structsmooth.problems.linear.arrays import checked
from structsmooth.solvers.bcfw.active_set import LEAST_REST, Cache, Steps

_KINDS = {"fw": 0, "pairwise": 1, "away": 2, "best": 3}


def choices(order: Tensor, n: int) -> tuple[Tensor, Tensor]:
    """The blocks of the steps, int64 [steps], or all blocks with the draws that choose among them, float64 [steps]."""
    if isinstance(order, Tensor) and order.dtype == torch.float64:
        draws = checked("order [steps]", order, torch.float64, -1)
        if not ((draws >= 0) & (draws < 1)).all():
            raise ValueError("order must hold draws from [0, 1)")
        return torch.arange(n if len(draws) else 0), draws
    blocks = checked("order [steps]", order, torch.int64, -1)
    if not len(blocks):
        raise ValueError(f"order must hold examples from 0 to {n - 1}, got none")
    unknown = blocks[(blocks < 0) | (blocks >= n)]
    if len(unknown):
        raise ValueError(f"order must hold examples from 0 to {n - 1}, got {int(unknown[0])}")
    return blocks, torch.empty(0, dtype=torch.float64)


def averaging(start: Tensor, averaging_weights: Tensor | None, steps: int) -> tuple[Tensor, Tensor]:
    """The sum of the iterates if none moved, and for every step the weights of the iterates that its change is in."""
    if averaging_weights is None:
        return start.new_empty(0), start.new_empty(0)
    averaging_weights = checked("averaging_weights", averaging_weights, torch.float64, steps)
    return start * averaging_weights.sum(), averaging_weights.flip(0).cumsum(0).flip(0)


def settings(steps: Steps, cache: Cache | None) -> tuple[tuple[Any, ...], tuple[Any, ...]]:
    """The kind of steps with the least weight that a rest may have, and the criterion of the cache."""
    criterion = (False, 0.0, 0.0) if cache is None else (True, float(cache.factor), float(cache.least))
    return (_KINDS[steps], LEAST_REST), criterion
