"""Time of the oracles of graph cuts, matchings and subwindows, one example on one thread.

Graphs have random edges and Gaussian scores, of which those of a pair are exchanged where they are not supermodular;
matchings have Gaussian weights. Images have 10 000 scored points: noise is Gaussian scores at random pixels, and
clusters are clouds around five centers, two of them with scores above zero, over a noise of lower scores. Every size
is measured on several instances.
"""

from __future__ import annotations

import sys
import time
from argparse import ArgumentParser, RawDescriptionHelpFormatter
from collections.abc import Callable, Sequence
from statistics import median

import torch
from torch import Tensor

from structsmooth import BinaryGraph, Matching, Structure, Subwindows

_INSTANCES = 5
_GRAPHS = ("50x100", "150x400", "1000x3000")
_MATCHINGS = ("10x10", "30x30", "30x60", "100x100")
_IMAGES = ("375x500",)
_POINTS = 10_000


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure every size and print the table."""
    torch.set_num_threads(1)
    options = _parser().parse_args(arguments)
    builds: dict[str, Callable[[int, int, int], Structure]] = {
        "BinaryGraph": graph,
        "Matching": matching,
        "Subwindows, clusters": clusters,
        "Subwindows, noise": noise,
    }
    sizes = [
        *(("BinaryGraph", size) for size in options.graphs),
        *(("Matching", size) for size in options.matchings),
        *((name, size) for size in options.images for name in builds if name.startswith("Subwindows")),
    ]
    names = ("max", "max_marginals", *(f"topk({k})" for k in options.k))
    print(f"median over {_INSTANCES} instances of the best of {options.repeats}, in milliseconds\n")
    print(f"| structure | size | {' | '.join(names)} |")
    print("| --- | --- |" + " ---: |" * len(names))
    for name, (first, second) in sizes:
        structures = [builds[name](first, second, seed) for seed in range(_INSTANCES)]
        cells = (_cell(oracle, structures, options.repeats) for oracle in _oracles(options.k))
        print(f"| {name} | {first}x{second} | {' | '.join(cells)} |", flush=True)
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


def noise(height: int, width: int, seed: int) -> Subwindows:
    """Gaussian scores at random pixels."""
    generator = torch.Generator().manual_seed(seed)
    places = torch.rand(_POINTS, 2, generator=generator) * torch.tensor([height, width])
    return _image(places, torch.randn(_POINTS, generator=generator), height, width)


def clusters(height: int, width: int, seed: int) -> Subwindows:
    """Points that gather, half of them around centers of which some score above zero, as the words of an object do."""
    generator = torch.Generator().manual_seed(seed)
    size = torch.tensor([height, width])
    centers = torch.rand(5, 2, generator=generator) * size
    group = torch.randint(5, (_POINTS,), generator=generator)
    near = torch.rand(_POINTS, 1, generator=generator) < 0.5
    cloud = centers[group] + size / 12 * torch.randn(_POINTS, 2, generator=generator)
    places = torch.where(near, cloud, torch.rand(_POINTS, 2, generator=generator) * size)
    lift = torch.where(near[:, 0] & (group < 2), 0.5, -0.3)
    return _image(places, lift + torch.randn(_POINTS, generator=generator), height, width)


def _image(places: Tensor, scores: Tensor, height: int, width: int) -> Subwindows:
    y, x = places[:, 0].long().clamp(0, height - 1), places[:, 1].long().clamp(0, width - 1)
    return Subwindows(torch.zeros(height, width).index_put((y, x), scores, accumulate=True)[None])


def measure(oracle: Callable[[Structure], object], structures: Sequence[Structure], repeats: int) -> float:
    """Seconds per call."""

    def seconds(structure: Structure) -> float:
        started = time.perf_counter()
        oracle(structure)
        return time.perf_counter() - started

    return median(min(seconds(structure) for _ in range(repeats)) for structure in structures)


def _cell(oracle: Callable[[Structure], object], structures: Sequence[Structure], repeats: int) -> str:
    """Milliseconds, or a dash for an oracle that the structure has not."""
    try:
        return f"{1e3 * measure(oracle, structures, repeats):.3f}"
    except NotImplementedError:
        return "—"


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
    parser.add_argument("--images", type=_size, nargs="*", metavar="HEIGHTxWIDTH", default=[*map(_size, _IMAGES)])
    parser.add_argument("--k", type=int, nargs="*", default=[5, 20], help="outputs of the top-K oracle")
    parser.add_argument("--repeats", type=int, default=20, help="calls per instance (default: 20)")
    return parser


if __name__ == "__main__":
    sys.exit(main())
