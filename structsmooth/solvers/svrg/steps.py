"""The steps of stochastic variance-reduced gradient (Johnson and Zhang 2013), for any problem."""

from dataclasses import replace
from functools import singledispatch
from typing import Any

import torch
from torch import Tensor

from structsmooth.problems.base import FullPass, Problem
from structsmooth.problems.derived import ShiftedProblem, TiltedProblem
from structsmooth.problems.reductions import agreed


@singledispatch
def epoch(
    problem: Problem,
    snapshot: FullPass,
    order: Tensor,
    *,
    step_size: float,
    lam: float,
    kappa: float = 0.0,
    center: Tensor | None = None,
) -> tuple[Tensor, Tensor]:
    """Makes steps of SVRG on F_μ(w) + (κ/2)‖w − center‖², from ``snapshot.weights`` (Johnson and Zhang 2013).

    Returns the last iterate and the mean of all. This is the reference, in plain torch; faster loops for some kinds of
    problems are registered beside it.

    Args:
        problem: any.
        snapshot: a full pass of the problem; its weights are the start, its gradient the control variate.
        order: indices of the examples of each step, [steps, b].
        step_size: η.
        lam: λ of the problem.
        kappa: κ, the strength of the proximal term.
        center: center of the proximal term, [dim].
    """
    w, total = snapshot.weights.clone(), torch.zeros_like(snapshot.weights)
    drift = snapshot.gradient if center is None else snapshot.gradient - kappa * center
    for batch in order:
        w = w - step_size * (problem.gradient_change(w, snapshot, batch) + drift + (lam + kappa) * w)
        total += w
    return w, total / len(order)


@epoch.register
def _(
    problem: ShiftedProblem,
    snapshot: FullPass,
    order: Tensor,
    *,
    step_size: float,
    lam: float,
    kappa: float = 0.0,
    center: Tensor | None = None,
) -> tuple[Tensor, Tensor]:
    """The steps on the problem that is shifted, with the regularizer (λ/2)‖w − c‖² as part of the proximal term."""
    strength = lam + kappa
    moved = problem.origin if center is None or not strength else problem.origin + kappa / strength * center
    start = replace(snapshot, weights=problem.origin + snapshot.weights)
    result = epoch(problem.problem, start, order, step_size=step_size, lam=0.0, kappa=strength, center=moved)
    last, mean = agreed(problem.problem, result)
    return last - problem.origin, mean - problem.origin


@epoch.register
def _(problem: TiltedProblem, snapshot: FullPass, order: Tensor, **settings: Any) -> tuple[Tensor, Tensor]:
    """The steps on the problem that is tilted: the gradient of the snapshot has the slope already."""
    result: tuple[Tensor, Tensor] = epoch(problem.problem, snapshot, order, **settings)
    return result
