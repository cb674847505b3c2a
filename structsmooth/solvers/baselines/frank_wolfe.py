"""Batch Frank-Wolfe on the dual (Lacoste-Julien et al. 2013, Algorithm 2; Osokin et al. 2016, Algorithm 8)."""

from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import torch

from structsmooth.problems.base import Problem
from structsmooth.problems.bounds import line_search
from structsmooth.problems.linear.base import LinearProblem
from structsmooth.smoothing import Max
from structsmooth.solvers.dual.base import DualSolver
from structsmooth.solvers.lower_bound import DualPoint
from structsmooth.solvers.state import State


@dataclass
class FrankWolfeState(State):
    """Adds the dual iterate, of gradient −λv; ``weights`` are v, within the bounds."""

    point: DualPoint = field(kw_only=True)


@dataclass(frozen=True)
class FrankWolfe(DualSolver[FrankWolfeState]):
    """Batch Frank-Wolfe: one exact line search in a pass, from the statistics of all examples to those of the oracle.

    It has no step size and no smoothing; the dual never decreases. It needs a linear problem of hinges and λ > 0, and
    keeps the weights within its bounds. Nothing is stored for the examples. It is the baseline of
    :class:`~structsmooth.BCFW`, which makes a step for every oracle call and needs far fewer calls. A run starts from
    the labels, v = 0, or from the state of another run on the same problem, for this λ or another.
    """

    state_type = FrankWolfeState
    reuses_evaluations = True

    def first_state(self, problem: Problem, lam: float, start: Any, seed: int) -> FrankWolfeState:
        """The labels, or the dual iterate of ``start``."""
        linear = self.linear(problem, lam)
        point = DualPoint(torch.zeros_like(linear.start()))
        if start is not None:
            if not isinstance(start, FrankWolfeState):
                raise TypeError(f"start must be a FrankWolfeState, got {type(start).__name__}")
            point = start.point
        if point.gradient.shape != (linear.dim,):
            raise ValueError(f"start must be of {linear.dim} weights, got one of {len(point.gradient)}")
        return _at(FrankWolfeState(point.gradient, point=point), linear, lam)

    def advance(
        self, problem: Problem, lam: float, state: FrankWolfeState, rng: np.random.Generator, budget: int
    ) -> FrankWolfeState:
        """Make one batch Frank-Wolfe step, which is one pass."""
        linear, full = self.linear(problem, lam), state.memo.full_pass(problem, state.weights, Max())
        assert full.expected_cost is not None
        point = state.point
        direction = (full.gradient - point.gradient) / -lam
        slope = (full.expected_cost - point.cost) / lam - float(direction @ state.weights)
        size = line_search(slope, point.gradient / -lam, direction, 1.0, linear.bounds)
        point = point.towards(DualPoint(full.gradient, full.expected_cost), size)
        new = replace(state, passes=state.passes + 1, point=point)
        return _at(new, linear, lam)


def _at(state: FrankWolfeState, problem: LinearProblem, lam: float) -> FrankWolfeState:
    """``state`` with the weights and the value of its dual iterate."""
    weights = problem.within_bounds(state.point.gradient / -lam)
    return replace(state, weights=weights, dual=state.point.value(lam, problem.bounds))
