"""The steps of SGD over linear chains, compiled, on one thread or several."""

from collections.abc import Iterator
from typing import Any

import numpy as np
import torch
from torch import Tensor

from structsmooth.compiled.arguments import checked
from structsmooth.compiled.threads import on_threads
from structsmooth.problems.base import Problem
from structsmooth.problems.linear.chain.data import ChainData, smoothing
from structsmooth.problems.linear.chain.problem import ChainProblem
from structsmooth.problems.linear.difference import DifferenceProblem
from structsmooth.smoothing import Smoother
from structsmooth.solvers.sgd.steps import epoch

# Smaller scales of the weights would cost the sum of the iterates its digits.
_LEAST_SCALE = 1e-3


@epoch.register
def _(problem: ChainProblem, w: Tensor, order: Tensor, **settings: Any) -> tuple[Tensor, Tensor]:
    """The steps of the plain loop, compiled for steps of one example, also on several threads."""
    return _epoch(problem, problem.data, None, w, order, **settings)


@epoch.register
def _(problem: DifferenceProblem, w: Tensor, order: Tensor, **settings: Any) -> tuple[Tensor, Tensor]:
    """The steps of the plain loop on partial labels of chains, compiled for steps of one example."""
    whole, agreeing = problem.problem, problem.agreeing
    if isinstance(whole, ChainProblem) and isinstance(agreeing, ChainProblem):
        return _epoch(problem, whole.data, agreeing.data, w, order, **settings)
    return epoch.dispatch(object)(problem, w, order, **settings)


def _epoch(
    problem: Problem,
    data: ChainData,
    agreeing: ChainData | None,
    w: Tensor,
    order: Tensor,
    *,
    step_sizes: Tensor,
    lam: float,
    smoother: Smoother,
    averaging_weights: Tensor,
    threads: int = 1,
) -> tuple[Tensor, Tensor]:
    """The steps on the outputs of chains, and for partial labels on those that agree with them, too."""
    problem.check_threads(threads)
    order, w = data.checked_order(order), data.checked_vector("w", w)
    rates = {"step_sizes": step_sizes, "averaging_weights": averaging_weights}
    if order.shape[1] > 1:
        settings = {**rates, "lam": lam, "smoother": smoother, "threads": threads}
        return epoch.dispatch(object)(problem, w, order, **settings)
    from structsmooth.solvers.sgd import compiled_chain

    order, w = order[:, 0], w.clone()
    problem.oracle_calls += problem.inferences(order)
    total = torch.zeros_like(w)
    steps = [checked(name, rate, torch.float64, len(order)) for name, rate in rates.items()]
    if threads > 1:
        _on_threads(data, w, total, order, *steps, lam=float(lam), smoother=smoother, threads=threads)
        return w, total
    chains = (data.arrays, None if agreeing is None else agreeing.arrays)
    iterate = (*chains, data.matrix(w), data.matrix(total), smoothing(smoother))
    compiled_chain.sgd_epoch(order.numpy(), *iterate, float(lam), *(rate.numpy() for rate in steps))
    return w, total


def _on_threads(
    data: ChainData,
    w: Tensor,
    total: Tensor,
    order: Tensor,
    step_sizes: Tensor,
    averaging_weights: Tensor,
    *,
    lam: float,
    smoother: Smoother,
    threads: int,
) -> None:
    """Steps without locks, on one clock (Niu et al. 2011, "Hogwild!").

    They change ``w`` in place, and add the sum of the iterates by their weights to ``total``. Iterate t is
    scales[t] · v with one vector v for all threads. All step sizes are known in advance, so every step knows its
    scale, whichever thread makes it and however far the others are. A step does not see what they are about to add to
    v, but what it adds counts in full, in its own iterate and in all later ones.
    """
    from structsmooth.solvers.sgd import compiled_chain

    iterate = (data.arrays, data.matrix(w), data.matrix(total), smoothing(smoother))
    shrink = 1 - lam * step_sizes
    for begin, end in _stretches(shrink.tolist()):
        examples, sizes, weights = (tensor[begin:end] for tensor in (order, step_sizes, averaging_weights))
        scales = shrink[begin:end].cumprod(0)
        if abs(float(scales[-1])) < _LEAST_SCALE:  # a single step
            arrays, *others = iterate
            compiled_chain.sgd_epoch(examples.numpy(), arrays, None, *others, lam, sizes.numpy(), weights.numpy())
            continue
        remaining = (weights * scales).flip(0).cumsum(0).flip(0)
        total.add_(w, alpha=float(remaining[0]))
        clock = (torch.cat([scales.new_ones(1), scales[:-1]]), -sizes / scales, remaining)
        _share(examples, iterate, clock, min(threads, end - begin))
        w.mul_(scales[-1])


def _share(examples: Tensor, iterate: tuple[Any, ...], clock: tuple[Tensor, ...], threads: int) -> None:
    """The steps of a stretch, of which each thread takes the next one that is left, by a counter."""
    from structsmooth.solvers.sgd import compiled_chain

    settings = (examples.numpy(), *iterate, *(times.numpy() for times in clock), np.zeros(1, np.int64))
    on_threads(lambda _: compiled_chain.shared_sgd_epoch(*settings), threads)


def _stretches(shrink: list[float]) -> Iterator[tuple[int, int]]:
    """Consecutive steps whose product is no small scale; a step that alone shrinks the weights further stands alone."""
    begin, scale = 0, 1.0
    for step, factor in enumerate(shrink):
        scale *= factor
        if abs(scale) < _LEAST_SCALE and step > begin:
            yield begin, step
            begin, scale = step, factor
    yield begin, len(shrink)
