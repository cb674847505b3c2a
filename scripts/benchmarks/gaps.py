"""What solvers need to reach duality gaps, on problems of several kinds: effective passes and CPU seconds.

Of the problems, ``points`` is a support vector machine of 40 points in two classes; ``blobs`` and ``iris`` are those of
scikit-learn; ``ocr`` and ``ner`` have the small data of these tasks. The others need --data, an npz file with X_train
[n, D] and Y_train [n, k] of zeros and ones, such as Mulan's yeast, whose labels are the nodes of a complete graph:

    pairs:     the model of Meshi et al. (2015, section 6): a weight vector for each label that is present, and a weight
               for each pair that is present together. The gap of multipliers is that of the hard problem, over the
               local polytope.
    counts:    with a weight for each number of labels that are present too, by a factor over all of them; a constant
               feature. Soft agreement minimizes the hinges of the local polytope, but with decomposition=whole the
               exact ones, as other solvers do. Those of ``counts-relaxed`` get the polytope.
    smoothed:  pairs and a constant feature, where --level smooths the maxima of nodes and edges; ``smoothed-relaxed``
               is the same over the polytope.

A run ends at the smallest gap, or at a limit on its effective passes (n oracle calls each) or CPU seconds, which do not
include evaluations. Cells are medians over the seeds. The last columns have the time of a pass, and the last dual and
objective, between which the optimum lies.
"""

from argparse import Namespace
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from importlib import import_module
from itertools import combinations, product
from statistics import median
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from scripts.shared.harness import RequestError, command, cpu_clock, option, print_table, until
from structsmooth import Candidates, Entropy, FactorGraph, LinearModuleProblem, Max, ScoreModule
from structsmooth.cli.comparison import effort, first_row
from structsmooth.cli.flags import parse_solvers
from structsmooth.factors import Count, LocalPolytope
from structsmooth.history import Row
from structsmooth.problems import LinearProblem
from structsmooth.settings import parse_lam
from structsmooth.solvers import History, Solver
from structsmooth.tasks import load_task


class Classes(ScoreModule):
    """Linear scores of classes."""

    def __init__(self, features: int, classes: int) -> None:
        super().__init__()
        self.linear = nn.Linear(features, classes, dtype=torch.float64)

    def forward(self, x: Tensor) -> Candidates:
        """Candidates [n] for features [n, features]."""
        return Candidates(self.linear(x))


class Labels(ScoreModule):
    """The graph over the labels of an input, or its local polytope."""

    def __init__(self, features: int, labels: int, relaxed: bool, counted: bool) -> None:
        super().__init__()
        self.pairs, self.relaxed = torch.tensor(list(combinations(range(labels), 2))), relaxed
        self.alone = nn.Parameter(torch.zeros(features, labels, dtype=torch.float64))
        self.together = nn.Parameter(torch.zeros(len(self.pairs), dtype=torch.float64))
        self.number = nn.Parameter(torch.zeros(labels + 1, dtype=torch.float64)) if counted else None
        self.scope = torch.arange(labels)

    def forward(self, x: Tensor) -> FactorGraph:
        """The graph, or the polytope, of inputs [B, D]."""
        unary = nn.functional.pad((x @ self.alone).unsqueeze(-1), (1, 0))
        tables = nn.functional.pad(self.together[:, None, None], (1, 0, 1, 0))
        factors = [] if self.number is None else [Count(self.scope, self.number)]
        graph = FactorGraph(unary, self.pairs, tables, factors=factors)
        return LocalPolytope(graph) if self.relaxed else graph


def classes(read: Callable[[], tuple[Tensor, Tensor]], options: Namespace) -> LinearProblem:
    """The problem of a support vector machine on points and their classes."""
    x, y = read()
    return LinearModuleProblem(Classes(x.shape[1], int(y.max()) + 1), list(zip(x, y, strict=True)))


def points() -> tuple[Tensor, Tensor]:
    """40 points around two centers."""
    y = torch.arange(40) % 2
    centers = torch.tensor([[-3.0, 4.0], [2.0, 1.0]], dtype=torch.float64)
    generator = torch.Generator().manual_seed(6)
    return centers[y] + torch.randn(40, 2, generator=generator, dtype=torch.float64), y


def of_sklearn(name: str, **settings: Any) -> tuple[Tensor, Tensor]:
    """The points and classes of a data set of scikit-learn."""
    x, y = getattr(import_module("sklearn.datasets"), name)(**settings)
    return torch.from_numpy(x), torch.from_numpy(y)


def of_task(name: str, options: Namespace, **settings: Any) -> LinearProblem:
    """The problem of a task, on the training part of the data if there are any, else on its own data."""
    task: Any = load_task(name)(**settings)
    path = f"{options.data}#train" if settings else task.default_files()["train"]
    examples = task.read(path, "train")[: options.rows]
    return task.fit(examples).problem(examples)  # type: ignore[no-any-return]


def labels(options: Namespace, relaxed: bool, smoothed: bool) -> LinearProblem:
    """Labels on a complete graph: with a factor over all of them, or with smoothed maxima."""
    with np.load(options.data) as data:
        x, y = (torch.from_numpy(data[name][: options.rows]) for name in ("X_train", "Y_train"))
    x = nn.functional.pad(x.double(), (0, 1), value=1.0)
    module = Labels(x.shape[1], y.shape[1], relaxed, counted=not smoothed)
    smoother = Entropy(options.level) if smoothed else Max()
    return LinearModuleProblem(module, list(zip(x, y.long(), strict=True)), smoother=smoother)


@dataclass(frozen=True)
class Case:
    """A problem, with values of λ and solvers to run unless the command names others."""

    problem: Callable[[Namespace], LinearProblem]
    lams: tuple[str, ...]
    solvers: tuple[str, ...] = ("bcfw:sampling=uniform", "bcfw:sampling=gap")
    needs_data: bool = False


def on_data(problem: Callable[[Namespace], LinearProblem], *solvers: str) -> Case:
    """The case of a problem on the labels in --data, with its solvers."""
    return Case(problem, ("0.1", "0.01"), solvers, needs_data=True)


_PENALTIES = [f"soft-bcfw:rho={rho},penalty={name}" for rho in (1, 10) for name in ("constant", "multipliers")]
_DECOMPOSITIONS = ("soft-bcfw", "soft-bcfw:decomposition=forests", "soft-bcfw:decomposition=whole")
_BLOBS = partial(of_sklearn, "make_blobs", n_samples=40, centers=2, random_state=6)
# λ of a support vector machine is 1/(nC).
CASES = {
    "points": Case(partial(classes, points), ("0.001/n", "0.1/n")),
    "blobs": Case(partial(classes, _BLOBS), ("0.001/n", "0.1/n")),
    "iris": Case(partial(classes, partial(of_sklearn, "load_iris", return_X_y=True)), ("0.1/n",)),
    "ocr": Case(partial(of_task, "ocr"), ("500/n", "50/n", "5/n")),
    "ner": Case(partial(of_task, "ner"), ("100/n", "10/n", "1/n")),
    "pairs": on_data(partial(of_task, "multilabel", scaling="none", inference="relaxed", bias=False), *_PENALTIES),
    "counts": on_data(partial(labels, relaxed=False, smoothed=False), *_DECOMPOSITIONS, "proximal-bcfw"),
    "counts-relaxed": on_data(partial(labels, relaxed=True, smoothed=False), "bcfw", "proximal-bcfw"),
    "smoothed": on_data(partial(labels, relaxed=False, smoothed=True), "soft-bcfw"),
    "smoothed-relaxed": on_data(partial(labels, relaxed=True, smoothed=True), "proximal-sdca", "lbfgs"),
}


def run(solver: Solver[Any], problem: LinearProblem, lam: float, seed: int, options: Namespace) -> History:
    """A run to the smallest gap, or to its limits."""

    def done(row: Row) -> bool:
        spent = row.oracle_calls >= options.limit * problem.n or row.seconds >= options.budget
        return bool(spent or gap_of(row, options.relative) <= min(options.gaps))

    with cpu_clock():
        return solver.solve(problem, lam=lam, passes=10**9, seed=seed, callbacks=[until(done)]).history


def gap_of(row: Row, relative: bool) -> float:
    """The gap of a row, or its ratio to the objective."""
    gap = float("inf") if row.gap is None else row.gap
    return gap / row.objective if relative else gap


def rows(options: Namespace) -> Iterator[list[str]]:
    """A row of the table for each problem, λ and solver."""
    for name in options.problems:
        problem = CASES[name].problem(options)
        solvers = parse_solvers(options.solvers or CASES[name].solvers)
        for lam, (label, solver) in product(options.lams or CASES[name].lams, solvers.items()):
            number = parse_lam(lam, problem.n)
            runs = [run(solver, problem, number, seed, options) for seed in range(options.seeds)]
            reached = [
                [first_row(history, gap, partial(gap_of, relative=options.relative)) for history in runs]
                for gap in options.gaps
            ]
            ends = [history[-1] for history in runs]
            pace = median(row.seconds / max(row.passes, 1) for row in ends)
            least, most = (
                median(values) for values in ([row.dual or 0.0 for row in ends], [r.objective for r in ends])
            )
            cells = [effort(found, problem.n) for found in reached]
            yield [name, lam, label, *cells, f"{1e3 * pace:.3g}", f"[{least:.5f}, {most:.5f}]"]


@command(
    option("problems", None, ", ".join(CASES), nargs="+", choices=CASES, metavar="PROBLEM"),
    option("--data", None, "npz file with X_train and Y_train", metavar="FILE"),
    option("--rows", None, "rows of the data (default: all)", type=int),
    option("--level", 0.1, "h of smoothed maxima"),
    option("--lams", None, "λ, numbers or c/n (default: those of the problem)", nargs="+", metavar="C"),
    option("--solvers", None, "as of structsmooth compare (default: those of the problem)", nargs="+"),
    option("--gaps", [1e-1, 1e-3, 1e-6]),
    option("--relative", False, "gaps are relative to the objective"),
    option("--limit", 300.0, "effective passes of a run"),
    option("--budget", float("inf"), "CPU seconds of a run"),
    option("--seeds", 1, "number of seeds"),
)
def main(options: Namespace) -> None:
    """Print a row for each problem, λ and solver."""
    if options.data is None and (needy := [name for name in options.problems if CASES[name].needs_data]):
        raise RequestError(f"{needy[0]} needs --data")
    header = ["problem", "λ", "solver", *(f"gap {gap:g}" for gap in options.gaps), "ms a pass", "dual and objective"]
    print_table(header, rows(options), text_columns=3)
