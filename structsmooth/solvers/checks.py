"""λ as users give it: a number, or text such as ``"1/n"``."""

import math

from structsmooth.settings import Interval, check_number


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
    return float(check_number(name, parse_lam(lam, n, name), Interval(above=True)))
