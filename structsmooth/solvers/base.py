"""The loop every solver shares: passes, safeguards, history, callbacks, interruption, resumption."""

from __future__ import annotations

import math
import sys
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, fields, replace
from enum import Enum
from typing import Any, ClassVar, Generic, TypeVar

import numpy as np
import torch
from torch import Tensor

from structsmooth.history import History, Row
from structsmooth.problems.base import FullPass, Problem
from structsmooth.smoothing import Max, Smoother
from structsmooth.solvers.lower_bound import DualPoint

# An objective this many times the best so far is an explosion.
_EXPLOSION = 2.0
# Step sizes that are tried before a run, at most, in each direction.
_TRIES = 40
# Passes in a row without decrease that halve the step size.
_PATIENCE = 2
# Passes in a row without a new best objective that do so too; two evaluations at least.
_LONG = 10
# Examples on which step sizes are tried, at least.
_SAMPLE = 500


class Status(Enum):
    """Why a solver stopped."""

    CONVERGED = "converged"
    PASS_LIMIT = "pass limit"
    STOPPED = "stopped"
    INTERRUPTED = "interrupted"
    DIVERGED = "diverged"


@dataclass
class Result:
    """What a solver returns.

    Attributes:
        weights: [dim]; the last row of ``history`` describes them.
        history: one row per recorded pass.
        status: why the solver stopped.
        message: the same as a sentence.
        state: all that the solver carried; ``(state, history)`` is what ``resume`` takes.
    """

    weights: Tensor
    history: History
    status: Status
    message: str
    state: State


@dataclass
class State:
    """All that a solver carries from one pass to the next; solvers add fields of tensors and numbers.

    Attributes:
        weights: current iterate, [dim].
        step_size: current step size; 0 where every step searches for its own.
        passes: stochastic passes so far.
        limit: passes that there may be; the run sets it.
        stalls: passes in a row that did not decrease what they worked on.
        idle: passes in a row without a new best objective.
        oracle_calls: inferences so far.
        seconds: time so far.
        dual_gradient: see :class:`~structsmooth.solvers.lower_bound.DualPoint`; empty without a dual.
        dual_cost: likewise.
    """

    weights: Tensor
    step_size: float = 0.0
    passes: int = 0
    limit: int = sys.maxsize
    stalls: int = 0
    idle: int = 0
    oracle_calls: int = 0
    seconds: float = 0.0
    dual_gradient: Tensor = field(default_factory=lambda: torch.zeros(0))
    dual_cost: float = 0.0

    def improve_dual(self, full: FullPass, lam: float) -> None:
        """Let a full pass improve the lower bound; without an expected cost, or with λ = 0, there is none."""
        if full.expected_cost is None or lam == 0:
            return
        point = DualPoint(self.dual_gradient, self.dual_cost)
        if not len(self.dual_gradient):
            point = DualPoint(torch.zeros_like(full.gradient))
        point = point.improved(full, lam)
        self.dual_gradient, self.dual_cost = point.gradient, point.cost

    def dual(self, lam: float) -> float | None:
        """The lower bound on the optimum, if there is one."""
        return DualPoint(self.dual_gradient, self.dual_cost).value(lam) if len(self.dual_gradient) else None

    def split(self) -> tuple[dict[str, Tensor], dict[str, Any]]:
        """Tensors and numbers, for saving."""
        values = {f.name: getattr(self, f.name) for f in fields(self)}
        tensors = {name: value for name, value in values.items() if isinstance(value, Tensor)}
        return tensors, {name: value for name, value in values.items() if name not in tensors}


S = TypeVar("S", bound=State)


@dataclass
class Progress(Generic[S]):
    """What callbacks see after every pass; they may add to ``row.metrics``.

    ``history`` is the live list: it grows with the run. To keep it as it is now, copy it: ``History(history)``.
    """

    problem: Problem
    state: S
    row: Row
    history: History


Callback = Callable[[Progress[Any]], None]


class Stop(Exception):  # noqa: N818 - no error, like StopIteration
    """A callback raises it to end the run with the pass that it was called after."""


@dataclass(frozen=True)
class Solver(ABC, Generic[S]):
    """Hyperparameters of an algorithm; :meth:`solve` runs it.

    Args:
        gap_tolerance: stop when the duality gap is below this fraction of the objective; needs a linear problem with
            λ > 0.
    """

    gap_tolerance: float = 1e-3

    state_type: ClassVar[type[State]] = State
    retries: ClassVar[int] = 0
    """Passes that may be undone, because they made the objective explode, to be tried with half the step size."""
    controls_step: ClassVar[bool] = False
    """Whether evaluations steer the step size; if so they count as the solver's work."""
    keeps_bounds: ClassVar[bool] = False
    """Whether the weights stay within the bounds of the problem."""
    least_step: ClassVar[float] = 0.5
    """In units of 1/(λt), t steps made: steps that shrink like this converge whatever the noise, so passes that stall
    are no reason for shorter ones."""

    def __post_init__(self) -> None:
        check_number("gap_tolerance", self.gap_tolerance)

    def check(self, problem: Problem, lam: float) -> None:
        """Whether this is a problem for the solver.

        Raises:
            TypeError: it needs one of another kind.
            ValueError: it does not keep bounds, or cannot do with this objective or λ.
        """
        if problem.bounds is not None and not self.keeps_bounds:
            raise ValueError(f"{type(self).__name__} does not keep the bounds of the problem; take BCFW or FrankWolfe")

    @abstractmethod
    def first_state(self, problem: Problem, lam: float, start: Any, seed: int) -> S:
        """State before the first pass; ``start`` is that of :meth:`solve`."""

    @abstractmethod
    def advance(self, problem: Problem, lam: float, state: S, rng: np.random.Generator) -> S:
        """One pass, or more up to ``state.limit``: a new state; ``state`` stays as it is."""

    @abstractmethod
    def smoother(self, state: S) -> Smoother:
        """The smoother of the pass that ``state`` has just made."""

    def metrics(self, state: S) -> dict[str, float]:
        """What the row of the pass that ``state`` has just made holds beside the columns."""
        return {}

    def stalled(self, state: S, full: FullPass, lam: float) -> bool:
        """Whether the pass behind ``state`` did not decrease what it worked on; ``full`` is at its weights."""
        return False

    def restarted(self, state: S) -> S:
        """``state`` without momentum, from which an exploded pass is tried again."""
        return state

    def with_step_size(self, problem: Problem, lam: float, state: S, step_size: float) -> S:
        """``state`` with another step size, and what follows from it."""
        return replace(state, step_size=step_size)

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
        run = _Run(self, problem, lam, seed, tuple(callbacks))
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

    def steps_per_pass(self, problem: Problem) -> int:
        """Number of steps in a pass."""
        return problem.n


@dataclass(frozen=True)
class GradientSolver(Solver[S]):
    """A solver whose steps have a size.

    A pass that makes the objective explode, or not finite, is undone and repeated with half the step size; two passes
    in a row that do not decrease what they work on halve it for the next, but not below ``least_step``. So a step size
    that is too large costs passes, not the run.

    Args:
        learning_rate: first step size; estimated from the data if not given.
        batch_size: examples per step; what suits the problem if not given.
    """

    learning_rate: float | None = None
    batch_size: int | None = None

    retries: ClassVar[int] = 40
    close: ClassVar[float] = 1.5
    """Of the step sizes tried, the first is the largest whose objective is within this factor of the best."""

    def __post_init__(self) -> None:
        super().__post_init__()
        check_positive(self, "learning_rate")
        check_positive(self, "batch_size", integer=True)

    @abstractmethod
    def begin(self, problem: Problem, lam: float, weights: Tensor, step_size: float) -> S:
        """State before the first pass, given a step size."""

    def first_state(self, problem: Problem, lam: float, start: Any, seed: int) -> S:
        """The given weights, and the first step size."""
        weights = problem.start()
        if start is not None:
            if not isinstance(start, Tensor):
                raise TypeError(f"start must be a torch.Tensor, got {type(start).__name__}")
            weights = start.detach().to(weights, copy=True)
        if weights.shape != (problem.dim,):
            raise ValueError(f"start must have shape [dim] = {(problem.dim,)}, got {tuple(weights.shape)}")
        step_size = self.learning_rate or self.estimate_step_size(problem, lam, weights, seed)
        return self.begin(problem, lam, weights, step_size)

    def estimate_step_size(self, problem: Problem, lam: float, weights: Tensor, seed: int) -> float:
        """A large step size that still makes good progress in one pass over a sample of the data.

        The largest of those tried that comes close to the best. A single pass over a sample favours steps that are too
        short for the passes to come, while too long ones get halved when noise takes over.
        """
        tried = self.try_step_sizes(problem, lam, weights, seed)
        return max(step_size for step_size, value in tried.items() if value <= self.close * min(tried.values()))

    def try_step_sizes(self, problem: Problem, lam: float, weights: Tensor, seed: int) -> dict[float, float]:
        """Step sizes and the objective after one pass over a sample of the data with each.

        They are powers of two around the inverse of the largest squared norm of a subgradient (a row of A_i).
        """
        rng = np.random.default_rng(seed)
        size = min(problem.n, max(_SAMPLE, problem.n // 20))
        sample, weights = problem.restrict(torch.from_numpy(rng.permutation(problem.n)[:size]), weights)

        def objective(w: Tensor) -> float:
            value = sample.loss(w) + lam / 2 * float(w.square().sum())
            # Rounding may take it below zero, where no value is within a factor of the least.
            return max(value, 0.0) if math.isfinite(value) else math.inf

        def after_pass(step_size: float) -> float:
            state = self.begin(sample, lam, weights, step_size)
            return objective(self.advance(sample, lam, state, np.random.default_rng(seed)).weights)

        first, start = 1 / _largest_row(sample, weights), objective(weights)
        tried = {first: after_pass(first)}
        while len(tried) < _TRIES and tried[max(tried)] < start and 2 * max(tried) * lam < 1:
            tried[2 * max(tried)] = after_pass(2 * max(tried))
        while len(tried) < 2 * _TRIES and tried[min(tried)] == min(tried.values()):
            tried[min(tried) / 2] = after_pass(min(tried) / 2)
        problem.oracle_calls += sample.oracle_calls
        return tried

    def order(self, problem: Problem, rng: np.random.Generator) -> Tensor:
        """Examples of the steps of one pass: a random permutation in batches, [steps, b]."""
        steps = self.steps_per_pass(problem)
        size = min(self.batch_size or problem.batch_size, problem.n)
        return torch.from_numpy(rng.permutation(problem.n)[: steps * size]).view(steps, size)

    def steps_per_pass(self, problem: Problem) -> int:
        """Number of batches in a pass."""
        return problem.n // min(self.batch_size or problem.batch_size, problem.n)


class _Run(Generic[S]):
    """One run of a solver."""

    def __init__(
        self, solver: Solver[S], problem: Problem, lam: float, seed: int, callbacks: tuple[Callback, ...]
    ) -> None:
        self.solver, self.problem, self.lam, self.seed = solver, problem, lam, seed
        self.callbacks = callbacks
        self.state: S
        self.history = History()

    def begin(self, start: Tensor | State | None) -> None:
        """Make the first state and record it."""
        calls, started = self.problem.oracle_calls, time.perf_counter()
        state = self.solver.first_state(self.problem, self.lam, start, self.seed)
        self._count(state, calls, started)
        row = self._record(state, self._evaluate(state))
        if not math.isfinite(row.objective):
            raise ValueError(f"the objective at the start must be finite, got {row.objective}")
        self._accept(state, row)

    def resume(self, state: S, history: History) -> None:
        """Go on where an earlier run of this solver on this problem was."""
        expected = self.solver.state_type
        if not isinstance(state, expected):
            raise TypeError(f"resume must begin with a {expected.__name__}, got {type(state).__name__}")
        if state.weights.shape != (self.problem.dim,):
            raise ValueError(
                f"resume must hold weights of shape [dim] = {(self.problem.dim,)}, got {tuple(state.weights.shape)}: "
                "it is of another problem"
            )
        if not history:
            raise ValueError("resume must hold a history with a row at least, got an empty one")
        self.state, self.history = replace(state), History(history)

    def until(self, passes: int) -> Status:
        """Make passes up to the limit, convergence or divergence."""
        retries = self.solver.retries
        self.state.limit = passes
        while self.state.passes < passes and not self._converged():
            trial = self._advance()
            full = self._evaluate(trial)
            row = self._record(trial, full)
            if self.solver.retries and not row.objective <= _EXPLOSION * self._scale():
                if retries == 0:
                    return Status.DIVERGED
                retries -= 1
                self.state = self._halved(self.solver.restarted(self.state))
                # The work was done, though its result is thrown away.
                self.state.oracle_calls, self.state.seconds = trial.oracle_calls, trial.seconds
                continue
            if self.solver.controls_step:
                trial = self._controlled(trial, row, full)
            del full  # as large as several iterates
            self._accept(trial, row)
        return Status.CONVERGED if self._converged() else Status.PASS_LIMIT

    def result(self, status: Status) -> Result:
        """The last accepted weights, with a sentence on why there are no better ones."""
        last = self.history[-1]
        gap = "" if last.gap is None else f", duality gap {last.gap:.2g}"
        reached = f"objective {last.objective:.6g}{gap} after {last.passes} passes"
        advice = {
            Status.CONVERGED: "the gap is below the tolerance",
            Status.PASS_LIMIT: "more passes would give a smaller objective",
            Status.STOPPED: "a callback asked for it",
            Status.INTERRUPTED: "stopped on request; these are the weights of the last complete pass",
            Status.DIVERGED: f"no step size worked in {self.solver.retries} halvings; check the scale of the features",
        }[status]
        return Result(self.state.weights, self.history, status, f"{status.value}: {reached}; {advice}", self.state)

    def _advance(self) -> S:
        # The generator depends on the pass alone, so a resumed run draws what an unbroken one would.
        rng = np.random.default_rng([self.seed, self.state.passes])
        calls, started = self.problem.oracle_calls, time.perf_counter()
        trial = self.solver.advance(self.problem, self.lam, self.state, rng)
        self._count(trial, calls, started)
        return trial

    def _evaluate(self, state: S) -> FullPass:
        calls, started = self.problem.oracle_calls, time.perf_counter()
        full = self.problem.full_pass(
            state.weights, self.problem.surrogate(self.solver.smoother(state)), with_loss=True
        )
        if self.solver.controls_step:
            self._count(state, calls, started)
        return full

    def _record(self, state: S, full: FullPass) -> Row:
        assert full.loss is not None
        objective = full.loss + self.lam / 2 * float(state.weights.square().sum())
        state.improve_dual(full, self.lam)
        dual = state.dual(self.lam)
        return Row(
            passes=state.passes,
            oracle_calls=state.oracle_calls,
            seconds=state.seconds,
            objective=objective,
            dual=dual,
            gap=None if dual is None else objective - dual,
            mu=getattr(full.smoother, "mu", 0.0),
            step_size=state.step_size or None,
            metrics=self.solver.metrics(state),
        )

    def _controlled(self, trial: S, row: Row, full: FullPass) -> S:
        """The trial with half the step size if passes stopped to make progress, and shorter steps may help."""
        trial.stalls = trial.stalls + 1 if self.solver.stalled(trial, full, self.lam) else 0
        made = min(trial.passes - self.state.passes, _LONG // 2)
        trial.idle = trial.idle + made if row.objective >= min(self.history.column("objective")) else 0
        if trial.stalls < _PATIENCE and trial.idle < _LONG:
            return trial
        trial.stalls = trial.idle = 0
        return self._halved(trial) if trial.step_size / 2 >= self._least_step_size(trial) else trial

    def _halved(self, state: S) -> S:
        return self.solver.with_step_size(self.problem, self.lam, state, state.step_size / 2)

    def _least_step_size(self, state: S) -> float:
        steps = state.passes * self.solver.steps_per_pass(self.problem)
        return self.solver.least_step / (self.lam * steps) if self.lam > 0 else 0.0

    def _accept(self, state: S, row: Row) -> None:
        self.state = state
        self.history.append(row)
        for callback in self.callbacks:
            callback(Progress(self.problem, state, row, self.history))
        row.as_dict()  # refuses metrics that no file could hold, before there is much to lose

    def _scale(self) -> float:
        """The best objective so far, but not so near zero that every ripple would count as an explosion."""
        objectives = [row.objective for row in self.history]
        return max(min(objectives), 0.01 * objectives[0])

    def _converged(self) -> bool:
        last = self.history[-1]
        return last.gap is not None and last.gap <= self.solver.gap_tolerance * last.objective

    def _count(self, state: S, calls: int, started: float) -> None:
        state.oracle_calls += self.problem.oracle_calls - calls
        state.seconds += time.perf_counter() - started


def check_number(name: str, value: Any, *, integer: bool = False, positive: bool = False) -> None:
    """Raise a named error unless ``value`` is a finite number, at least 0 or even positive, and whole if it must be."""
    if isinstance(value, bool) or not isinstance(value, int if integer else (int, float)):
        raise TypeError(f"{name} must be {'an int' if integer else 'a number'}, got {type(value).__name__}")
    if not (value > 0 if positive else value >= 0) or value == math.inf:
        bound = "positive" if positive else "at least 0"
        raise ValueError(f"{name} must be {bound}{'' if integer else ' and finite'}, got {value}")


def check_positive(solver: Solver[Any], *names: str, integer: bool = False) -> None:
    """Raise for named hyperparameters that are not positive numbers; None passes where it is the default."""
    for name in names:
        value, default = getattr(solver, name), getattr(type(solver), name)
        if value is not None or default is not None:
            check_number(name, value, integer=integer, positive=True)


def newest_share(t: Any, degree: int = 12) -> Any:
    """Share of the newest of ``t`` iterates in their polynomial-decay average (Shamir and Zhang 2013, section 4).

    The iterates count in proportion to t^degree. By default this is about the last tenth of them, so that what the
    first ones were is soon forgotten.
    """
    return (degree + 1) / (t + degree)


def _largest_row(problem: Problem, weights: Tensor) -> float:
    """Largest squared norm of a subgradient among the first examples."""
    indices = range(min(problem.n, 32))
    gradients = (problem.batch_loss_and_grad(weights, torch.tensor([i]), Max())[1] for i in indices)
    return max(1e-12, *(float(gradient.square().sum()) for gradient in gradients))
