"""Solvers with several threads beside one: full passes, and passes, seconds and objective of runs.

The problem is that of the task `ner` on a column file, such as CoNLL-2003, with λ = 10/n. The runs of one thread and of
several alternate, so that what else the machine does disturbs both alike. Runs of block-coordinate Frank-Wolfe end at a
duality gap, and those of SGD, which knows none as small, after some passes. Wall seconds include the evaluation after
every pass, without which nobody would know the gap; seconds of steps do not. The table has medians over the seeds, and
ratios of them to those of one thread.
"""

import math
import os
import time
from argparse import Namespace
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial
from itertools import chain, product
from statistics import median
from typing import Any, NamedTuple

from scripts.shared.harness import RUNS_TO_A_GAP, command, in_turns, option, print_table, until
from structsmooth import BCFW, SGD
from structsmooth.cli.flags import parse_solvers
from structsmooth.compiled.threads import sharing_passes
from structsmooth.problems import SparseChainProblem
from structsmooth.settings import parse_lam
from structsmooth.smoothing import Max
from structsmooth.tasks import NER


class Run(NamedTuple):
    """What a run took: passes, oracle calls over n, wall seconds, CPU seconds, seconds of steps; and its objective."""

    passes: float
    calls: float
    wall: float
    cpu: float
    steps: float
    objective: float


def run_to_end(problem: SparseChainProblem, lam: float, solver: BCFW | SGD, seed: int, gap: float, limit: int) -> Run:
    """One run until the gap is small enough, or to the limit on passes."""
    reached = until(lambda row: row.gap is not None and row.gap <= gap)
    wall, cpu = time.perf_counter(), time.process_time()
    last = solver.solve(problem, lam=lam, passes=limit, seed=seed, callbacks=[reached]).history[-1]
    wall, cpu = time.perf_counter() - wall, time.process_time() - cpu
    assert last.gap is not None
    passes = last.passes if last.gap <= gap or isinstance(solver, SGD) else math.inf
    return Run(passes, last.oracle_calls / problem.n, wall, cpu, last.seconds, last.objective)


@command(
    *RUNS_TO_A_GAP,
    option("--solvers", ["bcfw", "bcfw:sampling=uniform,steps=fw", "proximal-bcfw", "sgd"]),
    option("--threads", [2], "numbers beside 1"),
    option("--passes", 10, "passes of a run of SGD"),
    option("--seeds", 3, "number of seeds"),
)
def main(options: Namespace) -> None:
    """Print full passes, then a row for each solver and number of threads."""
    task = NER(rich=options.rich, bits=options.bits)
    examples = task.read(options.train, "train")
    problem = task.fit(examples).problem(examples)
    assert isinstance(problem, SparseChainProblem)
    lam, counts = parse_lam(options.lam, problem.n), [1, *options.threads]
    solvers = parse_solvers(options.solvers)
    print(f"{problem.n:,} examples, {problem.dim:,} weights, {os.cpu_count()} cores\n")
    columns = ["passes", "calls/n", "wall", "CPU", "steps", "objective"]
    columns += ["passes ratio", "wall speedup", "steps speedup"]
    runs = (row for label, solver in solvers.items() for row in run_rows(problem, lam, label, solver, counts, options))
    print_table(["work", "threads", *columns], chain(full_pass_rows(problem, counts, options.seeds), runs))


def full_pass_rows(problem: SparseChainProblem, counts: Sequence[int], trials: int) -> Iterator[list[str]]:
    """Medians of full passes for each number of threads."""

    def full_pass(count: int) -> None:
        with sharing_passes(count):
            problem.full_pass(problem.start(), Max())

    works = {count: partial(full_pass, count) for count in counts}
    in_turns(works, 1)  # compiles what is not compiled yet
    seconds = {count: median(times) for count, times in in_turns(works, 5 * trials).items()}
    for count, taken in seconds.items():
        yield ["full pass", str(count), "", "", f"{taken:.3f}", "", "", "", "", f"{seconds[1] / taken:.2f}", ""]


def run_rows(
    problem: SparseChainProblem, lam: float, label: str, solver: Any, counts: Sequence[int], options: Namespace
) -> Iterator[list[str]]:
    """Medians of the runs of a solver for each number of threads."""
    assert isinstance(solver, BCFW | SGD)
    for count in counts:  # compiles what is not compiled yet
        replace(solver, threads=count).solve(problem, lam=lam, passes=2)
    solvers = {count: replace(solver, threads=count, gap_tolerance=0.0) for count in counts}
    limits = (0.0, options.passes) if isinstance(solver, SGD) else (options.gap, options.limit)

    runs: dict[int, list[Run]] = {count: [] for count in counts}
    for seed, count in product(range(options.seeds), counts):
        runs[count].append(run_to_end(problem, lam, solvers[count], seed, *limits))
    medians = {count: Run(*map(median, zip(*found, strict=True))) for count, found in runs.items()}
    for count, run in medians.items():
        ratios = (run.passes / medians[1].passes, medians[1].wall / run.wall, medians[1].steps / run.steps)
        taken = [f"{run.passes:g}", f"{run.calls:.1f}", *(f"{s:.2f}" for s in run[2:5]), f"{run.objective:.5f}"]
        yield [label, str(count), *taken, *(f"{ratio:.2f}" for ratio in ratios)]
