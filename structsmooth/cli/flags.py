"""Command-line flags made from the hyperparameters of solvers."""

from __future__ import annotations

import re
from argparse import ArgumentParser, BooleanOptionalAction, Namespace
from collections.abc import Mapping, Sequence
from dataclasses import fields
from types import MappingProxyType, UnionType
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

from structsmooth.solvers import BCFW, SGD, SVRG, Adam, CasimirSVRG, FrankWolfe, ProxLinear, Solver

SOLVERS: dict[str, type[Solver[Any]]] = {
    "casimir-svrg": CasimirSVRG,
    "bcfw": BCFW,
    "frank-wolfe": FrankWolfe,
    "svrg": SVRG,
    "sgd": SGD,
    "prox-linear": ProxLinear,
    "adam": Adam,
}


def add_solver_flags(parser: ArgumentParser, name: str, defaults: Mapping[str, Any]) -> None:
    """A flag for every hyperparameter of a solver, with the help of its docstring, and some other defaults."""
    solver = SOLVERS[name]
    hints, texts = get_type_hints(solver), _argument_texts(solver)
    group = parser.add_argument_group(f"hyperparameters of {name} (--solver gives others)")
    for f in fields(solver):
        default = defaults.get(f.name, f.default)
        shown = "estimated" if default is None else default
        text = f"{texts[f.name]} (default: {shown})".replace("%", "%%")
        flag = "--" + f.name.replace("_", "-")
        group.add_argument(flag, dest=f.name, default=default, help=text, **_parsing(hints[f.name]))


def solver_from(options: Namespace) -> Solver[Any]:
    """The solver that parsed flags describe."""
    solver = SOLVERS[options.solver]
    return solver(**{f.name: getattr(options, f.name) for f in fields(solver)})


def parse_solvers(
    texts: Sequence[str], defaults: Mapping[str, Mapping[str, Any]] = MappingProxyType({})
) -> dict[str, Solver[Any]]:
    """Solvers by label, from lists such as ``"svrg:mu=0.1,k=3,sgd"``; ``k=3`` belongs to the solver before it.

    Runs to be compared end at their last pass: without ``gap_tolerance`` in its options a solver has 0.

    Args:
        texts: the lists.
        defaults: hyperparameters by solver, where others than its own are wanted.

    Raises:
        ValueError: no such solver or option, a bad value, or the same solver twice.
    """
    solvers: dict[str, Solver[Any]] = {}
    for label in _solver_specs(texts):
        name, _, options = label.partition(":")
        if name not in SOLVERS:
            raise ValueError(f"unknown solver {name!r} in --solvers: expected one of {', '.join(SOLVERS)}")
        if label in solvers:
            raise ValueError(f"--solvers has {label} twice")
        given = dict(_hyperparameter(name, option) for option in options.split(",") if option)
        try:
            solvers[label] = SOLVERS[name](**({"gap_tolerance": 0.0, **defaults.get(name, {})} | given))
        except (TypeError, ValueError) as error:
            raise ValueError(f"{label}: {error}") from error
    if not solvers:
        raise ValueError("--solvers needs a solver at least")
    return solvers


def _solver_specs(texts: Sequence[str]) -> list[str]:
    """``name`` or ``name:option=value,...`` for each solver of some lists."""
    specs: list[str] = []
    for piece in filter(None, (piece.strip() for text in texts for piece in text.split(","))):
        if "=" not in piece or ":" in piece.partition("=")[0]:
            specs.append(piece)
        elif not specs:
            raise ValueError(f"--solvers begins with {piece!r}: an option stands behind its solver, as in svrg:mu=0.1")
        else:
            specs[-1] += ("," if ":" in specs[-1] else ":") + piece
    return specs


def _hyperparameter(solver: str, option: str) -> tuple[str, Any]:
    """Name and value of ``"warm-start=extrapolation"``, for some solver."""
    flag, _, text = option.partition("=")
    name, names = flag.replace("-", "_"), [f.name for f in fields(SOLVERS[solver])]
    if name not in names:
        raise ValueError(f"{solver} has no option {flag!r}: expected one of {', '.join(names)}")
    parsing = _parsing(get_type_hints(SOLVERS[solver])[name])
    if "type" in parsing:
        try:
            return name, parsing["type"](text)
        except ValueError:
            raise ValueError(f"{solver}: {name} must be of type {parsing['metavar']}, got {text!r}") from None
    choices = {str(choice).lower(): choice for choice in parsing.get("choices", (True, False))}
    if text not in choices:
        raise ValueError(f"{solver}: {name} must be one of {', '.join(choices)}, got {text!r}")
    return name, choices[text]


def parse_lam(text: str, n: int, flag: str = "--lam") -> float:
    """λ from ``"0.1"`` or ``"10/n"``."""
    number, _, denominator = str(text).partition("/")
    try:
        value = float(number)
    except ValueError:
        value = -1.0
    if denominator not in ("", "n") or not 0 <= value < float("inf"):
        raise ValueError(f"{flag} must be a number or c/n with c >= 0, got {text!r}")
    return value / n if denominator else value


def _parsing(hint: Any) -> dict[str, Any]:
    """How argparse is to read a value of some type."""
    if get_origin(hint) in (Union, UnionType):
        (hint,) = (option for option in get_args(hint) if option is not type(None))
    if get_origin(hint) is Literal:
        return {"choices": get_args(hint)}
    if hint is bool:
        return {"action": BooleanOptionalAction}
    return {"type": hint, "metavar": hint.__name__.upper()}


def _argument_texts(cls: type) -> dict[str, str]:
    """Descriptions of arguments in the Google-style docstrings of a class and its bases."""
    texts: dict[str, str] = {}
    for base in reversed(cls.__mro__):
        _, _, arguments = (base.__dict__.get("__doc__") or "").partition("Args:\n")
        for name, text in re.findall(r"^ {8}(\w+): (.*?)(?=^ {8}\w|^ {4}\w|\Z)", arguments, re.M | re.S):
            texts[name] = " ".join(text.replace("``", "").split()).rstrip(".")
    return texts
