"""Pictures of a search for options by cross-validation: scores against the values of an option."""

from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

from structsmooth.plots.panels import COLOURS, panels


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
