"""L-BFGS: its optimum, its line search, and what it refuses."""

from itertools import pairwise

import numpy as np
import pytest
import torch
from scipy.optimize import minimize
from solver_cases import LAM, crf, crf_network, small_problem
from torch import Tensor
from torch.testing import assert_close

from structsmooth import L2, LBFGS
from structsmooth.problems import Problem
from structsmooth.solvers.baselines.lbfgs import LBFGSState, _inverse_times


def optimum(problem: Problem) -> Tensor:
    """By scipy."""

    def value(w: np.ndarray) -> tuple[float, np.ndarray]:
        weights = torch.from_numpy(w)
        full = problem.full_pass(weights, problem.smoother)
        return full.smoothed_loss + LAM / 2 * float(weights @ weights), (full.gradient + LAM * weights).numpy()

    start = problem.start().numpy()
    return torch.from_numpy(minimize(value, start, jac=True, method="BFGS", options={"gtol": 1e-9}).x)


def test_the_optimum_is_that_of_another_method() -> None:
    problem = crf()
    result = LBFGS(gap_tolerance=1e-12).solve(problem, lam=LAM, passes=60)
    assert_close(result.weights, optimum(problem), rtol=0, atol=1e-6)
    assert result.row.gap <= 1e-11


def test_losses_smoothed_by_top_k() -> None:
    hinge = small_problem()
    problem = type(hinge)(hinge.sequences, hinge.labels, hinge.features, hinge.states, smoother=L2(1.0, 30))
    result = LBFGS(gap_tolerance=1e-6).solve(problem, lam=LAM, passes=60)
    assert result.row.gap <= 1e-6 * result.row.objective


def test_the_objective_never_rises_and_a_network_is_trained() -> None:
    result = LBFGS().solve(crf_network(), lam=LAM, passes=40)
    objectives = result.history.column("objective")
    assert all(a >= b for a, b in pairwise(objectives))
    assert objectives[-1] < 0.7 * objectives[0]
    assert result.history[-1].dual is None


def test_two_loops_are_the_bfgs_matrix() -> None:
    """With all steps and a multiple of the identity at first, H is the matrix of BFGS updates."""
    generator = torch.Generator().manual_seed(0)
    basis = torch.randn(4, 4, generator=generator, dtype=torch.float64)
    hessian = basis @ basis.T + torch.eye(4)
    steps = torch.randn(3, 4, generator=generator, dtype=torch.float64)
    pairs = tuple((s, hessian @ s) for s in steps)
    s, y = pairs[-1]
    inverse, one = float(s @ y / (y @ y)) * torch.eye(4).double(), torch.eye(4).double()
    for s, y in pairs:
        left = one - torch.outer(s, y) / (s @ y)
        inverse = left @ inverse @ left.T + torch.outer(s, s) / (s @ y)
    gradient = torch.randn(4, generator=generator, dtype=torch.float64)
    assert_close(_inverse_times(gradient, pairs), inverse @ gradient)
    assert_close(_inverse_times(hessian @ steps[-1], pairs), steps[-1])  # the secant equation


def test_memory_and_saved_states() -> None:
    state = LBFGS(memory=2, gap_tolerance=0).solve(crf(), lam=LAM, passes=8).state
    assert len(state.steps) == len(state.changes) == 2
    again = LBFGSState.joined(*state.split())
    assert all(map(torch.equal, [*state.steps, *state.changes], [*again.steps, *again.changes]))


def test_hinges_are_refused() -> None:
    with pytest.raises(ValueError, match=r"LBFGS needs smooth losses: give the problem a smoother, such as Entropy"):
        LBFGS().solve(small_problem(), lam=LAM)
