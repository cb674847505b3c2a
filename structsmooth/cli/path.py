"""The command that computes a regularization path, measures along it and compares it with a search on a grid."""

import json
import math
import sys
from argparse import ArgumentParser, Namespace
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, replace
from pathlib import Path

import numpy as np
from rich.progress import BarColumn, TextColumn

from structsmooth import BCFW
from structsmooth.checkpoint import write_atomic
from structsmooth.cli.data import SPLITS, TrainingData, add_data_flags, add_task_flags
from structsmooth.cli.flags import parse_solvers
from structsmooth.cli.layout import add_log_flags
from structsmooth.cli.report import markdown_table, terminal_bar
from structsmooth.experiments import Logs, RunFolder, open_logs
from structsmooth.messages import stage
from structsmooth.plots import plot_path, plot_path_costs
from structsmooth.problems import Problem
from structsmooth.settings import parse_lam
from structsmooth.solvers import Breakpoint, RegularizationPath, SolutionPath, Status, grid_search

# The paper's values of λ for the search that a path is compared with.
_GRID = [2.0**k for k in range(15, -16, -1)]
# Largest number of breakpoints that are measured on dev and test data, and of rows of the table.
_MEASURED = 30
_INTERRUPTED = 130


def path(options: Namespace) -> int:
    """Compute the solutions of a task for all λ of a range, and measure them."""
    data = TrainingData.read(options)
    logs = open_logs(options.log_json, options.csv, options.tensorboard)
    with logs as written, RunFolder(Path(options.out)).held():
        return _computed(data, options, written)


def _computed(data: TrainingData, options: Namespace, written: Logs) -> int:
    problem = data.problem
    lam_min, lam_max = _range(options, data.task.task.lam, problem.n)
    epsilon = 0.01 * problem.loss(problem.start()) if options.epsilon is None else options.epsilon
    algorithm = RegularizationPath(epsilon, options.kappa, options.verified, _solver(options.solver))
    with stage(f"solving for λ down to {lam_min:.3g}"), _progress_bar(lam_min) as draw:
        limits = {"passes": options.passes, "seed": options.seed}
        callbacks = [draw, _log_of_path(written, _name(options.verified))]
        found = algorithm.solve(problem, lam_min=lam_min, lam_max=lam_max, callbacks=callbacks, **limits)
    print(f"{options.task}: n = {problem.n}, {problem.dim} weights, ε = {epsilon:.4g}")
    print(f"{found.message}\n")
    with stage("measuring"):
        rows = measured(found, data)
    print(path_table(rows, min if data.task.task.headline_is_error else max))
    directory = Path(options.out)
    directory.mkdir(parents=True, exist_ok=True)
    found.save(directory / "path.safetensors")
    metrics = {name: (list(rows), [row[name] for row in rows.values()]) for name in _metrics(rows)}
    plot_path(found, directory / "path.png", metrics, f"{options.task}: ε = {epsilon:.3g}")
    print(f"\nsaved in {directory}: path.safetensors, path.png")
    if found.status is Status.INTERRUPTED:
        return _INTERRUPTED
    if options.grid or options.kappas:
        with stage("solving other paths and grids"):
            runs = compared(problem, algorithm, found, (lam_min, lam_max), options, written)
        print("\n" + costs_table(runs, problem.n))
        plot_path_costs(runs, directory / "costs.png", n=problem.n, title=f"{options.task}: ε = {epsilon:.3g}")
        costs = {name: [asdict(point) for point in points] for name, points in runs.items()}
        write_atomic(directory / "costs.json", json.dumps(costs))
        print(f"\nsaved in {directory}: costs.json, costs.png")
    return 0


def measured(found: SolutionPath, data: TrainingData) -> dict[float, dict[str, float]]:
    """Costs, objective, gap and the task's metric by λ, at breakpoints that are evenly spread over log λ."""
    points, rows = found.breakpoints, {}
    spread = np.geomspace(points[0].lam, points[-1].lam, _MEASURED)
    chosen = {min(range(len(points)), key=lambda j: abs(math.log(points[j].lam / lam))) for lam in spread}
    for j in sorted(chosen):
        point, weights = points[j], found.weights(j)
        row = {"oracle calls": float(point.oracle_calls), "seconds": point.seconds}
        row |= {"objective": point.objective, "gap": point.gap}
        row |= {data.metric(split): data.headline_of(split, weights) for split in data.held_out}
        rows[point.lam] = row
    return rows


def path_table(rows: dict[float, dict[str, float]], best_of: Callable[[Iterable[float]], float] = max) -> str:
    """A Markdown table of a path, with the best metrics in bold: the largest ones, or the smallest."""
    names = list(next(iter(rows.values())))
    best = {name: best_of(row[name] for row in rows.values()) for name in _metrics(rows)}
    formats = {"oracle calls": ",.0f", "seconds": ".1f"}
    lines = []
    for lam, row in rows.items():
        cells = [f"{row[name]:{formats.get(name, '.4f')}}" for name in names]
        marked = [f"**{c}**" if row[name] == best.get(name) else c for name, c in zip(names, cells, strict=True)]
        lines.append([f"{lam:.4g}", *marked])
    return markdown_table(["λ", *names], lines)


def compared(
    problem: Problem,
    algorithm: RegularizationPath,
    found: SolutionPath,
    lams: tuple[float, float],
    options: Namespace,
    written: Logs,
) -> dict[str, Sequence[Breakpoint]]:
    """The path, paths for other κ between the same λ, and searches on a grid with the same tolerance."""
    lam_min, lam_max = lams
    limits = {"passes": options.passes, "seed": options.seed}
    runs: dict[str, Sequence[Breakpoint]] = {_name(found.verified): found.breakpoints}
    for kappa in options.kappas:
        name, other = f"path, κ = {kappa:g}", replace(algorithm, kappa=kappa)
        callbacks = [_log_of_path(written, name)]
        runs[name] = other.solve(problem, lam_min=lam_min, lam_max=lam_max, callbacks=callbacks, **limits).breakpoints
    if options.grid:
        lowest = max(lam_min, found.end)
        grid = [lam for lam in _GRID if lowest <= lam <= found.top]
        if not grid:
            raise ValueError(
                f"--grid has no value of λ from {lowest:.3g} to {found.top:.3g}, only 2^15, 2^14, ... 2^-15"
            )
        for name, warm in (("grid with warm starts", True), ("grid", False)):
            runs[name] = grid_search(
                problem,
                grid,
                epsilon=found.epsilon,
                solver=algorithm.solver,
                warm_start=warm,
                callbacks=[_log_of_grid(written, name)],
                **limits,
            )
    return {name: points for name, points in runs.items() if points}


def costs_table(runs: Mapping[str, Sequence[Breakpoint]], n: int) -> str:
    """A Markdown table of what paths and searches cost."""
    costs = ["oracle calls", "effective passes", "seconds", "largest gap"]
    return markdown_table(
        ["", "values of λ", "smallest", *costs], [_costs(name, points, n) for name, points in runs.items()]
    )


def add_path(parser: ArgumentParser, arguments: Sequence[str]) -> None:
    """The options of the command, with the options of the task that the arguments name."""
    parser.add_argument("task", metavar="TASK", help="a task of structsmooth train")
    add_data_flags(parser)
    run = parser.add_argument_group("path")
    run.add_argument(
        "--epsilon", type=float, help="largest duality gap for any λ (default: a hundredth of the loss of zero weights)"
    )
    help_kappa = "duality gap at breakpoints, as a fraction of epsilon (default: 0.9, or 0.7 with --heuristic)"
    run.add_argument("--kappa", type=float, help=help_kappa)
    help_heuristic = "estimate duality gaps by their last known values: fewer oracle calls, no guarantee"
    run.add_argument("--heuristic", dest="verified", action="store_false", help=help_heuristic)
    run.add_argument("--lam-min", metavar="C", help="smallest λ, a number or c/n (default: a tenth of the task's λ)")
    run.add_argument(
        "--lam-max", metavar="C", help="largest λ; a huge number for all λ (default: a hundred times the task's λ)"
    )
    run.add_argument("--passes", type=int, default=1000, help="limit for each breakpoint (default: 1000)")
    run.add_argument("--seed", type=int, default=0, help="same seed, same path (default: 0)")
    run.add_argument("--out", metavar="DIR", help="where to save path and picture (default: runs/TASK-path)")
    run.add_argument(
        "--solver", default="bcfw", help="bcfw with options, as in bcfw:steps=fw or bcfw:cache=true (default: bcfw)"
    )
    run.add_argument("--grid", action="store_true", help="compare with solving for λ = 2^15, 2^14, ... 2^-15")
    run.add_argument(
        "--kappas", type=_numbers, default=[], metavar="K,...", help="compare with paths for these values of --kappa"
    )
    add_log_flags(parser, "breakpoint and λ of a grid")
    if (found := add_task_flags(parser, "path", arguments)) is not None:
        parser.set_defaults(out=f"runs/{found[1]}-path")


def _name(verified: bool) -> str:
    return "path" if verified else "heuristic path"


def _log_of_grid(written: Logs, run: str) -> Callable[[Breakpoint], None]:
    return lambda point: written.write(asdict(point), run=run)


def _log_of_path(written: Logs, run: str) -> Callable[[SolutionPath], None]:
    return lambda found: written.write(asdict(found.breakpoints[-1]), run=run)


def _solver(text: str) -> BCFW:
    """The solver of a path: its tolerance is that of the path."""
    (solver,) = parse_solvers([text]).values()
    if not isinstance(solver, BCFW):
        raise ValueError(f"--solver of a path must be bcfw, or proximal-bcfw, got {text}")
    return solver


def _numbers(text: str) -> list[float]:
    return [float(part) for part in text.split(",")]


def _range(options: Namespace, task_lam: str, n: int) -> tuple[float, float]:
    """The smallest and the largest λ: as given, or a range around the λ of the task."""
    usual = parse_lam(task_lam, n)
    lam_min = usual / 10 if options.lam_min is None else parse_lam(options.lam_min, n, "--lam-min")
    if options.lam_max is None:
        return lam_min, max(lam_min, 100 * usual)
    return lam_min, parse_lam(options.lam_max, n, "--lam-max")


def _metrics(rows: dict[float, dict[str, float]]) -> list[str]:
    """Columns of the task's metric."""
    return [name for name in next(iter(rows.values())) if name.startswith(SPLITS)]


def _costs(name: str, points: Sequence[Breakpoint], n: int) -> list[str]:
    last, gap = points[-1], max(point.gap for point in points)
    calls = f"{last.oracle_calls:,}", f"{last.oracle_calls / n:,.0f}"
    return [name, f"{len(points)}", f"{last.lam:.3g}", *calls, f"{last.seconds:.1f}", f"{gap:.4f}"]


@contextmanager
def _progress_bar(lam_min: float) -> Iterator[Callable[[SolutionPath], None]]:
    """A callback that draws the progress of a path in log λ, see :func:`terminal_bar`."""
    with terminal_bar(TextColumn("path"), BarColumn(), TextColumn("{task.description}")) as update:

        def draw(found: SolutionPath) -> None:
            first, last = found.breakpoints[0], found.breakpoints[-1]
            total = max(math.log(first.lam / lam_min), sys.float_info.min)
            done = total if found.end <= lam_min else math.log(first.lam / found.end)
            text = f"λ {last.lam:.4g}  objective {last.objective:.4f}  breakpoints {len(found.breakpoints)}"
            update(total=total, completed=done, description=text)

        yield draw
