"""Solvers as text, and as settings that JSON can hold."""

import json
from typing import Any

import pytest

from structsmooth.solvers import (
    BCFW,
    SGD,
    SVRG,
    CasimirSVRG,
    ProxLinear,
    Solver,
    parse_solver,
    solver_settings,
    solver_text,
)

TEXTS: dict[str, Solver[Any]] = {
    "svrg": SVRG(),
    "bcfw:steps=fw:cache=true": BCFW(steps="fw", cache=True),
    "casimir-svrg:k=3:warm_start=extrapolation": CasimirSVRG(k=3, warm_start="extrapolation"),
    "prox-linear:inner=bcfw": ProxLinear(inner=BCFW()),
    "prox-linear:inner=svrg:k=3:mu=0.5": ProxLinear(inner=SVRG(mu=0.5, k=3)),
}


@pytest.mark.parametrize(("text", "solver"), TEXTS.items(), ids=TEXTS)
def test_text_is_that_of_the_solver(text: str, solver: Solver[Any]) -> None:
    assert parse_solver(text) == solver
    assert parse_solver(solver_text(solver)) == solver
    assert {*solver_text(solver).split(":")} == {*text.split(":")}


def test_commas_separate_options_of_the_outer_solver() -> None:
    solver = parse_solver("prox-linear:inner=casimir-svrg:mu=0.1:k=10,schedule=constant,accept=always")
    assert solver == ProxLinear(inner=CasimirSVRG(mu=0.1, k=10), schedule="constant", accept="always")
    assert parse_solver("bcfw:steps=away", {"cache": True, "steps": "fw"}) == BCFW(steps="away", cache=True)


def test_settings() -> None:
    settings = solver_settings(ProxLinear(inner=BCFW(steps="fw")))
    assert settings["inner"] == "bcfw:steps=fw"
    assert json.loads(json.dumps(settings)) == settings


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("bfcw", r"unknown solver 'bfcw' \(did you mean bcfw\?\): expected one of casimir-svrg"),
        ("sgd:t=3", "sgd has no option 't'"),
        ("sgd:t0=x", "sgd: t0 must be of type FLOAT, got 'x'"),
        ("bcfw:cache=maybe", "bcfw: cache must be one of true, false, got 'maybe'"),
        ("bcfw:steps=none", "bcfw: steps must be one of fw, pairwise, away, best, got 'none'"),
        ("prox-linear:inner=newton", "unknown solver 'newton'"),
        ("prox-linear:inner=sgd", "inner must be a CasimirSVRG, an SVRG or a BCFW, got SGD"),
        ("sgd:t0=-1", "sgd:t0=-1: t0 must be positive"),
    ],
)
def test_refuses(text: str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        parse_solver(text)


def test_refuses_to_write_solvers_without_a_name() -> None:
    class Own(SGD):
        pass

    with pytest.raises(ValueError, match=r"the solver must be one of structsmooth\.solvers\.SOLVERS"):
        solver_text(Own())


def test_a_number_or_a_word() -> None:
    assert parse_solver("casimir-svrg:kappa=lam") == CasimirSVRG(kappa="lam")
    assert parse_solver("casimir-svrg:kappa=0.5") == CasimirSVRG(kappa=0.5)
    assert solver_text(CasimirSVRG(kappa="lam")) == "casimir-svrg:kappa=lam"
    with pytest.raises(ValueError, match=r"casimir-svrg: kappa must be of type lam\|FLOAT, got 'n'"):
        parse_solver("casimir-svrg:kappa=n")
    with pytest.raises(TypeError, match="kappa must be a number, got str"):
        CasimirSVRG(kappa="n")  # type: ignore[arg-type]
