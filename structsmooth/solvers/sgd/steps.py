"""The steps of stochastic subgradient descent, for any problem."""

from functools import singledispatch

import torch
from torch import Tensor

from structsmooth.problems.base import Problem
from structsmooth.smoothing import Smoother


@singledispatch
def epoch(
    problem: Problem,
    w: Tensor,
    order: Tensor,
    *,
    step_sizes: Tensor,
    lam: float,
    smoother: Smoother,
    averaging_weights: Tensor,
    threads: int = 1,
) -> tuple[Tensor, Tensor]:
    """Makes stochastic (sub)gradient steps; returns the last iterate and Σ_t averaging_weights[t] · w_t.

    This is the reference, in plain torch; faster loops for some kinds of problems are registered beside it.

    Args:
        problem: any.
        w: first iterate, [dim].
        order: indices of the examples of each step, [steps, b].
        step_sizes: step size of each step, float64 [steps].
        lam: λ of the problem.
        smoother: ``Max()`` for subgradients of the problem itself.
        averaging_weights: weight of each iterate in the sum, float64 [steps].
        threads: that make the steps at the same time, each without those that the others have not finished. Only
            problems whose ``check_threads`` says so take more than one, for steps of one example.
    """
    Problem.check_threads(problem, threads)  # these steps are plain torch, also where others are not
    total = torch.zeros_like(w)
    for batch, step_size, weight in zip(order, step_sizes.tolist(), averaging_weights.tolist(), strict=True):
        _, gradient = problem.batch_loss_and_grad(w, batch, smoother)
        w = (1 - step_size * lam) * w - step_size * gradient
        total += weight * w
    return w, total
