"""Command-line flags made from the fields of dataclasses: hyperparameters of solvers, and options of tasks."""

import inspect
import re
from argparse import ArgumentParser, ArgumentTypeError, BooleanOptionalAction, Namespace
from collections.abc import Mapping, Sequence
from dataclasses import MISSING, Field, fields
from types import MappingProxyType
from typing import Any, TypeVar, get_args, get_origin, get_type_hints

import torch

from structsmooth.settings import Allowed, given_type
from structsmooth.solvers import SOLVERS, Solver, parse_solver, solver_text
from structsmooth.solvers.registry import is_solver
from structsmooth.spelling import suggestion

T = TypeVar("T")

_NONE: Mapping[str, Any] = MappingProxyType({})

# A reference to a name in a docstring, such as :class:`~structsmooth.BCFW`, and its last part.
_ROLE = re.compile(r":\w+:`~?(?:[\w.]*\.)?(\w+)`")


def add_flags(parser: ArgumentParser, title: str, cls: type, defaults: Mapping[str, Any] = _NONE) -> None:
    """Add a titled group with a flag for every field of a dataclass, read by its type and explained by the docstring.

    The field's metadata go to ``add_argument``, except for ``needs`` (see :func:`check_needs`) and ``flag``: a flag of
    another name than the field, or ``None`` for a field that takes the value of another flag. ``defaults`` by field
    replace the defaults of the class.
    """
    group = parser.add_argument_group(title)
    hints, texts = get_type_hints(cls), _argument_texts(cls)
    for f in fields(cls):
        settings = dict(f.metadata)
        settings.pop("needs", None)
        flag = settings.pop("flag", "--" + f.name.replace("_", "-"))
        if flag is not None:
            default = defaults.get(f.name, _default(cls, f))
            text = _help(texts.get(f.name, ""), default)
            group.add_argument(flag, dest=f.name, default=default, help=text, **_parsing(hints[f.name]) | settings)


def check_needs(cls: type, arguments: Sequence[str]) -> None:
    """Refuse flags of a dataclass that say nothing without another one, the field ``needs`` of their metadata.

    Saved settings have all fields, with their defaults, so that only what is typed can tell.

    Raises:
        ValueError: such a flag among the arguments, and the other one neither there nor set by default.
    """
    typed = {argument.partition("=")[0] for argument in arguments}
    for f in fields(cls):
        flag, needed = "--" + f.name.replace("_", "-"), f.metadata.get("needs")
        if flag in typed and needed and f"--{needed}" not in typed and getattr(cls, needed) is None:
            raise ValueError(f"{flag} says nothing without --{needed}: give both, or neither")


def known_solver(name: str) -> str:
    """The name of a solver, as a type of flags."""
    if name not in SOLVERS:
        asked = f"invalid choice: {name!r}{suggestion(name, SOLVERS)}"
        raise ArgumentTypeError(f"{asked}: expected one of {', '.join(SOLVERS)}")
    return name


def usable_device(name: str) -> str:
    """The name of a device on which torch computes, as a type of flags."""
    try:
        torch.zeros(1, device=name).item()
    except (RuntimeError, AssertionError) as error:
        raise ArgumentTypeError(f"{name}: {str(error).splitlines()[0]}") from error
    return "cpu" if torch.device(name).type == "cpu" else name


def from_flags(cls: type[T], options: Namespace) -> T:
    """The instance of a dataclass that parsed flags describe; fields without a flag keep their defaults."""
    return cls(**{f.name: getattr(options, f.name) for f in fields(cls) if f.name in options})  # type: ignore[arg-type]


def parse_solvers(texts: Sequence[str], defaults: Mapping[str, Any] = _NONE) -> dict[str, Solver[Any]]:
    """Solvers by label, from lists such as ``"svrg:mu=0.1,k=3,sgd"``; ``k=3`` belongs to the solver before it.

    Runs that are compared end at their last pass: ``gap_tolerance`` is 0 unless the options of a solver set it.
    ``defaults`` by solver replace the solver's own defaults.

    Raises:
        ValueError: an unknown solver or option, a bad value, or the same solver twice.
    """
    solvers: dict[str, Solver[Any]] = {}
    for label in _solver_specs(texts):
        name = label.partition(":")[0]
        if label in solvers:
            raise ValueError(f"--solvers has {label} twice")
        solvers[label] = parse_solver(label, {"gap_tolerance": 0.0, **defaults.get(name, {})})
    if not solvers:
        raise ValueError("--solvers needs at least one solver")
    return solvers


def _solver_specs(texts: Sequence[str]) -> list[str]:
    """``name`` or ``name:option=value,...`` for each solver of some lists."""
    specs: list[str] = []
    for piece in filter(None, (piece.strip() for text in texts for piece in text.split(","))):
        if "=" not in piece or ":" in piece.partition("=")[0]:
            specs.append(piece)
        elif not specs:
            raise ValueError(f"--solvers begins with {piece!r}: an option follows its solver, as in svrg:mu=0.1")
        else:
            specs[-1] += ("," if ":" in specs[-1] else ":") + piece
    return specs


def _default(cls: type, f: Field[Any]) -> Any:
    """The default of a field; a subclass that is no dataclass itself may have set another one."""
    return getattr(cls, f.name) if f.default_factory is MISSING else f.default_factory()


def _help(text: str, default: Any) -> str:
    """The help of a flag. What happens without a value is for the text to say."""
    if default is not None and default != []:
        shown = ("no", "yes")[default] if isinstance(default, bool) else default
        shown = solver_text(default) if isinstance(default, Solver) else shown
        text = f"{text} (default: {shown})"
    return text.replace("%", "%%")


def _parsing(hint: Any) -> dict[str, Any]:
    """How argparse is to read a value of some type."""
    allowed, hint = Allowed.by(hint), given_type(hint)
    if allowed.number is not None and (allowed.choices or allowed.texts):
        return {"type": allowed.parse, "metavar": allowed.metavar}
    if is_solver(hint):
        return {"type": _solver, "metavar": "SOLVER"}
    if get_origin(hint) is list:
        return {"nargs": "+"} | _parsing(*get_args(hint))
    if allowed.choices:
        return {"choices": allowed.choices}
    if hint is bool:
        return {"action": BooleanOptionalAction}
    return {"type": hint, "metavar": hint.__name__.upper()}


def _solver(text: str) -> Solver[Any]:
    """A solver inside another one, as a type of flags."""
    try:
        return parse_solver(text)
    except ValueError as error:
        raise ArgumentTypeError(str(error)) from error


def _argument_texts(cls: type) -> dict[str, str]:
    """Descriptions of arguments in the Google-style docstrings of a class and its bases."""
    texts: dict[str, str] = {}
    for base in reversed(cls.__mro__):
        _, _, arguments = inspect.cleandoc(base.__dict__.get("__doc__") or "").partition("Args:\n")
        for name, text in re.findall(r"^ {4}(\w+): (.*?)(?=^ {4}\w|^\w|\Z)", arguments, re.M | re.S):
            texts[name] = " ".join(_ROLE.sub(r"\1", text).replace("``", "").split()).rstrip(".")
    return texts
