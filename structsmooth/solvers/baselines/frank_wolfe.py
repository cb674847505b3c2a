"""Batch Frank-Wolfe on the dual (Lacoste-Julien et al. 2013, Algorithm 2; Osokin et al. 2016, Algorithm 8)."""

from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from structsmooth.problems.base import Problem
from structsmooth.problems.bounds import conjugate, line_search
from structsmooth.problems.linear.base import LinearProblem
from structsmooth.smoothing import Max
from structsmooth.solvers.dual.base import DualSolver
from structsmooth.solvers.state import State, empty


@dataclass
class FrankWolfeState(State):
    """Adds the dual iterate, as a :class:`~structsmooth.solvers.lower_bound.DualPoint`."""

    dual_gradient: Tensor = field(default_factory=empty)  # −λv, [dim]; ``weights`` are v, within the bounds
    dual_cost: float = 0.0  # (1/n) Σ ⟨ℓ_i, m_i⟩


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
        gradient, cost = torch.zeros_like(linear.start()), 0.0
        if start is not None:
            if not isinstance(start, FrankWolfeState):
                raise TypeError(f"start must be a FrankWolfeState, got {type(start).__name__}")
            gradient, cost = start.dual_gradient, start.dual_cost
        if gradient.shape != (linear.dim,):
            raise ValueError(f"start must be of {linear.dim} weights, got one of {len(gradient)}")
        return _at(FrankWolfeState(gradient, dual_gradient=gradient, dual_cost=cost), linear, lam)

    def advance(
        self, problem: Problem, lam: float, state: FrankWolfeState, rng: np.random.Generator, budget: int
    ) -> FrankWolfeState:
        """One pass: one step."""
        linear, full = self.linear(problem, lam), state.memo.full_pass(problem, state.weights, Max())
        assert full.expected_cost is not None
        towards, rise = full.gradient - state.dual_gradient, full.expected_cost - state.dual_cost
        direction = towards / -lam
        slope = rise / lam - float(direction @ state.weights)
        size = line_search(slope, state.dual_gradient / -lam, direction, 1.0, linear.bounds)
        new = replace(state, passes=state.passes + 1, dual_cost=state.dual_cost + size * rise)
        new.dual_gradient = state.dual_gradient + size * towards
        return _at(new, linear, lam)


def _at(state: FrankWolfeState, problem: LinearProblem, lam: float) -> FrankWolfeState:
    """``state`` with the weights and the value of its dual iterate."""
    v = state.dual_gradient / -lam
    dual = state.dual_cost - lam * conjugate(v, problem.bounds)
    return replace(state, weights=problem.within_bounds(v), dual=dual)
