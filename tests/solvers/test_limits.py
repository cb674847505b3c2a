"""Solvers at the limits of their settings and data."""

import math

import pytest
import torch
from torch import Tensor, nn
from torch.nn.functional import pad

from structsmooth import CasimirSVRG, FactorGraph, LinearChain, LinearModuleProblem, ProximalBCFW, ScoreModule, SoftBCFW
from structsmooth.problems import DenseChainProblem
from structsmooth.settings import parse_lam
from structsmooth.solvers import Adam, ExponentiatedGradient


class Emissions(ScoreModule):
    affine = True

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(2, 2, bias=False, dtype=torch.float64)

    def forward(self, x: Tensor) -> LinearChain:
        return LinearChain(self.linear(x), torch.zeros(2, 2, dtype=torch.float64))


class Absent(ScoreModule):
    """Two nodes of three and two states, joined or not: the third state of the second does not exist."""

    affine = True

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = (nn.Linear(3, s, bias=False, dtype=torch.float64) for s in (3, 2))

    def forward(self, x: Tensor) -> FactorGraph:
        unary = torch.stack([self.first(x[:, 0]), pad(self.second(x[:, 1]), (0, 1), value=-math.inf)], 1)
        return FactorGraph(unary, torch.tensor([[0, 1]]), torch.zeros(3, 3, dtype=torch.float64))


def test_bounds_hold_and_close_where_states_are_absent() -> None:
    x = torch.randn(4, 2, 3, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    y = torch.stack([x[:, 0].argmax(-1), x[:, 1, :2].argmax(-1)], 1)
    data = list(zip(x, y, strict=True))
    best = ProximalBCFW(gap_tolerance=1e-4).solve(LinearModuleProblem(Absent(), data), lam=0.1, passes=300).row
    for decomposition in ("factors", "whole"):
        solver = SoftBCFW(decomposition=decomposition)  # type: ignore[arg-type]
        row = solver.solve(LinearModuleProblem(Absent(), data), lam=0.1, passes=20).row
        assert row.gap is not None
        assert row.gap < 0.2 * row.objective
        assert row.objective - row.gap <= best.objective + 1e-9


def test_exponentiated_gradient_on_one_example() -> None:
    data = [(torch.tensor([[1.0, 0.5], [0.2, 1.0]], dtype=torch.float64), torch.tensor([0, 1]))]
    problem = LinearModuleProblem(Emissions(), data)
    dense = DenseChainProblem(data[0][0], data[0][1], torch.tensor([2]), states=2)
    for own in (problem, dense):
        row = ExponentiatedGradient().solve(own, lam=1.0, passes=40).row
        assert row.gap is not None
        assert 0 <= row.gap < 0.02 * row.objective


@pytest.mark.parametrize("lam", [1e-300, 1e-26, "1e-26", "1e-24/n"])
def test_a_vanishing_lambda_is_refused(lam: float | str) -> None:
    with pytest.raises(ValueError, match="lam must be 0 or at least 1e-25"):
        parse_lam(lam, 100)


def test_a_tiny_lambda_gives_numbers() -> None:
    x = torch.randn(12, 2, generator=torch.Generator().manual_seed(0))
    y = (x.sum(1) > 0.3).long()
    problem = DenseChainProblem(x, y, torch.full((4,), 3), states=2)
    for solver in (ProximalBCFW(), CasimirSVRG()):
        assert math.isfinite(solver.solve(problem, lam=1e-25, passes=2).row.objective)


def test_adam_ends_at_features_without_measure() -> None:
    x = 1e150 * torch.randn(12, 2, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    problem = DenseChainProblem(x, torch.arange(12) % 2, torch.full((4,), 3), states=2)
    assert math.isfinite(Adam().solve(problem, lam=0.1, passes=1).row.objective)
