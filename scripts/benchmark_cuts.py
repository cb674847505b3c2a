"""Time of the oracles of graph cuts, matchings and subwindows, one example on one thread.

Graphs have random edges and Gaussian scores, of which those of a pair are exchanged where they are not supermodular;
matchings have Gaussian weights. Images have 10 000 scored points: noise is Gaussian scores at random pixels, and
clusters are clouds around five centers, two of them with scores above zero, over a noise of lower scores. Every size
is measured on several instances.
"""

from __future__ import annotations

from argparse import Namespace
from collections.abc import Callable, Sequence
from functools import partial
from operator import methodcaller
from statistics import median

import torch
from torch import Tensor

from scripts.harness import command, option, print_table, sizes, timings
from structsmooth import BinaryGraph, Matching, Structure, Subwindows

_INSTANCES = 5
_POINTS = 10_000


@command(
    option("--graphs", ["50x100", "150x400", "1000x3000"], type=sizes(2), nargs="*", metavar="NODESxEDGES"),
    option("--matchings", ["10x10", "30x30", "30x60", "100x100"], type=sizes(2), nargs="*", metavar="ROWSxCOLUMNS"),
    option("--images", ["375x500"], type=sizes(2), nargs="*", metavar="HEIGHTxWIDTH"),
    option("--k", [5, 20], "outputs of the top-K oracle", nargs="*"),
    option("--repeats", 20, "calls per instance"),
)
def main(options: Namespace) -> None:
    """Measure every size and print the table."""
    cases: list[tuple[str, Callable[[int, int, int], Structure], tuple[int, int]]] = [
        *(("BinaryGraph", graph, size) for size in options.graphs),
        *(("Matching", matching, size) for size in options.matchings),
        *((f"Subwindows, {own.__name__}", own, size) for size in options.images for own in (clusters, noise)),
    ]
    oracles: dict[str, Callable[[Structure], object]] = {
        "max": methodcaller("max"),
        "max_marginals": methodcaller("max_marginals"),
        **{f"topk({k})": methodcaller("topk", k) for k in options.k},
    }
    print(f"median over {_INSTANCES} instances of the best of {options.repeats}, in milliseconds\n")

    def cells(build: Callable[[int, int, int], Structure], size: tuple[int, int]) -> list[str]:
        structures = [build(*size, seed) for seed in range(_INSTANCES)]
        return [_cell(oracle, structures, options.repeats) for oracle in oracles.values()]

    rows = ([name, "x".join(map(str, size)), *cells(build, size)] for name, build, size in cases)
    print_table(["structure", "size", *oracles], rows, text_columns=2)


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


def _cell(oracle: Callable[[Structure], object], structures: Sequence[Structure], repeats: int) -> str:
    """Milliseconds, or a dash for an oracle that the structure has not."""
    try:
        best = (min(timings(partial(oracle, structure), repeats, warm_ups=0)) for structure in structures)
        return f"{1e3 * median(best):.3f}"
    except NotImplementedError:
        return "—"


if __name__ == "__main__":
    raise SystemExit(main())
