"""Every solver on linear modules with forbidden parts and constants."""

from collections.abc import Sequence
from functools import cache
from typing import Any

import pytest
import torch
from constant_problems import LAM, problems
from torch.testing import assert_close

from structsmooth import BCFW, SGD, CasimirSVRG, ProxLinear
from structsmooth.history import Row
from structsmooth.solvers import (
    SVRG,
    Adam,
    BatchExponentiatedGradient,
    CoCoA,
    CuttingPlane,
    ExcessiveGap,
    ExponentiatedGradient,
    Extragradient,
    FrankWolfe,
    IncrementalProxLinear,
    NSlackCuttingPlane,
    ProximalSDCA,
    Solver,
)

SPACES = ["forbidden transitions", "at most one", "constant reward"]
# Their steps leave ties, which rounding breaks; exponentiated gradient begins with distributions near labels' parts.
OTHER_ITERATES = ("prox-linear", "cocoa", "cutting-plane", "n-slack", "exponentiated-gradient")
NEEDS_EXP = (
    "casimir, entropy",
    "batch-exponentiated-gradient",
    "extragradient",
    "excessive-gap",
    "exponentiated-gradient",
)
PRIMAL_AND_DUAL: dict[str, Solver[Any]] = {
    "sgd": SGD(),
    "svrg": SVRG(),
    "casimir": CasimirSVRG(k=3),
    "casimir, entropy": CasimirSVRG(smoothing="entropy"),
    "proximal-sdca": ProximalSDCA(),
    "prox-linear": ProxLinear(inner=BCFW()),
    "incremental": IncrementalProxLinear(),
    "adam": Adam(),
    "cocoa": CoCoA(),
    "frank-wolfe": FrankWolfe(),
    "cutting-plane": CuttingPlane(),
    "n-slack": NSlackCuttingPlane(),
    "batch-exponentiated-gradient": BatchExponentiatedGradient(),
    "extragradient": Extragradient(),
    "excessive-gap": ExcessiveGap(),
    "exponentiated-gradient": ExponentiatedGradient(),
}


@cache
def optimum_of(space: str) -> Row:
    """The last row of a run on the listed problem: its objective and dual enclose the optimum."""
    return BCFW(gap_tolerance=1e-2).solve(problems(space)[1], lam=LAM, passes=1000).row


def combinations(names: Sequence[str]) -> list[tuple[str, str]]:
    """Spaces and solvers that have the oracle for them: cuts have no exp oracle."""
    return [(space, name) for space in SPACES for name in names if space != "constant reward" or name not in NEEDS_EXP]


@pytest.mark.parametrize(
    ("space", "name"), combinations([name for name in PRIMAL_AND_DUAL if name not in OTHER_ITERATES])
)
def test_iterates_are_those_of_the_listed_problem(space: str, name: str) -> None:
    solver = PRIMAL_AND_DUAL[name]
    results = [solver.solve(problem, lam=LAM, passes=4) for problem in problems(space)]
    histories = [result.history for result in results]
    for own, expected in zip(*histories, strict=True):
        assert own.objective == pytest.approx(expected.objective, abs=1e-9)
        if expected.dual is not None:
            assert own.dual == pytest.approx(expected.dual, abs=1e-9)
    assert_close(results[0].weights, results[1].weights, rtol=0, atol=1e-9)


@pytest.mark.parametrize(("space", "name"), combinations(OTHER_ITERATES))
def test_other_solvers_near_the_optimum_of_the_listed_problem(space: str, name: str) -> None:
    problem, _ = problems(space)
    reference = optimum_of(space)
    history = PRIMAL_AND_DUAL[name].solve(problem, lam=LAM, passes=20).history
    assert all(row.objective >= reference.dual - 1e-9 for row in history)
    assert all(row.dual <= reference.objective + 1e-9 for row in history if row.dual is not None)
    without_weights = problem.loss(torch.zeros_like(problem.start()))
    assert min(history.column("objective")) <= reference.objective + 0.1 * without_weights


@pytest.mark.parametrize("name", NEEDS_EXP)
def test_cuts_have_no_exp_oracle(name: str) -> None:
    with pytest.raises(NotImplementedError, match="BinaryGraph has no exact logsumexp"):
        PRIMAL_AND_DUAL[name].solve(problems("constant reward")[0], lam=LAM, passes=1)
