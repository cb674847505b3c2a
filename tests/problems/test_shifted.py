"""A shifted problem is the problem in other coordinates; a proximal term is part of its regularizer."""

from typing import Any

import pytest
import torch
from small_problems import random_problem, random_weights
from torch import Tensor
from torch.testing import assert_close

from structsmooth import L2, CasimirSVRG, Entropy, LinearScore, Max, ModuleProblem
from structsmooth.problems import Problem, ShiftedProblem, SparseChainProblem
from structsmooth.solvers import SVRG, svrg

LAM, KAPPA = 0.2, 0.7


@pytest.fixture
def problem() -> SparseChainProblem:
    return random_problem()


def dense_problem() -> ModuleProblem:
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(6, 4, 3, generator=generator, dtype=torch.float64)
    return ModuleProblem(LinearScore(3, 2), [(t, (t[:, 0] > 0).long()) for t in x], batch_size=2)


@pytest.mark.parametrize("smoother", [Max(), L2(0.7, 3), Entropy(0.5)], ids=str)
def test_passes_are_those_of_the_problem(problem: SparseChainProblem, smoother: Any) -> None:
    w, origin = random_weights(problem), random_weights(problem, 1)
    shifted = ShiftedProblem(problem, origin)
    v = w - origin
    full, expected = shifted.full_pass(v, smoother, with_loss=True), problem.full_pass(w, smoother, with_loss=True)
    assert full.smoothed_loss == pytest.approx(expected.smoothed_loss, rel=1e-12)
    assert full.loss == pytest.approx(expected.loss, rel=1e-12)
    assert_close(full.gradient, expected.gradient, rtol=0, atol=1e-12)
    assert torch.equal(full.weights, v)
    assert shifted.loss(v, smoother) == pytest.approx(problem.loss(w, smoother), rel=1e-12)
    assert_close(shifted.start(), problem.start() - origin)


@pytest.mark.parametrize("center", [True, False])
@pytest.mark.parametrize("dense", [True, False])
def test_epochs_are_those_of_plain_torch(problem: SparseChainProblem, center: bool, dense: bool) -> None:
    """The compiled epoch of the problem, with the shift, beside steps by the losses alone."""
    inner = dense_problem() if dense else problem
    w, origin = (torch.linspace(-1, b, inner.dim, dtype=torch.float64) for b in (1, 2))
    shifted, z = ShiftedProblem(inner, origin), w / 3 if center else None
    order = torch.tensor([[3], [0], [4], [1], [0]])
    settings: dict[str, Any] = {"step_size": 0.1, "lam": LAM, "kappa": KAPPA if center else 0.0, "center": z}
    epoch = svrg.epoch(shifted, shifted.full_pass(w, L2(0.7, 3)), order, **settings)
    expected = svrg.epoch.dispatch(object)(shifted, Problem.full_pass(shifted, w, L2(0.7, 3)), order, **settings)
    assert_close(epoch, expected, rtol=0, atol=1e-10)


@pytest.mark.parametrize("lam", [LAM, 0.0])
def test_the_proximal_term_is_part_of_the_regularizer(problem: SparseChainProblem, lam: float) -> None:
    """F + (κ/2)‖w − z‖² is (1/n) Σ f_i(c + v) + (λ + κ)/2 ‖v‖² and a constant, for all w = c + v."""
    z = random_weights(problem, 1)
    shifted = ShiftedProblem.proximal(problem, lam, KAPPA, z)
    constant = lam * KAPPA / (lam + KAPPA) / 2 * float(z @ z)
    for seed in range(3):
        w = random_weights(problem, seed)
        v = w - shifted.origin
        value = problem.loss(w) + lam / 2 * float(w @ w) + KAPPA / 2 * float((w - z) @ (w - z))
        assert shifted.loss(v) + (lam + KAPPA) / 2 * float(v @ v) + constant == pytest.approx(value, rel=1e-12)


@pytest.mark.parametrize("smoother", [Max(), Entropy(1.0)], ids=str)
def test_the_dual_bounds_the_shifted_objective(smoother: Any) -> None:
    hinge = random_problem(cost=None)
    problem = SparseChainProblem(hinge.sequences, hinge.labels, hinge.features, hinge.states, None, smoother)
    shifted = ShiftedProblem.proximal(problem, LAM, KAPPA, random_weights(problem))
    history = CasimirSVRG(k=27, gap_tolerance=0).solve(shifted, lam=LAM + KAPPA, passes=200).history
    best = min(history.column("objective"))
    assert all(row.dual <= best + 1e-9 for row in history)
    assert history[-1].gap < 0.02 * best


def test_restricted_problem_has_the_same_losses() -> None:
    problem = random_problem(features=30)
    shifted, v = ShiftedProblem(problem, random_weights(problem, 1)), random_weights(problem)
    part, weights = shifted.restrict(torch.tensor([0, 2]), v)
    assert part.dim < shifted.dim
    assert part.loss(weights) == pytest.approx(shifted.subset(torch.tensor([0, 2])).loss(v), rel=1e-12)


def test_oracle_calls_are_those_of_the_problem(problem: SparseChainProblem) -> None:
    shifted = ShiftedProblem(problem, random_weights(problem))
    SVRG(learning_rate=0.1).solve(shifted, lam=LAM, passes=2)
    assert shifted.oracle_calls == problem.oracle_calls > 4 * problem.n
    shifted.oracle_calls += 5
    assert problem.oracle_calls == shifted.oracle_calls


def test_linearized(problem: SparseChainProblem) -> None:
    shifted, w = ShiftedProblem(problem, random_weights(problem)), random_weights(problem, 1)
    assert shifted.linearize(w).loss(w) == pytest.approx(shifted.loss(w), rel=1e-12)


@pytest.mark.parametrize("origin", [torch.zeros(3), torch.zeros(1, 1)])
def test_refuses_an_origin_of_another_shape(problem: SparseChainProblem, origin: Tensor) -> None:
    with pytest.raises(ValueError, match=r"origin must have shape \[dim\] = \(\d+,\), got"):
        ShiftedProblem(problem, origin)
