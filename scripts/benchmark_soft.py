"""Training of multi-label classifiers by soft agreement: optima, passes to gaps, time of a step on a node or an edge.

The data are an npz file with X_train [n, D] and Y_train [n, k] of zeros and ones, such as Mulan's yeast. Labels are the
nodes of a complete graph, with the model of Meshi et al. (2015, section 6): a weight vector for each label that is
present, and a weight for each pair that is present together. A run ends at the smallest gap, or at a limit on its
passes; ``interval`` has its last dual and objective: the optimum lies between them. The gap of multipliers is that of
the hard problem, over the local polytope.

A loop of dot products of labels' weights and features gives the speed of the machine in the same run.
"""

from __future__ import annotations

import sys
import time
from argparse import ArgumentParser, RawDescriptionHelpFormatter
from collections.abc import Sequence
from itertools import combinations
from typing import Any

import numba
import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from structsmooth import FactorGraphProblem, FactorGraphs, SoftBCFW
from structsmooth.solvers import Progress, Stop
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


def passes_to_gaps(problem: FactorGraphProblem, solver: SoftBCFW, lam: float, limit: int) -> dict[str, str]:
    """Passes and seconds to each gap, and the interval of the optimum."""
    reached: dict[float, str] = {}

    def watch(progress: Progress[Any]) -> None:
        row = progress.row
        for gap in _GAPS:
            if row.gap is not None and row.gap <= gap and gap not in reached:
                reached[gap] = f"{row.passes} / {row.seconds:.2f} s"
        if len(reached) == len(_GAPS):
            raise Stop

    last = solver.solve(problem, lam=lam, passes=limit, callbacks=[watch]).history[-1]
    interval = f"[{last.dual:.5f}, {last.objective:.5f}]"
    return {**{f"{gap:g}": reached.get(gap, "-") for gap in _GAPS}, "interval": interval}


def seconds_of_a_step(problem: FactorGraphProblem, solver: SoftBCFW, lam: float, passes: int) -> float:
    """The fastest pass, after a few others."""
    dual, order = SoftDual(problem, lam), torch.arange(problem.n)
    point = dual.labels()
    durations = []
    for _ in range(passes + 1):
        started = time.process_time()
        point = dual.sweep_examples(point, order, solver.strength(dual, 0), solver.steps)
        durations.append(time.process_time() - started)
    return min(durations[1:]) / dual.blocks


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
    out, durations = np.empty((len(x), len(w))), []
    for _ in range(repeats + 1):
        started = time.process_time()
        _dots(w, x, out)
        durations.append(time.process_time() - started)
    return min(durations[1:]) / out.size


def main(arguments: Sequence[str] | None = None) -> int:
    """Print a row for each λ and solver, then the time of a step."""
    torch.set_num_threads(1)
    parser = ArgumentParser(description=__doc__, formatter_class=RawDescriptionHelpFormatter)
    parser.add_argument("data", help="npz file with X_train and Y_train")
    parser.add_argument("--lam", type=float, nargs="+", default=[0.1, 0.01], help="λ (default: 0.1 0.01)")
    parser.add_argument(
        "--rho", type=float, nargs="+", default=[1.0, 10.0], help="strength of the penalty (default: 1 10)"
    )
    parser.add_argument("--limit", type=int, default=600, help="passes of a run (default: 600)")
    parser.add_argument("--bias", action="store_true", help="with a constant feature")
    parser.add_argument("--paper", action="store_true", help="Algorithm 1 as printed, too, with 200 passes at most")
    parser.add_argument("--repeats", type=int, default=20, help="passes that are timed (default: 20)")
    options = parser.parse_args(arguments)
    problem = read(options.data, options.bias)
    penalties: dict[str, dict[str, Any]] = {"constant": {}, "multipliers": {}}
    if options.paper:
        penalties["as printed"] = {"penalty": "constant", "steps": "fw", "order": "uniform"}
    columns = ["λ", "rho", "penalty", *(f"{gap:g}" for gap in _GAPS), "interval"]
    print(f"n = {problem.n}, dim = {problem.dim}, {SoftDual(problem, 1.0).blocks:,} blocks\n")
    print(f"| {' | '.join(columns)} |\n|{' --- |' * len(columns)}")
    for lam in options.lam:
        for rho in options.rho:
            for name, settings in penalties.items():
                solver = SoftBCFW(**{"rho": rho, "penalty": name, "gap_tolerance": 0.0, **settings})
                limit = min(options.limit, 200) if settings else options.limit
                found = passes_to_gaps(problem, solver, lam, limit)
                print(f"| {lam:g} | {rho:g} | {name} | {' | '.join(found.values())} |", flush=True)
    step = seconds_of_a_step(problem, SoftBCFW(), options.lam[0], options.repeats)
    dot = seconds_of_a_dot(problem, options.repeats)
    print(f"\na step takes {step * 1e6:.3f} µs, a dot product {dot * 1e6:.3f} µs: {step / dot:.1f} of them")
    return 0


if __name__ == "__main__":
    sys.exit(main())
