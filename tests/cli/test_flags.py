"""Flags made from the fields of dataclasses, and solvers with options in one word."""

from argparse import ArgumentParser
from dataclasses import dataclass, field
from typing import Literal

import pytest
from flag_help import help_of

from structsmooth.cli import main
from structsmooth.cli.flags import add_flags, from_flags, parse_solvers
from structsmooth.plain import from_plain, plain
from structsmooth.solvers import BCFW, SGD, SOLVERS, SVRG, CasimirSVRG
from structsmooth.tasks import NER


@dataclass(frozen=True)
class Base:
    """A base.

    Args:
        size: number of things, ``0`` for none.
    """

    size: int = 3


@dataclass(frozen=True)
class Options(Base):
    """Options of all kinds.

    Args:
        rate: step size; estimated
            if not given.
        mode: "fast" or "exact", which takes 100 % longer.
        average: take averages.
        sort: sort things.
        names: of things; all if not given.
        folder: where things are.
        seed: of the run.
        limits: of all things, or by name.

    Raises:
        ValueError: never.
    """

    rate: float | None = None
    mode: Literal["fast", "exact"] = "fast"
    average: bool = False
    sort: bool = True
    names: list[str] = field(default_factory=list, metadata={"flag": "--name", "metavar": "NAME"})
    folder: str | None = field(default=None, metadata={"metavar": "DIR"})
    seed: int = field(default=0, metadata={"flag": None})
    limits: int | str | None = None


class Overridden(Options):
    """A subclass that is no dataclass of its own."""

    size = 7


def parser(cls: type, **defaults) -> ArgumentParser:
    made = ArgumentParser()
    add_flags(made, "things", cls, defaults)
    return made


def test_fields_are_flags():
    made = parser(Options)
    assert from_flags(Options, made.parse_args([])) == Options()
    given = made.parse_args(
        "--size 5 --rate 0.5 --mode exact --average --no-sort --name a b --folder here --limits a=3".split()  # noqa: SIM905
    )
    assert from_flags(Options, given) == Options(5, 0.5, "exact", True, False, ["a", "b"], "here", limits="a=3")
    assert made.parse_args(["--limits", "3"]).limits == 3
    given.seed = 4  # the value of another flag
    assert from_flags(Options, given).seed == 4


@pytest.mark.parametrize("arguments", [["--mode", "slow"], ["--size", "2.5"], ["--rate", "x"], ["--seed", "1"]])
def test_flags_refuse_other_values(arguments):
    with pytest.raises(SystemExit):
        parser(Options).parse_args(arguments)


@pytest.mark.parametrize(
    ("typed", "message"),
    [
        ("ner --encoder-scale=0.5", "--encoder-scale says nothing without --encoder: give both, or neither"),
        ("ner --encoder DIR --batch 8", "--batch says nothing without --tune"),
        ("chunking --epochs 3", "--epochs says nothing without --tune"),
        ("parsing --codes 32", "--codes says nothing without --encoder"),
    ],
)
def test_flags_that_say_nothing_without_another_are_refused(typed, message, capsys):
    assert main(["train", *typed.split()]) == 2
    assert message in capsys.readouterr().err


def test_settings_that_say_nothing_are_read_from_files():
    saved = plain(NER(encoder_scale=0.5, epochs=2))
    assert from_plain(NER, saved, "trained") == NER(encoder_scale=0.5, epochs=2)


def test_help_comes_from_the_docstrings(monkeypatch):
    monkeypatch.setenv("COLUMNS", "200")
    assert help_of(parser(Options, size=4), "things") == {
        "size": "INT number of things, 0 for none (default: 4)",
        "rate": "FLOAT step size; estimated if not given",
        "mode": '{fast,exact} "fast" or "exact", which takes 100 % longer (default: fast)',
        "average": "--no-average take averages (default: no)",
        "sort": "--no-sort sort things (default: yes)",
        "name": "NAME [NAME ...] of things; all if not given",
        "folder": "DIR where things are",
        "limits": "INT|TEXT of all things, or by name",
    }


def test_defaults_may_be_overridden():
    assert parser(Options, size=4).parse_args([]).size == 4
    assert parser(Overridden).parse_args([]).size == 7


@pytest.mark.parametrize("name", SOLVERS)
def test_every_hyperparameter_is_explained(name):
    made = parser(SOLVERS[name])
    assert from_flags(SOLVERS[name], made.parse_args([])) == SOLVERS[name]()
    assert all(len(text) > 15 for text in help_of(made, "things").values())
    assert "estimated)" not in made.format_help()


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
        ("bcfw:sampling=best", "bcfw: sampling must be one of uniform, gap, curvature, got 'best'"),
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
