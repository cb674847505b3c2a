"""Tables and figures of a report, as data."""

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from structsmooth.markup.elements import Markup


@dataclass(frozen=True)
class Table:
    """A table whose first row and first column are headings.

    Args:
        caption: what it shows.
        header: headings of the columns.
        rows: the heading of each row, and its cells: text or markup.
    """

    caption: str
    header: Sequence[str]
    rows: Sequence[Sequence[str]]


@dataclass(frozen=True)
class Matrix:
    """A table of numbers, drawn in colours.

    Args:
        caption: what it shows.
        rows: names of the rows.
        columns: names of the columns.
        values: [rows, columns]; NaN where there is no number.
        row_title: what rows are.
        column_title: what columns are.
        counts: whether values are counts: colours are then shares of their row; else they are far from zero where a
            value is, in two directions.
    """

    caption: str
    rows: Sequence[str]
    columns: Sequence[str]
    values: NDArray[Any]
    row_title: str
    column_title: str
    counts: bool = False


@dataclass(frozen=True)
class Drawing:
    """Anything else.

    Args:
        caption: what it shows.
        content: the drawing.
    """

    caption: str
    content: Markup


Block = Table | Matrix | Drawing
"""A part of a report: a table, a matrix, or pictures."""


def confusion(caption: str, gold: Iterable[str], found: Iterable[str]) -> Matrix:
    """How often each label was found in the place of which one, of labels one by one."""
    counts = Counter(zip(gold, found, strict=True))
    labels = sorted({label for pair in counts for label in pair})
    values = np.array([[counts[right, guess] for guess in labels] for right in labels])
    return Matrix(caption, labels, labels, values, "gold", "predicted", counts=True)


def weight_table(
    caption: str, header: Sequence[str], names: Iterable[Sequence[str]], weights: Iterable[float]
) -> Table:
    """Named weights in a table, those farthest from zero first.

    Args:
        caption: what it shows.
        header: headings of the columns of names; the weights follow them.
        names: a row of names for each weight.
        weights: the numbers.

    Example:
        >>> weight_table("Weights", ["feature"], [["length"], ["distance"]], [0.5, -2.0]).rows
        [('distance', '-2'), ('length', '+0.5')]
    """
    ordered = sorted(zip(names, weights, strict=True), key=lambda pair: -abs(pair[1]))
    return Table(caption, (*header, "weight"), [(*name, f"{weight:+.3g}") for name, weight in ordered])
