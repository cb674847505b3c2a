"""What pictures share: their panels and colours."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from numpy.typing import NDArray

if TYPE_CHECKING:
    from matplotlib.figure import Figure

# The palette of Okabe and Ito, which colour-blind readers can tell apart.
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000")


def panel_grid(rows: int, columns: int, size: tuple[float, float], title: str) -> tuple["Figure", NDArray[Any]]:
    """A figure and its panels [rows, columns]."""
    from matplotlib.figure import Figure  # slow to load, and not needed without a picture

    figure = Figure(figsize=size, layout="constrained")
    figure.suptitle(title)
    return figure, figure.subplots(rows, columns, sharex="col", sharey="row", squeeze=False)


def is_drawn(value: float | None, log: bool) -> bool:
    """Whether an axis, logarithmic or not, has a place for the value."""
    return value is not None and (value > 0 or not log)


def limits_without_start(values: Sequence[float | None]) -> tuple[float, float] | None:
    """Limits of a linear axis that leave out the first value, which is far from all others; ``None`` if it is not.

    Example:
        >>> limits_without_start([0.0, 0.80, 0.84, 0.85])
        (0.79, 0.86)
        >>> limits_without_start([0.78, 0.80, 0.84, 0.85])
    """
    first, *others = [value for value in values if value is not None] or [0.0]
    if len(others) < 2 or (low := min(others)) == (high := max(others)):
        return None
    if low - (high - low) <= first <= high + (high - low):
        return None
    margin = 0.2 * (high - low)
    return round(low - margin, 6), round(high + margin, 6)
