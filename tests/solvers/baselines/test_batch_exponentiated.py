"""Batch exponentiated gradient against its steps on distributions over all outputs, and its guarantees."""

from itertools import pairwise

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from small_problems import EnumeratedProblem
from solver_cases import LAM, crf, minimizer, moments_of, objective, small_problem
from torch.testing import assert_close

from structsmooth import L2, Entropy
from structsmooth.problems import SparseChainProblem
from structsmooth.solvers import BatchExponentiatedGradient, ProximalSDCA

SOLVER = BatchExponentiatedGradient(gap_tolerance=0)
Array = NDArray[np.float64]
either = pytest.mark.parametrize("problem", [small_problem(), crf()], ids=["hinges", "likelihood"])


class Enumerated:
    """The dual with a number for each output of each example."""

    def __init__(self, problem: SparseChainProblem) -> None:
        enumerated = EnumeratedProblem(problem)
        self.features, self.costs = enumerated.differences, enumerated.costs
        self.level = problem.smoother.mu if isinstance(problem.smoother, Entropy) else 0.0
        self.logs = [np.full(len(costs), -np.log(len(costs))) for costs in self.costs]

    def weights(self) -> Array:
        means = [np.exp(log) @ rows for log, rows in zip(self.logs, self.features, strict=True)]
        return np.asarray(np.mean(means, axis=0) / -LAM)

    def dual(self) -> float:
        gains = [np.exp(log) @ (costs - self.level * log) for log, costs in zip(self.logs, self.costs, strict=True)]
        return float(np.mean(gains) - LAM / 2 * np.square(self.weights()).sum())

    def step(self, gamma: float) -> float:
        """Multiply by the exponential of the gradient of the dual; returns the mean divergence."""
        v, old = self.weights(), self.logs
        towards = [
            (gamma * log + costs + rows @ v) / (gamma + self.level)
            for log, costs, rows in zip(old, self.costs, self.features, strict=True)
        ]
        self.logs = [log - np.logaddexp.reduce(log) for log in towards]
        return float(np.mean([np.exp(new) @ (new - log) for new, log in zip(self.logs, old, strict=True)]))


@either
def test_steps_are_those_on_distributions(problem: SparseChainProblem) -> None:
    """Failures leave them as they are, and are those whose quadratic term rises by more than the divergence."""
    states, enumerated, failures = [state for state, _ in moments_of(SOLVER, problem, 40)], Enumerated(problem), 0
    for old, new in pairwise(states):
        before, logs = enumerated.weights(), enumerated.logs
        divergence = enumerated.step(old.curvature)
        failed = LAM / 2 * np.square(enumerated.weights() - before).sum() > old.curvature * divergence
        assert failed == (new.curvature == 2 * old.curvature)
        if failed:
            enumerated.logs = logs
            failures += 1
        assert_close(new.weights, torch.from_numpy(enumerated.weights()), rtol=1e-9, atol=1e-11)
        assert new.dual == pytest.approx(max(enumerated.dual(), 0.0), abs=1e-11)
        assert new.oracle_calls == old.oracle_calls + problem.n
    assert 0 < failures < 10


@either
def test_the_dual_never_falls(problem: SparseChainProblem) -> None:
    duals = SOLVER.solve(problem, lam=LAM, passes=200).history.column("dual")
    assert all(a <= b + 1e-11 for a, b in pairwise(duals))


def test_gaps_to_the_optimum_obey_the_rate() -> None:
    """The optimum is above D by at most γ times the mean of log |Y_i|, over the passes that made a step."""
    problem, moments = small_problem(), moments_of(SOLVER, small_problem(), 150)
    least = objective(problem, minimizer())
    log_outputs = np.mean([np.log(len(costs)) for costs in Enumerated(problem).costs])
    steps = 0.0
    for (old, _), (new, _) in pairwise(moments):
        steps += (new.curvature < old.curvature) / old.curvature
        if steps:
            assert least - new.dual <= log_outputs / steps + 1e-9


def test_likelihood_to_the_optimum() -> None:
    own = BatchExponentiatedGradient(gap_tolerance=1e-10).solve(crf(), lam=LAM, passes=1000)
    other = ProximalSDCA(gap_tolerance=1e-10).solve(crf(), lam=LAM, passes=1000)
    assert 0 <= own.row.gap + 1e-14 <= 1e-9
    assert own.row.objective == pytest.approx(other.row.objective, abs=1e-8)


def test_what_it_cannot_train_is_refused() -> None:
    hinge = small_problem()
    smooth = SparseChainProblem(hinge.sequences, hinge.labels, hinge.features, hinge.states, smoother=L2(1.0, 5))
    with pytest.raises(ValueError, match="BatchExponentiatedGradient needs a problem of hinges or likelihoods"):
        SOLVER.solve(smooth, lam=LAM)
    with pytest.raises(TypeError, match="start must be None, got Tensor: runs start from uniform distributions"):
        SOLVER.solve(hinge, lam=LAM, start=hinge.start())
