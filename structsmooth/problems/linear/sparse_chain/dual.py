"""Epochs of block-coordinate Frank-Wolfe over sparse chains, compiled."""

from dataclasses import replace

import torch
from torch import Tensor

from structsmooth.problems.linear.active_set import LEAST_REST, Cache, DualIterate, Steps
from structsmooth.problems.linear.sparse_chain.data import ChainData, checked

# As compiled passes take them.
_STEPS = {"fw": 0, "pairwise": 1, "away": 2}


def frank_wolfe_epoch(
    data: ChainData,
    point: DualIterate,
    order: Tensor,
    *,
    lam: float,
    steps: Steps = "fw",
    shares: Tensor | None = None,
    cache: Cache | None = None,
) -> tuple[DualIterate, Tensor | None, int]:
    """The epoch of :meth:`~structsmooth.problems.LinearProblem.frank_wolfe_epoch`, and its oracle calls."""
    from structsmooth.problems.linear.sparse_chain import compiled_dual  # numba loads with the first pass

    start = data.checked_vector("point.weights", point.weights)
    statistics = data.checked_statistics(point.statistics).clone()
    gaps = checked("point.gaps", point.gaps, torch.float64, data.n).clone()
    examples_or_draws = (tensor.numpy() for tensor in _checked_choices(data, order))
    w, total, remaining = start.clone(), start.new_empty(0), start.new_empty(0)
    if shares is not None:
        shares = checked("shares", shares, torch.float64, len(order))
        remaining = shares.flip(0).cumsum(0).flip(0)
        total = start * shares.sum()
    needed = steps != "fw" or cache is not None
    none = torch.empty(data.n, 0, dtype=torch.int32)
    sets = _checked_sets(data, point) if needed else (none.view(-1), none.double(), none)
    iterate = (data.matrix(w), data.matrix(total), statistics.numpy(), gaps.numpy())
    held, kind = tuple(tensor.numpy() for tensor in sets), (_STEPS[steps], LEAST_REST)
    criterion = (False, 0.0, 0.0) if cache is None else (True, float(cache.factor), float(cache.least))
    calls: int = compiled_dual.frank_wolfe_epoch(
        *examples_or_draws, data.arrays, *iterate, float(lam), remaining.numpy(), held, kind, criterion
    )
    if needed:
        point = replace(point, outputs=sets[0], alphas=sets[1], stamps=sets[2])
    new = replace(point, weights=w, statistics=statistics.view(-1), gaps=gaps)
    return new, None if shares is None else total, calls


def _checked_sets(data: ChainData, point: DualIterate) -> tuple[Tensor, Tensor, Tensor]:
    """Copies of what the examples hold."""
    alphas = checked("point.alphas", point.alphas, torch.float64, data.n, -1).clone()
    stamps = checked("point.stamps", point.stamps, torch.int32, *alphas.shape).clone()
    outputs = checked("point.outputs", point.outputs, torch.int32, len(data.labels) * alphas.shape[1]).clone()
    return outputs, alphas, stamps


def _checked_choices(data: ChainData, order: Tensor) -> tuple[Tensor, Tensor]:
    """Examples and draws as compiled passes take them: one of the two is empty."""
    if isinstance(order, Tensor) and order.dtype == torch.float64:
        draws = checked("order [steps]", order, torch.float64, -1)
        if not ((draws >= 0) & (draws < 1)).all():
            raise ValueError("order must hold draws from [0, 1)")
        return torch.empty(0, dtype=torch.int64), draws
    examples = checked("order [steps]", order, torch.int64, -1)
    return data.checked_order(examples[:, None])[:, 0], torch.empty(0, dtype=torch.float64)
