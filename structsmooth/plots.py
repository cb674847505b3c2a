"""Pictures of training runs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from structsmooth.history import History
from structsmooth.solvers import Breakpoint, SolutionPath

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


def plot_path(
    solutions: SolutionPath,
    path: str | Path,
    metrics: Mapping[str, tuple[Sequence[float], Sequence[float]]] | None = None,
    title: str = "",
) -> None:
    """Draw objective, loss, duality gap and metrics of a regularization path against λ.

    Args:
        solutions: a path with at least one breakpoint.
        path: picture file; its ending gives the format.
        metrics: by name, values of λ and of the metric there; they share a panel.
        title: above all panels.

    Raises:
        ValueError: a path without breakpoints.
    """
    points = solutions.breakpoints
    if not points:
        raise ValueError("solutions must have at least one breakpoint")
    from matplotlib.figure import Figure

    figure = Figure(figsize=(8, 2.6 * (2 + bool(metrics))), layout="constrained")
    figure.suptitle(title)
    panels: Any = figure.subplots(2 + bool(metrics), 1, sharex=True)
    lams = [point.lam for point in points]
    panels[0].plot(lams, [point.objective for point in points], label="objective")
    panels[0].plot(lams, [point.loss for point in points], label="loss", linestyle="--")
    ends = [*lams[1:], solutions.end or lams[-1]]
    pieces = [(lam, gap) for p, end in zip(points, ends, strict=True) for lam, gap in _piece(p, end)]
    label = "duality gap" if solutions.verified else "duality gap, estimated"
    panels[1].plot(*zip(*pieces, strict=True), linewidth=0.8, label=label)
    panels[1].axhline(solutions.epsilon, color="grey", linestyle=":", label="ε")
    for name, (x, y) in (metrics or {}).items():
        panels[2].plot(x, y, marker=".", label=name)
    for panel in panels:
        panel.set_xscale("log")
        panel.grid(alpha=0.3)
        panel.legend()
    panels[-1].set_xlabel("λ")
    panels[-1].invert_xaxis()
    figure.savefig(path, dpi=120)


def _piece(point: Breakpoint, end: float) -> list[tuple[float, float]]:
    """λ and gap at the ends of the piece of a path that begins at a breakpoint."""
    return [(point.lam, point.gap), (end, point.gap_at(end))]
