"""One run of a solver: the driver of the commands, of ``structsmooth.train`` and of the estimators."""

from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager, ExitStack
from dataclasses import dataclass, replace
from typing import Any

from torch import Tensor

from structsmooth import processes
from structsmooth.experiments.folder import RunFolder
from structsmooth.experiments.logs import RunLog
from structsmooth.problems import LinearProblem, Problem
from structsmooth.settings import parse_lam
from structsmooth.solvers import Progress, Result, Solver, State, Status, solver_name, solver_settings
from structsmooth.solvers.state import Callback


@dataclass(frozen=True)
class Experiment:
    """What decides on a run of a solver, for a given problem.

    Args:
        solver: with its hyperparameters.
        lam: λ, a number or ``"c/n"``.
        passes: limit on passes over the data.
        seed: same seed, same result.

    Example:
        >>> import torch
        >>> from structsmooth import BCFW
        >>> from structsmooth.problems import DenseChainProblem
        >>> features, labels = torch.eye(4, dtype=torch.float64), torch.tensor([0, 1, 1, 0])
        >>> problem = DenseChainProblem(features, labels, torch.tensor([2, 2]), states=2)
        >>> Experiment(BCFW(), lam="1/n", passes=100).run(problem).status.value
        'converged'
    """

    solver: Solver[Any]
    lam: float | str
    passes: int
    seed: int = 0

    def lam_of(self, problem: Problem, name: str = "lam") -> float:
        """λ as a number; errors call it ``name``."""
        return parse_lam(self.lam, problem.total_weight, name)

    def settings(self) -> dict[str, Any]:
        """The fields as plain JSON, hyperparameters among them."""
        run = {"solver": solver_name(self.solver), "lam": str(self.lam), "passes": self.passes, "seed": self.seed}
        return solver_settings(self.solver) | run

    def run(
        self,
        problem: Problem,
        *,
        measure: Iterable[Callback] = (),
        log: RunLog | None = None,
        show: Callable[[int], AbstractContextManager[Callback]] | None = None,
        folder: RunFolder | None = None,
        resume: bool = False,
        start: Tensor | State | None = None,
        whole: bool = False,
    ) -> Result:
        """Make the run, or what is left of it.

        Args:
            problem: the finite sum.
            measure: callbacks that add metrics to each row before it is saved and shown, or stop the run.
            log: receives all rows, also those of passes that were made before.
            show: gives the callback that shows the run, for the number of passes that were made before.
            folder: keeps the run's checkpoint.
            resume: go on from the checkpoint in the folder, if there is one.
            start: first weights, or the state of another run, as :meth:`Solver.solve` takes them.
            whole: raise ``KeyboardInterrupt`` if the run was interrupted.

        Raises:
            ValueError: the folder has the checkpoint of a run with other settings.
        """
        resumed = folder.load_checkpoint(self.solver, problem) if folder is not None and resume else None
        begun = resumed[0] if resumed else start if isinstance(start, State) else None
        compact = self.solver.compact(problem, begun)
        if isinstance(compact, LinearProblem) and compact is not problem:
            measure = [_of_all_weights(callback, problem, compact) for callback in measure]
        if folder is not None:
            processes.wait()  # all have read the checkpoint that the first is about to write
        done = resumed[0].passes if resumed else 0
        with ExitStack() as stack:
            shown: list[Callback] = [stack.enter_context(show(done))] if show is not None else []
            if log is not None:
                log.keep(row.as_dict() for row in (resumed[1] if resumed else ()) if row.passes <= self.passes)
                shown = [log, *shown]
            kept = [stack.enter_context(folder.keeper(self.solver))] if folder is not None else []
            result = self.solver.solve(
                compact,
                lam=self.lam_of(problem),
                passes=self.passes,
                seed=self.seed,
                start=start,
                callbacks=[*measure, *kept, *shown],
                resume=resumed,
            )
        if whole and result.status is Status.INTERRUPTED:
            raise KeyboardInterrupt
        if isinstance(compact, LinearProblem) and compact is not problem:
            result.weights = compact.expanded(result.weights)
        return result


def _of_all_weights(callback: Callback, problem: Problem, compact: LinearProblem) -> Callback:
    """A callback for a run on the compact form of a problem, which sees the problem, and all weights in the state."""

    def called(progress: Progress[Any]) -> None:
        weights = compact.expanded(progress.state.weights)
        callback(replace(progress, problem=problem, state=replace(progress.state, weights=weights)))

    return called
