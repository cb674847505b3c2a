"""Objective against passes and seconds for every solver, schedule and warm start, on one task.

All runs minimize the same objective without smoothing, with the same seed and no early stop. Seconds are the solver's
own, without evaluations it does not use; with several workers they compete for the machine.
"""

from __future__ import annotations

import multiprocessing
import sys
from argparse import ArgumentParser, Namespace, RawDescriptionHelpFormatter
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import replace
from functools import partial
from itertools import product
from typing import Any, NamedTuple, get_args, get_type_hints

import torch
from rich.console import Console
from rich.progress import track

from structsmooth import BCFW, SGD, SVRG, CasimirSVRG
from structsmooth.cli.flags import parse_lam
from structsmooth.history import History
from structsmooth.problems import Problem
from structsmooth.solvers import Solver, Status
from structsmooth.tasks import load_task

_MILESTONES = (10, 30, 100)
# Relative distance from the best that counts as as good.
_CLOSE = 0.01


class Variant(NamedTuple):
    """A solver with its names in the table."""

    solver: Solver[Any]
    name: str
    schedule: str = ""
    warm_start: str = ""

    def __str__(self) -> str:
        return " ".join(part for part in self[1:] if part)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run every variant, print the table and draw the plot."""
    torch.set_num_threads(1)
    parser, options = _parse(sys.argv[1:] if arguments is None else arguments)
    task_type = load_task(options.task)
    try:
        task = task_type.from_options(options)
        examples = task.read(options.train or task_type.default_files()["train"])
        task.fit(examples)
        problem = task.problem(examples)
        lam = parse_lam(options.lam or task_type.lam, problem.n)
        compared = list(variants(options.mu))
    except (ValueError, OSError) as error:
        parser.error(str(error))
    run = partial(run_variant, problem, lam, options.passes, options.seed)
    histories = _with_progress(run, compared, options.workers)
    ranked = sorted(zip(compared, histories, strict=True), key=lambda pair: pair[1][-1].objective)
    print(f"{options.task}: n = {problem.n}, {problem.dim} weights, λ = {lam:.3g}, seed {options.seed}\n")
    print(table(ranked, options.passes))
    if options.plot:
        _draw(ranked, options.plot)
        print(f"\nplot: {options.plot}")
    return 0


def variants(mu: float | None = None) -> Iterator[Variant]:
    """Every solver, schedule and warm start; ``mu`` is for those that keep their smoothing constant."""
    for sampling, steps in product(_choices(BCFW, "sampling"), _choices(BCFW, "steps")):
        yield Variant(BCFW(sampling=sampling, steps=steps, gap_tolerance=0.0), "BCFW", f"{sampling}, {steps}")
    for schedule in _choices(SGD, "schedule"):
        yield Variant(SGD(schedule=schedule, gap_tolerance=0.0), "SGD", schedule)
    svrg = SVRG(gap_tolerance=0.0)
    yield Variant(svrg if mu is None else replace(svrg, mu=mu), "SVRG", "constant")
    for schedule, warm_start in product(_choices(CasimirSVRG, "schedule"), _choices(CasimirSVRG, "warm_start")):
        casimir = CasimirSVRG(schedule=schedule, warm_start=warm_start, gap_tolerance=0.0)
        if schedule == "constant" and mu is not None:
            casimir = replace(casimir, mu=mu)
        yield Variant(casimir, "CasimirSVRG", schedule, warm_start)


def run_variant(problem: Problem, lam: float, passes: int, seed: int, variant: Variant) -> History:
    """The history of one run; it ends early only if the run diverges, or reaches the optimum to rounding."""
    torch.set_num_threads(1)
    few = problem.subset(torch.arange(min(problem.n, 2)))
    variant.solver.solve(few, lam=lam, passes=1)  # compiles
    result = variant.solver.solve(problem, lam=lam, passes=passes, seed=seed)
    if result.status is Status.INTERRUPTED:
        raise KeyboardInterrupt
    if result.status is Status.DIVERGED:
        print(f"{variant}: {result.message}", file=sys.stderr)
    return result.history


def table(ranked: Sequence[tuple[Variant, History]], passes: int) -> str:
    """Objectives at milestones as a Markdown table, in the order given; the first is the best."""
    milestones = sorted({p for p in _MILESTONES if p < passes} | {passes})
    best = ranked[0][1][-1].objective
    header = ["solver", "schedule", "warm start", *(f"{p} passes" for p in milestones), "gap", "seconds", "within 1%"]
    rows = [
        [
            *variant[1:],
            *(_objective_after(history, p) for p in milestones),
            "" if history[-1].gap is None else f"{history[-1].gap:.2g}",
            f"{history[-1].seconds:.1f}",
            "yes" if history[-1].objective <= (1 + _CLOSE) * best else "",
        ]
        for variant, history in ranked
    ]
    lines = [header, ["---"] * 3 + ["---:"] * (len(header) - 4) + [":---:"], *rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def _objective_after(history: History, passes: int) -> str:
    return f"{[row for row in history if row.passes <= passes][-1].objective:.6f}"


def _choices(solver: type[Solver[Any]], name: str) -> tuple[Any, ...]:
    return get_args(get_type_hints(solver)[name])


def _with_progress(run: partial[History], compared: Sequence[Variant], workers: int) -> list[History]:
    console = Console(stderr=True)
    bar = partial(track, total=len(compared), description="runs", console=console, disable=not console.is_terminal)
    if workers == 1:
        return list(bar(map(run, compared)))
    # Compiled kernels and threads of torch do not survive a fork.
    with ProcessPoolExecutor(workers, multiprocessing.get_context("spawn")) as pool:
        return list(bar(pool.map(run, compared)))


def _draw(ranked: Sequence[tuple[Variant, History]], path: str) -> None:
    """Distance from the best lower bound, or else the best objective, against passes and seconds."""
    from matplotlib.figure import Figure  # slow to load, and not needed without a plot

    rows = [row for _, history in ranked for row in history]
    bounds = [row.dual for row in rows if row.dual is not None]
    bound = max(bounds) if bounds else min(row.objective for row in rows)
    figure = Figure(figsize=(11, 4.5), layout="constrained")
    panels: Any = figure.subplots(1, 2, sharey=True)
    for panel, axis in zip(panels, ("passes", "seconds"), strict=True):
        for variant, history in ranked:
            points = [(row.as_dict()[axis], row.objective - bound) for row in history if row.objective > bound]
            panel.plot(*zip(*points, strict=True), label=str(variant), linewidth=1)
        panel.set_yscale("log")
        panel.set_xlabel(axis)
        panel.grid(alpha=0.3)
    panels[0].set_ylabel("objective minus best " + ("lower bound" if bounds else "objective"))
    handles, labels = panels[0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside right upper", fontsize="small")
    figure.savefig(path, dpi=120)


def _parse(arguments: Sequence[str]) -> tuple[ArgumentParser, Namespace]:
    parser = ArgumentParser(description=__doc__, formatter_class=RawDescriptionHelpFormatter)
    parser.add_argument("--task", default="ner", help="as of structsmooth train (default: ner)")
    parser.add_argument("--train", metavar="FILE", help="training data (default: that of the task)")
    parser.add_argument("--lam", metavar="C", help="regularization λ, a number or c/n (default: what suits the task)")
    parser.add_argument("--passes", type=int, default=200, help="passes over the data (default: 200)")
    parser.add_argument("--mu", type=float, help="smoothing of SVRG and the constant schedule (default: the solver's)")
    parser.add_argument("--seed", type=int, default=0, help="of the order of examples (default: 0)")
    parser.add_argument("--workers", type=int, default=1, metavar="N", help="runs at the same time (default: 1)")
    parser.add_argument("--plot", metavar="FILE", help="draw objectives against passes and seconds")
    early = ArgumentParser(add_help=False)
    early.add_argument("--task", default="ner")
    chosen, _ = early.parse_known_args([a for a in arguments if a not in ("-h", "--help")])
    try:
        task = load_task(chosen.task)
    except ValueError as error:
        parser.error(str(error))
    task.add_arguments(parser.add_argument_group(f"features of {chosen.task}"))  # type: ignore[arg-type]
    options = parser.parse_args(arguments)
    for name in ("passes", "workers"):
        if getattr(options, name) < 1:
            parser.error(f"--{name} must be at least 1, got {getattr(options, name)}")
    return parser, options


if __name__ == "__main__":
    sys.exit(main())
