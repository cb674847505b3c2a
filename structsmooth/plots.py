"""Pictures of training runs."""

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from structsmooth.history import History, Row, best_bound
from structsmooth.solvers import SolutionPath

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_AXES = {"passes": "passes over the data", "oracle_calls": "oracle calls", "seconds": "seconds"}
# The palette of Okabe and Ito, which colour-blind readers can tell apart; repeated with other line styles.
_COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000")
_LINES = ("-", "--", ":", "-.")
# Number of characters that fit side by side under a figure, and that the line before a label takes.
_LEGEND, _HANDLE = 140, 8
# Share of the values at either end that a linear axis need not show.
_OUTLIERS = 0.05


def plot_history(history: History, path: str | Path, metric: str = "f1", title: str = "") -> None:
    """Draw objective, duality gap and a metric against passes, oracle calls and seconds.

    A gap that the solver estimates is drawn beside the true one.

    Args:
        history: a run with at least one row.
        path: picture file; its ending gives the format.
        metric: shown in the last row of panels, unless no row of the history has it.
        title: above all panels.

    Raises:
        ValueError: an empty history.
    """
    if not history:
        raise ValueError("history must have at least one row")
    panels = {"objective": "objective", "gap": "duality gap", metric: metric.upper()}
    panels = {name: label for name, label in panels.items() if any(v is not None for v in history.column(name))}
    figure, grid = _panels(len(panels), len(_AXES), (10, 2.6 * len(panels)), title)
    for row, (name, label) in zip(grid, panels.items(), strict=True):
        for panel, axis in zip(row, _AXES, strict=True):
            _draw(panel, history.column(axis), history.column(name), log=name != metric)
            if name == "gap" and any(value is not None for value in history.column("estimated_gap")):
                _draw(panel, history.column(axis), history.column("estimated_gap"), True, "#D55E00", "estimated")
                panel.legend()
        row[0].set_ylabel(label)
    for panel, label in zip(grid[-1], _AXES.values(), strict=True):
        panel.set_xlabel(label)
    figure.savefig(path, dpi=120)


def plot_comparison(
    runs: Mapping[str, Sequence[History]], path: str | Path, *, n: int, metrics: Sequence[str] = (), title: str = ""
) -> None:
    """Draw suboptimality, duality gap and metrics of solvers against effective passes, oracle calls and seconds.

    Lines are medians over the runs of a solver after each pass, and bands reach from the smallest to the largest value
    (Osokin et al. 2016, Figure 3). Where solvers estimate their gaps, panels have the ratio of the estimate to the gap
    (Figure 1b, inverted). The suboptimality is the distance from
    :func:`~structsmooth.history.best_bound` over all runs. An effective pass is n oracle calls: a panel has one scale
    below it and the other above.

    Args:
        runs: histories on one objective by solver, one for each seed.
        path: picture file; its ending gives the format.
        n: number of examples.
        metrics: names of metrics; each has a row of panels.
        title: above all panels.

    Raises:
        ValueError: a solver without runs, or an empty history.
    """
    if not all(histories and all(histories) for histories in runs.values()):
        raise ValueError("runs must have a history with at least one row for each solver")
    from matplotlib.ticker import EngFormatter

    bound = best_bound(history for histories in runs.values() for history in histories)
    panels: dict[str, Callable[[Row], float | None]] = {
        "suboptimality": lambda row: row.objective - bound,
        "duality gap": lambda row: row.gap,
        "estimated gap / gap": _trust,
        **{metric: partial(_metric, metric) for metric in metrics},
    }
    rows = [row for histories in runs.values() for history in histories for row in history]
    panels = {name: value for name, value in panels.items() if any(value(row) is not None for row in rows)}
    axes: dict[str, Callable[[Row], float]] = {
        f"effective passes (n = {n:,} oracle calls)": lambda row: row.oracle_calls / n,
        "seconds": lambda row: row.seconds,
    }
    figure, grid = _panels(len(panels), len(axes), (11, 0.8 + 3 * len(panels)), title)
    for line, (name, value) in zip(grid, panels.items(), strict=True):
        for panel, axis in zip(line, axes.values(), strict=True):
            _draw_bands(panel, runs, axis, value, log=name not in metrics)
        line[0].set_ylabel(name)
    for panel, label in zip(grid[-1], axes, strict=True):
        panel.set_xlabel(label)
    calls = grid[0][0].secondary_xaxis("top", functions=(lambda passes: passes * n, lambda calls: calls / n))
    calls.set_xlabel("oracle calls")
    calls.xaxis.set_major_formatter(EngFormatter(sep=""))
    handles, labels = grid[0][0].get_legend_handles_labels()
    columns = min(len(labels), max(1, _LEGEND // max(_HANDLE + len(label) for label in labels)))
    figure.legend(handles, labels, loc="outside lower center", ncols=columns, frameon=False)
    figure.savefig(path, dpi=120)


def _metric(name: str, row: Row) -> float | None:
    return row.metrics.get(name)


def _trust(row: Row) -> float | None:
    estimate = row.metrics.get("estimated_gap")
    return estimate / row.gap if row.gap and estimate is not None else None


def _draw_bands(
    panel: Any,
    runs: Mapping[str, Sequence[History]],
    axis: Callable[[Row], float],
    value: Callable[[Row], float | None],
    log: bool,
) -> None:
    """A line and a band for each solver."""
    if log:
        panel.set_yscale("log")
    medians: list[NDArray[np.float64]] = []
    for i, (label, histories) in enumerate(runs.items()):
        style = {"color": _COLOURS[i % len(_COLOURS)], "linestyle": _LINES[i // len(_COLOURS) % len(_LINES)]}
        x, y = _side_by_side(histories, axis, value, log)
        medians.append(np.median(y, axis=0))
        panel.plot(x, medians[-1], label=label, linewidth=1.5, **style)
        panel.fill_between(x, y.min(0), y.max(0), color=style["color"], alpha=0.2, linewidth=0)
    if not log:
        _focus(panel, np.concatenate(medians))
    panel.grid(alpha=0.3)


def _focus(panel: Any, values: NDArray[np.float64]) -> None:
    """Zoom in on most values: the first passes would squeeze the differences between all others."""
    if not len(values):
        return
    low, high = np.quantile(values, [_OUTLIERS, 1 - _OUTLIERS])
    if low < high:
        margin = 0.3 * (high - low)
        panel.set_ylim(low - margin, high + margin)


def _side_by_side(
    histories: Sequence[History], axis: Callable[[Row], float], value: Callable[[Row], float | None], log: bool
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Median positions [m] of the rows that can be drawn for all runs, and their values [runs, m].

    Runs are compared row by row, since their times need not overlap.
    """
    rows = [row for row in zip(*histories, strict=False) if all(_is_drawn(value(run), log) for run in row)]
    shape = (-1, len(histories))
    x = np.array([[axis(run) for run in row] for row in rows], dtype=np.float64).reshape(shape)
    y = np.array([[value(run) for run in row] for row in rows], dtype=np.float64).reshape(shape)
    return np.median(x, axis=1), y.T


def _is_drawn(value: float | None, log: bool) -> bool:
    return value is not None and (value > 0 or not log)


def _draw(
    panel: Any, x: Sequence[float], y: Sequence[float | None], log: bool, colour: str = "#1f5fa8", label: str = "true"
) -> None:
    points = [(a, b) for a, b in zip(x, y, strict=True) if _is_drawn(b, log)]
    panel.plot(*zip(*points, strict=True), marker=".", color=colour, label=label)
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
        metrics: values of λ and of a metric there, by the name of the metric; they share a panel.
        title: above all panels.

    Raises:
        ValueError: a path without breakpoints.
    """
    points = solutions.breakpoints
    if not points:
        raise ValueError("solutions must have at least one breakpoint")
    rows = 2 + bool(metrics)
    figure, grid = _panels(rows, 1, (8, 2.6 * rows), title)
    panels = grid[:, 0]
    lams = [point.lam for point in points]
    panels[0].plot(lams, [point.objective for point in points], label="objective")
    panels[0].plot(lams, [point.loss for point in points], label="loss", linestyle="--")
    ends = [*lams[1:], solutions.end or lams[-1]]
    # The gap is drawn at both ends of the piece of the path that begins at a breakpoint.
    pieces = [piece for p, end in zip(points, ends, strict=True) for piece in ((p.lam, p.gap), (end, p.gap_at(end)))]
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
    figure, grid = _panels(1, len(names), (3.2 * len(names) + 1, 3.2), title)
    for panel, name in zip(grid[0], names, strict=True):
        values = sorted({setting[name] for setting, _ in points}, key=_as_number)
        places = [values.index(setting[name]) for setting, _ in points]
        panel.plot(places, means, ".", color=_COLOURS[0])
        panel.plot(places[0], means[0], "o", color=_COLOURS[1], markersize=9, fillstyle="none")
        panel.set_xticks(range(len(values)), values)
        panel.set_xlim(-0.5, len(values) - 0.5)
        panel.set_xlabel(name)
        panel.grid(alpha=0.3)
    grid[0][0].set_ylabel(metric)
    figure.savefig(path, dpi=120)


def _as_number(text: str) -> tuple[float, str]:
    """What values are sorted by: their numbers, as in 10/n, and texts behind them."""
    number = text.partition("/")[0]
    try:
        return float(number), text
    except ValueError:
        return np.inf, text


def _panels(rows: int, columns: int, size: tuple[float, float], title: str) -> tuple["Figure", NDArray[Any]]:
    """A figure and its panels [rows, columns]."""
    from matplotlib.figure import Figure  # slow to load, and not needed without a picture

    figure = Figure(figsize=size, layout="constrained")
    figure.suptitle(title)
    return figure, figure.subplots(rows, columns, sharex="col", sharey="row", squeeze=False)
