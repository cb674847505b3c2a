"""The steps of block-coordinate Frank-Wolfe over linear chains, compiled, on one thread or several."""

from dataclasses import replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from structsmooth.compiled.threads import on_threads
from structsmooth.problems.linear.arrays import checked
from structsmooth.problems.linear.chain.data import ChainData
from structsmooth.problems.linear.chain.packed import Changes, packed, unpacked
from structsmooth.problems.linear.chain.problem import ChainProblem
from structsmooth.solvers.bcfw import loop_arguments
from structsmooth.solvers.bcfw.active_set import Cache, DualIterate, Steps
from structsmooth.solvers.bcfw.steps import epoch, plain


@epoch.register
def _(
    problem: ChainProblem,
    point: DualIterate,
    order: Tensor,
    *,
    lam: float,
    steps: Steps = "fw",
    averaging_weights: Tensor | None = None,
    cache: Cache | None = None,
    threads: int = 1,
) -> tuple[DualIterate, Tensor | None]:
    """The steps of :mod:`structsmooth.solvers.bcfw.steps`, compiled where there are no bounds."""
    problem.check_threads(threads)
    if problem.bounds is not None:
        return plain(problem, point, order, lam=lam, steps=steps, averaging_weights=averaging_weights, cache=cache)
    from structsmooth.solvers.bcfw import compiled_chain  # numba loads with the first pass

    data = problem.data
    start = data.checked_vector("point.weights", point.weights)
    before = packed(data, point.statistics)
    gaps = checked("point.gaps", point.gaps, torch.float64, data.n).clone()
    examples, draws = loop_arguments.choices(order, data.n)
    total, remaining = loop_arguments.averaging(start, averaging_weights, len(order))
    needed = steps != "fw" or cache is not None
    none = torch.empty(data.n, 0, dtype=torch.int32)
    sets = _checked_sets(data, point, cache) if needed else (none.view(-1).to(data.label_type), none.double(), none)
    changes = Changes(data, before, len(order), sets[1].shape[1])
    w, sums = data.matrix(start.clone()), data.matrix(total)
    iterate = (w, sums, before.arrays, changes.arrays, gaps.numpy())
    held, settings = tuple(tensor.numpy() for tensor in sets), loop_arguments.settings(steps, cache)
    arrays = (draws.numpy(), data.arrays, *iterate, float(lam), remaining.numpy(), held)

    def steps_on(examples: Tensor, counter: Any) -> int:
        calls: int = compiled_chain.frank_wolfe_epoch(examples.numpy(), *arrays, *settings, counter)
        return calls

    if threads == 1:
        calls = steps_on(examples, None)
    else:
        of_threads, counter = _examples_of_threads(examples, draws, threads), np.zeros(1, np.int64)
        calls = sum(on_threads(lambda thread: steps_on(of_threads[thread], counter), len(of_threads)))
    if needed:
        point = replace(point, outputs=sets[0], alphas=sets[1])
    if needed and len(point.stamps):
        point = replace(point, stamps=sets[2])
    statistics = changes.packed().words
    if point.statistics.dtype != statistics.dtype:
        statistics = unpacked(data, statistics)
    problem.oracle_calls += calls
    average = None if averaging_weights is None else data.vector(sums)
    return replace(point, weights=data.vector(w), statistics=statistics, gaps=gaps), average


def _checked_sets(data: ChainData, point: DualIterate, cache: Cache | None) -> tuple[Tensor, Tensor, Tensor]:
    """Copies of what the examples hold; a row of zeros if no example has a cache."""
    alphas = checked("point.alphas", point.alphas, torch.float64, data.n, -1).clone()
    if cache is None and not len(point.stamps):
        stamps = torch.zeros(1, alphas.shape[1], dtype=torch.int32)
    else:
        stamps = checked("point.stamps", point.stamps, torch.int32, *alphas.shape).clone()
    # Older versions kept wider ones.
    outputs = point.outputs.to(data.label_type) if point.outputs.dtype == torch.int32 else point.outputs
    outputs = checked("point.outputs", outputs, data.label_type, len(data.labels) * alphas.shape[1]).clone()
    return outputs, alphas, stamps


def _examples_of_threads(examples: Tensor, draws: Tensor, threads: int) -> list[Tensor]:
    """The examples of each thread. Without draws they share one list, from which each takes the next."""
    if not len(draws):
        if len(examples.unique()) < len(examples):
            raise ValueError("order must not hold an example twice if several threads make the steps")
        return [examples] * threads
    # A thread draws from examples of its own, at random: another time, the same examples are with others.
    seed = int(draws[0] * 2**53)
    shuffled = examples[torch.randperm(len(examples), generator=torch.Generator().manual_seed(seed))]
    return [shuffled[thread::threads].contiguous() for thread in range(min(threads, len(examples)))]
