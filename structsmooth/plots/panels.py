"""What pictures share: their panels and colours."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from numpy.typing import NDArray

from structsmooth.checkpoint import save_figure

# The palette of Okabe and Ito, which colour-blind readers can tell apart.
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000")


@contextmanager
def panels(
    path: str | Path, shape: tuple[int, int], size: tuple[float, float], title: str = ""
) -> Iterator[NDArray[Any]]:
    """The panels [rows, columns] of a picture, which get grids; it is saved at the end of the block."""
    from matplotlib.figure import Figure  # slow to load, and not needed without a picture

    figure = Figure(figsize=size, layout="constrained")
    figure.suptitle(title)
    grid = figure.subplots(shape[0], shape[1], sharex="col", sharey="row", squeeze=False)
    yield grid
    for panel in grid.flat:
        panel.grid(alpha=0.3)
    save_figure(path, figure, dpi=120)


def is_drawn(value: float | None, log: bool) -> bool:
    """Whether an axis, logarithmic or not, has a place for the value."""
    return value is not None and (value > 0 or not log)


def without_far_start(values: Sequence[float | None]) -> tuple[list[float | None], float | None]:
    """Values for a linear axis, without their start if that is far from all others, and the start that is left out.

    Example:
        >>> without_far_start([0.0, 0.80, 0.84, 0.85])
        ([None, 0.8, 0.84, 0.85], 0.0)
        >>> without_far_start([0.78, 0.80, 0.84, 0.85])
        ([0.78, 0.8, 0.84, 0.85], None)
    """
    start, *others = [value for value in values if value is not None] or [0.0]
    if len(others) < 2 or (low := min(others)) == (high := max(others)):
        return [*values], None
    if low - (high - low) <= start <= high + (high - low):
        return [*values], None
    return [None if value == start else value for value in values], start
