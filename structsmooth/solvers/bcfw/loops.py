"""The same steps over linear chains and over programs, compiled, those of chains on one thread or several."""

from dataclasses import replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from structsmooth.compiled.arguments import checked
from structsmooth.compiled.threads import on_threads
from structsmooth.problems.linear.chain.data import ChainData
from structsmooth.problems.linear.chain.packed import Changes, packed, unpacked
from structsmooth.problems.linear.chain.problem import ChainProblem
from structsmooth.problems.linear.programs import ProgramProblem
from structsmooth.smoothing import Max
from structsmooth.solvers.bcfw.active_set import LEAST_REST, Cache, DualIterate, Steps
from structsmooth.solvers.bcfw.steps import epoch, plain

_KINDS = {"fw": 0, "pairwise": 1, "away": 2, "best": 3}


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
    """Steps on chains, compiled where there are no bounds."""
    problem.check_threads(threads)
    if problem.bounds is not None:
        return plain(problem, point, order, lam=lam, steps=steps, averaging_weights=averaging_weights, cache=cache)
    from structsmooth.solvers.bcfw import compiled_chain  # numba loads with the first pass

    data = problem.data
    start = data.checked_vector("point.weights", point.weights)
    before = packed(data, point.statistics)
    gaps = checked("point.gaps", point.gaps, torch.float64, data.n).clone()
    examples, draws = _choices(order, data.n)
    total, remaining = _averaging(start, averaging_weights, len(order))
    needed = steps != "fw" or cache is not None
    none = torch.empty(data.n, 0, dtype=torch.int32)
    sets = _checked_sets(data, point, cache) if needed else (none.view(-1).to(data.label_type), none.double(), none)
    changes = Changes(data, before, len(order), sets[1].shape[1])
    w, sums = data.matrix(start.clone()), data.matrix(total)
    iterate = (w, sums, before.arrays, changes.arrays, gaps.numpy())
    held, settings = tuple(tensor.numpy() for tensor in sets), _settings(steps, cache)
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


@epoch.register
def _(
    problem: ProgramProblem,
    point: DualIterate,
    order: Tensor,
    *,
    lam: float,
    steps: Steps = "fw",
    averaging_weights: Tensor | None = None,
    cache: Cache | None = None,
    threads: int = 1,
) -> tuple[DualIterate, Tensor | None]:
    """Steps on programs, compiled where there are neither bounds nor smoothed losses."""
    problem.check_threads(threads)
    if problem.bounds is not None or not isinstance(problem.smoother, Max):
        return plain(problem, point, order, lam=lam, steps=steps, averaging_weights=averaging_weights, cache=cache)
    from structsmooth.solvers.bcfw import compiled_programs

    w = problem.checked_vector("point.weights", point.weights).clone()
    statistics = problem.checked_statistics(point.statistics).clone()
    gaps = checked("point.gaps", point.gaps, torch.float64, problem.n).clone()
    blocks, draws = _choices(order, problem.n)
    total, remaining = _averaging(w, averaging_weights, len(order))
    needed = steps != "fw" or cache is not None
    outputs, alphas, stamps = (tensor.clone() for tensor in (point.outputs, point.alphas, point.stamps))
    if not needed:
        outputs, alphas = torch.empty(0, dtype=torch.int32), w.new_empty(problem.n, 0)
    held = stamps if len(stamps) else torch.zeros(1, alphas.shape[1], dtype=torch.int32)
    arrays = (tensor.numpy() for tensor in (w, total, statistics, gaps))
    sets = (outputs.numpy(), alphas.numpy(), held.numpy())
    problem.oracle_calls += compiled_programs.frank_wolfe_epoch(
        blocks.numpy(),
        draws.numpy(),
        problem.arrays,
        *arrays,
        float(lam),
        remaining.numpy(),
        sets,
        *_settings(steps, cache),
    )
    new = (outputs, alphas, stamps) if needed else (point.outputs, point.alphas, point.stamps)
    return DualIterate(w, statistics, gaps, *new), None if averaging_weights is None else total


def _choices(order: Tensor, n: int) -> tuple[Tensor, Tensor]:
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


def _averaging(start: Tensor, averaging_weights: Tensor | None, steps: int) -> tuple[Tensor, Tensor]:
    """The sum of the iterates if none moved, and for every step the weights of the iterates that its change is in."""
    if averaging_weights is None:
        return start.new_empty(0), start.new_empty(0)
    averaging_weights = checked("averaging_weights", averaging_weights, torch.float64, steps)
    return start * averaging_weights.sum(), averaging_weights.flip(0).cumsum(0).flip(0)


def _settings(steps: Steps, cache: Cache | None) -> tuple[tuple[Any, ...], tuple[Any, ...]]:
    """The kind of steps with the least weight that a rest may have, and the criterion of the cache."""
    criterion = (False, 0.0, 0.0) if cache is None else (True, float(cache.factor), float(cache.least))
    return (_KINDS[steps], LEAST_REST), criterion
