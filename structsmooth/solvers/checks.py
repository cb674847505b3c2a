"""λ as users give it: a number, or text such as ``"1/n"``."""

import math

from structsmooth.settings import Interval, check_number

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
        value = -1.0
    if denominator.strip() not in ("", "n") or not 0 <= value < math.inf:
        raise ValueError(f'{name} must be a number or c/n with c >= 0, such as 0.1 or "10/n", got {lam!r}')
    return value / n if denominator else value


def positive_lam(lam: str | float, n: float, name: str) -> float:
    """λ > 0, as :func:`parse_lam` reads it."""
    return float(check_number(name, parse_lam(lam, n, name), Interval(above=True)))
