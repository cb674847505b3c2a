"""What a run asks of a solver: hyperparameters of an algorithm, a first state and passes."""

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any, ClassVar, Generic

import numpy as np
from torch import Tensor

from structsmooth.problems.base import FullPass, Problem
from structsmooth.smoothing import Max, Smoother
from structsmooth.solvers.checks import check_number
from structsmooth.solvers.state import S, State
from structsmooth.solvers.step_control import StepControl


@dataclass(frozen=True)
class Algorithm(ABC, Generic[S]):
    """Hyperparameters and steps of a :class:`~structsmooth.solvers.Solver`, which adds ``solve``."""

    gap_tolerance: float = 1e-3

    state_type: ClassVar[type[State]] = State

    def __post_init__(self) -> None:
        check_number("gap_tolerance", self.gap_tolerance)

    def check(self, problem: Problem, lam: float) -> None:
        """Refuse a problem that the solver cannot solve; here one with bounds.

        Raises:
            TypeError: the solver needs a problem of another kind.
            ValueError: the solver does not keep bounds, or cannot minimize this objective or with this λ.
        """
        if problem.bounds is not None:
            raise ValueError(f"{type(self).__name__} does not keep the bounds of the problem; take BCFW or FrankWolfe")

    @abstractmethod
    def first_state(self, problem: Problem, lam: float, start: Any, seed: int) -> S:
        """State before the first pass; ``start`` is that of :meth:`Solver.solve`."""

    @abstractmethod
    def advance(self, problem: Problem, lam: float, state: S, rng: np.random.Generator, budget: int) -> S:
        """One pass, or more up to ``budget``: a new state; ``state`` stays as it is."""

    def smoother(self, state: S) -> Smoother:
        """The smoother of the pass that ``state`` has just made; ``Max()`` for a solver that does not smooth."""
        return Max()

    def metrics(self, state: S) -> dict[str, float]:
        """Metrics of the pass that ``state`` has just made, for its row in the history."""
        return {}

    def first_pass_at(self, state: S, lam: float) -> tuple[Tensor, Smoother] | None:
        """Weights and smoother of the full pass that :meth:`advance` begins with; ``None`` if it begins otherwise."""
        return None

    def first_pass(self, problem: Problem, lam: float, state: S) -> FullPass:
        """The full pass of :meth:`first_pass_at`: the evaluation of ``state`` where that is the same, or a new one."""
        first = self.first_pass_at(state, lam)
        assert first is not None
        weights, smoother = first
        return state.evaluation or problem.full_pass(weights, problem.surrogate(smoother))

    def step_control(self, problem: Problem, lam: float) -> StepControl[Any] | None:
        """What steers the step size in a run; ``None`` if steps have no size, or nothing steers it."""
        return None
