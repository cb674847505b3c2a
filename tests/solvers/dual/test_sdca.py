"""Proximal points by dual coordinate ascent: steps, bounds and schedules."""

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from small_networks import chain_problem
from small_problems import random_problem, random_weights
from solver_cases import ALL, LAM, bounded_problem, crf, moments_of, objective, optimum, small_problem
from torch.testing import assert_close

from structsmooth import (
    BCFW,
    L2,
    Entropy,
    LinearProblem,
    Max,
    ProximalSDCA,
    Smoother,
    SparseChainProblem,
)
from structsmooth.solvers import sdca
from structsmooth.solvers.bcfw.steps import epoch
from structsmooth.solvers.lower_bound import DualPoint
from structsmooth.solvers.sdca import SmoothedIterate

every_smoother = pytest.mark.parametrize("smoother", [Max(), L2(0.7, 3), L2(5.0, 100), Entropy(0.5)], ids=str)


def from_labels(problem: LinearProblem, center: Any) -> SmoothedIterate:
    smoothing_offset = torch.zeros(problem.blocks, dtype=torch.float64)
    return SmoothedIterate(center, problem.label_statistics(), smoothing_offset)


def planes(problem: LinearProblem, point: SmoothedIterate, center: Any, lam: float) -> float:
    """The minimum over w of the mean of all planes, plus (λ/2)‖w − z‖²: the value of the dual."""
    slope = -lam * problem.dual_weights(point.statistics, lam)
    constant = problem.expected_cost(point.statistics) + float(point.smoothing_offset.sum()) / problem.n
    return constant + float(slope @ center) - float(slope @ slope) / (2 * lam)


@every_smoother
@pytest.mark.parametrize("lam", [0.02, 0.5])
def test_compiled_epoch_is_the_default(smoother: Smoother, lam: float) -> None:
    problem = random_problem()
    start, calls = from_labels(problem, 0.3 * random_weights(problem)), problem.oracle_calls
    order = torch.randint(problem.n, (4 * problem.n,), generator=torch.Generator().manual_seed(1))
    compiled = sdca.epoch(problem, start, order, lam=lam, smoother=smoother)
    default = sdca.epoch.dispatch(object)(problem, start, order, lam=lam, smoother=smoother)
    for name, value in vars(compiled).items():
        assert_close(value, getattr(default, name), rtol=0, atol=1e-10)
    assert_close(start.statistics, problem.label_statistics(), rtol=0, atol=0)  # not in place
    assert problem.oracle_calls - calls == 2 * len(order)


@every_smoother
def test_every_step_is_the_best_on_its_line(smoother: Smoother) -> None:
    """Weights minimize the planes, whose value rises; it would not rise more with another step size."""
    problem, lam = random_problem(), 0.05
    center = 0.3 * random_weights(problem)
    point = from_labels(problem, center)
    for i in range(problem.n):
        after = sdca.epoch(problem, point, torch.tensor([i]), lam=lam, smoother=smoother)
        expected = center + problem.dual_weights(after.statistics, lam)
        assert_close(after.weights, expected, rtol=0, atol=1e-10)
        values = [
            planes(problem, SmoothedIterate(*(torch.lerp(a, b, t) for a, b in pairs)), center, lam)
            for pairs in [list(zip(vars(point).values(), vars(after).values(), strict=True))]
            for t in (0.0, 0.5, 0.9, 1.0)
        ]
        assert values == sorted(values)
        point = after
    smoothed = problem.loss(point.weights, smoother) + lam / 2 * float((point.weights - center).square().sum())
    assert values[-1] <= smoothed + 1e-12


def test_without_smoothing_steps_are_those_of_frank_wolfe() -> None:
    problem = small_problem()
    order = torch.randperm(problem.n, generator=torch.Generator().manual_seed(1))
    ascent = sdca.epoch(problem, from_labels(problem, problem.start()), order, lam=LAM, smoother=Max())
    start = BCFW(steps="fw").first_state(problem, LAM, None, 0).point
    frank_wolfe, _ = epoch(problem, start, order, lam=LAM)
    assert_close(ascent.weights, frank_wolfe.weights, rtol=0, atol=1e-10)
    assert_close(ascent.statistics, problem.unpacked(frank_wolfe.statistics), rtol=0, atol=1e-10)
    assert_close(ascent.smoothing_offset, torch.zeros(problem.n).double(), rtol=0, atol=1e-10)


@pytest.mark.parametrize("smoothing", ["l2", "entropy"])
@pytest.mark.parametrize("seed", range(3))
def test_closes_the_gap(smoothing: Any, seed: int) -> None:
    solver = ProximalSDCA(k=ALL, smoothing=smoothing, gap_tolerance=0)
    history = solver.solve(small_problem(seed), lam=LAM, passes=300).history
    least = optimum(seed=seed)
    assert all(row.dual <= least + 1e-9 <= row.objective + 2e-9 for row in history)
    assert history.column("dual") == sorted(history.column("dual"))
    assert history[-1].gap <= 0.01 * least
    assert history.column("oracle_calls") == [3 + 5 * k for k in range(301)]  # an estimate, then one call a step


def test_the_bound_is_that_of_a_mixture_of_statistics() -> None:
    problem, best, point = small_problem(), 0.0, DualPoint(small_problem().start())
    for state, history in moments_of(ProximalSDCA(gap_tolerance=0), problem, 6):
        v = problem.dual_weights(state.point.statistics, LAM)
        assert_close(state.plane, -LAM * v, rtol=0, atol=1e-12)
        cost = problem.expected_cost(state.point.statistics)
        best, point = max(best, cost - LAM / 2 * float(v @ v)), point.improved(DualPoint(-LAM * v, cost), LAM)
        assert history[-1].dual == pytest.approx(point.value(LAM), abs=1e-12)
        assert history[-1].dual >= best - 1e-12


@pytest.mark.parametrize("problem", [small_problem(), crf()], ids=["hinges", "likelihood"])
def test_weights_of_hinges_are_an_average_of_the_prox_centers(problem: SparseChainProblem) -> None:
    average = problem.start()
    for number, (state, _) in enumerate(moments_of(ProximalSDCA(gap_tolerance=0), problem, 6)):
        average = torch.lerp(average, state.center, 9 / (number + 8)) if number else average
        expected = average if isinstance(problem.smoother, Max) else state.center
        assert_close(state.weights, expected, rtol=0, atol=1e-12)
    assert float((average - state.center).abs().max()) > 1e-3


def test_schedule() -> None:
    """μ_k = μ/k with smoothing_offset in proportion, κ as it is; defaults follow a few losses and gradients."""
    states = [state for state, _ in moments_of(ProximalSDCA(mu=3.0, kappa=0.7, gap_tolerance=0), small_problem(), 4)]
    assert [state.mu for state in states] == pytest.approx([3, 3, 3 / 2, 1, 3 / 4])
    assert {state.kappa for state in states} == {0.7}
    largest = [float(state.point.smoothing_offset.max()) for state in states]
    assert all(0 <= value <= state.mu / 2 for value, state in zip(largest, states, strict=True))
    problem = random_problem([1] * 8, states=2, features=8)
    for lam, kappa in ((0.0, None), (1e-4, None), (50.0, 50.0)):
        state = ProximalSDCA().first_state(problem, lam, None, 0)
        rows = [problem.batch_loss_and_grad(problem.start(), torch.tensor([i]), Max()) for i in chosen_of(problem.n)]
        square, loss = (
            sum(map(float, values)) / len(rows) for values in ([g @ g for _, g in rows], [f for f, _ in rows])
        )
        assert state.kappa == pytest.approx(kappa or 0.1 * square / (problem.n * loss))
        assert state.mu == pytest.approx(0.05 * loss)


def chosen_of(n: int) -> list[int]:
    """The examples that an estimate with seed 0 takes."""
    return np.random.default_rng(0).permutation(n)[: (n + 1) // 2].tolist()


def test_a_start_is_the_first_prox_center() -> None:
    problem = small_problem()
    best = BCFW(gap_tolerance=0).solve(problem, lam=LAM, passes=200).weights
    near = ProximalSDCA(kappa=100 * LAM).solve(problem, lam=LAM, passes=1, start=best).history
    assert near[0].objective == objective(problem, best)
    assert (
        near[1].objective
        < 1.05 * near[0].objective
        < ProximalSDCA().solve(problem, lam=LAM, passes=1).history[1].objective
    )


def test_minimizes_a_smooth_objective_as_it_is() -> None:
    history = ProximalSDCA(gap_tolerance=1e-9).solve(crf(), lam=LAM, passes=100).history
    assert 0 <= history[-1].gap <= 1e-9 * history[-1].objective
    assert set(history.column("mu")) == {1.0}


def test_needs_linear_scores() -> None:
    with pytest.raises(TypeError, match="ProximalSDCA needs a LinearProblem, got ModuleProblem"):
        ProximalSDCA().solve(chain_problem(), lam=LAM)
    with pytest.raises(ValueError, match="ProximalSDCA does not keep the bounds"):
        ProximalSDCA().solve(bounded_problem(), lam=LAM)


def test_refuses_what_would_corrupt_memory() -> None:
    problem = small_problem()
    good, order = from_labels(problem, problem.start()), torch.arange(problem.n)
    for change in ({"weights": torch.zeros(3).double()}, {"smoothing_offset": torch.zeros(2).double()}):
        with pytest.raises(ValueError, match="must have shape"):
            sdca.epoch(problem, replace(good, **change), order, lam=LAM, smoother=Max())
    with pytest.raises(ValueError, match="order must hold examples"):
        sdca.epoch(problem, good, order + 1, lam=LAM, smoother=Max())


def test_without_regularizer_labels_that_can_be_separated_are() -> None:
    problem: SparseChainProblem = small_problem(3)
    result = ProximalSDCA().solve(problem, lam=0, passes=60)
    assert result.row.objective < 0.01 * result.history[0].objective
    assert result.row.dual is None
    assert math.isfinite(result.weights.norm())
