"""Batch Frank-Wolfe on the dual (Lacoste-Julien et al. 2013, Algorithm 2; Osokin et al. 2016, Algorithm 8)."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np
import torch

from structsmooth.problems.base import FullPass, Problem
from structsmooth.problems.bounds import conjugate, line_search
from structsmooth.problems.linear.base import LinearProblem
from structsmooth.smoothing import Max, Smoother
from structsmooth.solvers.base import Solver, State


@dataclass
class FrankWolfeState(State):
    """The dual iterate, as :class:`~structsmooth.solvers.lower_bound.DualPoint`: ``dual_gradient`` is −λv.

    Attributes:
        conjugate: h*(v), see :class:`~structsmooth.problems.LinearProblem`; ``weights`` are v, within the bounds.
    """

    conjugate: float = 0.0

    def improve_dual(self, full: FullPass, lam: float) -> None:
        """Nothing: steps do that."""

    def dual(self, lam: float) -> float:
        """D(m) of the dual iterate."""
        return self.dual_cost - lam * self.conjugate


@dataclass(frozen=True)
class FrankWolfe(Solver[FrankWolfeState]):
    """Batch Frank-Wolfe: one exact line search in a pass, from the statistics of all examples to those of the oracle.

    Without step size and smoothing; the dual never decreases. Needs a linear problem of hinges and λ > 0; keeps the
    weights within its bounds. Nothing is stored for the examples. It is the baseline of
    :class:`~structsmooth.BCFW`, which makes a step for every oracle call and needs far fewer of them. A run starts from
    the labels, v = 0; or from the state of another one on the same problem, whose λ may be another.
    """

    state_type: ClassVar[type[State]] = FrankWolfeState
    keeps_bounds: ClassVar[bool] = True

    def check(self, problem: Problem, lam: float) -> None:
        """Whether the problem has a dual: linear scores, hinges, λ > 0."""
        checked_hinges("FrankWolfe", problem, lam)

    def first_state(self, problem: Problem, lam: float, start: Any, seed: int) -> FrankWolfeState:
        """The labels, or the dual iterate of ``start``."""
        linear = checked_hinges("FrankWolfe", problem, lam)
        gradient, cost = torch.zeros_like(linear.start()), 0.0
        if start is not None:
            if not isinstance(start, FrankWolfeState):
                raise TypeError(f"start must be a FrankWolfeState, got {type(start).__name__}")
            gradient, cost = start.dual_gradient, start.dual_cost
        if gradient.shape != (linear.dim,):
            raise ValueError(f"start must be of {linear.dim} weights, got one of {len(gradient)}")
        return _at(FrankWolfeState(gradient, dual_gradient=gradient, dual_cost=cost), linear, lam)

    def advance(
        self, problem: Problem, lam: float, state: FrankWolfeState, rng: np.random.Generator
    ) -> FrankWolfeState:
        """One pass: one step."""
        linear = checked_hinges("FrankWolfe", problem, lam)
        full = linear.full_pass(state.weights, Max())
        assert full.expected_cost is not None
        towards, rise = full.gradient - state.dual_gradient, full.expected_cost - state.dual_cost
        direction = towards / -lam
        slope = rise / lam - float(direction @ state.weights)
        size = line_search(slope, state.dual_gradient / -lam, direction, 1.0, linear.bounds)
        new = replace(state, passes=state.passes + 1, dual_cost=state.dual_cost + size * rise)
        new.dual_gradient = state.dual_gradient + size * towards
        return _at(new, linear, lam)

    def smoother(self, state: FrankWolfeState) -> Smoother:
        """None."""
        return Max()


def _at(state: FrankWolfeState, problem: LinearProblem, lam: float) -> FrankWolfeState:
    """With the weights of the dual iterate."""
    v = state.dual_gradient / -lam
    return replace(state, weights=problem.within_bounds(v), conjugate=conjugate(v, problem.bounds))


def checked_hinges(user: str, problem: Problem, lam: float) -> LinearProblem:
    """The problem, if it has the dual that its user needs.

    Raises:
        TypeError: a problem that is not linear.
        ValueError: losses that are no hinges, or λ = 0.
    """
    if not isinstance(problem, LinearProblem):
        raise TypeError(
            f"{user} needs a LinearProblem, got {type(problem).__name__}, which has no dual; "
            "CasimirSVRG trains without one, and ProxLinear where scores are not linear"
        )
    if not isinstance(problem.smoother, Max):
        raise ValueError(f"{user} needs a problem of hinges, got one with {problem.smoother}; CasimirSVRG trains those")
    if lam == 0:
        raise ValueError(f"{user} needs lam > 0 for a dual; CasimirSVRG trains without one")
    return problem
