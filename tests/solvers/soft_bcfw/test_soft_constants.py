"""The constants of the guarantees, against optima, runs, and the curvature of every block."""

from itertools import product

import pytest
import torch
from factor_graphs import random_problem, relaxed_optimum
from soft_constants import soft_constants

from structsmooth import SoftBCFW
from structsmooth.problems import FactorGraphProblem

LAM = 0.1
FORMS = [(2, "potts", True), (3, "potts", False), (3, "table", False)]
every_form = pytest.mark.parametrize("form", FORMS, ids=str)


def largest_curvature(problem: FactorGraphProblem, rho: float) -> float:
    """Σ over blocks of the largest λ‖Ψd‖² + ‖Ad‖²/(ρn), by enumeration of the pairs of vertices."""
    total = 0.0
    for i in range(problem.n):
        parts = problem.costs(i)
        edges = problem.graphs.edges[problem.graphs.edges_of(i)]
        degrees = torch.bincount(edges.flatten(), minlength=len(parts[0]))
        for kind, own in enumerate(parts):
            states = [*product(*map(range, own.shape[1:]))]
            for block in range(len(own)):
                most = 0.0
                for a, b in product(states, states):
                    d = [torch.zeros_like(part) for part in parts]
                    d[kind][(block, *a)] += 1
                    d[kind][(block, *b)] -= 1
                    vector = problem.adjoint((d[0], d[1]), i) / (LAM * problem.n)
                    if kind == 0:
                        violation = float(degrees[block] * d[0].square().sum())
                    else:
                        violation = float(sum(d[1].sum(axis).square().sum() for axis in (1, 2)))
                    most = max(most, LAM * float(vector @ vector) + violation / (rho * problem.n))
                total += most
    return total


@every_form
@pytest.mark.parametrize("rho", [0.3, 5.0])
def test_no_block_has_more_curvature(form: tuple[int, str, bool], rho: float) -> None:
    problem = random_problem(*form)
    constants = soft_constants(problem, LAM, rho)
    exact = largest_curvature(problem, rho)
    assert 0.25 * constants.curvature <= exact <= constants.curvature + 1e-12
    assert constants.blocks == len(problem.graphs.labels) + len(problem.graphs.edges)


@every_form
def test_soft_optima_are_as_near_as_promised(form: tuple[int, str, bool]) -> None:
    problem, rho = random_problem(*form), 0.5
    solver = SoftBCFW(rho=rho, penalty="constant", gap_tolerance=1e-6)
    soft, hard = solver.solve(problem, lam=LAM, passes=3000).row, relaxed_optimum(problem, LAM)
    assert hard <= soft.objective + 1e-6
    assert soft.objective - soft_constants(problem, LAM, rho).relaxation <= hard


def test_runs_keep_to_the_rate() -> None:
    problem, rho = random_problem(2, "potts", True), 1.0
    constants = soft_constants(problem, LAM, rho)
    settings = {"rho": rho, "penalty": "constant", "gap_tolerance": 1e-8}
    best = SoftBCFW(**settings).solve(problem, lam=LAM, passes=3000).row.dual
    runs = [
        SoftBCFW(**settings, steps="fw", order="uniform").solve(problem, lam=LAM, passes=60, seed=seed).history
        for seed in range(5)
    ]
    assert best is not None
    for rows in zip(*runs, strict=True):
        steps, start = rows[0].passes * constants.blocks, best - runs[0][0].dual
        assert sum(best - row.dual for row in rows) / len(rows) <= constants.suboptimality(steps, start)
        least = min(sum(run[p].gap for run in runs) / len(runs) for p in range(rows[0].passes + 1))
        assert least <= constants.gap(steps, start)
