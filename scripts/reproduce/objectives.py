"""Objectives without penalties beside their optimum (Meshi et al. 2015, figures 1 and 2)."""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from statistics import median

from structsmooth.history import History, Row
from structsmooth.plots.panels import COLOURS, panels

# Values are drawn up to this many times the optimum.
_HIGHEST = 10.0


def hard_objective(row: Row) -> float:
    """The objective of a row, without the penalty of a soft solver."""
    return row.metrics.get("hard_objective", row.objective)


def optimum(runs: Mapping[str, Sequence[History]]) -> float:
    """g*, as far as it is known: the least objective without penalty of all runs."""
    return min(hard_objective(row) for histories in runs.values() for history in histories for row in history)


def draw_objectives(runs: Mapping[str, Sequence[History]], picture: Path, metric: str | None, title: str) -> None:
    """Draw objectives without penalties, and a metric, against passes and seconds; medians over the seeds.

    Solid lines are g, dashed and dotted lines the primal and the dual with a penalty; the horizontal line is g*.

    Args:
        runs: histories by solver, one for each seed.
        picture: file.
        metric: name of a metric, for a second row of panels.
        title: above all panels.
    """
    best = optimum(runs)
    axes: dict[str, Callable[[Row], float]] = {"passes": lambda row: row.passes, "seconds": lambda row: row.seconds}
    rows = 2 if metric else 1
    with panels(picture, (rows, 2), (11, 1.5 + 3 * rows), title) as grid:
        for column, (name, axis) in enumerate(axes.items()):
            panel = grid[0, column]
            for i, (label, histories) in enumerate(runs.items()):
                colour = COLOURS[i % len(COLOURS)]
                panel.plot(*_line(histories, axis, hard_objective), color=colour, label=label)
                for value, style in (("soft_objective", "--"), ("soft_dual", ":")):
                    if value in histories[0][-1].metrics:
                        panel.plot(*_line(histories, axis, _metric(value)), style, color=colour, linewidth=0.8)
                if metric is not None:
                    grid[1, column].plot(*_line(histories, axis, _metric(metric)), color=colour)
            panel.axhline(best, color="grey", linewidth=0.8)
            panel.set(xscale="log", yscale="log", ylim=(best / 2, _HIGHEST * best), xlabel=name)
        for panel, text in zip(grid[:, 0], ("objective; the line is g*", metric), strict=False):
            panel.set_ylabel(text)
        handles, labels = grid[0, 0].get_legend_handles_labels()
        grid[0, 0].figure.legend(handles, labels, loc="outside lower center", ncols=2, frameon=False)


def _metric(name: str) -> Callable[[Row], float]:
    return lambda row: row.metrics.get(name, float("nan"))


def _line(
    histories: Sequence[History], axis: Callable[[Row], float], value: Callable[[Row], float]
) -> tuple[list[float], list[float]]:
    """Medians over the histories, row by row."""
    rows = list(zip(*histories, strict=False))
    return [median(map(axis, row)) for row in rows], [median(map(value, row)) for row in rows]
