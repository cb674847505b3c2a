"""Extragradient against its steps on distributions over all outputs, and its guarantee."""

from itertools import pairwise

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from small_problems import EnumeratedProblem
from solver_cases import LAM, crf, moments_of, small_problem
from torch.testing import assert_close

from structsmooth.solvers import Extragradient
from structsmooth.solvers.baselines.extragradient import ExtragradientState

SOLVER = Extragradient(gap_tolerance=0)
Distributions = list[NDArray[np.float64]]


@pytest.fixture(scope="module")
def states() -> list[ExtragradientState]:
    """After every pass."""
    return [state for state, _ in moments_of(SOLVER, small_problem(), passes=60)]


class Enumerated:
    """The saddle with a number for each output of each example."""

    def __init__(self) -> None:
        problem = EnumeratedProblem(small_problem())
        self.features, self.costs = problem.differences, problem.costs

    def gradient(self, m: Distributions) -> NDArray[np.float64]:
        """In the weights, without the regularizer."""
        means = [p @ rows for p, rows in zip(m, self.features, strict=True)]
        return np.asarray(np.mean(means, axis=0))

    def projected(self, m: Distributions, w: NDArray[np.float64], gamma: float) -> Distributions:
        """The Bregman step by the gradient at w."""
        logits = [
            np.log(p) + gamma * (costs + rows @ w) for p, costs, rows in zip(m, self.costs, self.features, strict=True)
        ]
        powers = [np.exp(own - own.max()) for own in logits]
        return [own / own.sum() for own in powers]


def test_steps_are_those_on_distributions(states: list[ExtragradientState]) -> None:
    """With the step sizes that the solver found, which failures leave as they are."""
    saddle = Enumerated()
    m: Distributions = [np.full(len(costs), 1 / len(costs)) for costs in saddle.costs]
    w = np.zeros(len(states[0].weights))
    total, mean, ratio = 0.0, np.zeros_like(w), states[0].ratio
    for old, new in pairwise(states):
        if new.point.beta > old.point.beta:
            gamma = old.gamma
            shrink = 1 + ratio * gamma * LAM
            ahead, w_ahead = saddle.projected(m, w, gamma), (w - ratio * gamma * saddle.gradient(m)) / shrink
            m, w = saddle.projected(m, w_ahead, gamma), (w - ratio * gamma * saddle.gradient(ahead)) / shrink
            total += gamma
            mean += gamma * w_ahead
            assert_close(new.weights, torch.from_numpy(mean / total), rtol=1e-8, atol=1e-10)
        assert_close(new.iterate, torch.from_numpy(w), rtol=1e-8, atol=1e-10)
        assert_close(new.point.gradient, torch.from_numpy(saddle.gradient(m)), rtol=1e-8, atol=1e-10)


def test_gaps_obey_the_rate() -> None:
    """The divergence of the start to the best answers to the mean, over the sum of step sizes."""
    log_outputs = float(np.mean([np.log(len(costs)) for costs in Enumerated().costs]))
    moments = moments_of(SOLVER, small_problem(), passes=60)
    taken = [(state, history[-1].gap) for state, history in moments if state.point.beta > 0]
    for state, gap in taken:
        answer = state.mean.gradient / LAM
        assert gap <= (float(answer @ answer) / (2 * state.ratio) + log_outputs) / state.point.beta
    assert taken[-1][1] < 0.1 * taken[0][1]


def test_a_step_that_is_too_long_is_undone(states: list[ExtragradientState]) -> None:
    failures = [(old, new) for old, new in pairwise(states) if new.point.beta == old.point.beta]
    assert failures
    for old, new in failures:
        assert torch.equal(old.weights, new.weights)
        assert new.gamma == old.gamma / 2
        assert new.oracle_calls == old.oracle_calls + 10
    assert len(failures) < len(states) / 4


def test_what_it_cannot_train_is_refused() -> None:
    with pytest.raises(ValueError, match="Extragradient needs a problem of hinges"):
        SOLVER.solve(crf(), lam=LAM)
    with pytest.raises(TypeError, match="start must be None, got Tensor: runs start from uniform distributions"):
        SOLVER.solve(small_problem(), lam=LAM, start=small_problem().start())
