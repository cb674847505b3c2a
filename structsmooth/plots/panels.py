"""What pictures share: their panels and colours."""

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
