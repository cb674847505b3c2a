"""Time of the oracles of graph cuts and matchings, one example on one thread.

Graphs have random edges and Gaussian scores, of which those of a pair are exchanged where they are not supermodular;
matchings have Gaussian weights. Every size is measured on several instances.
"""

from __future__ import annotations

import sys
import time
from argparse import ArgumentParser, RawDescriptionHelpFormatter
from collections.abc import Callable, Sequence
from statistics import median

import torch

from structsmooth import BinaryGraph, Matching, Structure

_INSTANCES = 5
_GRAPHS = ("50x100", "150x400", "1000x3000")
_MATCHINGS = ("10x10", "30x30", "30x60", "100x100")


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure every size and print the table."""
    torch.set_num_threads(1)
    options = _parser().parse_args(arguments)
    builds: dict[str, Callable[[int, int, int], Structure]] = {"BinaryGraph": graph, "Matching": matching}
    sizes = [("BinaryGraph", size) for size in options.graphs] + [("Matching", size) for size in options.matchings]
    names = ("max", "max_marginals", *(f"topk({k})" for k in options.k))
    print(f"median over {_INSTANCES} instances of the best of {options.repeats}, in milliseconds\n")
    print(f"| structure | size | {' | '.join(names)} |")
    print("| --- | --- |" + " ---: |" * len(names))
    for name, (first, second) in sizes:
        structures = [builds[name](first, second, seed) for seed in range(_INSTANCES)]
        times = (measure(oracle, structures, options.repeats) for oracle in _oracles(options.k))
        print(f"| {name} | {first}x{second} | " + " | ".join(f"{1e3 * t:.3f}" for t in times) + " |")
    return 0


def graph(nodes: int, edges: int, seed: int) -> BinaryGraph:
    """A random graph without loops."""
    generator = torch.Generator().manual_seed(seed)
    unary, tables = (torch.randn(1, n, 2 * m, generator=generator) for n, m in ((nodes, 1), (edges, 2)))
    tables = tables.view(1, edges, 2, 2)
    submodular = tables[..., 0, 0] + tables[..., 1, 1] < tables[..., 0, 1] + tables[..., 1, 0]
    pairwise = torch.where(submodular[..., None, None], tables.flip(2), tables)
    ends = torch.rand(edges, nodes, generator=generator).argsort(1)[:, :2]
    return BinaryGraph(unary, ends, pairwise)


def matching(rows: int, columns: int, seed: int) -> Matching:
    """A full matching."""
    return Matching(torch.randn(1, rows, columns, generator=torch.Generator().manual_seed(seed)))


def measure(oracle: Callable[[Structure], object], structures: Sequence[Structure], repeats: int) -> float:
    """Seconds per call."""

    def seconds(structure: Structure) -> float:
        started = time.perf_counter()
        oracle(structure)
        return time.perf_counter() - started

    return median(min(seconds(structure) for _ in range(repeats)) for structure in structures)


def _oracles(ks: Sequence[int]) -> list[Callable[[Structure], object]]:
    return [
        lambda structure: structure.max(),
        lambda structure: structure.max_marginals(),
        *(lambda structure, k=k: structure.topk(k) for k in ks),
    ]


def _size(text: str) -> tuple[int, int]:
    first, second = map(int, text.split("x"))
    return first, second


def _parser() -> ArgumentParser:
    parser = ArgumentParser(description=__doc__, formatter_class=RawDescriptionHelpFormatter)
    parser.add_argument("--graphs", type=_size, nargs="*", metavar="NODESxEDGES", default=[*map(_size, _GRAPHS)])
    parser.add_argument("--matchings", type=_size, nargs="*", metavar="ROWSxCOLUMNS", default=[*map(_size, _MATCHINGS)])
    parser.add_argument("--k", type=int, nargs="*", default=[5, 20], help="outputs of the top-K oracle")
    parser.add_argument("--repeats", type=int, default=20, help="calls per instance (default: 20)")
    return parser


if __name__ == "__main__":
    sys.exit(main())
