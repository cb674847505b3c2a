"""What a solver is: hyperparameters of an algorithm, a first state and passes, and ``solve``, which runs them."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, ClassVar, Generic, TypeVar

import numpy as np
import torch
from torch import Tensor

from structsmooth.history import History
from structsmooth.problems.base import FullPass, Problem
from structsmooth.smoothing import Max, Smoother
from structsmooth.solvers.run import Run
from structsmooth.solvers.state import Callback, Result, State, Status, Stop
from structsmooth.solvers.step_control import StepControl

S = TypeVar("S", bound=State)


@dataclass(frozen=True)
class Solver(ABC, Generic[S]):
    """Hyperparameters of an algorithm; :meth:`solve` runs it.

    A subclass is a frozen dataclass that gives ``first_state`` and ``advance``, and ``state_type`` if its states have
    fields of their own.

    Args:
        gap_tolerance: stop when the duality gap is at most this fraction of the objective; needs a linear problem with
            λ > 0.
    """

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
        """State before the first pass; ``start`` is that of :meth:`solve`."""

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

    def solve(
        self,
        problem: Problem,
        *,
        lam: float,
        passes: int = 30,
        seed: int = 0,
        start: Tensor | State | None = None,
        callbacks: Iterable[Callback] = (),
        resume: tuple[S, History] | None = None,
    ) -> Result:
        """Minimize (1/n) Σ f_i(w) + (λ/2)‖w‖².

        Args:
            problem: the finite sum.
            lam: λ ≥ 0.
            passes: limit on stochastic passes over the data.
            seed: of the order of examples; same seed, same result.
            start: first weights [dim], converted to the dtype and device of ``problem.start()``, which is where a run
                starts if none are given. A solver of the dual starts from a state of another run instead.
            callbacks: called after every pass with a :class:`Progress`; may raise :class:`Stop`.
            resume: state and history of an interrupted run, as a callback saw them; continues with the iterates an
                unbroken run would have had, except from a pass where the limit had cut an inner problem short.

        Raises:
            TypeError: λ, passes or seed of the wrong type, a start that is not what the solver starts from, or the
                state of another solver.
            ValueError: λ < 0, a negative number of passes or seed, a start or state to resume of another shape, or a
                problem with bounds for a solver that does not keep them.

        Returns:
            A :class:`Result`. Ctrl-C returns what the last complete pass reached.
        """
        check_number("lam", lam)
        check_number("passes", passes, integer=True)
        check_number("seed", seed, integer=True)
        self.check(problem, lam)
        run = Run(self, problem, lam, seed, callbacks)
        try:
            if resume is None:
                run.begin(start)
            else:
                run.resume(*resume)
            status = run.until(passes)
        except Stop:
            status = Status.STOPPED
        except KeyboardInterrupt:
            if not run.history:
                raise
            status = Status.INTERRUPTED
        return run.result(status)


def check_number(name: str, value: Any, *, integer: bool = False, positive: bool = False) -> None:
    """Raise a named error unless ``value`` is a finite number, at least 0 or even positive, and whole if it must be."""
    if isinstance(value, bool) or not isinstance(value, int if integer else (int, float)):
        raise TypeError(f"{name} must be {'an int' if integer else 'a number'}, got {type(value).__name__}")
    if not (value > 0 if positive else value >= 0) or value == math.inf:
        bound = "positive" if positive else "at least 0"
        raise ValueError(f"{name} must be {bound}{'' if integer else ' and finite'}, got {value}")


def check_positive(solver: Solver[Any], *names: str, integer: bool = False) -> None:
    """Raise for named hyperparameters that are not positive numbers; ``None`` passes where it is the default."""
    for name in names:
        value, default = getattr(solver, name), getattr(type(solver), name)
        if value is not None or default is not None:
            check_number(name, value, integer=integer, positive=True)


def check_choices(solver: Solver[Any], **choices: tuple[str, ...]) -> None:
    """Raise for hyperparameters that are not among their choices."""
    for name, expected in choices.items():
        if getattr(solver, name) not in expected:
            raise ValueError(f"{name} must be one of {', '.join(expected)}, got {getattr(solver, name)!r}")


def newest_share(t: Any, degree: int = 12) -> Any:
    """Share of the newest of ``t`` iterates in their polynomial-decay average (Shamir and Zhang 2013, section 4).

    The iterates count in proportion to t^degree. By default this is about the last tenth of them, so that the first
    ones are soon forgotten.
    """
    return (degree + 1) / (t + degree)


def averaging_shares(t: Tensor, degree: int) -> tuple[Tensor, float]:
    """Shares of the iterates ``t`` = t₁, t₁ + 1, ... in the average at their end, and of the average before them."""
    newest = newest_share(t, degree)
    kept = torch.cat([(1 - newest).flip(0).cumprod(0).flip(0), t.new_ones(1)])
    return newest * kept[1:], float(kept[0])
