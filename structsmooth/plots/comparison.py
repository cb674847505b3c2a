"""Pictures of a comparison of solvers: objectives and metrics against passes and seconds."""

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from structsmooth.history import History, Row, best_bound
from structsmooth.plots.panels import COLOURS, is_drawn, panels

# What a line and its band are over runs.
Bands = Literal["range", "deviation"]
# With the colours, for many solvers.
_LINES = ("-", "--", ":", "-.")
# Number of characters that fit side by side under a figure, and that the line before a label takes.
_LEGEND, _HANDLE = 140, 8
# Effective passes for a pass of steps, beyond which full passes are counted apart: gaps are refreshed rarely.
_FULL_PASSES = 1.5
# Share of the values at either end that a linear axis need not show.
_OUTLIERS = 0.05


def plot_comparison(
    runs: Mapping[str, Sequence[History]],
    path: str | Path,
    *,
    n: int,
    metrics: Sequence[str] = (),
    bands: Bands = "range",
    title: str = "",
) -> None:
    """Draw suboptimality, duality gap and metrics of solvers against effective passes, oracle calls and seconds.

    Lines are medians over the runs of a solver after each pass, and bands reach from the smallest to the largest value
    (Osokin et al. 2016, Figure 3), or lines are means, and bands one standard deviation wide to either side (Pillutla
    et al. 2018, Figure 2). Where solvers estimate their gaps, panels have the ratio of the estimate to the gap
    (Osokin et al., Figure 1b, inverted), and where they cache outputs, the share of steps that called no oracle. The
    suboptimality is the distance from :func:`~structsmooth.history.best_bound` over all runs. An effective pass is n
    oracle calls: a panel has one scale below it and the other above. If a solver makes full passes, too, panels also
    have passes of stochastic steps alone, as Pillutla et al. count them.

    Args:
        runs: histories on one objective by solver, one for each seed.
        path: picture file; its ending gives the format.
        n: number of examples.
        metrics: names of metrics; each has a row of panels.
        bands: what lines and bands are over the runs of a solver: ``"range"`` or ``"deviation"``.
        title: above all panels.

    Raises:
        ValueError: a solver without runs, or an empty history.
    """
    if not all(histories and all(histories) for histories in runs.values()):
        raise ValueError("runs must have a history with at least one row for each solver")
    from matplotlib.ticker import EngFormatter

    bound = best_bound(history for histories in runs.values() for history in histories)
    values: dict[str, Callable[[Row], float | None]] = {
        "suboptimality": lambda row: row.objective - bound,
        "duality gap": lambda row: row.gap,
        "estimated gap / gap": _trust,
        "share of cache hits": lambda row: row.metrics.get("cache_hit_rate") or None,
        **{metric: partial(_metric, metric) for metric in metrics},
    }
    rows = [row for histories in runs.values() for history in histories for row in history]
    values = {name: value for name, value in values.items() if any(value(row) is not None for row in rows)}
    axes: dict[str, Callable[[Row], float]] = {
        f"effective passes (n = {n:,} oracle calls)": lambda row: row.oracle_calls / n,
        "seconds": lambda row: row.seconds,
    }
    if any(row.passes and row.oracle_calls > _FULL_PASSES * n * row.passes for row in rows):
        axes["passes of steps, without full passes"] = lambda row: row.passes
    linear = {"share of cache hits", *metrics}
    with panels(path, (len(values), len(axes)), (5.5 * len(axes), 0.8 + 3 * len(values)), title) as grid:
        for line, (name, value) in zip(grid, values.items(), strict=True):
            for panel, axis in zip(line, axes.values(), strict=True):
                _draw_bands(panel, runs, axis, value, bands, log=name not in linear)
            line[0].set_ylabel(name)
        for panel, label in zip(grid[-1], axes, strict=True):
            panel.set_xlabel(label)
        calls = grid[0, 0].secondary_xaxis("top", functions=(lambda passes: passes * n, lambda calls: calls / n))
        calls.set_xlabel("oracle calls")
        calls.xaxis.set_major_formatter(EngFormatter(sep=""))
        handles, labels = grid[0, 0].get_legend_handles_labels()
        columns = min(len(labels), max(1, _LEGEND // max(_HANDLE + len(label) for label in labels)))
        grid[0, 0].figure.legend(handles, labels, loc="outside lower center", ncols=columns, frameon=False)


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
    bands: Bands,
    log: bool,
) -> None:
    """A line and a band for each solver."""
    if log:
        panel.set_yscale("log")
    centres: list[NDArray[np.float64]] = []
    for i, (label, histories) in enumerate(runs.items()):
        style = {"color": COLOURS[i % len(COLOURS)], "linestyle": _LINES[i // len(COLOURS) % len(_LINES)]}
        x, y = _side_by_side(histories, axis, value, log)
        low, centre, high = _spread(y, bands)
        centres.append(centre)
        panel.plot(x, centre, label=label, linewidth=1.5, **style)
        panel.fill_between(x, low, high, color=style["color"], alpha=0.2, linewidth=0)
    if not log:
        _focus(panel, np.concatenate(centres))


def _spread(y: NDArray[np.float64], bands: Bands) -> tuple[NDArray[np.float64], ...]:
    """Lower end, line and upper end [m] of the band over runs [runs, m]."""
    if bands == "range":
        return y.min(0), np.median(y, axis=0), y.max(0)
    mean, deviation = y.mean(0), y.std(0, ddof=1) if len(y) > 1 else np.zeros(y.shape[1])
    return mean - deviation, mean, mean + deviation


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
    rows = [row for row in zip(*histories, strict=False) if all(is_drawn(value(run), log) for run in row)]
    shape = (-1, len(histories))
    x = np.array([[axis(run) for run in row] for row in rows], dtype=np.float64).reshape(shape)
    y = np.array([[value(run) for run in row] for row in rows], dtype=np.float64).reshape(shape)
    return np.median(x, axis=1), y.T
