"""Pictures of regularization paths: what they cost against λ."""

from collections.abc import Mapping, Sequence
from pathlib import Path

from structsmooth.plots.panels import panels
from structsmooth.solvers import Breakpoint, SolutionPath


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
    lams = [point.lam for point in points]
    ends = [*lams[1:], solutions.end or lams[-1]]
    # The gap is drawn at both ends of the piece of the path that begins at a breakpoint.
    pieces = [piece for p, end in zip(points, ends, strict=True) for piece in ((p.lam, p.gap), (end, p.gap_at(end)))]
    with panels(path, (rows, 1), (8, 2.6 * rows), title) as grid:
        objectives, gaps, *others = grid[:, 0]
        objectives.plot(lams, [point.objective for point in points], label="objective")
        objectives.plot(lams, [point.loss for point in points], label="loss", linestyle="--")
        label = "duality gap" if solutions.verified else "duality gap, estimated"
        gaps.plot(*zip(*pieces, strict=True), linewidth=0.8, label=label)
        gaps.axhline(solutions.epsilon, color="grey", linestyle=":", label="ε")
        for name, (x, y) in (metrics or {}).items():
            others[0].plot(x, y, marker=".", label=name)
        for panel in grid.flat:
            panel.set_xscale("log")
            panel.legend()
        grid[-1, 0].set_xlabel("λ")
        grid[-1, 0].invert_xaxis()


def plot_path_costs(runs: Mapping[str, Sequence[Breakpoint]], path: str | Path, *, n: int, title: str = "") -> None:
    """Draw the effective passes and seconds that paths, and searches on a grid, needed down to each λ.

    Args:
        runs: breakpoints of paths, or rows of :func:`~structsmooth.solvers.grid_search`, by the name of the method.
        path: picture file; its ending gives the format.
        n: number of examples.
        title: above both panels.

    Raises:
        ValueError: no runs, or one without rows.

    Reference:
        Osokin et al. (2016), Figures 4, 7 and 8.
    """
    if not runs or not all(runs.values()):
        raise ValueError("runs must have methods, each with at least one row")
    with panels(path, (2, 1), (8, 5.6), title) as grid:
        passes, seconds = grid[:, 0]
        for name, points in runs.items():
            lams = [point.lam for point in points]
            passes.plot(lams, [point.oracle_calls / n for point in points], label=name)
            seconds.plot(lams, [point.seconds for point in points], label=name)
        for panel, label in ((passes, f"effective passes (n = {n:,} oracle calls)"), (seconds, "seconds")):
            panel.set(xscale="log", yscale="log", ylabel=label)
        passes.legend()
        seconds.set_xlabel("λ")
        seconds.invert_xaxis()
