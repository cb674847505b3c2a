"""Solvers: algorithms with ``solve``; and their runs: passes, evaluation, record, callbacks, resumption."""

import math
import sys
from abc import ABC, abstractmethod
from collections.abc import Iterable
from dataclasses import dataclass, fields, replace
from typing import Any, ClassVar, Generic, Literal

import numpy as np
from torch import Tensor

from structsmooth import processes
from structsmooth.compiled.threads import sharing_passes
from structsmooth.history import History, Row
from structsmooth.problems.base import FullPass, Problem
from structsmooth.settings import PositiveInt, check_number, check_settings, parse_lam
from structsmooth.smoothing import L2, Entropy, Max, Smoother
from structsmooth.solvers.progress import PrintProgress
from structsmooth.solvers.state import Callback, PassMemo, Progress, Result, S, State, Status, Stop, Work, empty
from structsmooth.solvers.step_control import StepControl
from structsmooth.structures.checks import NonFiniteScoresError


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

    reuses_evaluations: ClassVar[bool] = False
    """Whether a pass may begin with the full pass that evaluated the weights before it; ``state.memo`` then has it."""

    counts_evaluations: ClassVar[bool] = False
    """Whether evaluations are work of the solver, since its steps follow from them."""

    needs_partitions: ClassVar[bool] = False
    """Whether each of several processes has only its own examples; else all have all examples."""

    def __post_init__(self) -> None:
        check_settings(self)

    @property
    def oracle(self) -> str:
        """The oracle that steps call for hinges: ``"max"``, ``"top-K"``, ``"exp"``, or ``"none"`` without inference."""
        return "max"

    @property
    def threads(self) -> int:
        """Threads that share full passes where these are compiled; a field of solvers whose steps they share too."""
        return 1

    def check(self, problem: Problem, lam: float) -> None:
        """Refuse a problem that the solver cannot solve; here one with bounds.

        Raises:
            TypeError: the solver needs a problem of another kind.
            ValueError: the solver does not keep bounds, or cannot minimize this objective or with this λ.
        """
        if problem.bounds is not None:
            raise ValueError(f"{type(self).__name__} does not keep the bounds of the problem; take BCFW or FrankWolfe")

    def solve(
        self,
        problem: Problem,
        *,
        lam: float | str,
        passes: int = 30,
        seed: int = 0,
        start: Tensor | State | None = None,
        callbacks: Iterable[Callback] = (),
        resume: tuple[S, History] | None = None,
        verbose: bool = False,
    ) -> Result:
        """Minimize (1/n) Σ f_i(w) + (λ/2)‖w‖².

        Args:
            problem: the finite sum.
            lam: λ ≥ 0, a number or text such as ``"1/n"``; n is the number of examples, or the sum of their weights.
            passes: limit on stochastic passes over the data.
            seed: of the order of examples; same seed, same result, unless several threads make the steps.
            start: first weights [dim], converted to the dtype and device of ``problem.start()``, which is where a run
                starts if none are given. A solver of the dual starts from a state of another run instead.
            callbacks: called after every pass with a :class:`Progress`; may raise :class:`Stop`.
            resume: state and history of an interrupted run, as a callback saw them; continues with the iterates an
                unbroken run would have had, except from a pass where the limit had cut an inner problem short.
            verbose: show the progress of the run in a line on the terminal, if standard error is one; see
                :class:`~structsmooth.solvers.PrintProgress`.

        Raises:
            TypeError: λ, passes or seed of the wrong type, a start that is not what the solver starts from, or the
                state of another solver.
            ValueError: λ < 0, a negative number of passes or seed, a start or state to resume of another shape, or a
                problem with bounds for a solver that does not keep them.

        Returns:
            A :class:`Result` with the weights of the best row: their objective is at most that of the start. Ctrl-C
            returns what the complete passes reached.
        """
        lam = parse_lam(lam, problem.total_weight)
        passes, seed = check_number("passes", passes, integer=True), check_number("seed", seed, integer=True)
        self.check(problem, lam)
        if problem.shard is not None or self.needs_partitions:
            settings = {f.name: value for f in fields(self) if not callable(value := getattr(self, f.name))}
            run_of = {"solver": type(self).__name__, "lam": lam, "passes": passes, "seed": seed}
            done = {"passes before": 0 if resume is None else resume[0].passes}
            processes.agree({**run_of, **settings, **done, "examples": problem.n, "weights": problem.dim})
        shown = [PrintProgress(passes)] if verbose and sys.stderr.isatty() else []
        run: Run[S] = Run(self, problem, lam, seed, [*callbacks, *shown])
        try:
            with sharing_passes(self.threads):
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
        finally:
            for line in shown:
                line.finish()
        return run.result(status)

    @abstractmethod
    def first_state(self, problem: Problem, lam: float, start: Any, seed: int) -> S:
        """State before the first pass; ``start`` is that of :meth:`Solver.solve`."""

    @abstractmethod
    def advance(self, problem: Problem, lam: float, state: S, rng: np.random.Generator, budget: int) -> S:
        """One pass, or more up to ``budget``: a new state; ``state`` stays as it is."""

    def compact(self, problem: Problem, state: State | None = None) -> Problem:
        """The problem with vectors that take less memory, if it has them and the solver can; here itself.

        Args:
            problem: for a run of the solver.
            state: of another run, which this one is to begin with.
        """
        return problem

    def smoother(self, state: S) -> Smoother:
        """The smoother of the pass that ``state`` has just made; ``Max()`` for a solver that does not smooth."""
        return Max()

    def metrics(self, state: S) -> dict[str, float]:
        """Metrics of the pass that ``state`` has just made, for its row in the history."""
        return {}

    def evaluate(self, problem: Problem, lam: float, state: S) -> FullPass:
        """The full pass that gives a state its objective, with the loss, and whatever else the state learns from it."""
        smoother, kept = problem.effective_smoother(self.smoother(state)), self.reuses_evaluations
        return problem.full_pass(state.weights, smoother, with_loss=True, with_statistics=kept)

    def converged(self, state: S, row: Row) -> bool:
        """Whether a run ends after the pass of ``state``, if ``row`` is the best one: its gap is small enough."""
        return row.gap is not None and row.gap <= self.gap_tolerance * row.objective

    def step_control(self, problem: Problem, lam: float) -> StepControl[Any] | None:
        """What steers the step size in a run; ``None`` if steps have no size, or nothing steers it."""
        return None


class Run(Generic[S]):
    """One run of a solver; see :meth:`Solver.solve` for the arguments."""

    state: S  # after the last accepted pass

    def __init__(
        self, solver: Solver[S], problem: Problem, lam: float, seed: int, callbacks: Iterable[Callback]
    ) -> None:
        self.solver, self.problem, self.lam, self.seed = solver, problem, lam, seed
        self.callbacks = tuple(callbacks)
        self.history = History()  # a row for the start, and one for every accepted pass
        self._control = solver.step_control(problem, lam)
        self._retries = 0
        self._memo = PassMemo()

    def begin(self, start: Tensor | State | None) -> None:
        """Make the first state and record it."""
        work = Work()
        with work.counted(self.problem):
            state = self.solver.first_state(self.problem, self.lam, start, self.seed)
        state.charge(work)
        full, memo = self._evaluate(state)
        row = self._record(state, full, memo)
        if not math.isfinite(row.objective):
            raise ValueError(f"the objective at the start must be finite, got {row.objective}")
        del full  # as large as several iterates
        self._accept(state, row, memo)

    def resume(self, state: S, history: History) -> None:
        """Go on from the end of an earlier run of this solver on this problem."""
        expected = self.solver.state_type
        if type(state) is not expected:  # the states of other solvers may have more fields
            raise TypeError(f"resume must begin with a {expected.__name__}, got {type(state).__name__}")
        if state.weights.shape != (self.problem.dim,):
            raise ValueError(
                f"resume must hold weights of shape [dim] = {(self.problem.dim,)}, got {tuple(state.weights.shape)}: "
                "it is of another problem"
            )
        if not history:
            raise ValueError("resume must hold a history with a row at least, got an empty one")
        self.state, self.history = replace(state), History(history)
        if self.solver.reuses_evaluations and self.solver.counts_evaluations:
            # An unbroken run has it at hand, and has counted it.
            self._memo = PassMemo(self.solver.evaluate(self.problem, self.lam, self.state))

    def until(self, passes: int) -> Status:
        """Make passes up to the limit, convergence or divergence."""
        self._retries = 0
        while self.state.passes < passes and not self._converged():
            if not self._step(passes - self.state.passes):
                return Status.DIVERGED
        return Status.CONVERGED if self._converged() else Status.PASS_LIMIT

    def result(self, status: Status) -> Result:
        """The best weights of the run, with a sentence on why there are no better ones."""
        return Result.of(self.state, self._best, self.history, status, self._retries)

    @property
    def _best(self) -> Row:
        """The row of the weights that a run returns, with the best bound of all rows."""
        if not len(self.state.best):  # also in states of versions that returned the last weights
            return self.history.bounded(self.history[-1])
        return self.history.best()

    def advance(self, budget: int) -> S:
        """One pass of the solver, or more up to ``budget``, from the last accepted state."""
        # The generator depends on the pass alone, so a resumed run draws what an unbroken one would.
        rng = np.random.default_rng([self.seed, self.state.passes])
        work, state = Work(), replace(self.state, memo=self._memo)
        with work.counted(self.problem):
            trial = self.solver.advance(self.problem, self.lam, state, rng, budget)
        trial.charge(work)
        trial.charge(self._memo.owed)
        self._memo.owed = Work()
        return trial

    def _step(self, budget: int) -> bool:
        """Make a pass and accept or undo it; whether there still is a step size to try."""
        work = Work()
        try:
            with work.counted(self.problem):
                trial = self.advance(budget)
            full, memo = self._evaluate(trial)
        except NonFiniteScoresError:
            # Of several processes, the others may not have noticed.
            if self._control is None or processes.count() > 1:
                raise
            lost = replace(self.state)
            lost.charge(work)
            return self._undo(self._control, lost, 0.5)
        row = self._record(trial, full, memo)
        if self._control is not None:
            factor = self._control.shorter(row, self.history, self._retries)
            if factor is not None:
                return self._undo(self._control, trial, factor)
            trial = self._control.steered(self.state, trial, row, full, self.history)
        del full
        self._accept(trial, row, memo)
        return True

    def _undo(self, control: StepControl[Any], undone: S, factor: float) -> bool:
        """Forget a pass, but not its work, and take a part of the step size; whether that may still be tried."""
        if self._retries == control.retries:
            return False
        self._retries += 1
        self.state = control.retried(self.state, undone, factor)
        return True

    def _evaluate(self, state: S) -> tuple[FullPass, PassMemo]:
        """The full pass at the weights of a state, and what to remember if the state is accepted."""
        memo, state.memo = state.memo, PassMemo()
        full = memo.find(self.problem, state.weights, self.solver.smoother(state))
        if full is not None:
            return full, memo
        work = Work()
        with work.counted(self.problem):
            full = self.solver.evaluate(self.problem, self.lam, state)
        return full, PassMemo(full if self.solver.reuses_evaluations else None, work)

    def _record(self, state: S, full: FullPass, memo: PassMemo) -> Row:
        """The row of a state, which learns from its evaluation."""
        assert full.loss is not None
        if self.solver.counts_evaluations:
            state.charge(memo.work)
            memo.work = Work()
        objective = full.loss + self.lam / 2 * float(state.weights @ state.weights)
        state.observe(full, self.lam)
        return Row(
            passes=state.passes,
            oracle_calls=state.oracle_calls,
            seconds=state.seconds,
            objective=objective,
            dual=state.dual,
            gap=None if state.dual is None else objective - state.dual,
            mu=getattr(full.smoother, "mu", 0.0),
            step_size=state.step_size or None,
            metrics=self.solver.metrics(state),
        )

    def _accept(self, state: S, row: Row, memo: PassMemo) -> None:
        improved = not self.history or row.objective <= self.history.best().objective
        state.best = empty() if improved else self.state.best_weights
        self.state, self._memo = state, memo
        self.history.append(row)
        for callback in self.callbacks:
            callback(Progress(self.problem, state, row, self.history))
        row.as_dict()  # refuses metrics that no file could hold, before there is much to lose

    def _converged(self) -> bool:
        return self.solver.converged(self.state, self._best)


@dataclass(frozen=True)
class SmoothingSolver(Solver[S]):
    """A solver whose steps call a smoothed oracle.

    Args:
        k: number of outputs of the top-K oracle (ℓ₂ smoothing).
        smoothing: ``"l2"`` for the top-K oracle or ``"entropy"`` for the exp oracle.
    """

    k: PositiveInt = 5
    smoothing: Literal["l2", "entropy"] = "l2"

    @property
    def oracle(self) -> str:
        """The oracle of the smoother."""
        return "top-K" if self.smoothing == "l2" else "exp"

    def smooth(self, mu: float) -> Smoother:
        """The smoother of level ``mu``."""
        return L2(mu, self.k) if self.smoothing == "l2" else Entropy(mu)
