"""What comparisons at equal oracle calls share: options, runs that end after so many calls and are kept, and tables."""

import json
import sys
from argparse import Namespace
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import product
from pathlib import Path
from statistics import mean, median
from typing import Any

from torch import Tensor

from scripts.shared.harness import TRAIN_AND_TEST, Option, option
from structsmooth.checkpoint import write_atomic
from structsmooth.cli.flags import parse_solvers
from structsmooth.cli.report import markdown_table
from structsmooth.problems import Problem
from structsmooth.settings import parse_lam
from structsmooth.solvers import History, Progress, Solver, Status, Stop

Reached = dict[tuple[str, str], list[History]]
"""Histories by solver and column of the tables, one for each seed."""
Measure = Callable[[Tensor], dict[str, float]]
"""Measures of weights, by name."""

# Options that may change between runs in one folder.
_IN_NAMES = {"head", "classes", "solvers", "calls", "seeds", "out", "features_cache", "jobs"}


def comparison_options(examples: str, out: str) -> list[Option]:
    """Files, solvers, and how many calls they have."""
    return [
        *TRAIN_AND_TEST,
        option("--solvers", None, "(default: the list of the script)", nargs="+", metavar="SOLVER"),
        option("--calls", 60, f"oracle calls for each of the {examples}"),
        option("--limit", None, f"number of {examples}, at most (default: all)", type=int),
        option("--lam", "1/n", "λ, a number or c/n", metavar="C"),
        option("--seeds", [0, 1, 2]),
        option("--out", out, "where runs are kept", metavar="DIR"),
    ]


class Budget:
    """Ends a run after so many oracle calls, and keeps what it had within them."""

    def __init__(self, calls: int) -> None:
        self.calls, self.history = calls, History()
        self.weights: Tensor

    def keep(self, progress: Progress[Any]) -> None:
        """A callback of solvers: keep the row and the weights of a pass, and end the run after the last call."""
        if not self.history or progress.row.oracle_calls <= self.calls:
            self.weights = progress.state.weights.clone()
            self.history.append(progress.row)
        if progress.row.oracle_calls >= self.calls:
            raise Stop


def run(solver: Solver[Any], problem: Problem, lam: float, calls: int, seed: int) -> Budget:
    """Train with so many oracle calls for each example.

    Raises:
        KeyboardInterrupt: Ctrl-C, before they were spent.
    """
    budget = Budget(calls * problem.n)
    # A pass takes a call for each example at least.
    result = solver.solve(problem, lam=lam, passes=calls, seed=seed, callbacks=[budget.keep])
    if result.status is Status.INTERRUPTED:
        raise KeyboardInterrupt
    return budget


def kept_run(
    name: str, solver: Solver[Any], problem: Problem, seed: int, options: Namespace, measure: Measure
) -> History:
    """The history of a run from the folder of runs, where it is made if it is missing; its last row has measures."""
    path = Path(options.out, f"{name}-{options.calls}calls-{seed}.jsonl")
    if not path.exists():
        budget = run(solver, problem, parse_lam(options.lam, problem.n), options.calls, seed)
        budget.history[-1].metrics.update(measure(budget.weights))
        write_atomic(path, budget.history.to_json_lines())
    return History.load(path)


def check_settings(options: Namespace) -> None:
    """Let a folder have runs with the same settings alone, but for those that files are named by.

    Raises:
        ValueError: it has others.
    """
    settings = {name: value for name, value in vars(options).items() if name not in _IN_NAMES}
    path = Path(options.out, "settings.json")
    path.parent.mkdir(parents=True, exist_ok=True)
    if path.exists() and json.loads(path.read_text()) != settings:
        raise ValueError(f"{options.out} has runs with other settings, see {path}: give another --out")
    write_atomic(path, json.dumps(settings, indent=1))


def compare(
    options: Namespace,
    columns: Callable[[], Iterable[tuple[str, Callable[[int], tuple[Problem, Measure]]]]],
    solvers: Sequence[str],
    measures: Mapping[str, str],
    title: str,
) -> None:
    """Make the runs that are missing, and print a table of each measure: solvers by columns.

    Bad input ends the program with a sentence, and an interruption with the advice to go on.

    Args:
        options: of the command.
        columns: the columns of the tables, each with a problem and what measures its weights, for a seed.
        solvers: unless the options name others.
        measures: layouts of their numbers, by name.
        title: of the table of a measure, which takes the place of ``{}``.
    """
    try:
        chosen = parse_solvers(options.solvers or solvers)
        check_settings(options)
        reached: Reached = {}
        for column, prepared in columns():
            for seed, (name, solver) in product(options.seeds, chosen.items()):
                problem, measure = prepared(seed)
                history = kept_run(f"{column}-{name}", solver, problem, seed, options, measure)
                reached.setdefault((name, column), []).append(history)
    except KeyboardInterrupt:
        sys.exit("interrupted: the same command goes on")
    except (ValueError, OSError, ImportError) as error:
        sys.exit(f"error: {error}")
    for name, layout in measures.items():
        print(f"\n{title.format(name)}\n\n{table(reached, name, layout)}", flush=True)


def table(reached: Reached, measure: str, layout: str) -> str:
    """Medians of the last rows, and below objectives the largest dual, which bounds them, if all columns have one."""
    names, columns = (list(dict.fromkeys(key[part] for key in reached)) for part in (0, 1))

    def line(name: str, values: Sequence[float]) -> list[str]:
        return [name, *(layout.format(value) for value in [*values, mean(values)])]

    rows = [line(n, [median(h[-1].as_dict()[measure] for h in reached[n, c]) for c in columns]) for n in names]
    everything = [[row for name in names for history in reached[name, c] for row in history] for c in columns]
    bounds = [max((row.dual for row in rows if row.dual is not None), default=None) for rows in everything]
    if measure == "objective" and None not in bounds:
        rows.append(line("lower bound", [bound for bound in bounds if bound is not None]))
    return markdown_table(["solver", *columns, "mean"], rows)
