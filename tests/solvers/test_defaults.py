"""Default settings on many small problems: no run returns worse weights than its start, or than its best row has."""

from itertools import product
from typing import Any

import pytest

from scripts.benchmarks.defaults import (
    FAMILIES,
    LINEAR_SOLVERS,
    MODULE_SOLVERS,
    examples,
    linear_problem,
    module_problem,
)
from structsmooth.cli.flags import parse_solvers
from structsmooth.problems import Problem
from structsmooth.solvers import Solver

# Examples, and λn: the large problems have one λ, to keep the tests short.
SIZES = [*product([30], [10.0, 1.0, 0.1]), (200, 1.0)]
MODULES = parse_solvers(MODULE_SOLVERS.split())
LINEAR = parse_solvers(LINEAR_SOLVERS.split())
PAIRS = [
    (solver, name)
    for solver, (name, family) in product(LINEAR, FAMILIES.items())
    if family.linear and not (name == "cuts" and LINEAR[solver].oracle == "exp")  # sums over cuts are #P-hard
]


def returns_its_best(solver: Solver[Any], problem: Problem, lam: float) -> None:
    """The returned weights have the objective of the best row, which is not above the start."""
    result = solver.solve(problem, lam=lam, passes=3)
    w, objectives = result.weights, result.history.column("objective")
    objective = problem.loss(w) + lam / 2 * float(w @ w)
    assert objective == pytest.approx(result.row.objective, rel=1e-5)
    assert result.row.objective == min(objectives) <= objectives[0]


@pytest.mark.parametrize(("n", "scale"), SIZES)
@pytest.mark.parametrize("learnable", [True, False], ids=["learnable", "random"])
@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("solver", MODULES)
def test_modules(solver: str, family: str, learnable: bool, n: int, scale: float) -> None:
    data = examples(FAMILIES[family], n, learnable, seed=0)
    returns_its_best(MODULES[solver], module_problem(FAMILIES[family], data, seed=0), scale / n)


@pytest.mark.parametrize(("n", "scale"), SIZES)
@pytest.mark.parametrize("learnable", [True, False], ids=["learnable", "random"])
@pytest.mark.parametrize(("solver", "family"), PAIRS)
def test_linear_problems(solver: str, family: str, learnable: bool, n: int, scale: float) -> None:
    data = examples(FAMILIES[family], n, learnable, seed=0)
    returns_its_best(LINEAR[solver], linear_problem(FAMILIES[family], data, seed=0), scale / n)
