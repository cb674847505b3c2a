"""Lower bounds from full passes: below the optimum, never worse, and the best on their segment."""

import pytest
import torch
from small_problems import EnumeratedProblem, random_problem, random_weights

from structsmooth import L2, Entropy, Max, Smoother
from structsmooth.solvers.lower_bound import DualPoint

SMOOTHERS: list[Smoother] = [Max(), L2(0.7, 3), Entropy(2.0)]
every_lam = pytest.mark.parametrize("lam", [0.01, 0.2, 5.0])


@every_lam
def test_bounds_rise_and_stay_below_the_optimum(lam: float) -> None:
    problem = random_problem()
    optimum = EnumeratedProblem(problem).optimum(lam)
    point = DualPoint(problem.start())
    values = [point.value(lam)]
    assert values == [0.0]
    for seed in range(30):
        w = random_weights(problem, seed) * 0.8**seed
        point = point.improved(problem.full_pass(w, SMOOTHERS[seed % 3]), lam)
        values.append(point.value(lam))
        assert values[-1] >= values[-2] - 1e-12
        assert values[-1] <= optimum + 1e-9
    assert values[-1] > values[0]


@pytest.mark.parametrize("lam", [0.2, 5.0])
def test_bounds_at_the_weights_of_the_dual_reach_the_optimum(lam: float) -> None:
    """Passes at w = −g/λ make this the Frank-Wolfe algorithm with line search."""
    problem = random_problem()
    optimum = EnumeratedProblem(problem).optimum(lam)
    point = DualPoint(problem.start())
    for _ in range(300):
        point = point.improved(problem.full_pass(-point.gradient / lam, Max()), lam)
    assert 0.98 * optimum <= point.value(lam) <= optimum + 1e-9


@every_lam
@pytest.mark.parametrize("smoother", SMOOTHERS, ids=str)
@pytest.mark.parametrize("scale", [0.01, 0.3, 3.0])
def test_improved_is_the_best_on_the_segment(lam: float, smoother: Smoother, scale: float) -> None:
    problem = random_problem()
    old = DualPoint(problem.start())
    for seed in range(4):
        full = problem.full_pass(scale * random_weights(problem, seed), smoother)
        new = old.improved(full, lam)
        steps = torch.linspace(0, 1, 2001, dtype=torch.float64) ** 4
        gradients = old.gradient + steps[:, None] * (full.gradient - old.gradient)
        values = old.cost + steps * (full.expected_cost - old.cost) - gradients.square().sum(1) / (2 * lam)
        assert new.value(lam) >= float(values.max()) - 1e-12
        assert new.value(lam) == pytest.approx(float(values.max()), rel=1e-4, abs=1e-9)
        old = new


def test_a_pass_with_nothing_new_changes_nothing() -> None:
    problem = random_problem()
    full = problem.full_pass(random_weights(problem), Max())
    point = DualPoint(full.gradient, full.expected_cost)
    assert point.improved(full, 0.2).value(0.2) == point.value(0.2)
