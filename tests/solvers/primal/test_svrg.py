"""SVRG: where epochs start."""

from typing import Any

import pytest
import torch
from small_problems import random_problem
from solver_cases import ALL, LAM, small_problem
from torch import Tensor
from torch.testing import assert_close

from structsmooth import L2, CasimirSVRG
from structsmooth.problems import ShiftedProblem
from structsmooth.problems.base import FullPass
from structsmooth.solvers import SVRG
from structsmooth.solvers.svrg.steps import epoch


@pytest.mark.parametrize("restart", ["last", "average"])
def test_restarts_where_the_epoch_before_led(restart: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """As written by Johnson and Zhang (2013), options I and II; the evaluations are the snapshots."""
    problem, calls = small_problem(), []

    def spy(problem: Any, snapshot: FullPass, order: Tensor, **settings: Any) -> tuple[Tensor, Tensor]:
        last, mean = epoch(problem, snapshot, order, **settings)
        calls.append((snapshot.weights, order, mean if restart == "average" else last))
        return last, mean

    monkeypatch.setattr("structsmooth.solvers.svrg.epoch", spy)
    result = SVRG(learning_rate=0.05, restart=restart).solve(problem, lam=LAM, passes=4)
    assert problem.oracle_calls == problem.n * (1 + 4 + 4)  # the start, evaluations that are snapshots, steps
    snapshot, smoother = problem.start(), SVRG().smoother(result.state)
    for start, order, reached in calls:
        torch.testing.assert_close(start, snapshot, rtol=0, atol=1e-12)
        full, w, iterates = problem.full_pass(snapshot, smoother).gradient, snapshot, []
        for batch in order:
            new, old = (problem.batch_loss_and_grad(v, batch, smoother)[1] for v in (w, snapshot))
            w = w - 0.05 * (new - old + full + LAM * w)
            iterates.append(w)
        snapshot = torch.stack(iterates).mean(0) if restart == "average" else w
        torch.testing.assert_close(reached, snapshot, rtol=0, atol=1e-10)
    assert torch.equal(result.state.weights, calls[-1][2])


def test_restarts_from_the_average_to_the_smoothed_optimum() -> None:
    problem, solver = small_problem(), SVRG(mu=0.1, k=ALL, restart="average", gap_tolerance=0)
    other = CasimirSVRG(mu=0.1, k=ALL, schedule="constant", gap_tolerance=0).solve(problem, lam=LAM, passes=800)
    own = solver.solve(problem, lam=LAM, passes=800)
    values = [
        problem.loss(r.state.reached, L2(0.1, ALL)) + LAM / 2 * float(r.state.reached.square().sum())
        for r in (own, other)
    ]
    assert values[0] == pytest.approx(values[1], abs=1e-8)


@pytest.mark.parametrize("centered", [True, False])
def test_steps_on_a_shifted_problem_are_those_of_the_plain_loop(centered: bool) -> None:
    """The shift moves into the proximal term of the problem that is shifted, and around a centre into its centre."""
    below = random_problem()
    w = torch.linspace(-1, 1, below.dim, dtype=torch.float64)
    problem, center = ShiftedProblem(below, w.flip(0)), w.square() if centered else None
    snapshot, order = problem.full_pass(w, L2(0.5, 3)), torch.arange(problem.n).unsqueeze(1)
    settings: Any = {"step_size": 0.1, "lam": 0.2, "kappa": 0.3, "center": center}
    found, expected = (steps(problem, snapshot, order, **settings) for steps in (epoch, epoch.dispatch(object)))
    assert_close(found, expected, rtol=1e-10, atol=1e-12)
