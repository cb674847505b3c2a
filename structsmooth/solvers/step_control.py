"""Control of step sizes during a run: passes that go up are undone, and step sizes that no longer help are halved."""

from dataclasses import dataclass, replace
from typing import ClassVar, Generic, Protocol, TypeVar

from structsmooth.history import History, Row
from structsmooth.problems.base import FullPass, Problem
from structsmooth.solvers.lower_bound import BoundedState

# An objective this many times the best so far is an explosion.
_EXPLOSION = 2.0
# First passes above the start that are undone, each for steps a quarter as long.
_FIRST, _SHORTER = 3, 0.25
# Passes in a row without a new best objective that halve the step size; two evaluations at least.
_IDLE = 10


@dataclass
class SteeredState(BoundedState):
    """State with a step size under control."""

    stalls: int = 0  # passes in a row that did not decrease what they worked on
    idle: int = 0  # passes in a row without a new best objective


S = TypeVar("S", bound=SteeredState)


class Steered(Protocol[S]):
    """What the control of a step size asks of a solver.

    Attributes:
        patience: passes in a row without decrease that halve the step size; ``None`` for any number. If given,
            evaluations steer the step size: ``counts_evaluations`` of the solver should say so.
        least_step: for passes that stall, step sizes stay above this, in units of 1/(λt) after t steps. Steps that
            shrink like this converge whatever the noise, so stalling is no reason for shorter ones.
    """

    patience: ClassVar[int | None] = None
    least_step: ClassVar[float] = 0.5

    def steps_per_pass(self, problem: Problem) -> int:
        """Number of steps in a pass."""

    def stalled(self, state: S, full: FullPass, lam: float) -> bool:
        """Whether the pass behind ``state`` did not decrease what it worked on; ``full`` is at its weights."""
        return False

    def restarted(self, state: S) -> S:
        """``state`` without momentum, from which an exploded pass is tried again."""
        return state

    def with_step_size(self, problem: Problem, lam: float, state: S, step_size: float) -> S:
        """``state`` with another step size, and what follows from it."""
        return replace(state, step_size=step_size)


@dataclass(frozen=True)
class StepControl(Generic[S]):
    """Halves the step size of a solver where a pass shows that it is too large: it costs passes, not the run.

    A pass that makes the objective explode, or not finite, is undone and repeated with half the step size; a first pass
    that ends above the start, with a quarter, up to three times, since noise may be the reason. With ``patience``, the
    step size is also halved for the next pass when passes stop making progress.

    Attributes:
        solver: whose step size it is.
        problem: what the solver minimizes.
        lam: λ.
        retries: passes that may be undone in a run.
    """

    solver: Steered[S]
    problem: Problem
    lam: float
    retries: int = 40

    def shorter(self, row: Row, history: History, undone: int) -> float | None:
        """By how much shorter steps are to repeat the pass of ``row``; ``None`` if it stands.

        Args:
            row: of the pass.
            history: the rows before it.
            undone: how many passes of the run have been undone.
        """
        if len(history) == 1 and undone < _FIRST and not row.objective <= history[0].objective:
            return _SHORTER
        return 0.5 if self._exploded(row, history) else None

    def _exploded(self, row: Row, history: History) -> bool:
        """Whether the objective of ``row`` is far above the best so far, or not finite."""
        objectives = [before.objective for before in history]
        # The best is not so near zero that every ripple would count as an explosion.
        best = max(min(objectives), 0.01 * objectives[0])
        return not row.objective <= _EXPLOSION * best

    def retried(self, state: S, exploded: S, factor: float) -> S:
        """``state``, from which the exploded pass is tried again with a part of the step size."""
        again = self._scaled(self.solver.restarted(state), factor)
        # The work was done, though its result is thrown away.
        again.oracle_calls, again.seconds = exploded.oracle_calls, exploded.seconds
        return again

    def steered(self, before: S, after: S, row: Row, full: FullPass, history: History) -> S:
        """``after`` with half the step size if passes have stopped making progress and shorter steps may help."""
        patience = self.solver.patience
        if patience is None:
            return after
        after.stalls = after.stalls + 1 if self.solver.stalled(after, full, self.lam) else 0
        made = min(after.passes - before.passes, _IDLE // 2)
        improved = row.objective < min(earlier.objective for earlier in history)
        after.idle = 0 if improved else after.idle + made
        if after.stalls < patience and after.idle < _IDLE:
            return after
        after.stalls = after.idle = 0
        steps = after.passes * self.solver.steps_per_pass(self.problem)
        shortest = self.solver.least_step / (self.lam * steps) if self.lam > 0 else 0.0
        return self._scaled(after, 0.5) if after.step_size / 2 >= shortest else after

    def _scaled(self, state: S, factor: float) -> S:
        return self.solver.with_step_size(self.problem, self.lam, state, factor * state.step_size)
