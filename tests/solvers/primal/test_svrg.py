"""SVRG: its average."""

import math
from typing import Any

import pytest
import torch
from solver_cases import LAM, small_problem
from torch import Tensor

from structsmooth import SVRG
from structsmooth.solvers.svrg.steps import epoch


def test_svrg_averages_epochs_by_powers_of_their_number(monkeypatch: pytest.MonkeyPatch) -> None:
    problem, means = small_problem(), []

    def spy(*arguments: Any, **settings: Any) -> tuple[Tensor, Tensor]:
        last, mean = epoch(*arguments, **settings)
        means.append(mean)
        return last, mean

    monkeypatch.setattr("structsmooth.solvers.svrg.epoch", spy)
    result = SVRG(learning_rate=0.05).solve(problem, lam=LAM, passes=5)
    weights = torch.tensor([math.perm(t + 11, 12) for t in range(1, 6)]).double()
    assert len(means) == 5
    torch.testing.assert_close(result.weights, weights @ torch.stack(means) / weights.sum(), rtol=0, atol=1e-12)
