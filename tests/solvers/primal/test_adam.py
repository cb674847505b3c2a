"""Adam as a solver is torch's own optimizer."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from small_networks import chain_problem
from small_problems import EnumeratedProblem, random_problem

from structsmooth import Adam, Entropy, History, Max, Status, StructuralHinge
from structsmooth.checkpoint import load_state, save_state
from structsmooth.solvers import Progress, State
from structsmooth.solvers.primal.adam import AdamState

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


@pytest.mark.parametrize("seed", range(3))
def test_defaults_make_progress(seed: int) -> None:
    problem = random_problem((3, 1, 2, 3, 2), 3, 4, seed=seed)
    history = Adam().solve(problem, lam=LAM, passes=60).history
    least = EnumeratedProblem(problem).optimum(LAM)
    assert min(history.column("objective")) >= least - 1e-9
    assert history[-1].objective - least < 0.3 * (history[0].objective - least)


def test_an_absurd_learning_rate_is_halved_until_nothing_explodes() -> None:
    problem = random_problem((3, 1, 2, 3, 2), 3, 4)
    result = Adam(learning_rate=1e6).solve(problem, lam=LAM, passes=60)
    assert result.status is Status.PASS_LIMIT
    assert result.history[-1].step_size < 1
    assert all(row.objective <= 2 * result.history[0].objective for row in result.history)


@pytest.mark.parametrize("learning_rate", [None, 0.1])
def test_resumes_from_every_pass_as_if_unbroken(learning_rate: float | None, tmp_path: Path) -> None:
    moments: list[tuple[State, History]] = []
    solver = Adam(learning_rate=learning_rate)

    def save(progress: Progress[Any]) -> None:
        moments.append((replace(progress.state), History(progress.history)))

    whole = solver.solve(chain_problem(), lam=LAM, passes=5, callbacks=[save])
    assert len(moments) == 6
    for state, history in moments:
        save_state(tmp_path / "state", *state.split())
        tensors, values = load_state(tmp_path / "state")
        for restored in (state, AdamState.joined(tensors, values)):
            rest = solver.solve(chain_problem(), lam=LAM, passes=5, resume=(restored, history))
            assert torch.equal(rest.weights, whole.weights)
            assert rest.history.column("objective") == whole.history.column("objective")
