"""Solvers on object localization, class by class, each with as many oracle calls.

Scores of boxes are linear in their features, or a small network of them. Each class is a problem of its own. Every run
gets the same number of oracle calls for each training image, searches for step sizes included; measured are the weights
of the last pass within them. Each table has one measure, as median over seeds: the objective on training images,
metrics on test images, and seconds without evaluation. Runs are kept as they end: after a stop of any kind the same
command goes on.

Solvers are written as for structsmooth compare. Hyperparameters of the default lists are powers of ten, chosen by
the objective of one class, sheep, with one seed.
"""

from __future__ import annotations

import json
import sys
from argparse import ArgumentParser, Namespace, RawDescriptionHelpFormatter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from itertools import product
from pathlib import Path
from statistics import mean, median
from typing import Any

from torch import Tensor

from structsmooth import History, Status
from structsmooth.checkpoint import write_atomic
from structsmooth.cli.flags import add_flags, from_flags, parse_solvers
from structsmooth.problems import Problem
from structsmooth.solvers import Progress, Solver, Stop
from structsmooth.solvers.checks import parse_lam
from structsmooth.tasks import Localization

_SOLVERS = {
    "linear": [
        "incremental-prox-linear",
        "casimir-svrg:mu=1,k=10,learning_rate=0.001",
        "svrg:k=10,learning_rate=0.001",
        "sgd:learning_rate=0.001",
        "adam:learning_rate=0.0001",
        "proximal-bcfw",
        "bcfw",
        "frank-wolfe",
    ],
    "elu": [
        "incremental-prox-linear",
        "prox-linear:inner=casimir-svrg:schedule=constant:k=10",
        "prox-linear:inner=casimir-svrg:schedule=constant:k=10:mu=0.1,schedule=constant,lipschitz=100,learning_rate=10",
        "sgd:schedule=constant,learning_rate=0.01,average=false",
        "sgd:schedule=inverse-sqrt,learning_rate=0.01,average=false",
        "sgd:schedule=inverse,learning_rate=0.01,average=false",
        "adam:learning_rate=0.001",
    ],
}
# Options that may change between runs in one folder.
_IN_NAMES = {"head", "classes", "solvers", "calls", "seeds", "out", "features_cache", "jobs"}
_ANIMALS = ["cat", "cow", "dog", "horse", "sheep"]
_MEASURES = {"objective": "{:.4f}", "corloc": "{:.3f}", "ap": "{:.3f}", "seconds": "{:.0f}"}


class Budget:
    """Ends a run after so many oracle calls, and keeps what it had within them."""

    def __init__(self, calls: int) -> None:
        self.calls, self.history = calls, History()
        self.weights: Tensor

    def keep(self, progress: Progress[Any]) -> None:
        """A callback."""
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


def compare(options: Namespace) -> None:
    """Make the runs that are missing, and print the tables."""
    solvers = parse_solvers(options.solvers or _SOLVERS[options.head])
    files = Localization.default_files() if options.train is None else {"train": options.train, "test": options.test}
    classes = options.classes or _ANIMALS
    reached: dict[tuple[str, str], list[History]] = {}
    check_settings(options)
    for label in classes:
        task = replace(from_flags(Localization, options), classes=[label])
        train = task.read(files["train"], "train")[: options.limit]
        fitted = task.fit(train)
        test, problem = fitted.read(files["test"], "test"), fitted.problem(train)
        for seed, (name, solver) in product(options.seeds, solvers.items()):
            path = Path(options.out, "-".join([options.head, label, name, f"{options.calls}calls", f"{seed}.jsonl"]))
            if not path.exists():
                budget = run(solver, problem, parse_lam(options.lam, problem.n), options.calls, seed)
                outputs = [ranked[0][1] for ranked in fitted.predict(budget.weights, test)]
                budget.history[-1].metrics.update(fitted.measure(test, outputs)[0])
                write_atomic(path, budget.history.to_json_lines())
            reached.setdefault((name, label), []).append(History.load(path))
    for measure, layout in _MEASURES.items():
        print(f"\n{options.head}: {measure} after {options.calls} oracle calls an image, λ = {options.lam}\n")
        print(table(reached, list(solvers), classes, measure, layout), flush=True)


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


def table(
    reached: Mapping[tuple[str, str], Sequence[History]],
    names: Sequence[str],
    classes: Sequence[str],
    measure: str,
    layout: str,
) -> str:
    """A Markdown table of one measure: solvers by classes, and the mean over those."""

    def line(name: str, values: Sequence[float]) -> str:
        return f"| {name} | " + " | ".join(layout.format(value) for value in [*values, mean(values)]) + " |"

    lines = ["| solver | " + " | ".join([*classes, "mean"]) + " |", "| --- |" + " ---: |" * (len(classes) + 1)]
    medians = {n: [median(h[-1].as_dict()[measure] for h in reached[n, c]) for c in classes] for n in names}
    lines += [line(name, values) for name, values in medians.items()]
    everything = [[row for name in names for history in reached[name, c] for row in history] for c in classes]
    bounds = [max((row.dual for row in rows if row.dual is not None), default=None) for rows in everything]
    if measure == "objective" and None not in bounds:
        lines.append(line("lower bound", [bound for bound in bounds if bound is not None]))
    return "\n".join(lines)


def add_comparison_flags(parser: ArgumentParser, examples: str, out: str) -> None:
    """Options that comparisons at equal oracle calls share."""
    parser.add_argument("--solvers", nargs="+", metavar="SOLVER", help="(default: the list of the script)")
    parser.add_argument("--calls", type=int, default=60, help=f"oracle calls for each of the {examples} (default: 60)")
    parser.add_argument("--limit", type=int, help=f"number of {examples}, at most (default: all)")
    parser.add_argument("--lam", default="1/n", metavar="C", help="λ, a number or c/n (default: 1/n)")
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2], help="(default: 0 1 2)")
    parser.add_argument("--out", default=out, metavar="DIR", help="where runs are kept")


def start(parser: ArgumentParser, compare: Callable[[Namespace], None], arguments: Sequence[str] | None) -> None:
    """Parse the command line and compare; ends the program on bad input, and if interrupted."""
    options = parser.parse_args(arguments)
    if (options.train is None) != (options.test is None):
        parser.error("give both --train and --test, or none")
    try:
        compare(options)
    except KeyboardInterrupt:
        sys.exit("interrupted: the same command goes on")
    except (ValueError, OSError, ImportError) as error:
        sys.exit(f"error: {error}")


def main(arguments: Sequence[str] | None = None) -> None:
    """Compare solvers on object localization."""
    parser = ArgumentParser(description=__doc__, formatter_class=RawDescriptionHelpFormatter)
    parser.add_argument("--train", metavar="FILE", help="as of structsmooth train localization")
    parser.add_argument("--test", metavar="FILE", help="likewise; both or none")
    add_comparison_flags(parser, "training images of a class", "runs/compare-localization")
    add_flags(parser, "options of localization", Localization)
    start(parser, compare, arguments)


if __name__ == "__main__":
    main()
