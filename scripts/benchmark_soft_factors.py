"""Soft agreement with a factor over all labels beside Frank-Wolfe with inference on the relaxation of whole examples.

The data are an npz file with X_train [n, D] and Y_train [n, k] of zeros and ones, such as Mulan's yeast. Labels are the
nodes of a complete graph: a weight vector for each label that is present, a weight for each pair that is present
together, and a weight for each number of labels that are present, by a factor over all of them. Cells are passes and
seconds of the process to a gap relative to the objective, without evaluations of the objective. All solvers minimize
the hinges of the local polytope with this factor, but those of the last rows, which are exact. With ``--level``, there
is no factor, and the maxima of nodes and edges are smoothed.
"""

from __future__ import annotations

import time
from argparse import Namespace
from itertools import combinations, product, starmap
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from scripts.harness import command, option, print_table
from structsmooth import (
    BCFW,
    LBFGS,
    Count,
    Entropy,
    FactorGraph,
    LinearModuleProblem,
    LocalPolytope,
    Max,
    ProximalBCFW,
    ProximalSDCA,
    ScoreModule,
    SoftBCFW,
)

_GAPS = (0.3, 0.1, 0.03, 0.01)


class Labels(ScoreModule):
    """The graph of an input, or its local polytope."""

    def __init__(self, features: int, labels: int, relaxed: bool, counted: bool) -> None:
        super().__init__()
        self.pairs, self.relaxed = torch.tensor(list(combinations(range(labels), 2))), relaxed
        self.own = nn.Parameter(torch.zeros(features, labels, dtype=torch.float64))
        self.together = nn.Parameter(torch.zeros(len(self.pairs), dtype=torch.float64))
        self.number = nn.Parameter(torch.zeros(labels + 1, dtype=torch.float64)) if counted else None
        self.scope = torch.arange(labels)

    def forward(self, x: Tensor) -> FactorGraph:
        """The graph, or the polytope, of inputs [B, D]."""
        unary = nn.functional.pad((x @ self.own).unsqueeze(-1), (1, 0))
        tables = nn.functional.pad(self.together[:, None, None], (1, 0, 1, 0))
        factors = [] if self.number is None else [Count(self.scope, self.number)]
        graph = FactorGraph(unary, self.pairs, tables, factors=factors)
        return LocalPolytope(graph) if self.relaxed else graph


def problem(path: str, rows: int, relaxed: bool, level: float | None) -> LinearModuleProblem:
    """The first rows of a file, with a constant feature; smoothed and without the factor if there is a level."""
    with np.load(path) as data:
        x, y = torch.from_numpy(data["X_train"][:rows]).double(), torch.from_numpy(data["Y_train"][:rows]).long()
    x = nn.functional.pad(x, (0, 1), value=1.0)
    module, smoother = (
        Labels(x.shape[1], y.shape[1], relaxed, level is None),
        Max() if level is None else Entropy(level),
    )
    return LinearModuleProblem(module, list(zip(x, y, strict=True)), smoother=smoother)


def passes_to_gaps(solver: Any, own: LinearModuleProblem, lam: float, budget: float) -> list[str]:
    """Passes and seconds to each gap, and the objective and dual of the last pass within the budget of seconds."""
    rng = np.random.default_rng(0)
    state = solver.first_state(own, lam, None, 0)
    seconds, last = 0.0, ""
    reached: dict[float, str] = {}
    while seconds < budget and len(reached) < len(_GAPS):
        started = time.process_time()
        state = solver.advance(own, lam, state, rng, 1)
        seconds += time.process_time() - started
        full = solver.evaluate(own, lam, state)
        state.observe(full, lam)
        objective = full.loss + lam / 2 * float(state.weights.square().sum())
        gap = float("inf") if state.dual is None else (objective - state.dual) / objective
        for target in _GAPS:
            if gap <= target and target not in reached:
                reached[target] = f"{state.passes}, {seconds:.2g} s"
        last = f"[{state.dual or 0.0:.4f}, {objective:.4f}]"
    return [*(reached.get(gap, "-") for gap in _GAPS), last]


@command(
    option("data", None, "npz file with X_train and Y_train"),
    option("--rows", 300, "rows of the file"),
    option("--lam", [0.1, 0.01], "λ"),
    option("--budget", 60.0, "seconds of the process for a run"),
    option("--level", None, "h of smoothed maxima (default: none)", type=float),
)
def main(options: Namespace) -> None:
    """Print a row for each λ and solver."""
    smooth = [
        ("SoftBCFW()", False, SoftBCFW()),
        ("ProximalSDCA(), LocalPolytope", True, ProximalSDCA()),
        ("LBFGS(), LocalPolytope", True, LBFGS()),
    ]
    solvers: list[tuple[str, bool, Any]] = [
        ("SoftBCFW()", False, SoftBCFW()),
        ('SoftBCFW(decomposition="forests")', False, SoftBCFW(decomposition="forests")),
        ("BCFW(), LocalPolytope", True, BCFW()),
        ("ProximalBCFW(), LocalPolytope", True, ProximalBCFW()),
        ('SoftBCFW(decomposition="whole")', False, SoftBCFW(decomposition="whole")),
        ("ProximalBCFW(), exact", False, ProximalBCFW()),
    ]

    def cells(lam: float, case: tuple[str, bool, Any]) -> list[str]:
        name, relaxed, solver = case
        own = problem(options.data, options.rows, relaxed, options.level)
        return [f"{lam:g}", f"`{name}`", *passes_to_gaps(solver, own, lam, options.budget)]

    columns = ["λ", "solver", *(f"gap {gap:g}" for gap in _GAPS), "dual and objective"]
    chosen = solvers if options.level is None else smooth
    print_table(columns, starmap(cells, product(options.lam, chosen)), len(columns))


if __name__ == "__main__":
    raise SystemExit(main())
