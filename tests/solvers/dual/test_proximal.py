"""Proximal block-coordinate Frank-Wolfe: the gap and its parts, the inner problem, the strength of the term."""

from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
import torch
from small_problems import EnumeratedProblem, random_problem
from solver_cases import LAM, PROXIMAL, bounded_problem, moments_of, small_problem
from torch.testing import assert_close

from structsmooth import BCFW, Max, NormalizedHamming, ProximalBCFW, SparseChainProblem
from structsmooth.problems import LinearProblem
from structsmooth.problems.bounds import conjugate
from structsmooth.solvers import Progress, Stop
from structsmooth.solvers.dual.proximal import ProximalBCFWState

every_variant = pytest.mark.parametrize("solver", PROXIMAL.values(), ids=PROXIMAL.keys())


def dual(problem: LinearProblem, state: ProximalBCFWState) -> float:
    """D(m) of the statistics of a state."""
    v = problem.dual_weights(state.point.statistics, LAM)
    return problem.expected_cost(state.point.statistics) - LAM * conjugate(v, problem.bounds)


@every_variant
@pytest.mark.parametrize("bounded", [False, True])
def test_the_gap_is_the_sum_of_the_block_gaps_and_the_distance(solver: ProximalBCFW, bounded: bool) -> None:
    problem = bounded_problem() if bounded else small_problem()
    best, optimum = 0.0, EnumeratedProblem(problem).optimum(LAM)
    for state, history in moments_of(solver, problem, passes=15):
        assert_close(problem.dual_weights(state.point.statistics, LAM), state.point.weights, rtol=0, atol=1e-10)
        objective, bound = EnumeratedProblem(problem).objective(state.center.numpy(), LAM), history[-1].dual
        gaps = problem.block_gaps(state.center, state.point.statistics)
        distance = state.distance if state.passes else 0.0
        assert objective - bound == pytest.approx(float(gaps.sum()) + distance, rel=0, abs=1e-9)
        of_statistics = distance + bound - dual(problem, state)
        assert of_statistics >= -1e-12
        if not bounded:
            step = state.center - state.point.weights
            assert of_statistics == pytest.approx(LAM / 2 * float(step @ step), rel=0, abs=1e-9)
        best = max(best, dual(problem, state))
        assert state.highest == pytest.approx(best, rel=0, abs=1e-10)
        assert best - 1e-10 <= history[-1].dual <= optimum + 1e-9
        assert history.column("dual") == sorted(history.column("dual"))
        assert solver.average or torch.equal(state.weights, state.center)
    assert of_statistics > 0


@pytest.mark.parametrize("bounded", [False, True])
def test_the_bound_is_that_of_a_mixture_of_statistics(bounded: bool) -> None:
    problem, solver = bounded_problem() if bounded else small_problem(), ProximalBCFW(kappa=200 * LAM, gap_tolerance=0)
    states = [state for state, _ in moments_of(solver, problem, passes=8)]
    for before, state in pairwise(states):
        mixture = before.mixture.gradient if before.passes else 0 * state.point.weights
        points = torch.stack([-LAM * state.point.weights, mixture], 1)
        shares = torch.linalg.lstsq(points, state.mixture.gradient[:, None]).solution[:, 0]
        if before.passes == 0:
            shares[1] = 0
        assert shares.min() >= -1e-12 <= 1 + 1e-12 - shares.sum()
        assert_close(points @ shares, state.mixture.gradient, rtol=0, atol=1e-10)
        cost = shares @ shares.new_tensor([state.cost, before.mixture.cost if before.passes else 0.0])
        assert state.mixture.cost == pytest.approx(float(cost), rel=0, abs=1e-10)
        value = state.mixture.cost - LAM * conjugate(state.mixture.gradient / -LAM, problem.bounds)
        assert state.dual == pytest.approx(value, rel=0, abs=1e-12)
    assert states[4].dual > states[4].highest + 0.01


def test_a_state_without_a_mixture_begins_one() -> None:
    """States of versions without mixtures have none."""
    problem, solver = small_problem(), ProximalBCFW(gap_tolerance=0)
    state = replace(solver.solve(problem, lam=LAM, passes=5).state, mixed_gradient=torch.zeros(0), mixed_cost=0.0)
    assert isinstance(state, ProximalBCFWState)
    new = solver.advance(problem, LAM, state, np.random.default_rng(0), 1)
    assert new.dual >= state.dual


@pytest.mark.parametrize("bounded", [False, True])
@pytest.mark.parametrize("lam", [LAM / 3, LAM, 2 * LAM])
def test_a_start_hands_its_mixture_on(bounded: bool, lam: float) -> None:
    problem = bounded_problem() if bounded else small_problem()
    solver = ProximalBCFW(kappa=20 * LAM, gap_tolerance=0)
    start = solver.solve(problem, lam=LAM, passes=8).state
    first = solver.solve(problem, lam=lam, passes=0, start=start).history[0]
    value = start.mixed_cost - lam * conjugate(start.mixed_gradient / -lam, problem.bounds)
    statistics = BCFW().first_state(problem, lam, start, 0)
    assert first.dual == pytest.approx(max(value, statistics.dual), rel=0, abs=1e-12)
    assert first.dual <= EnumeratedProblem(problem).optimum(lam) + 1e-9


def test_a_start_from_a_problem_with_other_costs_hands_no_mixture_on() -> None:
    """Its statistics alone count, and their bound is one of the new problem."""
    solver = ProximalBCFW(kappa=20 * LAM, gap_tolerance=0)
    start = solver.solve(small_problem(), lam=LAM, passes=8).state
    for problem in (small_problem(cost=NormalizedHamming()), small_problem().weighted(torch.arange(1.0, 6.0))):
        state = solver.first_state(problem, LAM, start, 0)
        assert isinstance(state, ProximalBCFWState)
        assert len(state.mixture.gradient) == 0
        assert state.dual == pytest.approx(dual(problem, state), rel=0, abs=1e-10)


@every_variant
def test_the_weights_are_an_average_of_the_prox_centers(solver: ProximalBCFW) -> None:
    states = [state for state, _ in moments_of(solver, small_problem(), passes=6)]
    average = states[0].weights
    for number, state in enumerate(states[1:], start=1):
        average = (number - 1) / (number + 8) * average + 9 / (number + 8) * state.center
        assert_close(state.weights, average if solver.average else state.center, rtol=0, atol=1e-12)


@pytest.mark.parametrize("bounded", [False, True])
def test_a_pass_raises_the_dual_of_the_inner_problem(bounded: bool) -> None:
    """min over w of (1/n) Σ (⟨θ_i + ℓ_i, m_i⟩ − score of y_i) + (λ/2)‖w‖² + (κ/2)‖w − z‖², within the bounds."""
    problem, solver = bounded_problem() if bounded else small_problem(), ProximalBCFW(kappa=3 * LAM)
    kappa = 3 * LAM
    before, *after = [state for state, _ in moments_of(solver, problem, passes=12)]
    for state in after:
        z, values = before.center, []
        for m in (before.point.statistics, state.point.statistics):
            v = problem.dual_weights(m, LAM)
            w = problem.within_bounds((LAM * v + kappa * z) / (LAM + kappa))
            lagrangian = problem.expected_cost(m) - LAM * float(v @ w)
            values.append(lagrangian + LAM / 2 * float(w @ w) + kappa / 2 * float((w - z).square().sum()))
        assert values[1] >= values[0] - 1e-12
        assert_close(state.center, w, rtol=0, atol=1e-10)
        before = state


def test_kappa_is_the_geometric_mean_of_lambda_and_the_scale_of_the_data() -> None:
    problem = small_problem()
    w, each = problem.start(), torch.arange(problem.n).unsqueeze(1)
    losses, gradients = zip(*[problem.batch_loss_and_grad(w, i, Max()) for i in each], strict=True)
    squares = sum(float(g.square().sum()) for g in gradients)
    state = ProximalBCFW().first_state(problem, LAM, None, 0)
    assert isinstance(state, ProximalBCFWState)
    assert state.scale == pytest.approx(squares / (problem.n * float(sum(losses))), rel=1e-12)
    assert ProximalBCFW().strength(state, LAM) == pytest.approx((LAM * state.scale) ** 0.5, rel=1e-12)
    assert ProximalBCFW().strength(state, 10 * state.scale) == 10 * state.scale
    assert ProximalBCFW(kappa=0.3).strength(state, LAM) == 0.3


def test_a_problem_that_zero_weights_solve() -> None:
    """Without cost all gradients are zero at the start, and κ_0 is undefined."""
    result = ProximalBCFW().solve(small_problem(cost=None), lam=LAM, passes=3)
    assert result.row.objective == 0


@pytest.mark.parametrize("bounded", [False, True])
def test_the_least_loss_without_a_regularizer(bounded: bool) -> None:
    problem = bounded_problem() if bounded else small_problem()
    result = ProximalBCFW().solve(problem, lam=0, passes=300)
    optimum = EnumeratedProblem(problem).optimum(0)
    assert result.history[0].objective > optimum + 0.3
    assert result.row.objective == pytest.approx(optimum, rel=0, abs=1e-5)
    assert problem.bounds is None or torch.equal(result.weights, problem.within_bounds(result.weights))


@every_variant
def test_without_a_regularizer_there_is_no_bound(solver: ProximalBCFW) -> None:
    problem = small_problem()
    states, histories = zip(*moments_of(solver, problem, passes=12, lam=0), strict=True)
    for before, state in pairwise(states):
        v = problem.dual_weights(state.point.statistics, state.kappa)  # at λ = κ, for the inner problem
        assert_close(state.center, before.center + v, rtol=0, atol=1e-10)
        assert state.kappa == pytest.approx((solver.kappa or state.scale / 10), rel=1e-12)
    assert {(row.dual, row.gap) for row in histories[-1]} == {(None, None)}
    assert "estimated_gap" not in histories[-1][-1].metrics
    resumed = solver.solve(problem, lam=0, passes=12, resume=(states[6], histories[6]))
    assert torch.equal(resumed.state.weights, states[-1].weights)


def test_nothing_to_learn_without_a_regularizer() -> None:
    result = ProximalBCFW().solve(small_problem(cost=None), lam=0, passes=3)
    assert result.row.objective == 0


def kappas_with_a_dual_out_of_reach(solver: ProximalBCFW, lam: float = LAM) -> list[float]:
    """κ of nine passes on, none of which raises D(m)."""
    problem = small_problem()
    state = solver.solve(problem, lam=lam, passes=6).state
    assert isinstance(state, ProximalBCFWState)
    state, kappas = replace(state, highest=1e3, halvings=0, last_rise=state.passes), []
    for _ in range(9):
        state = solver.advance(problem, lam, state, np.random.default_rng(0), 1)
        kappas.append(state.kappa)
    assert state.highest == 1e3
    return kappas


def test_a_large_kappa_is_halved_until_the_dual_rises() -> None:
    kappas = kappas_with_a_dual_out_of_reach(ProximalBCFW(kappa=1e3, refresh=4, gap_tolerance=0))
    assert kappas == [1e3] * 4 + [5e2] * 4 + [2.5e2]


@pytest.mark.parametrize(("kappa", "lam"), [(1e-3, LAM), (0.1, 1e-4)])
def test_kappa_stays_where_the_block_gaps_are_what_is_left(kappa: float, lam: float) -> None:
    """Also with a tiny λ, where (λ/2)‖w − v‖² is many times the block gaps, and the proximal term a part of them."""
    solver = ProximalBCFW(kappa=kappa, steps="fw", refresh=4, gap_tolerance=0)
    assert kappas_with_a_dual_out_of_reach(solver, lam) == [kappa] * 9


def test_an_absurd_kappa_costs_passes_only() -> None:
    problem = small_problem()
    optimum = EnumeratedProblem(problem).optimum(LAM)
    solver = ProximalBCFW(kappa=1e4, refresh=1, gap_tolerance=0)
    result = solver.solve(problem, lam=LAM, passes=300)
    assert result.row.gap < 1e-3 * optimum


def test_estimates_include_the_distance() -> None:
    for state, history in moments_of(ProximalBCFW(gap_tolerance=0), small_problem(), passes=8)[1:]:
        metrics = history[-1].metrics
        assert metrics["estimated_gap"] == pytest.approx(float(state.point.gaps.sum()) + state.distance, rel=1e-12)
        assert metrics["kappa"] == state.kappa > 0


def test_goes_on_from_a_state_of_bcfw_and_the_other_way() -> None:
    for first, second in ((BCFW(), ProximalBCFW()), (ProximalBCFW(), BCFW())):
        problem = small_problem()
        state = replace(first, gap_tolerance=0).solve(problem, lam=LAM, passes=100).state
        cold = replace(second, gap_tolerance=0).solve(problem, lam=LAM, passes=5).row
        warm = replace(second, gap_tolerance=0).solve(problem, lam=LAM, passes=5, start=state).row
        assert warm.gap < cold.gap


def calls_to(gap: float, solver: BCFW, problem: SparseChainProblem, lam: float) -> int:
    """Oracle calls until the gap is this part of the objective."""

    def stop(progress: Progress[ProximalBCFWState]) -> None:
        row = progress.row
        if row.gap is not None and row.gap <= gap * row.objective:
            raise Stop

    return solver.solve(problem, lam=lam, passes=3000, callbacks=[stop]).history[-1].oracle_calls


def test_needs_fewer_calls_than_bcfw_at_small_lambda() -> None:
    """A third of the calls or less, where the blocks share all weights: it is a ninth with this seed."""
    problem = random_problem(tuple(1 + i % 4 for i in range(60)), 3, 12, NormalizedHamming(), seed=1)
    lam = 0.1 / problem.n
    plain, proximal = (calls_to(0.02, s, problem, lam) for s in (BCFW(gap_tolerance=0), ProximalBCFW(gap_tolerance=0)))
    assert proximal < plain / 3
