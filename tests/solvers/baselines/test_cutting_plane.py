"""Cutting planes: the quadratic program, and which planes are kept."""

import numpy as np
import pytest
import torch
from solver_cases import LAM, bounded_problem, optimum, small_problem

from structsmooth.solvers import CuttingPlane
from structsmooth.solvers.baselines import compiled_simplex
from structsmooth.solvers.baselines.cutting_plane import CuttingPlaneState


@pytest.mark.parametrize("rank", [1, 3, 12])
def test_pairs_solve_the_quadratic_program(rank: int) -> None:
    """Where weight is, the gradient is least."""
    rng = np.random.default_rng(rank)
    rows = rng.standard_normal((12, rank))
    quadratic, linear, x = rows @ rows.T, rng.standard_normal(12), np.full(12, 1 / 12)
    compiled_simplex.minimize(quadratic, linear, x, 1e-9, 100_000)
    gradient = quadratic @ x - linear
    assert x.sum() == pytest.approx(1)
    assert (x >= 0).all()
    assert gradient[x > 0].max() - gradient.min() < 1e-7


def test_pairs_stop_when_steps_run_out() -> None:
    x = np.array([0.5, 0.5, 0.0])
    compiled_simplex.minimize(np.eye(3), np.array([0.0, 0.0, 5.0]), x, 0.0, 1)
    assert x.tolist() == [0.0, 0.5, 0.5]


def state_after(passes: int, solver: CuttingPlane) -> CuttingPlaneState:
    state = solver.solve(small_problem(), lam=LAM, passes=passes).state
    assert isinstance(state, CuttingPlaneState)
    return state


def test_planes_lie_below_the_loss_and_touch_it() -> None:
    problem, state = small_problem(), state_after(8, CuttingPlane(gap_tolerance=0))
    assert state.planes.shape == (9, problem.dim)
    torch.testing.assert_close(state.products, state.planes @ state.planes.T)
    for seed in range(20):
        w = torch.randn(problem.dim, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
        assert float((state.costs + state.planes @ w).max()) <= problem.loss(w) + 1e-12
    full = problem.full_pass(state.weights, problem.smoother)
    assert full.expected_cost is not None
    assert full.expected_cost + float(full.gradient @ state.weights) == pytest.approx(problem.loss(state.weights))


def test_planes_without_a_share_are_dropped() -> None:
    kept, few = (state_after(15, CuttingPlane(idle=idle, gap_tolerance=0)) for idle in (1000, 1))
    assert len(kept.planes) == 16
    assert len(few.planes) < 13
    assert few.dual == pytest.approx(optimum(), rel=0.1)


def test_a_run_for_another_lambda_starts_from_the_planes() -> None:
    problem, solver = small_problem(), CuttingPlane(gap_tolerance=1e-6)
    strong = solver.solve(problem, lam=LAM, passes=200)
    cold = solver.solve(problem, lam=LAM / 2, passes=200)
    warm = solver.solve(problem, lam=LAM / 2, passes=200, start=strong.state)
    assert warm.history[-1].gap <= 1e-6 * warm.history[-1].objective  # type: ignore[operator]
    assert warm.history[-1].objective == pytest.approx(cold.history[-1].objective, rel=1e-5)
    assert len(warm.history) < len(cold.history)


def test_bounds_are_refused() -> None:
    with pytest.raises(ValueError, match="CuttingPlane does not keep the bounds"):
        CuttingPlane().solve(bounded_problem(), lam=LAM)
    with pytest.raises(ValueError, match="idle must be at least 1"):
        CuttingPlane(idle=0)
