"""Settings: fields of dataclasses whose types say which values they may have."""

import math
from collections.abc import Hashable
from dataclasses import dataclass, fields
from functools import cache
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, Union, cast, get_args, get_origin, get_type_hints

import numpy as np
import torch


@dataclass(frozen=True)
class Interval:
    """Numbers from ``least`` to ``most``; infinity is none of them.

    Args:
        least: the least number.
        most: the largest number.
        above: whether ``least`` itself is left out.
        remedy: what to do instead, for the message of an error.
    """

    least: float = 0
    most: float = math.inf
    above: bool = False
    remedy: str = ""

    def __contains__(self, value: float) -> bool:
        return (value > self.least if self.above else value >= self.least) and value <= self.most and value != math.inf

    def __str__(self) -> str:
        if self.most < math.inf:
            return f"from {self.least} to {self.most}"
        return "positive" if self.above and self.least == 0 else f"at least {self.least}"


Positive = Annotated[float, Interval(above=True)]
"""A positive number."""
PositiveInt = Annotated[int, Interval(1)]
"""A positive whole number."""


def check_settings(settings: Any) -> None:
    """Check the fields of a dataclass, even a frozen one, by their types; NumPy's numbers become Python's own.

    Numbers are finite and within the :class:`Interval` of an ``Annotated`` type, or at least 0 without one. A value
    with a ``Literal`` type is one of its choices. Fields of other types may have any value, and ``None`` passes where
    the type allows it. Nothing is checked while torch compiles code that makes an instance.

    Raises:
        TypeError: a value that is no number, or not whole where it must be.
        ValueError: a number out of bounds, or none of the choices.
    """
    if torch.compiler.is_compiling():
        return
    for name, (kind, bounds, optional) in _declared(cast(Hashable, type(settings))).items():
        value = plain_number(getattr(settings, name))
        object.__setattr__(settings, name, value)
        if value is None and optional:
            continue
        if kind in (int, float):
            check_number(name, value, bounds, integer=kind is int)
        elif get_origin(kind) is Literal:
            check_choice(name, value, get_args(kind))


def check_number(name: str, value: Any, bounds: Interval = Interval(), *, integer: bool = False) -> Any:
    """The number; raises a named error unless it is within its bounds, and whole if it must be."""
    value = plain_number(value)
    if isinstance(value, bool) or not isinstance(value, int if integer else (int, float)):
        raise TypeError(f"{name} must be {'an int' if integer else 'a number'}, got {type(value).__name__}")
    if value not in bounds:
        finite = "" if integer or bounds.most < math.inf else " and finite"
        raise ValueError(f"{name} must be {bounds}{finite}, got {value}{bounds.remedy}")
    return value


def check_choice(name: str, value: Any, choices: tuple[Any, ...]) -> None:
    """Raise ``ValueError`` unless the value is one of the choices."""
    if value not in choices:
        raise ValueError(f"{name} must be one of {', '.join(choices)}, got {value!r}")


def plain_number(value: Any) -> Any:
    """A number of NumPy, such as ``np.float32(0.1)``, as Python's own; any other value as it is."""
    return value.item() if isinstance(value, np.generic) else value


def given_type(hint: Any) -> Any:
    """The type of a setting that is given: ``float`` of ``float | None``."""
    if get_origin(hint) in (Union, UnionType):
        options = [option for option in get_args(hint) if option is not NoneType]
        return options[0] if len(options) == 1 else hint
    return hint


@cache
def _declared(cls: Any) -> dict[str, tuple[Any, Interval, bool]]:
    """Type, bounds and whether ``None`` is allowed, for every field of a dataclass."""
    hints = get_type_hints(cls, include_extras=True)
    return {f.name: _parts(hints[f.name]) for f in fields(cls)}


def _parts(hint: Any) -> tuple[Any, Interval, bool]:
    optional = NoneType in get_args(hint)
    kind = given_type(hint) if optional else hint
    if get_origin(kind) is Annotated:
        kind, *notes = get_args(kind)
        bounds = next((note for note in notes if isinstance(note, Interval)), Interval())
        return kind, bounds, optional
    return kind, Interval(), optional
