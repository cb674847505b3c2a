"""L-BFGS for smooth losses, such as the likelihood of conditional random fields."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from structsmooth.problems.base import FullPass, Problem
from structsmooth.settings import PositiveInt
from structsmooth.smoothing import Max
from structsmooth.solvers.base import Solver
from structsmooth.solvers.lower_bound import BoundedState, DualPoint
from structsmooth.solvers.primal.gradient import first_weights
from structsmooth.solvers.state import PassMemo

# Of the weak Wolfe conditions: the least decrease, and the part of the slope that may be left.
_DECREASE, _SLOPE = 1e-4, 0.9
# Passes of a line search, at most.
_TRIES = 20


@dataclass
class LBFGSState(BoundedState):
    """Adds the last steps s_j and the changes y_j of the gradient along them, oldest first."""

    steps: tuple[Tensor, ...] = ()
    changes: tuple[Tensor, ...] = ()

    def observe(self, full: FullPass, lam: float) -> None:
        """Improve the lower bound; without an expected cost, or with λ = 0, there is none."""
        if full.expected_cost is not None and lam > 0:
            self.raise_bound(DualPoint(full.gradient, full.expected_cost), lam)


@dataclass(frozen=True)
class LBFGS(Solver[LBFGSState]):
    """L-BFGS: quasi-Newton steps on all of the data, for losses that are smooth.

    A step goes along −H g, where H approximates the inverse of the Hessian by the last steps, to the first point that a
    bisection finds which fulfills the weak Wolfe conditions; that is the full step as a rule. It is deterministic, and
    has no step size. Every point that is tried takes one pass. With λ > 0 and linear scores, the passes also give a
    lower bound.

    It is the usual solver of the likelihood of conditional random fields, and a baseline here: a pass of
    :class:`~structsmooth.solvers.ExponentiatedGradient` or :class:`~structsmooth.solvers.SVRG` takes as many oracle
    calls, and makes a step for each example. Hinges are not smooth: their problem needs a smoother of its own, as in
    ``SparseChainProblem(..., smoother=Entropy(1.0))``.

    Args:
        memory: number m of steps that are remembered.

    Reference:
        Nocedal and Wright (2006), Algorithms 7.4 and 7.5; Lewis and Overton (2013), Algorithm 2.6, for the line search.

    Example:
        >>> from structsmooth import Entropy
        >>> from structsmooth.problems import DenseChainProblem
        >>> x, y = torch.randn(40, 3, generator=torch.Generator().manual_seed(0)), torch.arange(40) % 2
        >>> problem = DenseChainProblem(x, y, torch.full((10,), 4), states=2, smoother=Entropy(1.0))
        >>> LBFGS().solve(problem, lam=0.1, passes=100).status.value
        'converged'
    """

    memory: PositiveInt = 10

    state_type = LBFGSState
    oracle = "exp"  # that of likelihoods; the smoother of the problem decides which one runs
    reuses_evaluations = counts_evaluations = True

    def check(self, problem: Problem, lam: float) -> None:
        """Refuse bounds, and losses that are not smooth.

        Raises:
            ValueError: bounds, or losses that are not smooth.
        """
        super().check(problem, lam)
        if isinstance(problem.effective_smoother(Max()), Max):
            raise ValueError(
                "LBFGS needs smooth losses: give the problem a smoother, such as Entropy(1.0) for the likelihood, or "
                "take BCFW, which minimizes hinges"
            )

    def first_state(self, problem: Problem, lam: float, start: Any, seed: int) -> LBFGSState:
        """State before the first pass: the given weights, and no steps."""
        return LBFGSState(first_weights(problem, start))

    def advance(
        self, problem: Problem, lam: float, state: LBFGSState, rng: np.random.Generator, budget: int
    ) -> LBFGSState:
        """One step: a pass for every point that the line search tries."""
        here = _Point.of(state.memo.full_pass(problem, state.weights, Max()), lam)
        direction = -_inverse_times(here.gradient, [*zip(state.steps, state.changes, strict=True)])

        def at(size: float) -> _Point:
            weights = torch.add(state.weights, direction, alpha=size)
            return _Point.of(self.evaluate(problem, lam, replace(state, weights=weights)), lam)

        found, passes = _searched(at, here, direction, min(budget, _TRIES))
        step, change = found.full.weights - state.weights, found.gradient - here.gradient
        new = replace(state, weights=found.full.weights, passes=state.passes + passes, memo=PassMemo(found.full))
        if float(step @ change) <= 0:  # no step at all, or one of a loss that is not convex
            return new
        kept = (*state.steps, step)[-self.memory :], (*state.changes, change)[-self.memory :]
        return replace(new, steps=kept[0], changes=kept[1])


class _Point(NamedTuple):
    """Weights with the value and the gradient of F."""

    full: FullPass
    value: float
    gradient: Tensor

    @classmethod
    def of(cls, full: FullPass, lam: float) -> "_Point":
        weights = full.weights
        value = full.smoothed_loss + lam / 2 * float(weights @ weights)
        return cls(full, value, full.gradient + lam * weights)


def _inverse_times(gradient: Tensor, pairs: Sequence[tuple[Tensor, Tensor]]) -> Tensor:
    """H g by two loops over the steps; without any, g itself at unit length, or shorter (Algorithm 7.4)."""
    result = gradient.clone()
    if not pairs:
        return result.div_(result.norm().clamp_min(1.0))
    products = [float(s @ y) for s, y in pairs]
    alphas = []
    for (s, y), product in zip(reversed(pairs), reversed(products), strict=True):
        alphas.append(float(s @ result) / product)
        result.add_(y, alpha=-alphas[-1])
    result *= products[-1] / float(pairs[-1][1] @ pairs[-1][1])
    for (s, y), product, alpha in zip(pairs, products, reversed(alphas), strict=True):
        result.add_(s, alpha=alpha - float(y @ result) / product)
    return result


def _searched(at: Callable[[float], _Point], here: _Point, direction: Tensor, budget: int) -> tuple[_Point, int]:
    """The point along a direction that fulfills the weak Wolfe conditions, and passes; else the longest of decrease.

    The interval between the longest step that is too short and the shortest that is too long is halved.

    Args:
        at: the point after a step of some size.
        here: the point before it.
        direction: of the step, [dim].
        budget: limit on passes.
    """
    slope, best = float(here.gradient @ direction), here
    shortest, longest, size = 0.0, float("inf"), 1.0
    for tried in range(1, budget + 1):
        there = at(size)
        if not there.value <= here.value + _DECREASE * size * slope:
            longest = size
        elif float(there.gradient @ direction) < _SLOPE * slope:
            shortest, best = size, there
        else:
            return there, tried
        size = (shortest + longest) / 2 if longest < float("inf") else 2 * shortest
    return best, budget
