"""Training of multi-label classifiers by soft agreement: optima, passes to gaps, time of a step on a node or an edge.

The data are an npz file with X_train [n, D] and Y_train [n, k] of zeros and ones, such as Mulan's yeast. Labels are the
nodes of a complete graph, with the model of Meshi et al. (2015, section 6): a weight vector for each label that is
present, and a weight for each pair that is present together. A run ends at the smallest gap, or at a limit on its
passes; ``interval`` has its last dual and objective: the optimum lies between them. The gap of multipliers is that of
the hard problem, over the local polytope.

A loop of dot products of labels' weights and features gives the speed of the machine in the same run.
"""

from __future__ import annotations

import time
from argparse import Namespace
from itertools import combinations, product, starmap
from typing import Any

import numba
import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from scripts.harness import command, option, print_table, timings, until
from structsmooth import FactorGraphProblem, FactorGraphs, SoftBCFW
from structsmooth.history import Row
from structsmooth.solvers.soft_bcfw.dual import SoftDual

_GAPS = (1e-1, 1e-2, 1e-3)


def complete_graphs(x: Tensor, y: Tensor) -> FactorGraphs:
    """A graph over the labels [n, k] of each input [n, D]: one type for each label and for each pair."""
    n, k = y.shape
    pairs = torch.tensor(list(combinations(range(k), 2)))
    return FactorGraphs(
        features=x,
        labels=y.flatten(),
        node_offsets=k * torch.arange(n + 1),
        edges=pairs.repeat(n, 1),
        edge_offsets=len(pairs) * torch.arange(n + 1),
        rows=torch.arange(n).repeat_interleave(k),
        types=torch.arange(k).repeat(n),
        edge_types=torch.arange(len(pairs)).repeat(n),
    )


def read(path: str, bias: bool) -> FactorGraphProblem:
    """The problem of a file."""
    with np.load(path) as data:
        x, y = torch.from_numpy(data["X_train"]), torch.from_numpy(data["Y_train"]).long()
    return FactorGraphProblem(complete_graphs(x, y), states=2, reference=True, bias=bias)


def passes_to_gaps(problem: FactorGraphProblem, solver: SoftBCFW, lam: float, limit: int) -> list[str]:
    """Passes and seconds to each gap, and the interval of the optimum."""
    reached: dict[float, str] = {}

    def small(row: Row) -> bool:
        for gap in _GAPS:
            if row.gap is not None and row.gap <= gap and gap not in reached:
                reached[gap] = f"{row.passes} / {row.seconds:.2f} s"
        return len(reached) == len(_GAPS)

    last = solver.solve(problem, lam=lam, passes=limit, callbacks=[until(small)]).history[-1]
    return [*(reached.get(gap, "-") for gap in _GAPS), f"[{last.dual:.5f}, {last.objective:.5f}]"]


def seconds_of_a_step(problem: FactorGraphProblem, solver: SoftBCFW, lam: float, passes: int) -> float:
    """The fastest pass, after a few others."""
    dual, order = SoftDual(problem, lam), torch.arange(problem.n)
    point = dual.labels()

    def sweep() -> None:
        nonlocal point
        point = dual.sweep_examples(point, order, solver.strength(dual, 0), solver.steps)

    return min(timings(sweep, passes, time.process_time)) / dual.blocks


@numba.njit(fastmath=True)
def _dots(w: NDArray[np.float64], x: NDArray[np.float64], out: NDArray[np.float64]) -> None:
    for i in range(x.shape[0]):
        for label in range(w.shape[0]):
            total = 0.0
            for j in range(x.shape[1]):
                total += w[label, j] * x[i, j]
            out[i, label] = total


def seconds_of_a_dot(problem: FactorGraphProblem, repeats: int) -> float:
    """Of the fastest of some passes over all labels of all inputs."""
    unary, _ = problem.views(problem.start())
    w, x = unary[:, 0].numpy(), problem.feature_map.features.numpy()
    out = np.empty((len(x), len(w)))
    return min(timings(lambda: _dots(w, x, out), repeats, time.process_time)) / out.size


@command(
    option("data", None, "npz file with X_train and Y_train"),
    option("--lam", [0.1, 0.01], "λ"),
    option("--rho", [1.0, 10.0], "strength of the penalty"),
    option("--limit", 600, "passes of a run"),
    option("--bias", False, "with a constant feature"),
    option("--paper", False, "Algorithm 1 as printed, too, with 200 passes at most"),
    option("--repeats", 20, "passes that are timed"),
)
def main(options: Namespace) -> None:
    """Print a row for each λ and solver, then the time of a step."""
    problem = read(options.data, options.bias)
    penalties: dict[str, dict[str, Any]] = {"constant": {}, "multipliers": {}}
    if options.paper:
        penalties["as printed"] = {"penalty": "constant", "steps": "fw", "order": "uniform"}

    def cells(lam: float, rho: float, name: str) -> list[str]:
        settings = penalties[name]
        solver = SoftBCFW(**{"rho": rho, "penalty": name, "gap_tolerance": 0.0, **settings})
        limit = min(options.limit, 200) if settings else options.limit
        return [f"{lam:g}", f"{rho:g}", name, *passes_to_gaps(problem, solver, lam, limit)]

    columns = ["λ", "rho", "penalty", *(f"{gap:g}" for gap in _GAPS), "interval"]
    print(f"n = {problem.n}, dim = {problem.dim}, {SoftDual(problem, 1.0).blocks:,} blocks\n")
    print_table(columns, starmap(cells, product(options.lam, options.rho, penalties)), len(columns))
    step = seconds_of_a_step(problem, SoftBCFW(), options.lam[0], options.repeats)
    dot = seconds_of_a_dot(problem, options.repeats)
    print(f"\na step takes {step * 1e6:.3f} µs, a dot product {dot * 1e6:.3f} µs: {step / dot:.1f} of them")


if __name__ == "__main__":
    raise SystemExit(main())
