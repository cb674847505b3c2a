"""Exponentials as vector instructions beside those of numpy."""

import numpy as np

from structsmooth.compiled.exponentials import exponentiate_row
from structsmooth.compiled.jit import entry_point


@entry_point
def exponentiate(scores):  # type: ignore[no-untyped-def]
    """Compiled code that is called from Python."""
    exponentiate_row(scores)


def exponentials(*scores: float) -> np.ndarray:
    """Those of some scores, by compiled code."""
    found = np.array(scores)
    exponentiate(found)
    return found


def test_exponentials_are_those_of_numpy() -> None:
    scores = -np.linspace(0.0, 708.0, 10_001)
    np.testing.assert_allclose(exponentials(*scores), np.exp(scores), rtol=1e-13)
    near = scores[abs(scores) < 5]
    np.testing.assert_allclose(exponentials(*near), np.exp(near), rtol=2e-15)


def test_forbidden_tiny_and_wrong_scores() -> None:
    found = exponentials(-np.inf, -1e300, -709.0, np.nan, 0.0, 1e-3)
    np.testing.assert_array_equal(found, [0.0, 0.0, 0.0, np.nan, 1.0, 1.0])
