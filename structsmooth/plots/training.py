"""Pictures of training runs, and of searches for hyperparameters."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

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


def plot_tuning(
    points: Sequence[tuple[Mapping[str, str], Sequence[float]]], path: str | Path, metric: str, title: str = ""
) -> None:
    """Draw a metric against the values of every option that was tuned: each setting a dot, the best one a ring.

    Args:
        points: values of the options of each setting by name, and the metric on each split; the best setting first.
        path: picture file; its ending gives the format.
        metric: name of the metric.
        title: above all panels.

    Raises:
        ValueError: no settings, or no options.
    """
    names = list(points[0][0]) if points else []
    if not names:
        raise ValueError("points must have at least one setting with one option")
    means = [float(np.mean(scores)) for _, scores in points]
    with panels(path, (1, len(names)), (3.2 * len(names) + 1, 3.2), title) as grid:
        for panel, name in zip(grid[0], names, strict=True):
            values = sorted({setting[name] for setting, _ in points}, key=_as_number)
            places = [values.index(setting[name]) for setting, _ in points]
            panel.plot(places, means, ".", color=COLOURS[0])
            panel.plot(places[0], means[0], "o", color=COLOURS[1], markersize=9, fillstyle="none")
            panel.set_xticks(range(len(values)), values)
            panel.set(xlim=(-0.5, len(values) - 0.5), xlabel=name)
        grid[0, 0].set_ylabel(metric)


def _as_number(text: str) -> tuple[float, str]:
    """What values are sorted by: their numbers, as in 10/n, and texts behind them."""
    number = text.partition("/")[0]
    try:
        return float(number), text
    except ValueError:
        return np.inf, text
