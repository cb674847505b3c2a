"""Solvers with options in one word."""

import pytest

from structsmooth.cli.flags import parse_solvers
from structsmooth.solvers import BCFW, SGD, SVRG, CasimirSVRG


@pytest.mark.parametrize(
    ("texts", "expected"),
    [
        (["sgd"], {"sgd": SGD(gap_tolerance=0.0)}),
        (["bcfw,svrg"], {"bcfw": BCFW(gap_tolerance=0.0), "svrg": SVRG(gap_tolerance=0.0)}),
        (
            ["bcfw:sampling=uniform,steps=pairwise,sgd:average=false", " svrg:mu=0.5 "],
            {
                "bcfw:sampling=uniform,steps=pairwise": BCFW(sampling="uniform", steps="pairwise", gap_tolerance=0.0),
                "sgd:average=false": SGD(average=False, gap_tolerance=0.0),
                "svrg:mu=0.5": SVRG(mu=0.5, gap_tolerance=0.0),
            },
        ),
        (
            ["casimir-svrg:warm-start=extrapolation,kappa=2,k=3,gap_tolerance=1e-4"],
            {
                "casimir-svrg:warm-start=extrapolation,kappa=2,k=3,gap_tolerance=1e-4": CasimirSVRG(
                    warm_start="extrapolation", kappa=2.0, k=3, gap_tolerance=1e-4
                )
            },
        ),
        (["bcfw:average=true"], {"bcfw:average=true": BCFW(average=True, gap_tolerance=0.0)}),
    ],
)
def test_parse_solvers(texts, expected):
    solvers = parse_solvers(texts)
    assert solvers == expected
    assert [*solvers] == [*expected]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("bcfw:sampling=best", "bcfw: sampling must be one of uniform, gap, got 'best'"),
        ("bcfw:average=yes", "bcfw: average must be one of true, false, got 'yes'"),
        ("svrg:k=2.5", "svrg: k must be of type INT, got '2.5'"),
        ("svrg:mu", "svrg: mu must be of type FLOAT, got ''"),
        ("svrg:state_type=1", "svrg has no option 'state_type'"),
        ("casimir-svrg:lipschitz=1,learning_rate=1", "give lipschitz or learning_rate, not both"),
    ],
)
def test_parse_solvers_refuses(text, message):
    with pytest.raises(ValueError, match=message):
        parse_solvers([text])
