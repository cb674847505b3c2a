"""Exponentiated gradient against its algorithm on distributions over all outputs, and its guarantees."""

from dataclasses import replace
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from scipy.optimize import minimize
from small_problems import EnumeratedProblem, random_problem
from solver_cases import LAM, crf, moments_of, objective, small_problem
from torch.testing import assert_close

from structsmooth import L2, BinaryGraph, Candidates, Entropy, LinearModuleProblem, ScoreModule
from structsmooth.problems import SparseChainProblem
from structsmooth.solvers import ExponentiatedGradient, GibbsIterate
from structsmooth.solvers.baselines.exponentiated.steps import epoch, near_labels

Array = NDArray[np.float64]
either = pytest.mark.parametrize("problem", [small_problem(), crf()], ids=["hinges", "likelihood"])


class Enumerated:
    """Coordinate descent by Fercoq and Richtárik, with relative entropy, on a number for each output of an example.

    The points x, y and z are kept as they are defined, and entropies of x by the mixture that it is.
    """

    def __init__(self, problem: SparseChainProblem, state: Any) -> None:
        enumerated = EnumeratedProblem(problem)
        self.features, self.costs, self.n = enumerated.differences, enumerated.costs, problem.n
        self.level = problem.smoother.mu if isinstance(problem.smoother, Entropy) else 0.0
        near = [-8.0 * mistakes(problem, i) for i in range(problem.n)]
        self.logs = [log - np.logaddexp.reduce(log) for log in near]
        self.curvatures = state.point.curvatures.numpy().copy()
        self.z = np.array([np.exp(log) @ rows for log, rows in zip(self.logs, self.features, strict=True)])
        self.value_z = np.array([self.value(i, log) for i, log in enumerate(self.logs)])
        self.x, self.value_x, self.tau = self.z.copy(), self.value_z.copy(), 1.0

    def value(self, i: int, log: Array) -> float:
        return float(np.exp(log) @ (self.costs[i] - self.level * log))

    def step(self, i: int, kappa: float) -> None:
        n, tau = self.n, self.tau
        y = self.x + tau / n * (self.z - self.x)
        value_y = self.value_x + tau / n * (self.value_z - self.value_x)
        scores = self.costs[i] + self.features[i] @ (-y.sum(0) / (LAM * n))
        while True:
            c = tau * self.curvatures[i] / (LAM * n)
            log = (c * self.logs[i] + scores) / (c + self.level)
            log -= np.logaddexp.reduce(log)
            divergence = np.exp(log) @ (log - self.logs[i])
            if (
                np.square((np.exp(log) - np.exp(self.logs[i])) @ self.features[i]).sum()
                <= 2 * self.curvatures[i] * divergence
            ):
                break
            self.curvatures[i] *= 2
        new, value = np.exp(log) @ self.features[i], self.value(i, log)
        y[i] += tau * (new - self.z[i])
        value_y[i] += tau * (value - self.value_z[i])
        self.x, self.value_x = y, value_y
        self.z[i], self.value_z[i], self.logs[i] = new, value, log
        self.curvatures[i] *= 0.95
        # The root of t² + ((1 − 1/n)κ + τ(τ + κ)/n) t − τ(τ + κ).
        product = tau * (tau + kappa)
        self.tau = float(np.roots([1, (1 - 1 / n) * kappa + product / n, -product]).max())


def mistakes(problem: SparseChainProblem, i: int) -> Array:
    """Tokens of example i that each output labels wrongly, in the order of the enumeration."""
    own = problem.labels[problem.data.tokens(i)].numpy()
    outputs = np.stack([g.ravel() for g in np.meshgrid(*[np.arange(problem.states)] * len(own), indexing="ij")], 1)
    return (outputs != own).sum(1).astype(float)


@either
def test_iterates_are_those_on_all_outputs(problem: SparseChainProblem) -> None:
    moments = moments_of(ExponentiatedGradient(gap_tolerance=0), problem, 6)
    reference = Enumerated(problem, moments[0][0])
    for passes, (state, _) in enumerate(moments):
        assert_close(state.weights, torch.from_numpy(-reference.x.sum(0) / (LAM * problem.n)), rtol=0, atol=1e-9)
        assert_close(state.point.weights, torch.from_numpy(-reference.z.sum(0) / (LAM * problem.n)), rtol=0, atol=1e-9)
        assert float(state.point.values.sum()) == pytest.approx(reference.value_x.mean(), abs=1e-9)
        kappa = reference.level * LAM * problem.n / reference.curvatures.max()
        for i in np.random.default_rng([0, passes]).permutation(problem.n):
            reference.step(i, kappa)


@either
def test_start_is_near_the_labels(problem: SparseChainProblem) -> None:
    for compiled, default in zip(near_labels(problem, 3.0), near_labels.dispatch(object)(problem, 3.0), strict=True):
        assert_close(compiled, default, rtol=0, atol=1e-10)
    far, near = (near_labels(problem, center)[1] for center in (0.5, 20.0))
    labels = problem.label_statistics()
    assert float((near - labels).abs().max()) < 1e-7 < float((far - labels).abs().max())


@either
def test_the_bound_is_that_of_the_points(problem: SparseChainProblem) -> None:
    best = 0.0
    for state, history in moments_of(ExponentiatedGradient(gap_tolerance=0), problem, 20):
        point = state.point
        entropy = float(point.log_partitions.sum() - point.log_potentials @ point.statistics) / problem.n
        level = 0.0 if problem.cost else 1.0
        value = problem.expected_cost(state.point.statistics) + level * entropy
        v = problem.dual_weights(state.point.statistics, LAM)
        assert float(state.point.values[0]) == pytest.approx(value, abs=1e-12)
        assert_close(state.point.weights, v, rtol=0, atol=1e-12)
        ahead = float(state.point.values.sum()) - LAM / 2 * float(state.weights @ state.weights)
        best = max(best, value - LAM / 2 * float(v @ v), ahead)
        assert history[-1].dual == pytest.approx(best, abs=1e-12)


@either
def test_without_acceleration_the_dual_never_falls(problem: SparseChainProblem) -> None:
    solver = ExponentiatedGradient(accelerated=False, gap_tolerance=0)
    states = [state for state, _ in moments_of(solver, problem, 20)]
    assert all(torch.equal(state.weights, state.point.weights) for state in states)
    assert not any(state.point.lead.any() for state in states)
    duals = [float(state.point.values[0]) - LAM / 2 * float(state.weights @ state.weights) for state in states]
    assert all(before < after + 1e-12 for before, after in pairwise(duals))
    assert states[-1].falls == 0


@pytest.mark.parametrize("seed", range(3))
def test_trains_conditional_random_fields(seed: int) -> None:
    """Linear convergence to the optimum of L-BFGS, with acceleration and without."""
    problem = crf(seed)

    def value_and_gradient(w: Array) -> tuple[float, Array]:
        loss, gradient = problem.loss_and_grad(torch.from_numpy(w), problem.smoother)
        return loss + LAM / 2 * float(w @ w), gradient.numpy() + LAM * w

    options = {"maxiter": 1000, "ftol": 1e-15, "gtol": 1e-9}
    least = minimize(value_and_gradient, np.zeros(problem.dim), jac=True, method="L-BFGS-B", options=options).fun
    for accelerated in (True, False):
        solver = ExponentiatedGradient(accelerated=accelerated, gap_tolerance=1e-9)
        last = solver.solve(problem, lam=LAM, passes=80).row
        assert -1e-12 <= last.gap <= 1e-9 * last.objective
        assert last.dual - 1e-9 <= least <= last.objective + 1e-9


def test_acceleration_needs_fewer_passes() -> None:
    problem = random_problem((4,) * 12, states=3, features=20, seed=4)
    fast, slow = (
        ExponentiatedGradient(accelerated=accelerated, gap_tolerance=0).solve(problem, lam=0.005, passes=60).row
        for accelerated in (True, False)
    )
    assert fast.gap < slow.gap / 3


def test_a_fall_of_the_dual_makes_constants_last(monkeypatch: pytest.MonkeyPatch) -> None:
    problem, solver, asked = small_problem(), ExponentiatedGradient(gap_tolerance=0), []

    def falling(
        problem: SparseChainProblem, point: GibbsIterate, *arguments: Any, lam: float, shrink: float
    ) -> GibbsIterate:
        asked.append(shrink)
        return replace(point, values=point.values - 1.0)

    monkeypatch.setattr("structsmooth.solvers.baselines.exponentiated.epoch", falling)
    history = solver.solve(problem, lam=LAM, passes=3).history
    assert asked == [0.95, 0.975, 0.9875]
    assert len(set(history.column("dual"))) == 1


class Boxes(ScoreModule):
    def __init__(self) -> None:
        super().__init__()
        self.w = torch.nn.Parameter(torch.zeros(3, dtype=torch.float64))

    def forward(self, x: torch.Tensor) -> Candidates:
        return Candidates(x @ self.w)


def test_any_structure_with_an_exp_oracle() -> None:
    x = torch.randn(8, 4, 3, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    problem = LinearModuleProblem(Boxes(), [(rows, torch.tensor(i % 4)) for i, rows in enumerate(x)])
    result = ExponentiatedGradient(gap_tolerance=0).solve(problem, lam=LAM, passes=60)
    assert 0 <= result.row.gap < 1e-2 * result.row.objective
    assert result.row.objective == pytest.approx(objective(problem, result.weights))


class Pixels(ScoreModule):
    def __init__(self) -> None:
        super().__init__()
        self.w = torch.nn.Parameter(torch.zeros(2, dtype=torch.float64))

    def forward(self, x: torch.Tensor) -> BinaryGraph:
        edges = torch.tensor([[0, 1]])
        return BinaryGraph(x @ self.w, edges, torch.zeros(len(x), 1, 2, 2, dtype=torch.float64))


def test_what_it_cannot_train_is_refused() -> None:
    hinge = small_problem()
    sparse = SparseChainProblem(hinge.sequences, hinge.labels, hinge.features, hinge.states, smoother=L2(1.0, 3))
    with pytest.raises(
        ValueError, match="ExponentiatedGradient needs a problem of hinges or likelihoods, got one with L2"
    ):
        ExponentiatedGradient().solve(sparse, lam=LAM)
    with pytest.raises(TypeError, match="start must be None, got Tensor: runs start near the labels"):
        ExponentiatedGradient().solve(hinge, lam=LAM, start=hinge.start())
    data = [(torch.ones(2, 2, 2).double(), torch.tensor([0, 1]))] * 2
    with pytest.raises(NotImplementedError, match="BinaryGraph has no exact logsumexp oracle"):
        ExponentiatedGradient().solve(LinearModuleProblem(Pixels(), data), lam=LAM)


def test_refuses_what_would_corrupt_memory() -> None:
    problem = small_problem()
    point = ExponentiatedGradient().first_state(problem, LAM, None, 0).point
    order, taus = torch.arange(problem.n), torch.ones(problem.n, dtype=torch.float64)
    for name in ("weights", "lead", "log_potentials", "statistics", "log_partitions", "curvatures", "values"):
        with pytest.raises(ValueError, match="must have shape"):
            epoch(problem, replace(point, **{name: torch.zeros(3).double()}), order, taus, lam=LAM)
    with pytest.raises(ValueError, match="order must hold examples"):
        epoch(problem, point, order + 1, taus, lam=LAM)
    with pytest.raises(ValueError, match="taus must have shape"):
        epoch(problem, point, order, taus[1:], lam=LAM)
