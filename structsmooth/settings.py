"""Settings: fields of dataclasses whose types say which values they may have."""

import math
from collections.abc import Hashable
from dataclasses import dataclass, fields, replace
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
        if self.least == -math.inf:
            return "a number"
        return "positive" if self.above and self.least == 0 else f"at least {self.least}"


Positive = Annotated[float, Interval(above=True)]
"""A positive number."""
PositiveInt = Annotated[int, Interval(1)]
"""A positive whole number."""
Finite = Annotated[float, Interval(-math.inf, above=True)]
"""Any number but infinity."""


def check_settings(settings: Any) -> None:
    """Check the fields of a dataclass, even a frozen one, by their types; NumPy's numbers become Python's own.

    Numbers are finite and within the :class:`Interval` of an ``Annotated`` type, or at least 0 without one. A value
    with a ``Literal`` type is one of its choices, and one with both types may be either. Fields of other types may have
    any value, and ``None`` passes where the type allows it. Nothing is checked while torch compiles code that makes an
    instance.

    Raises:
        TypeError: a value that is no number, or not whole where it must be.
        ValueError: a number out of bounds, or none of the choices.
    """
    if torch.compiler.is_compiling():
        return
    for name, allowed in _declared(cast(Hashable, type(settings))).items():
        value = plain_number(getattr(settings, name))
        # Also of frozen dataclasses, whose __post_init__ this is called from.
        object.__setattr__(settings, name, value)
        allowed.check(name, value)


@dataclass(frozen=True)
class Allowed:
    """Values that a setting may have: numbers, choices, or both.

    Attributes:
        number: ``int``, ``float``, or ``None`` for no numbers.
        bounds: of numbers.
        choices: other values.
        texts: whether it may be any text.
        optional: whether it may be ``None``.
        others: whether values that are neither numbers nor text may be anything, as functions.
    """

    number: type | None = None
    bounds: Interval = Interval()
    choices: tuple[Any, ...] = ()
    texts: bool = False
    optional: bool = False
    others: bool = False

    @classmethod
    def by(cls, hint: Any) -> "Allowed":
        """The rule for values that the type hint of a field gives."""
        allowed = cls()
        for option in get_args(hint) if get_origin(hint) in (Union, UnionType) else (hint,):
            kind, *notes = get_args(option) if get_origin(option) is Annotated else (option,)
            if kind is NoneType:
                allowed = replace(allowed, optional=True)
            elif get_origin(kind) is Literal:
                allowed = replace(allowed, choices=get_args(kind))
            elif kind in (int, float):
                bounds = next((note for note in notes if isinstance(note, Interval)), Interval())
                allowed = replace(allowed, number=kind, bounds=bounds)
            elif kind is str:
                allowed = replace(allowed, texts=True)
            else:
                allowed = replace(allowed, others=True)
        return allowed

    def check(self, name: str, value: Any) -> None:
        """Raise ``TypeError`` or ``ValueError`` for a value that is not allowed."""
        if (value is None and self.optional) or (self.number is None and not self.choices):
            return
        if (self.others and not isinstance(value, str | int | float)) or (self.texts and isinstance(value, str)):
            return
        if self.number is None:
            check_choice(name, value, self.choices)
        elif not (isinstance(value, str) and value in self.choices):
            check_number(name, value, self.bounds, integer=self.number is int)

    def parse(self, text: str) -> Any:
        """The value that a text stands for: a number where it is one, if these are allowed.

        Raises:
            ValueError: none of the choices, and no number where neither is any text.
        """
        if text in self.choices or self.number is None:
            return text
        try:
            return self.number(text)
        except ValueError:
            if not self.texts:
                raise
            return text

    @property
    def metavar(self) -> str:
        """Name of the values in the help of flags."""
        number = "" if self.number is None else self.number.__name__.upper()
        return "|".join([*map(str, self.choices), *filter(None, [number, "TEXT" * self.texts])])


def check_number(name: str, value: Any, bounds: Interval = Interval(), *, integer: bool = False) -> Any:
    """The number; raises a named error unless it is within its bounds, and whole if it must be."""
    value = plain_number(value)
    # True and False are integers of Python.
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
    """The type of a setting that is given: ``float`` of ``float | None``; the first of several."""
    if get_origin(hint) in (Union, UnionType):
        return next(option for option in get_args(hint) if option is not NoneType)
    return hint


@cache
def _declared(cls: Any) -> dict[str, Allowed]:
    """The rules that the type hints of a dataclass give, by the names of its fields."""
    hints = get_type_hints(cls, include_extras=True)
    return {f.name: Allowed.by(hints[f.name]) for f in fields(cls)}


# Below this, squares of weights, which are of the order of 1/λ, would lose all digits of the losses or overflow.
_LEAST = 1e-25


def parse_lam(lam: str | float, n: float, name: str = "lam") -> float:
    """λ ≥ 0 from a number, or from text such as ``"0.1"`` or ``"10/n"`` for ``n`` examples.

    Raises:
        TypeError: neither a number nor text.
        ValueError: λ < 0, λ > 0 but too small to matter, or text of another form.
    """
    value = float(_fraction(lam, n, name) if isinstance(lam, str) else check_number(name, lam))
    if 0 < value < _LEAST:
        raise ValueError(f"{name} must be 0 or at least {_LEAST:g}, got {value:g}: take 0 for no regularization")
    return value


def _fraction(lam: str, n: float, name: str) -> float:
    """The number that a text stands for."""
    number, _, denominator = lam.partition("/")
    try:
        value = float(number)
    except ValueError:
        # Refused below, as all that is no number of at least 0; NaN is none of these either.
        value = -1.0
    if denominator.strip() not in ("", "n") or not 0 <= value < math.inf:
        raise ValueError(f'{name} must be a number or c/n with c >= 0, such as 0.1 or "10/n", got {lam!r}')
    return value / n if denominator else value


def positive_lam(lam: str | float, n: float, name: str) -> float:
    """λ > 0, as :func:`parse_lam` reads it."""
    return float(check_number(name, parse_lam(lam, n, name), Interval(above=True)))
