"""Oracle calls of block-coordinate Frank-Wolfe to gaps of 1e-1, 1e-3 and 1e-6, by gap and by uniform sampling.

The problems are support vector machines of 40 points in two classes and, where scikit-learn is installed, of its 40
blobs and of iris; the small data of the task ``ocr``; and the embedded data of ``ner``. Calls are given in effective
passes, n calls each, as medians over the seeds. Each run ends at the smallest gap or at a limit on its calls; the last
column has its last gap.
"""

from __future__ import annotations

import math
from argparse import Namespace
from collections.abc import Iterator
from importlib import import_module
from itertools import product
from statistics import median
from typing import Any

import torch
from torch import Tensor, nn

from scripts.harness import command, option, print_table, until
from structsmooth import BCFW, Candidates, LinearModuleProblem, LinearProblem, ScoreModule
from structsmooth.history import Row
from structsmooth.tasks import load_task

_GAPS = (1e-1, 1e-3, 1e-6)
# λn of each problem; that of a support vector machine is 1/C.
_LAMS = {
    "points": (1e-3, 0.1),
    "blobs": (1e-3, 0.1),
    "iris": (0.1,),
    "ocr": (500.0, 50.0, 5.0),
    "ner": (100.0, 10.0, 1.0),
}
_SOLVERS = (BCFW(sampling="uniform", gap_tolerance=0.0), BCFW(sampling="gap", gap_tolerance=0.0))


class Classes(ScoreModule):
    """Linear scores of classes."""

    def __init__(self, features: int, classes: int) -> None:
        super().__init__()
        self.linear = nn.Linear(features, classes, dtype=torch.float64)

    def forward(self, x: Tensor) -> Candidates:
        """Candidates [n] for features [n, features]."""
        return Candidates(self.linear(x))


def points() -> tuple[Tensor, Tensor]:
    """40 points around two centers."""
    y = torch.arange(40) % 2
    centers = torch.tensor([[-3.0, 4.0], [2.0, 1.0]], dtype=torch.float64)
    generator = torch.Generator().manual_seed(6)
    return centers[y] + torch.randn(40, 2, generator=generator, dtype=torch.float64), y


def problem(name: str) -> LinearProblem:
    """The problem of that name."""
    if name in ("ocr", "ner"):
        task: Any = load_task(name)()
        examples = task.read(task.default_files()["train"], "train")
        return task.fit(examples).problem(examples)  # type: ignore[no-any-return]
    if name == "points":
        x, y = points()
    else:
        datasets = import_module("sklearn.datasets")
        blobs = {"n_samples": 40, "centers": 2, "random_state": 6}
        data = datasets.load_iris(return_X_y=True) if name == "iris" else datasets.make_blobs(**blobs)
        x, y = map(torch.from_numpy, data)
    return LinearModuleProblem(Classes(x.shape[1], int(y.max()) + 1), list(zip(x, y, strict=True)))


def measured(problem: LinearProblem, lam: float, solver: BCFW, seed: int, limit: float) -> list[float]:
    """Effective passes to each gap, and the last gap."""
    passes = [math.inf] * len(_GAPS)

    def passed(row: Row) -> bool:
        done = row.oracle_calls / problem.n
        passes[:] = [min(p, done) if (row.gap or 0.0) <= gap else p for p, gap in zip(passes, _GAPS, strict=True)]
        return passes[-1] < math.inf or done >= limit

    history = solver.solve(problem, lam=lam, passes=10**9, seed=seed, callbacks=[until(passed)]).history
    return [*passes, history[-1].gap or 0.0]


@command(
    option("problems", None, ", ".join(_LAMS), nargs="+", choices=_LAMS, metavar="PROBLEM"),
    option("--limit", 300.0, "effective passes of a run"),
    option("--seeds", 1, "number of seeds"),
)
def main(options: Namespace) -> None:
    """Print a row for each problem, λ and sampling."""
    header = ["problem", "λ", "sampling", "1e-1", "1e-3", "1e-6", "last gap"]
    print_table(header, rows(options), text_columns=3)


def rows(options: Namespace) -> Iterator[list[str]]:
    """Medians over the seeds."""
    for name in options.problems:
        data = problem(name)
        for scale, solver in product(_LAMS[name], _SOLVERS):
            runs = [measured(data, scale / data.n, solver, s, options.limit) for s in range(options.seeds)]
            *passes, gap = (median(column) for column in zip(*runs, strict=True))
            cells = [f"{p:,.0f}" if p < math.inf else "-" for p in passes]
            yield [name, f"{scale:g}/n", str(solver.sampling), *cells, f"{gap:.1e}"]


if __name__ == "__main__":
    raise SystemExit(main())
