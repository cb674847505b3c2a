"""Command-line flags made from the hyperparameters of solvers."""

from __future__ import annotations

import re
from argparse import ArgumentParser, BooleanOptionalAction, Namespace
from collections.abc import Mapping
from dataclasses import fields
from types import UnionType
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

from structsmooth.solvers import BCFW, SGD, SVRG, Adam, CasimirSVRG, ProxLinear, Solver

SOLVERS: dict[str, type[Solver[Any]]] = {
    "casimir-svrg": CasimirSVRG,
    "bcfw": BCFW,
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


def parse_lam(text: str, n: int) -> float:
    """λ from ``"0.1"`` or ``"10/n"``."""
    number, _, denominator = str(text).partition("/")
    try:
        value = float(number)
    except ValueError:
        value = -1.0
    if denominator not in ("", "n") or not 0 <= value < float("inf"):
        raise ValueError(f"--lam must be a number or c/n with c >= 0, got {text!r}")
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
