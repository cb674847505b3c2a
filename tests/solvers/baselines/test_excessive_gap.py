"""The excessive gap method against the paper's algorithm on distributions over all outputs, and its guarantees."""

from itertools import pairwise
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from small_problems import EnumeratedProblem
from solver_cases import LAM, crf, small_problem
from torch.testing import assert_close

from structsmooth import BinaryGraph, LinearModuleProblem, ScoreModule
from structsmooth.solvers import ExcessiveGap, Result

Distributions = list[NDArray[np.float64]]


class Enumerated:
    """Algorithm 1 as it is printed, on α with a number for each output of each example."""

    def __init__(self, enumerated: EnumeratedProblem) -> None:
        self.features, self.costs = enumerated.differences, enumerated.costs  # −ψ and ℓ
        self.n = len(self.costs)
        self.squared_norm = max(float(np.square(rows).sum(1).max()) for rows in self.features)

    def weights(self, alpha: Distributions) -> NDArray[np.float64]:
        means = [p @ rows for p, rows in zip(alpha, self.features, strict=True)]
        return -np.sum(means, axis=0) / (LAM * self.n)

    def gradient(self, w: NDArray[np.float64]) -> Distributions:
        """∇D at the α of these weights; n times that, as the distributions here sum to 1."""
        return [costs + rows @ w for costs, rows in zip(self.costs, self.features, strict=True)]

    def projection(self, alpha: Distributions, step: Distributions) -> Distributions:
        """V(α, −step): the Bregman projection by relative entropy."""
        return [_normalized(np.log(p) + s) for p, s in zip(alpha, step, strict=True)]

    def gibbs(self, w: NDArray[np.float64], mu: float) -> Distributions:
        return [_normalized(scores / mu) for scores in self.gradient(w)]

    def run(self, steps: int) -> list[NDArray[np.float64]]:
        mu = self.squared_norm / LAM
        uniform = [np.full(len(costs), 1 / len(costs)) for costs in self.costs]
        w = self.weights(uniform)
        alpha = self.projection(uniform, [g / mu for g in self.gradient(w)])
        iterates = [w]
        for k in range(1, steps + 1):
            tau = 2 / (k + 3)
            at_w = self.gibbs(w, mu)
            ahead = _mixed(alpha, at_w, tau)
            gradient = self.gradient(self.weights(ahead))
            w = (1 - tau) * w + tau * self.weights(ahead)
            towards = self.projection(at_w, [tau / ((1 - tau) * mu) * g for g in gradient])
            alpha, mu = _mixed(alpha, towards, tau), (1 - tau) * mu
            iterates.append(w)
        return iterates


def _normalized(logits: NDArray[np.float64]) -> NDArray[np.float64]:
    p = np.exp(logits - logits.max())
    return np.asarray(p / p.sum())


def _mixed(a: Distributions, b: Distributions, tau: float) -> Distributions:
    return [(1 - tau) * p + tau * q for p, q in zip(a, b, strict=True)]


@pytest.fixture(scope="module")
def enumerated() -> Enumerated:
    return Enumerated(EnumeratedProblem(small_problem()))


@pytest.fixture(scope="module")
def paper(enumerated: Enumerated) -> Result:
    return ExcessiveGap(lipschitz=enumerated.squared_norm / LAM, gap_tolerance=0).solve(
        small_problem(), lam=LAM, passes=60
    )


def test_one_pass_makes_the_step_of_the_paper(enumerated: Enumerated, paper: Result) -> None:
    for passes, expected in ((0, 0), (1, 1), (12, 12), (60, 60)):
        solver = ExcessiveGap(lipschitz=enumerated.squared_norm / LAM, gap_tolerance=0)
        weights = solver.solve(small_problem(), lam=LAM, passes=passes).weights
        assert_close(weights, torch.from_numpy(enumerated.run(60)[expected]), rtol=1e-10, atol=1e-12)
    assert [row.oracle_calls for row in paper.history] == [5 * (2 + k) for k in range(61)]


def test_gaps_of_the_paper_s_constants_obey_theorem_4(enumerated: Enumerated, paper: Result) -> None:
    log_outputs = float(np.mean([np.log(len(costs)) for costs in enumerated.costs]))
    for row in paper.history:
        k = row.passes + 1
        assert row.mu == pytest.approx(6 * enumerated.squared_norm / LAM / ((k + 1) * (k + 2)))
        assert row.metrics["gap_bound"] == pytest.approx(row.mu * log_outputs)
        assert_within_its_bounds(row)


def assert_within_its_bounds(row: Any) -> None:
    assert 0 <= row.gap <= row.metrics["gap_bound"]
    assert row.metrics["excess"] >= -1e-12 * row.metrics["gap_bound"]


def test_found_constants_keep_the_guarantee_and_are_faster(paper: Result) -> None:
    history = ExcessiveGap(gap_tolerance=0).solve(small_problem(), lam=LAM, passes=60).history
    for row in history:
        assert_within_its_bounds(row)
    assert history[-1].gap < 0.03 * paper.history[-1].gap  # type: ignore[operator]


def test_gaps_fall_with_the_square_of_the_passes(paper: Result) -> None:
    gaps = [row.metrics["gap_bound"] for row in paper.history]
    assert np.log(gaps[60] / gaps[15]) / np.log(62 / 17) == pytest.approx(-2, abs=0.1)


def test_a_step_that_fails_is_undone() -> None:
    """And costs a pass."""
    history = ExcessiveGap(gap_tolerance=0).solve(small_problem(), lam=LAM, passes=60).history
    levels = [row.mu for row in history]
    undone = [now.oracle_calls - before.oracle_calls for before, now in pairwise(history) if now.mu == before.mu]
    assert undone
    assert set(undone) == {5}
    assert sorted(levels, reverse=True) == levels


class Pixels(ScoreModule):
    affine = True

    def __init__(self) -> None:
        super().__init__()
        self.w = torch.nn.Parameter(torch.zeros(2, dtype=torch.float64))

    def forward(self, x: torch.Tensor) -> BinaryGraph:
        edges = torch.tensor([[0, 1]])
        return BinaryGraph(x @ self.w, edges, torch.zeros(len(x), 1, 2, 2, dtype=torch.float64))


def test_what_it_cannot_train_is_refused() -> None:
    with pytest.raises(ValueError, match="ExcessiveGap needs a problem of hinges"):
        ExcessiveGap().solve(crf(), lam=LAM)
    with pytest.raises(TypeError, match="start must be None, got Tensor: runs start from the uniform distribution"):
        ExcessiveGap().solve(small_problem(), lam=LAM, start=small_problem().start())
    with pytest.raises(ValueError, match="lipschitz must be positive"):
        ExcessiveGap(lipschitz=0.0)
    data = [(torch.ones(2, 2, 2).double(), torch.tensor([0, 1]))] * 2
    with pytest.raises(NotImplementedError, match="BinaryGraph has no exact logsumexp oracle"):
        ExcessiveGap().solve(LinearModuleProblem(Pixels(), data), lam=LAM)
