"""Cores of a machine under the estimators: a grid search in one process or in several, a fit on one thread or on more.

The estimator is SequenceTagger on a column file; the grid has three values of λ and three folds. Rows alternate, so
that what else the machine does disturbs all alike; its load is printed along with them. The first search with several
jobs starts their processes, which import torch and load compiled loops; later searches find them running. Wall seconds
are medians over the trials.
"""

from __future__ import annotations

import os
import sys
import time
from argparse import ArgumentParser, RawDescriptionHelpFormatter
from collections.abc import Callable, Sequence
from functools import partial
from statistics import median
from typing import Any

from sklearn.model_selection import GridSearchCV

from structsmooth.estimators import SequenceTagger
from structsmooth.solvers import ProximalBCFW
from structsmooth.tasks import NER


def seconds(work: Callable[[], Any]) -> float:
    """Wall seconds that it takes."""
    started = time.perf_counter()
    work()
    return time.perf_counter() - started


def main(arguments: Sequence[str] | None = None) -> int:
    """Print a row for each way to use the cores."""
    parser = ArgumentParser(description=__doc__, formatter_class=RawDescriptionHelpFormatter)
    parser.add_argument("--train", default=NER.default_files()["train"], metavar="FILE", help="column file")
    parser.add_argument("--jobs", type=int, default=2, help="processes, and threads, beside one (default: 2)")
    parser.add_argument("--trials", type=int, default=3, help="number of trials (default: 3)")
    options = parser.parse_args(arguments)
    sentences = NER().read(options.train, "train")
    X, y = [list(sentence.words) for sentence in sentences], [list(sentence.tags or []) for sentence in sentences]

    def search(jobs: int) -> Any:
        grid = {"lam": ["1/n", "10/n", "100/n"]}
        return GridSearchCV(SequenceTagger(), grid, cv=3, n_jobs=jobs, refit=False).fit(X, y)

    def fit(threads: int) -> SequenceTagger:
        return SequenceTagger(solver=ProximalBCFW(gap_tolerance=1e-2, threads=threads)).fit(X, y)

    for threads in (1, options.jobs):
        fit(threads)  # compiles what is not compiled yet
    print(f"{len(X):,} sentences, {os.cpu_count()} cores\n\n| work | jobs or threads | wall s |\n| --- | ---: | ---: |")
    print(f"| first grid search | {options.jobs} | {seconds(partial(search, options.jobs)):.2f} |", flush=True)
    rows: dict[tuple[Callable[[int], Any], int], list[float]] = {
        (work, count): [] for work in (search, fit) for count in (1, options.jobs)
    }
    for _ in range(options.trials):
        for (work, count), taken in rows.items():
            taken.append(seconds(partial(work, count)))
            print(f"load {os.getloadavg()[0]:.1f}, {work.__name__} {count}: {taken[-1]:.2f}", file=sys.stderr)
    for (work, count), taken in rows.items():
        print(f"| {'grid search' if work is search else 'fit'} | {count} | {median(taken):.2f} |")
    return 0


if __name__ == "__main__":
    sys.exit(main())
