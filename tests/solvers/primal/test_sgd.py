"""Stochastic subgradient descent: its schedules and averages."""

import math

import numpy as np
import pytest
import torch
from solver_cases import LAM, optimum, small_problem

from structsmooth import SGD, Max


def test_constant_steps_come_near_the_optimum() -> None:
    history = SGD(schedule="constant", learning_rate=0.01).solve(small_problem(), lam=LAM, passes=400).history
    assert -1e-9 <= history[-1].objective - optimum() <= 0.02


@pytest.mark.parametrize(("t0", "steps"), [(1.0, 5), (2.5, 10)])
def test_step_sizes_of_sgd(t0: float, steps: int) -> None:
    t = torch.arange(1, 3 * steps + 1, dtype=torch.float64)
    convex = SGD().step_sizes(t, steps, LAM, 0.5)
    assert convex[0] == 0.5
    assert (1 / convex).diff().tolist() == pytest.approx([2 * LAM] * (len(t) - 1))
    inverse = SGD(schedule="inverse", t0=t0).step_sizes(t, steps, LAM, 0.5)
    assert inverse.tolist() == [0.5 / (1 + math.floor((s - 1) / (t0 * steps))) for s in t.tolist()]
    root = SGD(schedule="inverse-sqrt", t0=t0).step_sizes(t, steps, LAM, 0.5)
    assert root.tolist() == pytest.approx([(0.5 * value) ** 0.5 for value in inverse.tolist()])
    assert SGD(schedule="constant").step_sizes(t, steps, LAM, 0.5).tolist() == [0.5] * len(t)
    by_step = SGD(schedule="inverse-sqrt", t0=1 / steps).step_sizes(t, steps, LAM, 0.5)
    assert by_step.tolist() == pytest.approx([0.5 / s**0.5 for s in t.tolist()])


@pytest.mark.parametrize(
    ("schedule", "degree"), [("strongly-convex", 12), ("inverse", 1), ("inverse-sqrt", 1), ("constant", 1)]
)
def test_sgd_averages_iterates_by_powers_of_their_number(schedule: str, degree: int) -> None:
    problem, iterates = small_problem(), []
    solver = SGD(schedule=schedule, learning_rate=0.05)
    result = solver.solve(problem, lam=LAM, passes=4)
    w = problem.start()
    for passed in range(4):  # the same steps, one by one
        rng = np.random.default_rng([0, passed])
        for step, batch in enumerate(solver.order(problem, rng), start=passed * problem.n + 1):
            gamma = solver.step_sizes(torch.tensor(float(step), dtype=torch.float64), problem.n, LAM, 0.05)
            w = w - gamma * (problem.batch_loss_and_grad(w, batch, Max())[1] + LAM * w)
            iterates.append(w)
    # t (t + 1) ... (t + degree - 1)
    weights = torch.tensor([math.perm(t + degree - 1, degree) for t in range(1, len(iterates) + 1)]).double()
    average = weights @ torch.stack(iterates) / weights.sum()
    torch.testing.assert_close(result.weights, average, rtol=0, atol=1e-12)
