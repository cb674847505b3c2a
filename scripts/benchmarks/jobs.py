"""Cores of a machine under the estimators: a grid search in one process or in several, a fit on one thread or on more.

The estimator is SequenceTagger on a column file; the grid has three values of λ and three folds. Rows alternate, so
that what else the machine does disturbs all alike. The first search with several jobs starts their processes, which
import torch and load compiled loops; later searches find them running. Wall seconds are medians over the trials.
"""

import os
from argparse import Namespace
from collections.abc import Iterator
from functools import partial
from statistics import median
from typing import Any

from sklearn.model_selection import GridSearchCV

from scripts.shared.harness import command, in_turns, option, seconds, words_and_tags
from structsmooth.estimators import SequenceTagger
from structsmooth.solvers import ProximalBCFW
from structsmooth.tasks import NER


@command(
    option("--train", NER.default_files()["train"], "column file", metavar="FILE"),
    option("--jobs", 2, "processes, and threads, beside one"),
    option("--trials", 3, "number of trials"),
    threads=None,
    table=["work", "jobs or threads", "wall s"],
)
def main(options: Namespace) -> Iterator[list[str]]:
    """A row for each way to use the cores: the first search, and the medians of the trials."""
    X, y = words_and_tags(options.train)

    def search(jobs: int) -> Any:
        grid = {"lam": ["1/n", "10/n", "100/n"]}
        return GridSearchCV(SequenceTagger(), grid, cv=3, n_jobs=jobs, refit=False).fit(X, y)

    def fit(threads: int) -> SequenceTagger:
        return SequenceTagger(solver=ProximalBCFW(gap_tolerance=1e-2, threads=threads)).fit(X, y)

    for threads in (1, options.jobs):
        fit(threads)  # compiles what is not compiled yet
    print(f"{len(X):,} sentences, {os.cpu_count()} cores\n")
    yield ["first grid search", str(options.jobs), f"{seconds(partial(search, options.jobs)):.2f}"]
    works = {(work, count): partial(work, count) for work in (search, fit) for count in (1, options.jobs)}
    for (work, count), taken in in_turns(works, options.trials).items():
        yield ["grid search" if work is search else "fit", str(count), f"{median(taken):.2f}"]
