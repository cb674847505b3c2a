"""Every solver on linear modules with forbidden parts and constants."""

from functools import cache
from typing import Any

import pytest
import torch
from constant_problems import LAM, problems

from structsmooth import (
    BCFW,
    SGD,
    SVRG,
    Adam,
    CasimirSVRG,
    CoCoA,
    CuttingPlane,
    ExcessiveGap,
    ExponentiatedGradient,
    Extragradient,
    FrankWolfe,
    IncrementalProxLinear,
    NSlackCuttingPlane,
    ProxLinear,
)
from structsmooth.history import Row
from structsmooth.solvers import Solver

NEEDS_EXP = ("casimir, entropy", "extragradient", "excessive-gap", "exponentiated-gradient")
PRIMAL_AND_DUAL: dict[str, Solver[Any]] = {
    "sgd": SGD(),
    "svrg": SVRG(),
    "casimir": CasimirSVRG(k=3),
    "casimir, entropy": CasimirSVRG(smoothing="entropy"),
    "casimir, sdca": CasimirSVRG(inner="sdca"),
    "prox-linear": ProxLinear(),
    "incremental": IncrementalProxLinear(),
    "adam": Adam(),
    "cocoa": CoCoA(),
    "frank-wolfe": FrankWolfe(),
    "cutting-plane": CuttingPlane(),
    "n-slack": NSlackCuttingPlane(),
    "extragradient": Extragradient(),
    "excessive-gap": ExcessiveGap(),
    "exponentiated-gradient": ExponentiatedGradient(),
}


@cache
def optimum_of(space: str) -> Row:
    """The last row of a run on the listed problem: its objective and dual enclose the optimum."""
    return BCFW(gap_tolerance=1e-2).solve(problems(space)[1], lam=LAM, passes=1000).row


@pytest.mark.parametrize("space", ["forbidden transitions", "at most one", "constant reward"])
@pytest.mark.parametrize("name", PRIMAL_AND_DUAL)
def test_every_solver_nears_the_optimum_of_the_listed_problem(space: str, name: str) -> None:
    problem, _ = problems(space)
    if space == "constant reward" and name in NEEDS_EXP:
        with pytest.raises(NotImplementedError, match="BinaryGraph has no exact logsumexp"):
            PRIMAL_AND_DUAL[name].solve(problem, lam=LAM, passes=1)
        return
    reference = optimum_of(space)
    history = PRIMAL_AND_DUAL[name].solve(problem, lam=LAM, passes=20).history
    assert all(row.objective >= reference.dual - 1e-9 for row in history)
    assert all(row.dual <= reference.objective + 1e-9 for row in history if row.dual is not None)
    without_weights = problem.loss(torch.zeros_like(problem.start()))
    assert min(history.column("objective")) <= reference.objective + 0.1 * without_weights
