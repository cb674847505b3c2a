"""Soft agreement for any λ: runs stay below zero weights, and near the optimum that another solver reaches."""

from functools import cache
from itertools import combinations
from typing import Any

import pytest
import torch
from factor_graphs import relaxed_objective
from solver_cases import record

from structsmooth import ProximalBCFW, SoftBCFW
from structsmooth.problems import FactorGraphProblem, FactorGraphs
from structsmooth.solvers.soft_bcfw.dual import SoftDual

EXAMPLES, SIDE, LABELS = 4, 5, 6


def graphs(labels: Any, features: Any, edges: list[tuple[int, int]], **more: Any) -> FactorGraphs:
    """Examples that share the edges of one graph; labels [n, N]."""
    count, nodes = labels.shape
    return FactorGraphs(
        features=features,
        labels=labels.flatten(),
        node_offsets=nodes * torch.arange(count + 1),
        edges=torch.tensor(edges),
        edge_offsets=torch.tensor([0, len(edges)]),
        edge_sets=torch.zeros(count, dtype=torch.int64),
        **more,
    )


@cache
def stripes(seed: int = 0) -> FactorGraphProblem:
    """Grids of four states in stripes, with a noisy indicator of each state, and tables for edges."""
    generator, nodes = torch.Generator().manual_seed(seed), SIDE * SIDE
    labels = (torch.arange(nodes) % SIDE).clamp_max(3).repeat(EXAMPLES, 1)
    noise = torch.randn(EXAMPLES * nodes, 4, generator=generator, dtype=torch.float64)
    features = torch.nn.functional.one_hot(labels.flatten(), 4) + 0.5 * noise
    across = [(i, i + 1) for i in range(nodes) if (i + 1) % SIDE]
    down = [(i, i + SIDE) for i in range(nodes - SIDE)]
    return FactorGraphProblem(graphs(labels, features, across + down), states=4, pairwise="table", bias=False)


@cache
def label_sets(seed: int = 0) -> FactorGraphProblem:
    """Six labels of each input, which depend on it and on each other, on complete graphs."""
    generator = torch.Generator().manual_seed(seed)
    x = torch.randn(30, 5, generator=generator, dtype=torch.float64)
    noise = torch.randn(30, LABELS, generator=generator, dtype=torch.float64)
    labels = (x @ torch.randn(5, LABELS, generator=generator, dtype=torch.float64) + noise > 0).long()
    pairs = list(combinations(range(LABELS), 2))
    more = {"rows": torch.arange(30).repeat_interleave(LABELS), "types": torch.arange(LABELS).repeat(30)}
    own = graphs(labels, x, pairs, edge_types=torch.arange(len(pairs)), **more)
    return FactorGraphProblem(own, states=2, reference=True, inference="relaxed")


PROBLEMS = {"stripes": stripes, "label sets": label_sets}
every_problem = pytest.mark.parametrize("problem", PROBLEMS.values(), ids=PROBLEMS.keys())


@every_problem
@pytest.mark.parametrize("strength", [100, 10, 1, 0.1, 0.01])
def test_runs_stay_below_zero_weights(problem: Any, strength: float) -> None:
    """For every seed: without the proximal term, runs with small λ end far above their best row, or their start."""
    own = problem()
    for seed in range(3):
        history = SoftBCFW(gap_tolerance=0).solve(own, lam=strength / own.n, passes=100, seed=seed).history
        assert history[-1].objective < 0.9 * history[0].objective
        assert history[-1].objective <= 1.05 * history.best().objective
        assert max(row.objective for row in history[20:]) < history[0].objective


@pytest.mark.parametrize("strength", [1, 0.01])
def test_near_the_optimum_for_small_lam(strength: float) -> None:
    """Of the relaxation, by exact cuts."""
    problem = label_sets()
    lam = strength / problem.n
    other = ProximalBCFW().solve(problem, lam=lam, passes=100)
    soft = SoftBCFW().solve(problem, lam=lam, passes=1000)
    assert soft.row.dual <= other.row.objective + 1e-9
    assert other.row.dual <= soft.row.objective + 1e-9
    assert soft.row.objective <= 1.02 * other.row.objective


def test_objectives_are_those_of_the_weights_that_a_run_would_return() -> None:
    problem, seen = stripes(), list[Any]()
    lam = 1 / problem.n
    result = SoftBCFW(gap_tolerance=0).solve(problem, lam=lam, passes=12, callbacks=[record(seen)])
    for state, _ in seen[::4]:
        assert relaxed_objective(problem, state.weights, lam) <= state.hard_objective + 1e-9
    assert relaxed_objective(problem, result.weights, lam) <= result.row.objective + 1e-9
    assert result.row.objective == min(row.objective for row in result.history)


def test_kappa_is_that_of_the_first_steps_or_given() -> None:
    """κ_0 makes a first step, towards labels that are all wrong, a full one."""
    problem = stripes()
    dual = SoftDual(problem, 1.0)
    squares, losses = 0.0, 0.0
    for i in range(problem.n):
        wrong = torch.where(problem.label_atom(i) == 0, 1, 0)
        parts = zip(problem.parts(wrong, i), problem.label_parts(i), strict=True)
        squares += problem.feature_map.squared_norm(tuple(a - b for a, b in parts), i)
        losses += len(wrong)
    scale = squares / losses / problem.n
    assert dual.scale() == pytest.approx(scale)
    for lam in (1e-3, 10 * scale):
        row = SoftBCFW().solve(problem, lam=lam, passes=1).history[-1]
        assert row.metrics["kappa"] == pytest.approx(max(lam, (lam * scale) ** 0.5, scale / 10))
    given = SoftBCFW(kappa=0.5).solve(problem, lam=1e-3, passes=1)
    assert given.history[-1].metrics["kappa"] == 0.5


def test_nothing_to_learn() -> None:
    """Labels that cost nothing leave zero weights."""
    problem = FactorGraphProblem(
        graphs(torch.zeros(2, 2, dtype=torch.int64), torch.ones(4, 1), [(0, 1)], costs=torch.zeros(4)), states=2
    )
    result = SoftBCFW().solve(problem, lam=0.1, passes=3)
    assert result.row.objective == 0
    assert not result.weights.any()
