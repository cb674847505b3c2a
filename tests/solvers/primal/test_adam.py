"""Adam as a solver is torch's own optimizer."""

from typing import Any

import numpy as np
import pytest
import torch
from small_networks import chain_problem
from small_problems import random_problem

from structsmooth import Entropy, Max, StructuralHinge
from structsmooth.solvers import Adam, Status

LAM = 0.2


@pytest.mark.parametrize("smoother", [Max(), Entropy(1.0)], ids=str)
def test_steps_are_those_of_torch(smoother: Any) -> None:
    problem, reference = chain_problem(smoother=smoother), chain_problem()
    solver = Adam(learning_rate=0.05)
    result = solver.solve(problem, lam=LAM, passes=3, seed=2)
    parameters = [p for p in reference.module.parameters() if p.requires_grad]
    optimizer = torch.optim.Adam(parameters, lr=0.05)
    for passed in range(3):
        for batch in solver.order(reference, np.random.default_rng([2, passed])):
            optimizer.zero_grad()
            x, y = reference.batch(batch)
            regularizer = sum((p.square().sum() for p in parameters), torch.zeros(()))
            (StructuralHinge(smoother)(reference.module(x), y) + LAM / 2 * regularizer).backward()
            optimizer.step()
    torch.testing.assert_close(result.weights, reference.start(), rtol=0, atol=1e-10)
    assert not torch.equal(problem.start(), result.weights)
    # Three passes of two steps of three examples, on top of no estimate; evaluations are not counted.
    assert result.history.column("oracle_calls") == [0, 6, 12, 18]


def test_an_absurd_learning_rate_is_halved_until_nothing_explodes() -> None:
    problem = random_problem((3, 1, 2, 3, 2), 3, 4)
    result = Adam(learning_rate=1e6).solve(problem, lam=LAM, passes=60)
    assert result.status is Status.PASS_LIMIT
    assert result.row.step_size < 1
    assert all(row.objective <= 2 * result.history[0].objective for row in result.history)
