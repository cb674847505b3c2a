"""Pictures of training runs."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from structsmooth.history import History

_AXES = {"passes": "passes over the data", "oracle_calls": "oracle calls", "seconds": "seconds"}


def plot_history(history: History, path: str | Path, metric: str = "f1", title: str = "") -> None:
    """Draw objective, duality gap and a metric against passes, oracle calls and seconds.

    Args:
        history: a run with at least one row.
        path: picture file; its ending gives the format.
        metric: column of the last row of panels; they are left out where no row has it.
        title: above all panels.

    Raises:
        ValueError: an empty history.
    """
    if not history:
        raise ValueError("history must have at least one row")
    from matplotlib.figure import Figure  # slow to load, and not needed without a picture

    panels = {"objective": "objective", "gap": "duality gap", metric: metric.upper()}
    panels = {name: label for name, label in panels.items() if any(v is not None for v in history.column(name))}
    figure = Figure(figsize=(10, 2.6 * len(panels)), layout="constrained")
    figure.suptitle(title)
    grid: Any = figure.subplots(len(panels), len(_AXES), sharex="col", sharey="row", squeeze=False)
    for row, (name, label) in zip(grid, panels.items(), strict=True):
        for panel, (axis, axis_label) in zip(row, _AXES.items(), strict=True):
            _draw(panel, history.column(axis), history.column(name), log=name != metric)
            if name == list(panels)[-1]:
                panel.set_xlabel(axis_label)
        row[0].set_ylabel(label)
    figure.savefig(path, dpi=120)


def _draw(panel: Any, x: Sequence[float], y: Sequence[float | None], log: bool) -> None:
    points = [(a, b) for a, b in zip(x, y, strict=True) if b is not None and (b > 0 or not log)]
    panel.plot(*zip(*points, strict=True), marker=".", color="#1f5fa8")
    if log:
        panel.set_yscale("log")
    panel.grid(alpha=0.3)
