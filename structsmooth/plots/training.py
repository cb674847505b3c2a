"""The progress of one run."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from structsmooth.history import History
from structsmooth.plots.panels import COLOURS, is_drawn, panels, without_far_start

_AXES = {"passes": "passes over the data", "oracle_calls": "oracle calls", "seconds": "seconds"}


def plot_history(
    history: History, path: str | Path, metric: str = "f1", title: str = "", label: str | None = None
) -> None:
    """Draw objective, duality gap and a metric against passes, oracle calls and seconds.

    A gap that the solver estimates is drawn beside the true one. The metric of the start, if it is far from that of all
    other rows, is not drawn, and the label of its axis says so.

    Args:
        history: a run with at least one row.
        path: picture file; its ending gives the format.
        metric: shown in the last row of panels, unless no row of the history has it.
        title: above all panels.
        label: of the axis of the metric; its name in capitals if not given.

    Raises:
        ValueError: an empty history.
    """
    if not history:
        raise ValueError("history must have at least one row")
    names = {"objective": "objective", "gap": "duality gap", metric: label or metric.upper()}
    names = {name: text for name, text in names.items() if any(v is not None for v in history.column(name))}
    with panels(path, (len(names), len(_AXES)), (10, 2.6 * len(names)), title) as grid:
        for row, (name, text) in zip(grid, names.items(), strict=True):
            values, start = history.column(name), None
            if name == metric:
                values, start = without_far_start(values)
            for panel, axis in zip(row, _AXES, strict=True):
                _draw(panel, history.column(axis), values, log=name != metric)
                if name == "gap" and any(value is not None for value in history.column("estimated_gap")):
                    _draw(panel, history.column(axis), history.column("estimated_gap"), True, COLOURS[1], "estimated")
                    panel.legend()
            row[0].set_ylabel(text if start is None else f"{text} ({start:.4g} at the start)")
        for panel, text in zip(grid[-1], _AXES.values(), strict=True):
            panel.set_xlabel(text)


def _draw(
    panel: Any, x: Sequence[float], y: Sequence[float | None], log: bool, colour: str = COLOURS[0], label: str = "true"
) -> None:
    points = [(a, b) for a, b in zip(x, y, strict=True) if is_drawn(b, log)]
    panel.plot(*zip(*points, strict=True), marker=".", color=colour, label=label)
    if log:
        panel.set_yscale("log")
