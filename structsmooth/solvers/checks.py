"""Checks of hyperparameters."""

import math
from types import NoneType
from typing import Any, get_args, get_type_hints

from structsmooth.structures.checks import plain_number


def check_number(name: str, value: Any, *, integer: bool = False, positive: bool = False) -> Any:
    """The number; raises a named error unless it is finite, at least 0 or even positive, and whole if it must be."""
    value = plain_number(value)
    if isinstance(value, bool) or not isinstance(value, int if integer else (int, float)):
        raise TypeError(f"{name} must be {'an int' if integer else 'a number'}, got {type(value).__name__}")
    if not (value > 0 if positive else value >= 0) or value == math.inf:
        bound = "positive" if positive else "at least 0"
        raise ValueError(f"{name} must be {bound}{'' if integer else ' and finite'}, got {value}")
    return value


def parse_lam(lam: str | float, n: float, name: str = "lam") -> float:
    """λ ≥ 0 from a number, or from text such as ``"0.1"`` or ``"10/n"`` for ``n`` examples.

    Raises:
        TypeError: neither a number nor text.
        ValueError: λ < 0, or text of another form.
    """
    if not isinstance(lam, str):
        return float(check_number(name, lam))
    number, _, denominator = lam.partition("/")
    try:
        value = float(number)
    except ValueError:
        value = -1.0
    if denominator.strip() not in ("", "n") or not 0 <= value < math.inf:
        raise ValueError(f'{name} must be a number or c/n with c >= 0, such as 0.1 or "10/n", got {lam!r}')
    return value / n if denominator else value


def positive_lam(lam: str | float, n: float, name: str) -> float:
    """λ > 0, as :func:`parse_lam` reads it."""
    return float(check_number(name, parse_lam(lam, n, name), positive=True))


def check_positive(solver: Any, *names: str, integer: bool = False) -> None:
    """Raise for named hyperparameters that are not positive numbers; ``None`` passes where it is the default."""
    for name in names:
        value, default = getattr(solver, name), getattr(type(solver), name)
        if value is not None or default is not None:
            check_number(name, value, integer=integer, positive=True)


def check_choices(solver: Any, *names: str) -> None:
    """Raise for named hyperparameters that are not among the choices of their types, or ``None`` if that is one."""
    for name in names:
        hint, value = get_type_hints(type(solver))[name], getattr(solver, name)
        options = [choice for part in get_args(hint) for choice in get_args(part) or (part,)]
        expected = [choice for choice in options if choice is not NoneType]
        if value not in expected and (value is not None or expected == options):
            raise ValueError(f"{name} must be one of {', '.join(expected)}, got {value!r}")
