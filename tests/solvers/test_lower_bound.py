"""Lower bounds from points of the dual: below the optimum, never worse, and the best mixtures."""

import pytest
import torch
from small_problems import EnumeratedProblem, random_problem, random_weights

from structsmooth import L2, Entropy, Max
from structsmooth.problems.base import FullPass
from structsmooth.smoothing import Smoother
from structsmooth.solvers.lower_bound import DualPoint, best_mixture

SMOOTHERS: list[Smoother] = [Max(), L2(0.7, 3), Entropy(2.0)]
every_lam = pytest.mark.parametrize("lam", [0.01, 0.2, 5.0])


def point_of(full: FullPass) -> DualPoint:
    assert full.expected_cost is not None
    return DualPoint(full.gradient, full.expected_cost)


def mixtures(power: int = 1) -> torch.Tensor:
    """Shares of two points, the rest of which is that of the labels, on a grid: [..., 2]."""
    grid = torch.linspace(0, 1, 401, dtype=torch.float64) ** power
    both, second = torch.cartesian_prod(grid, grid).T
    return torch.stack([both * (1 - second), both * second], 1)


@every_lam
def test_bounds_rise_and_stay_below_the_optimum(lam: float) -> None:
    problem = random_problem()
    optimum = EnumeratedProblem(problem).optimum(lam)
    point = DualPoint(problem.start())
    values = [point.value(lam)]
    assert values == [0.0]
    for seed in range(30):
        w = random_weights(problem, seed) * 0.8**seed
        point = point.improved(point_of(problem.full_pass(w, SMOOTHERS[seed % 3])), lam)
        values.append(point.value(lam))
        assert values[-1] >= values[-2] - 1e-12
        assert values[-1] <= optimum + 1e-9
    assert values[-1] > values[0]


@pytest.mark.parametrize("lam", [0.2, 5.0])
def test_bounds_at_the_weights_of_the_dual_reach_the_optimum(lam: float) -> None:
    """Passes at w = −g/λ make this the Frank-Wolfe algorithm, with steps that are at least those of a line search."""
    problem = random_problem()
    optimum = EnumeratedProblem(problem).optimum(lam)
    point = DualPoint(problem.start())
    for _ in range(300):
        point = point.improved(point_of(problem.full_pass(-point.gradient / lam, Max())), lam)
    assert 0.98 * optimum <= point.value(lam) <= optimum + 1e-9


@every_lam
@pytest.mark.parametrize("smoother", SMOOTHERS, ids=str)
@pytest.mark.parametrize("scale", [0.01, 0.3, 3.0])
def test_improved_is_the_best_mixture(lam: float, smoother: Smoother, scale: float) -> None:
    problem, shares = random_problem(), mixtures(power=3)
    old = DualPoint(problem.start())
    for seed in range(4):
        other = point_of(problem.full_pass(scale * random_weights(problem, seed), smoother))
        new = old.improved(other, lam)
        gradients = shares @ torch.stack([old.gradient, other.gradient])
        values = shares @ shares.new_tensor([old.cost, other.cost]) - gradients.square().sum(1) / (2 * lam)
        assert new.value(lam) >= float(values.max()) - 1e-12
        assert new.value(lam) == pytest.approx(float(values.max()), rel=1e-3, abs=1e-9)
        old = new


@pytest.mark.parametrize("seed", range(20))
def test_best_mixture(seed: int) -> None:
    """In the interior, on each side and at each corner, by turns; also of points that are multiples of each other."""
    generator = torch.Generator().manual_seed(seed)
    vectors = 3 * torch.randn(2, 1 + seed % 3, generator=generator, dtype=torch.float64)
    costs = torch.randn(2, generator=generator, dtype=torch.float64)
    products = (vectors @ vectors.T).tolist()
    shares = mixtures()
    values = shares @ costs - (shares @ vectors).square().sum(1) / 2
    first, second = costs.tolist()
    s, t = best_mixture((first, second), (products[0][0], products[0][1], products[1][1]))
    assert s >= 0 <= t <= 1 - s + 1e-12
    best = s * first + t * second - float((s * vectors[0] + t * vectors[1]).square().sum()) / 2
    assert float(values.max()) - 1e-12 <= best <= float(values.max()) + 1e-3


def test_a_point_that_is_known_changes_nothing() -> None:
    problem = random_problem()
    full = problem.full_pass(0.1 * random_weights(problem), Max())
    point = DualPoint(problem.start()).improved(point_of(full), 0.2)
    assert point.value(0.2) > 0
    again = point.improved(point_of(full), 0.2).improved(point, 0.2)
    assert again.value(0.2) == pytest.approx(point.value(0.2), rel=1e-12)
