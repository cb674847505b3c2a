"""Cutting planes with a slack for each example: the optimum of the model, and which planes are kept."""

import numpy as np
import pytest
import torch
from scipy.optimize import minimize
from small_problems import random_problem
from solver_cases import LAM, optimum, small_problem

from structsmooth import BCFW
from structsmooth.problems import SparseChainProblem
from structsmooth.solvers import CuttingPlane, NSlackCuttingPlane, Status
from structsmooth.solvers.bcfw.active_set import ActiveSet
from structsmooth.solvers.dual.n_slack import NSlackCuttingPlaneState


def state_after(passes: int, solver: NSlackCuttingPlane) -> NSlackCuttingPlaneState:
    state = solver.solve(small_problem(), lam=LAM, passes=passes).state
    assert isinstance(state, NSlackCuttingPlaneState)
    return state


def planes(problem: SparseChainProblem, state: NSlackCuttingPlaneState, block: int) -> tuple[np.ndarray, np.ndarray]:  # type: ignore[type-arg]
    """Gradients and costs of the planes of an example."""
    held = ActiveSet.of(problem, state.point, block)
    atoms = [held.parts(atom) for atom in held.atoms[held.stamps > 0]]
    labels, costs = problem.label_parts(block), problem.costs(block)
    gradients = [problem.adjoint(tuple(a - b for a, b in zip(parts, labels, strict=True)), block) for parts in atoms]
    values = [sum(float((c * p).sum()) for c, p in zip(costs, parts, strict=True)) for parts in atoms]
    return torch.stack(gradients).numpy(), np.array(values)


def test_a_pass_ends_at_the_optimum_of_the_model() -> None:
    """By a quadratic program in the weights and a slack for each example."""
    problem, state = small_problem(), state_after(3, NSlackCuttingPlane(gap_tolerance=0))
    rows, costs = zip(*(planes(problem, state, block) for block in range(problem.n)), strict=True)
    assert [len(values) > 1 for values in costs] == [True] * problem.n
    slack = np.repeat(np.eye(problem.n), [len(values) for values in costs], axis=0)
    matrix, bounds = np.hstack([-np.vstack(rows), slack]), np.concatenate(costs)
    dim, mean = problem.dim, np.full(problem.n, 1 / problem.n)
    solution = minimize(
        lambda v: (LAM / 2 * v[:dim] @ v[:dim] + v[dim:] @ mean, np.r_[LAM * v[:dim], mean]),
        np.r_[np.zeros(dim), np.full(problem.n, bounds.max())],
        jac=True,
        constraints={"type": "ineq", "fun": lambda v: matrix @ v - bounds, "jac": lambda v: matrix},
        method="SLSQP",
        options={"maxiter": 1000, "ftol": 1e-12},
    )
    assert state.dual is not None
    assert state.dual <= solution.fun + 1e-9
    assert state.dual == pytest.approx(solution.fun, rel=0.01)


def test_passes_call_the_oracle_once_on_each_example() -> None:
    history = NSlackCuttingPlane(gap_tolerance=0).solve(small_problem(), lam=LAM, passes=6).history
    assert history.column("oracle_calls") == [5 * passes for passes in range(7)]


def test_needs_fewer_passes_than_one_slack() -> None:
    problem = random_problem(tuple(1 + i % 4 for i in range(20)), 3, 60, seed=1)
    one, each = (
        solver(gap_tolerance=1e-4).solve(problem, lam=LAM / 10, passes=100)
        for solver in (CuttingPlane, NSlackCuttingPlane)
    )
    assert each.status is Status.CONVERGED
    assert 3 * len(each.history) < len(one.history)


def test_idle_planes_are_dropped_and_slots_are_found_for_others() -> None:
    kept, few = (state_after(12, NSlackCuttingPlane(idle=idle, gap_tolerance=0)) for idle in (1000, 1))
    assert kept.point.alphas.shape[1] > 4
    assert ((few.point.stamps > 0) == (few.point.alphas > 0)).all()
    assert few.point.stamps.count_nonzero() < kept.point.stamps.count_nonzero()
    torch.testing.assert_close(kept.point.alphas.sum(1), torch.ones(5).double())
    assert few.dual == pytest.approx(optimum(), rel=1e-3)


def test_a_run_for_another_lambda_starts_from_the_planes() -> None:
    problem, solver = small_problem(), NSlackCuttingPlane(gap_tolerance=1e-4)
    strong = solver.solve(problem, lam=LAM, passes=50)
    cold = solver.solve(problem, lam=LAM / 2, passes=50)
    warm = solver.solve(problem, lam=LAM / 2, passes=50, start=strong.state)
    assert warm.history[-1].objective == pytest.approx(cold.history[-1].objective, rel=2e-4)
    assert len(warm.history) < len(cold.history)
    with pytest.raises(TypeError, match="start must be a NSlackCuttingPlaneState, got BCFWState"):
        solver.solve(problem, lam=LAM, start=BCFW().solve(problem, lam=LAM, passes=1).state)
