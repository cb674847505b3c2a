"""Solvers: algorithms with ``solve``, which runs them on a problem."""

import sys
from collections.abc import Iterable
from dataclasses import dataclass

from torch import Tensor

from structsmooth.compiled.threads import sharing_passes
from structsmooth.history import History
from structsmooth.problems.base import Problem
from structsmooth.solvers.checks import check_number, parse_lam
from structsmooth.solvers.progress import PrintProgress
from structsmooth.solvers.run import Algorithm, Run
from structsmooth.solvers.state import Callback, Result, S, State, Status, Stop


@dataclass(frozen=True)
class Solver(Algorithm[S]):
    """Hyperparameters of an algorithm; :meth:`solve` runs it.

    A subclass is a frozen dataclass that gives ``first_state`` and ``advance``, and ``state_type`` if its states have
    fields of their own.

    Args:
        gap_tolerance: stop when the duality gap is at most this fraction of the objective; needs a linear problem with
            λ > 0.
    """

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
        shown = [PrintProgress(passes)] if verbose and sys.stderr.isatty() else []
        run = Run(self, problem, lam, seed, [*callbacks, *shown])
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
