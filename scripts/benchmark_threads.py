"""Solvers with several threads beside one: full passes, and passes, seconds and objective of runs.

The problem is that of the task `ner` on a column file, such as CoNLL-2003, with λ = 10/n. The runs of one thread and of
several alternate, so that what else the machine does disturbs both alike; its load is printed along with them. Runs of
block-coordinate Frank-Wolfe end at a duality gap, and those of SGD, which knows none as small, after some passes. Wall
seconds include the evaluation after every pass, without which nobody would know the gap; seconds of steps do not. The
last table has medians over the seeds, and ratios of them to those of one thread.
"""

from __future__ import annotations

import math
import os
import sys
import time
from argparse import ArgumentParser, RawDescriptionHelpFormatter
from collections.abc import Callable, Sequence
from dataclasses import replace
from statistics import median
from typing import Any, NamedTuple

import torch

from structsmooth import BCFW, SGD, SparseChainProblem
from structsmooth.cli.flags import parse_solvers
from structsmooth.compiled.threads import sharing_passes
from structsmooth.smoothing import Max
from structsmooth.solvers import Progress, Stop
from structsmooth.solvers.checks import parse_lam
from structsmooth.tasks import NER

_SOLVERS = ["bcfw", "bcfw:sampling=uniform,steps=fw", "proximal-bcfw", "sgd"]


class Run(NamedTuple):
    """What a run took: passes, oracle calls over n, wall seconds, CPU seconds, seconds of steps; and its objective."""

    passes: float
    calls: float
    wall: float
    cpu: float
    steps: float
    objective: float


def full_pass_seconds(problem: SparseChainProblem, threads: int, repeats: int) -> float:
    """Median wall seconds of a full pass."""
    w, seconds = problem.start(), []
    with sharing_passes(threads):
        for _ in range(repeats + 1):  # the first one warms up
            started = time.perf_counter()
            problem.full_pass(w, Max())
            seconds.append(time.perf_counter() - started)
    return median(seconds[1:])


def run_to_end(problem: SparseChainProblem, lam: float, solver: BCFW | SGD, seed: int, gap: float, limit: int) -> Run:
    """One run until the gap is small enough, or to the limit on passes."""

    def watch(progress: Progress[Any]) -> None:
        if progress.row.gap is not None and progress.row.gap <= gap:
            raise Stop

    wall, cpu = time.perf_counter(), time.process_time()
    last = solver.solve(problem, lam=lam, passes=limit, seed=seed, callbacks=[watch]).history[-1]
    wall, cpu = time.perf_counter() - wall, time.process_time() - cpu
    assert last.gap is not None
    passes = last.passes if last.gap <= gap or isinstance(solver, SGD) else math.inf
    return Run(passes, last.oracle_calls / problem.n, wall, cpu, last.seconds, last.objective)


def compared(counts: Sequence[int], measure: Callable[[int], Any]) -> dict[int, Any]:
    """The measurement for each number of threads, with the load of the machine around it."""
    results = {}
    for count in counts:
        results[count] = measure(count)
        print(f"load {os.getloadavg()[0]:.1f}, {count} threads: {results[count]}", file=sys.stderr, flush=True)
    return results


def main(arguments: Sequence[str] | None = None) -> int:
    """Print full passes, then a row for each solver and number of threads."""
    torch.set_num_threads(1)
    parser = ArgumentParser(description=__doc__, formatter_class=RawDescriptionHelpFormatter)
    parser.add_argument("--train", default=NER.default_files()["train"], metavar="FILE", help="column file")
    parser.add_argument("--rich", action="store_true", help="all attributes of the task, instead of the paper's")
    parser.add_argument("--bits", type=int, default=NER.bits, help="log2 of the number of attributes")
    parser.add_argument("--lam", default="10/n", help="λ (default: 10/n)")
    parser.add_argument("--solvers", nargs="+", default=_SOLVERS, help=f"default: {' '.join(_SOLVERS)}")
    parser.add_argument("--threads", type=int, nargs="+", default=[2], help="numbers beside 1 (default: 2)")
    parser.add_argument("--gap", type=float, default=0.05, help="duality gap to reach (default: 0.05)")
    parser.add_argument("--limit", type=int, default=100, help="passes of a run (default: 100)")
    parser.add_argument("--passes", type=int, default=10, help="passes of a run of SGD (default: 10)")
    parser.add_argument("--seeds", type=int, default=3, help="number of seeds (default: 3)")
    options = parser.parse_args(arguments)
    task = NER(rich=options.rich, bits=options.bits)
    examples = task.read(options.train, "train")
    problem = task.fit(examples).problem(examples)
    assert isinstance(problem, SparseChainProblem)
    lam, counts = parse_lam(options.lam, problem.n), [1, *options.threads]
    print(f"{problem.n:,} examples, {problem.dim:,} weights, {os.cpu_count()} cores\n")
    columns = "passes | calls/n | wall | CPU | steps | objective | passes ratio | wall speedup | steps speedup |"
    print(f"| work | threads | {columns}")
    print("| --- |" + " ---: |" * 10)
    trials = [compared(counts, lambda count: full_pass_seconds(problem, count, 5)) for _ in range(options.seeds)]
    seconds = {count: median(trial[count] for trial in trials) for count in counts}
    for count in counts:
        print(f"| full pass | {count} | | | {seconds[count]:.3f} | | | | | {seconds[1] / seconds[count]:.2f} | |")
    for label, solver in parse_solvers(options.solvers).items():
        assert isinstance(solver, BCFW | SGD)
        for count in counts:  # compiles what is not compiled yet
            replace(solver, threads=count).solve(problem, lam=lam, passes=2)

        def trial(seed: int, solver: BCFW | SGD = solver) -> dict[int, Run]:
            solvers = {count: replace(solver, threads=count, gap_tolerance=0.0) for count in counts}
            limits = (0.0, options.passes) if isinstance(solver, SGD) else (options.gap, options.limit)
            return compared(counts, lambda count: run_to_end(problem, lam, solvers[count], seed, *limits))

        runs = [trial(seed) for seed in range(options.seeds)]
        medians = {
            count: Run(*(median(column) for column in zip(*(r[count] for r in runs), strict=True))) for count in counts
        }
        for count, own in medians.items():
            ratios = (own.passes / medians[1].passes, medians[1].wall / own.wall, medians[1].steps / own.steps)
            cells = [
                f"{own.passes:g}",
                f"{own.calls:.1f}",
                *(f"{s:.2f}" for s in own[2:5]),
                f"{own.objective:.5f}",
                *(f"{r:.2f}" for r in ratios),
            ]
            print(f"| {label} | {count} | {' | '.join(cells)} |", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
