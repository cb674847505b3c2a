"""Epochs of solvers of the dual over chains, compiled."""

from dataclasses import replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from structsmooth.compiled.threads import on_threads
from structsmooth.problems.linear.active_set import LEAST_REST, Cache, DualIterate, Steps
from structsmooth.problems.linear.arrays import checked
from structsmooth.problems.linear.ascent import SmoothedIterate
from structsmooth.problems.linear.chain.data import ChainData, smoothing
from structsmooth.problems.linear.chain.packed import Changes, packed, unpacked
from structsmooth.problems.linear.exponentiated import GibbsIterate, rounding_of
from structsmooth.smoothing import Smoother

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
    threads: int = 1,
) -> tuple[DualIterate, Tensor | None, int]:
    """The epoch of :meth:`~structsmooth.problems.LinearProblem.frank_wolfe_epoch`, and its oracle calls."""
    from structsmooth.problems.linear.chain import compiled_dual  # numba loads with the first pass

    start = data.checked_vector("point.weights", point.weights)
    before = packed(data, point.statistics)
    changes = Changes(data, before)
    gaps = checked("point.gaps", point.gaps, torch.float64, data.n).clone()
    examples, draws = _checked_choices(data, order)
    w, total, remaining = start.clone(), start.new_empty(0), start.new_empty(0)
    if shares is not None:
        shares = checked("shares", shares, torch.float64, len(order))
        remaining = shares.flip(0).cumsum(0).flip(0)
        total = start * shares.sum()
    needed = steps != "fw" or cache is not None
    none = torch.empty(data.n, 0, dtype=torch.int32)
    sets = _checked_sets(data, point, cache) if needed else (none.view(-1).to(data.label_type), none.double(), none)
    iterate = (data.matrix(w), data.matrix(total), before.arrays, changes.arrays, gaps.numpy())
    held, kind = tuple(tensor.numpy() for tensor in sets), (_STEPS[steps], LEAST_REST)
    criterion = (False, 0.0, 0.0) if cache is None else (True, float(cache.factor), float(cache.least))
    settings = (draws.numpy(), data.arrays, *iterate, float(lam), remaining.numpy(), held, kind, criterion)

    def steps_on(examples: Tensor, queue: Any) -> int:
        calls: int = compiled_dual.frank_wolfe_epoch(examples.numpy(), *settings, queue)
        return calls

    if threads == 1:
        calls = steps_on(examples, None)
    else:
        owned, queue = _owned(examples, draws, threads), np.zeros(1, np.int64)
        calls = sum(on_threads(lambda thread: steps_on(owned[thread], queue), len(owned)))
    if needed:
        point = replace(point, outputs=sets[0], alphas=sets[1])
    if needed and len(point.stamps):
        point = replace(point, stamps=sets[2])
    statistics = changes.packed().words
    if point.statistics.dtype != statistics.dtype:
        statistics = unpacked(data, statistics)
    new = replace(point, weights=w, statistics=statistics, gaps=gaps)
    return new, None if shares is None else total, calls


def sdca_epoch(
    data: ChainData, point: SmoothedIterate, order: Tensor, *, lam: float, smoother: Smoother
) -> SmoothedIterate:
    """The epoch of :meth:`~structsmooth.problems.LinearProblem.sdca_epoch`."""
    from structsmooth.problems.linear.chain import compiled_dual

    w = data.checked_vector("point.weights", point.weights).clone()
    statistics = data.checked_statistics(point.statistics).clone()
    surplus = checked("point.surplus", point.surplus, torch.float64, data.n).clone()
    examples = data.checked_order(checked("order [steps]", order, torch.int64, -1)[:, None])[:, 0]
    iterate = (data.matrix(w), statistics.numpy(), surplus.numpy())
    compiled_dual.sdca_epoch(examples.numpy(), data.arrays, *iterate, smoothing(smoother), float(lam))
    return SmoothedIterate(w, statistics.view(-1), surplus)


def gibbs_near_labels(data: ChainData, center: float) -> tuple[Tensor, Tensor, Tensor]:
    """Those of :meth:`~structsmooth.problems.LinearProblem.gibbs_near_labels`."""
    from structsmooth.problems.linear.chain import compiled_exponentiated

    logs = torch.zeros(len(data.labels) + data.n * data.states, data.states, dtype=torch.float64)
    logs[data.token_rows()[0], data.labels] = center
    statistics, log_partitions = torch.empty_like(logs), logs.new_empty(data.n)
    compiled_exponentiated.gibbs_pass(data.arrays, logs.numpy(), statistics.numpy(), log_partitions.numpy())
    return logs.view(-1), statistics.view(-1), log_partitions


def exponentiated_epoch(
    data: ChainData, point: GibbsIterate, order: Tensor, taus: Tensor, *, lam: float, level: float, shrink: float = 1.0
) -> tuple[GibbsIterate, int]:
    """The epoch of :meth:`~structsmooth.problems.LinearProblem.exponentiated_epoch`, and its oracle calls."""
    from structsmooth.problems.linear.chain import compiled_exponentiated

    examples = data.checked_order(checked("order [steps]", order, torch.int64, -1)[:, None])[:, 0]
    taus = checked("taus", taus, torch.float64, len(order))
    shares = (1 - taus / data.n).cumprod(0)
    w, lead = (data.checked_vector(f"point.{name}", getattr(point, name)).clone() for name in ("weights", "lead"))
    logs, statistics = (data.checked_statistics(own).clone() for own in (point.log_potentials, point.statistics))
    log_partitions, curvatures = (
        checked(f"point.{name}", getattr(point, name), torch.float64, data.n).clone()
        for name in ("log_partitions", "curvatures")
    )
    values = checked("point.values", point.values, torch.float64, 2).clone()
    calls: int = compiled_exponentiated.exponentiated_epoch(
        examples.numpy(),
        taus.numpy(),
        shares.numpy(),
        data.arrays,
        (data.matrix(w), data.matrix(lead)),
        (logs.numpy(), statistics.numpy(), log_partitions.numpy()),
        curvatures.numpy(),
        values.numpy(),
        (float(lam), float(level), float(shrink), rounding_of(torch.float64)),
    )
    lead *= shares[-1]
    values[1] *= shares[-1]
    return GibbsIterate(w, lead, logs.view(-1), statistics.view(-1), log_partitions, curvatures, values), calls


def _checked_sets(data: ChainData, point: DualIterate, cache: Cache | None) -> tuple[Tensor, Tensor, Tensor]:
    """Copies of what the examples hold; a row of zeros if no example has a cache."""
    alphas = checked("point.alphas", point.alphas, torch.float64, data.n, -1).clone()
    if cache is None and not len(point.stamps):
        stamps = torch.zeros(1, alphas.shape[1], dtype=torch.int32)
    else:
        stamps = checked("point.stamps", point.stamps, torch.int32, *alphas.shape).clone()
    # Older versions kept wider ones.
    own = point.outputs.to(data.label_type) if point.outputs.dtype == torch.int32 else point.outputs
    outputs = checked("point.outputs", own, data.label_type, len(data.labels) * alphas.shape[1]).clone()
    return outputs, alphas, stamps


def _checked_choices(data: ChainData, order: Tensor) -> tuple[Tensor, Tensor]:
    """Examples, and draws that choose from them if there are any."""
    if isinstance(order, Tensor) and order.dtype == torch.float64:
        draws = checked("order [steps]", order, torch.float64, -1)
        if not ((draws >= 0) & (draws < 1)).all():
            raise ValueError("order must hold draws from [0, 1)")
        return torch.arange(data.n if len(draws) else 0), draws
    examples = checked("order [steps]", order, torch.int64, -1)
    return data.checked_order(examples[:, None])[:, 0], torch.empty(0, dtype=torch.float64)


def _owned(examples: Tensor, draws: Tensor, threads: int) -> list[Tensor]:
    """The examples of each thread. Without draws they share one list, from which each takes the next."""
    if not len(draws):
        if len(examples.unique()) < len(examples):
            raise ValueError("order must not hold an example twice if several threads make the steps")
        return [examples] * threads
    # A thread draws from examples of its own, at random: another time, the same examples are with others.
    seed = int(draws[0] * 2**53)
    shuffled = examples[torch.randperm(len(examples), generator=torch.Generator().manual_seed(seed))]
    return [shuffled[thread::threads].contiguous() for thread in range(min(threads, len(examples)))]
