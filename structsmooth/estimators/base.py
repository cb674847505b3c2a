"""What the estimators have in common: a problem is solved, and what is known of the solution becomes attributes."""

import sys
import warnings
from dataclasses import dataclass, replace
from numbers import Integral
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils import Tags, check_random_state
from sklearn.utils.validation import check_is_fitted
from torch import Tensor

from structsmooth.estimators.matrices import as_tensor
from structsmooth.estimators.validation import EarlyStopping, ValidationScores
from structsmooth.experiments import Experiment
from structsmooth.history import History, Row
from structsmooth.problems import Problem
from structsmooth.solvers import (
    BCFW,
    SGD,
    SOLVERS,
    Adam,
    Certificate,
    ConvexConcave,
    PrintProgress,
    ProximalBCFW,
    Result,
    Solver,
    State,
    Status,
    certify,
)
from structsmooth.solvers.bcfw import BCFWState
from structsmooth.solvers.dual.base import DualSolver
from structsmooth.solvers.state import Callback, Work

SolverLike = str | Solver[Any]


@dataclass(kw_only=True, eq=False, repr=False)
class SolverParameters(BaseEstimator):
    """The parameters that all estimators have: their fields are the arguments of their constructors.

    Args:
        lam: λ, a number or ``"c/n"``.
        solver: ``"auto"``, a name in ``structsmooth.solvers.SOLVERS``, or a solver, which keeps its own tolerance.
        max_iter: limit on passes over the data.
        tol: relative duality gap to reach.
        random_state: of the order of examples.
        verbose: print a line after every pass.
    """

    lam: float | str
    solver: SolverLike = "auto"
    max_iter: int = 500
    tol: float = 1e-2
    random_state: Any = 0
    verbose: int = 0


class SolvedEstimator(SolverParameters):
    """An estimator whose weights are the solution of a problem.

    Attributes:
        weights_: w, [dim].
        objective_: F(w) = (1/n) Σ f_i(w) + (λ/2)‖w‖².
        gap_: its duality gap: F(w) is above the optimum by no more. NaN if the solver knows no bound.
        n_iter_: passes over the data.
        lam_: λ as a number.
        history_: a row for every pass, which saves as JSON lines and plots.
    """

    weights_: NDArray[np.float64]
    objective_: float
    gap_: float
    n_iter_: float
    lam_: float
    history_: History
    _stream: State | None = None  # of the batches that partial_fit was given
    _full_step: float | None = None  # of a stream that goes on from fitted weights
    _run: dict[str, Any]  # number of examples, and how the run ended

    def __sklearn_tags__(self) -> Tags:
        tags: Tags = super().__sklearn_tags__()
        tags.input_tags.two_d_array, tags.target_tags.required = isinstance(self, ClassifierMixin), True
        return tags

    def _solve(
        self,
        problem: Problem,
        default: str,
        hyperparameters: dict[str, Any] | None = None,
        start: State | None = None,
        validation: ValidationScores | None = None,
        sample_weight: Tensor | None = None,
        until: Callback | None = None,
    ) -> Result:
        """Solve a problem by the solver that the parameters choose, and keep what is known of the solution.

        Args:
            problem: the finite sum.
            default: name of the solver for ``"auto"``.
            hyperparameters: of that solver.
            start: state of another run on the same problem, from which solvers start that can.
            validation: scores of held-out examples. Early stopping may end the run, and has the weights to keep.
            sample_weight: weights of the examples, [n], if they do not count alike.
            until: a callback that ends the run, where the solver knows no gap.
        """
        solver = self._solver(default, hyperparameters or {})
        self._stream = None
        if sample_weight is not None:
            problem = problem.weighted(sample_weight)
        experiment = Experiment(solver, self._lam_rule, self.max_iter, self._seed())
        shown = [PrintProgress(self.max_iter, sys.stdout)] if self.verbose else []
        callbacks: list[Callback] = [*([validation] if validation else []), *shown, *([until] if until else [])]
        try:
            result = experiment.run(problem, measure=callbacks, start=_start(solver, start), whole=True)
        finally:
            for line in shown:
                line.finish()
        misses_tolerance = result.status not in (Status.CONVERGED, Status.STOPPED) and solver.gap_tolerance > 0
        if misses_tolerance and (result.row.gap is not None or isinstance(solver, ConvexConcave)):
            warnings.warn(f"{type(self).__name__}: {result.message}", ConvergenceWarning, stacklevel=3)
        best = validation.best if isinstance(validation, EarlyStopping) else result
        weights, row = best.weights, best.row
        self.weights_, self.history_ = weights.numpy(force=True), result.history
        self.lam_ = experiment.lam_of(problem)
        self.objective_, self.n_iter_ = row.objective, result.history[-1].passes
        self.gap_ = np.nan if row.gap is None else row.gap
        self._run = {"n": problem.n, "status": result.status.value, "message": result.message}
        return result

    def _solve_more(self, problem: Problem, start: Tensor | None) -> None:
        """One pass over a batch of a stream, which continues where the batch before it ended.

        Args:
            problem: the finite sum over the batch. ``objective_`` and the new row of ``history_`` are of this one.
            start: weights before the first batch, zero if not given.

        Raises:
            ValueError: a solver that keeps something for every example, or λ as a share of their number.
        """
        solver = self._solver("sgd", {})
        if type(solver) not in (SGD, Adam):
            raise ValueError(f"partial_fit needs the solver sgd or adam, which keep no examples; got {self.solver!r}")
        if isinstance(self.lam, str):
            raise ValueError(f"partial_fit needs lam as a number, since a stream has no n; got {self.lam!r}")
        solver.check(problem, self.lam)
        seed, state, work = self._seed(), self._stream, Work()
        with work.counted(problem):
            if state is None:
                state = solver.first_state(problem, self.lam, start, seed)
                self._full_step = None if start is None else state.step_size
            if self._full_step is not None:  # which would fit this batch alone: it counts by its share of all examples
                state = replace(state, step_size=self._full_step * problem.n / (problem.n + self._run["n"]))
            state = solver.advance(problem, self.lam, state, np.random.default_rng([seed, state.passes]), 1)
        state.charge(work)
        objective = problem.loss(state.weights) + self.lam / 2 * float(state.weights.square().sum())
        row = Row(state.passes, state.oracle_calls, state.seconds, objective, step_size=state.step_size)
        self.history_ = History([row] if self._stream is None else [*self.history_, row])
        self._stream, self.weights_, self.lam_ = state, state.weights.numpy(force=True), self.lam
        self.objective_, self.gap_, self.n_iter_ = objective, np.nan, row.passes

    def _solver(self, default: str, hyperparameters: dict[str, Any]) -> Solver[Any]:
        if isinstance(self.solver, Solver):
            return self.solver
        if self.solver == "auto":
            return SOLVERS[default](gap_tolerance=self.tol, **hyperparameters)
        if self.solver not in SOLVERS:
            raise ValueError(f"solver must be auto, a Solver or one of {', '.join(SOLVERS)}, got {self.solver!r}")
        return SOLVERS[self.solver](gap_tolerance=self.tol)

    def _seed(self) -> int:
        """The random state itself if it is a number, as the solvers take it."""
        if isinstance(self.random_state, Integral):
            return int(self.random_state)
        return int(check_random_state(self.random_state).randint(np.iinfo(np.int32).max))

    def _certificate(self, problem: Problem, sample_weight: Tensor | None = None) -> Certificate:
        problem = problem if sample_weight is None else problem.weighted(sample_weight)
        solver = ProximalBCFW(gap_tolerance=min(self.tol, 1e-3))
        return certify(problem, self._weights.to(problem.start()), self.lam_, solver=solver)

    @property
    def _lam_rule(self) -> float | str:
        """λ as a number, or text such as ``"1/n"`` that depends on the number of examples."""
        return self.lam

    @property
    def _weights(self) -> Tensor:
        check_is_fitted(self, "weights_")
        return as_tensor(self.weights_)


@dataclass(frozen=True)
class LastFit:
    """The solution of a problem of chains, to start from.

    Attributes:
        loss: its name.
        lengths: of the sequences, [n].
        labels: of all tokens, [tokens].
        features: number of features.
        state: where the run ended.
    """

    loss: str
    lengths: Tensor
    labels: Tensor
    features: int
    state: State

    def start(self, loss: str, lengths: Tensor, labels: Tensor, features: int) -> State | None:
        """The state, if it is of the same kind of problem over sequences with the same labels."""
        same = (self.loss, self.features) == (loss, features)
        return self.state if same and torch.equal(self.lengths, lengths) and torch.equal(self.labels, labels) else None


def _start(solver: Solver[Any], state: State | None) -> State | Tensor | None:
    """What a solver can start from: its state for a solver of the dual like the last one, weights for a primal one."""
    if state is None or isinstance(solver, BCFW):
        return state if isinstance(state, BCFWState) else None
    return None if isinstance(solver, DualSolver) else state.weights
