"""What runs is what the class is called: hyperparameters do not exchange the algorithm."""

from collections.abc import Iterator
from dataclasses import fields, replace
from functools import cache
from typing import Any, get_type_hints

import pytest
from factor_graphs import random_problem as factor_graphs
from soft_pieces import factor_problem
from solver_cases import LAM, crf, small_problem

from structsmooth.settings import Allowed
from structsmooth.solvers import SOLVERS, Solver, parse_solver, solver_text
from structsmooth.solvers.registry import is_solver

# Problems of solvers that need another kind than chains.
PROBLEMS = {"soft-bcfw": factor_graphs, "dlpw": factor_graphs, "lbfgs": crf}
# The same of fields that need it.
OF_FIELDS = {"decomposition": factor_problem}
# Fields that name an oracle.
ORACLES = {"smoothing"}


def other_values(hint: Any, value: Any) -> Iterator[Any]:
    """Some more values of a hyperparameter."""
    allowed = Allowed.by(hint)
    yield from (choice for choice in allowed.choices if choice != value)
    if hint is bool:
        yield not value
    elif allowed.number is int:
        yield 2 if value is None else value + 1
    elif allowed.number is float:
        yield 2.0 if value is None else 0.9 * value


def variants() -> Iterator[Any]:
    for name, cls in SOLVERS.items():
        hints, default = get_type_hints(cls), cls()
        for field in fields(cls):
            if not is_solver(hints[field.name]):
                for value in other_values(hints[field.name], getattr(default, field.name)):
                    yield pytest.param(name, field.name, value, id=f"{name}, {field.name}={value}")


@cache
def algorithm(name: str, field: str, solver: Solver[Any]) -> tuple[Any, ...]:
    """What tells algorithms apart: the state, and whether steps have a size, a smoothing and a bound."""
    problem: Any = OF_FIELDS.get(field, PROBLEMS.get(name, small_problem))
    result = solver.solve(problem(), lam=LAM, passes=2)
    row = result.history[-1]
    return type(result.state), row.step_size is None, row.mu > 0, row.dual is None


@pytest.mark.parametrize(("name", "field", "value"), [*variants()])
def test_the_algorithm_stays(name: str, field: str, value: Any) -> None:
    default = SOLVERS[name]()
    changed = replace(default, **{field: value})
    assert algorithm(name, field, changed) == algorithm(name, field, default)
    assert field in ORACLES or changed.oracle == default.oracle
    assert parse_solver(solver_text(changed)) == changed
