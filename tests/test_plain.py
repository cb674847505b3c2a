"""Plain JSON becomes values of declared types, or is refused by name."""

from dataclasses import dataclass
from typing import Annotated, Any, Literal

import numpy as np
import pytest
from numpy.typing import NDArray

from structsmooth.plain import from_plain, plain
from structsmooth.settings import Finite, Interval, PositiveInt


@dataclass(frozen=True, eq=False)
class Inner:
    numbers: NDArray[np.uint8]
    names: list[str]


@dataclass(frozen=True)
class Outer:
    inner: Inner
    size: PositiveInt
    pair: tuple[Finite, Finite] = (0.0, 1.0)
    kind: Literal["a", "b"] | None = None


def test_round_trip() -> None:
    assert type(from_plain(Finite, 10**30, "x")) is float
    value = Outer(Inner(np.array([[1, 2]], np.uint8), ["x"]), 3, (0.5, -1.0), "b")
    again = from_plain(Outer, plain(value), "outer")
    assert again == Outer(again.inner, 3, (0.5, -1.0), "b")
    assert again.inner.numbers.tolist() == [[1, 2]]
    assert again.inner.numbers.dtype == np.uint8
    assert again.inner.names == ["x"]


@pytest.mark.parametrize(
    ("hint", "value", "message"),
    [
        (int, True, "x must be of type int, got bool"),
        (str, None, "x must be of type str, got NoneType"),
        (bool, 1, "x must be of type bool, got int"),
        (float, "1", "x must be of type float, got str"),
        (Finite, float("nan"), "x must be a number and finite, got nan"),
        (Finite, float("-inf"), "x must be a number and finite, got -inf"),
        (Annotated[int, Interval(1)], 0, "x must be at least 1, got 0"),
        (int, 10**30, "x must be a number of 64 bits"),
        (Literal["a"], "b", "x must be one of a, got 'b'"),
        (list[str], ["a", 1], r"x\[1\] must be of type str, got int"),
        (tuple[int, int], [1], "x must have 2 entries, got 1"),
        (dict[str, int], {"a": 1.5}, "x.a must be of type int, got float"),
        (NDArray[np.uint8], [256], "x must be an array of numbers of type uint8"),
        (NDArray[np.uint8], [0.5], "x must be an array of numbers of type uint8"),
        (NDArray[np.float32], [1e300], "x must be an array of numbers of type float32"),
        (NDArray[np.float64], [[1], [1, 2]], "x must be an array of numbers"),
        (NDArray[np.float64], ["1"], "x must be an array of numbers of type float64"),
        (Outer, [], "x must have named entries, got list"),
        (Outer, {"size": 1}, "x lacks inner"),
        (Outer, {"inner": {}, "size": 1, "more": 0}, "x has unknown entries: more"),
        (Outer, {"inner": {"numbers": [], "names": "n"}, "size": 1}, "x.inner.names must be of type list, got str"),
    ],
)
@pytest.mark.filterwarnings("ignore:overflow encountered in cast:RuntimeWarning")
def test_other_values_are_refused_by_name(hint: Any, value: Any, message: str) -> None:
    with pytest.raises((TypeError, ValueError), match=message):
        from_plain(hint, value, "x")
