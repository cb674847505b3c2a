"""Every solver with its default settings on many small problems, at equal oracle calls.

The problems are chains, lists of candidates, cuts of grids and small networks, with labels that can be learned and with
random ones, of 30 and of 200 examples, for λn of 10, 1 and 0.1. Every run gets the same number of oracle calls for each
example, estimates of step sizes and passes that are made again included; what counts is the best row within them,
whose weights a run returns.

Columns of the tables: runs whose last row is above the first, runs that return no better weights than those of the
start, runs that end more than 10 % above the best of all solvers on the same problem, the largest excess, and the
number of oracle calls per example and pass.
"""

from argparse import Namespace
from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass
from itertools import product
from typing import Any

import torch
from torch import Tensor, nn

from scripts.shared.comparing import run
from scripts.shared.harness import command, option
from structsmooth import (
    BinaryGraph,
    Candidates,
    LinearChain,
    LinearModuleProblem,
    LinearScore,
    ModuleProblem,
    ScoreModule,
)
from structsmooth.cli.flags import parse_solvers
from structsmooth.cli.report import markdown_table
from structsmooth.messages import tracked
from structsmooth.problems import DenseChainProblem, Problem
from structsmooth.solvers import History, Solver

MODULE_SOLVERS = "incremental-prox-linear prox-linear:inner=bcfw casimir-svrg svrg sgd adam"
LINEAR_SOLVERS = (
    "proximal-bcfw bcfw exponentiated-gradient frank-wolfe cutting-plane proximal-sdca casimir-svrg svrg sgd"
)
_FEATURES, _STATES, _LENGTH = 6, 3, 5
# Neighbours in a grid of three rows and columns.
_GRID = torch.tensor([[3 * r + c, 3 * r + c + 1] for r in range(3) for c in range(2)] + [[i, i + 3] for i in range(6)])


class Perceptron(ScoreModule):
    """A hidden layer under a chain with learned transitions."""

    def __init__(self) -> None:
        super().__init__()
        self.hidden, self.unary = nn.Linear(_FEATURES, 8), nn.Linear(8, _STATES)
        self.transition = nn.Parameter(torch.zeros(_STATES, _STATES))

    def forward(self, x: Tensor) -> LinearChain:
        """Chains over inputs [B, T, F]."""
        return LinearChain(self.unary(torch.tanh(self.hidden(x))), self.transition)


class Ranking(ScoreModule):
    """Linear scores of candidates."""

    affine = True

    def __init__(self) -> None:
        super().__init__()
        self.weights = nn.Parameter(torch.zeros(_FEATURES, dtype=torch.float64))

    def forward(self, x: Tensor) -> Candidates:
        """Scores of inputs [B, M, F]."""
        return Candidates(x @ self.weights)


class Regions(ScoreModule):
    """Linear scores of the cells of a grid, whose neighbours are rewarded for equal labels."""

    affine = True
    reward: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(_FEATURES, 2, bias=False, dtype=torch.float64)
        self.register_buffer("reward", 0.3 * torch.eye(2, dtype=torch.float64))

    def forward(self, x: Tensor) -> BinaryGraph:
        """Grids of inputs [B, 9, F]."""
        unary = self.linear(x)
        return BinaryGraph(unary, _GRID, self.reward.expand(len(x), len(_GRID), 2, 2))


@dataclass(frozen=True)
class Family:
    """Problems of a kind: the shape of an input, and the module that scores it, with random weights for a teacher."""

    inputs: tuple[int, ...]
    module: Callable[[], ScoreModule]
    linear: bool


def _chain() -> LinearScore:
    return LinearScore(_FEATURES, _STATES)


FAMILIES = {
    "chains": Family((_LENGTH, _FEATURES), _chain, linear=True),
    "candidates": Family((8, _FEATURES), Ranking, linear=True),
    "cuts": Family((9, _FEATURES), Regions, linear=True),
    "networks": Family((_LENGTH, _FEATURES), Perceptron, linear=False),
}


def examples(family: Family, n: int, learnable: bool, seed: int) -> list[tuple[Tensor, Tensor]]:
    """Inputs with the outputs of a module with random weights, or those of another input."""
    generator = torch.Generator().manual_seed(seed)
    x = torch.randn(n, *family.inputs, generator=generator)
    teacher = family.module()
    x = x.to(next(teacher.parameters()))
    with torch.no_grad():
        for parameter in teacher.parameters():
            parameter.copy_(torch.randn(parameter.shape, generator=generator))
        y = teacher(x).max()[1]
    return list(zip(x, y if learnable else y[torch.randperm(n, generator=generator)], strict=True))


def module_problem(family: Family, data: list[tuple[Tensor, Tensor]], seed: int) -> Problem:
    """The finite sum of a module with its initial weights."""
    torch.manual_seed(seed)
    return ModuleProblem(family.module(), data)


def linear_problem(family: Family, data: list[tuple[Tensor, Tensor]], seed: int) -> Problem:
    """The finite sum of a linear module as a problem with a dual."""
    if family.module is not _chain:
        return LinearModuleProblem(family.module(), data)
    x, y = map(torch.stack, zip(*data, strict=True))
    lengths = torch.full((len(data),), _LENGTH)
    return DenseChainProblem(x.flatten(0, 1).double(), y.flatten(), lengths, _STATES)


def sweep(solvers: dict[str, Solver[Any]], linear: bool, seeds: int, calls: int) -> dict[tuple[Any, ...], History]:
    """Histories by problem and solver."""
    names = [name for name, family in FAMILIES.items() if family.linear or not linear]
    build = linear_problem if linear else module_problem
    grid = list(product(names, (30, 200), (True, False), (10, 1, 0.1), range(seeds), solvers))
    histories = {}
    for name, n, learnable, scale, seed, label in tracked(grid, "linear" if linear else "modules"):
        data = examples(FAMILIES[name], n, learnable, seed)
        if solvers[label].oracle == "exp" and name == "cuts":
            continue  # sums over cuts are #P-hard
        history = run(solvers[label], build(FAMILIES[name], data, seed), scale / n, calls, seed).history
        histories[name, n, learnable, scale, seed, label] = history
    return histories


def summary(histories: dict[tuple[Any, ...], History]) -> str:
    """A table with a row for each solver."""
    best: dict[tuple[Any, ...], float] = defaultdict(lambda: float("inf"))
    for key, history in histories.items():
        best[key[:-1]] = min(best[key[:-1]], *(row.objective for row in history))
    rows = []
    for label in dict.fromkeys(key[-1] for key in histories):
        runs = {key[:-1]: history for key, history in histories.items() if key[-1] == label}
        excess = [min(row.objective for row in history) / best[key] - 1 for key, history in runs.items()]
        above = sum(history[-1].objective > history[0].objective for history in runs.values())
        stuck = sum(min(row.objective for row in history) == history[0].objective for history in runs.values())
        calls = [history[-1].oracle_calls / max(history[-1].passes, 1) / key[1] for key, history in runs.items()]
        missed = sum(value > 0.1 for value in excess)
        cells = [above, stuck, f"{missed} of {len(runs)}", f"{max(excess):.0%}", f"{sum(calls) / len(calls):.2f}"]
        rows.append([label, *map(str, cells)])
    header = ["solver", "last above first", "start returned", "10 % above the best", "most above", "calls a pass"]
    return markdown_table(header, rows)


@command(
    option("--modules", MODULE_SOLVERS.split(), nargs="*", metavar="SOLVER"),
    option("--linear", LINEAR_SOLVERS.split(), nargs="*", metavar="SOLVER"),
    option("--seeds", 1, "number of data sets of each kind"),
    option("--calls", 60, "oracle calls for each example"),
)
def main(options: Namespace) -> None:
    """Print the two tables."""
    for title, chosen in (("Modules", options.modules), ("Linear problems", options.linear)):
        if chosen:
            histories = sweep(parse_solvers(chosen), chosen is options.linear, options.seeds, options.calls)
            print(f"\n{title}\n\n{summary(histories)}", flush=True)
