"""Time of the oracles of graphs, matchings, subwindows and deformable trees, one example on one thread.

Graphs have random edges and Gaussian scores, of which those of a pair are exchanged where they are not supermodular;
matchings have Gaussian weights. Images have 10 000 scored points: noise is Gaussian scores at random pixels, and
clusters are clouds around five centers, two of them with scores above zero, over a noise of lower scores. Scores of
deformable trees are Gaussian, or smooth as the responses of filters are: means over 5 x 5 positions. ``Tree`` finds the
same placements by tables of all pairs of positions, where these fit. Graphs of tables are slices in
time of eight nodes of 3 and 4 states: a node and up to five of the slice before have a table of Gaussian scores, of
which two in five are forbidden. Every size is measured on several instances, one example each. One
pass adds a number to each of the scores of nodes, pairs of a matching or pixels, of which an example has so many.

A second table is on Potts grids: patches of labels under Gaussian noise, with strengths of 1. It has ``relaxed()``
beside expansion moves that start from the best labels of single nodes, without messages.
"""

import time
from argparse import Namespace
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import partial
from statistics import median

import torch
from torch import Tensor
from torch.nn.functional import one_hot

from scripts.shared.harness import command, option, print_table, sizes, timings
from structsmooth import BinaryGraph, DeformableTree, FactorGraph, Matching, Structure, Subwindows, Tree
from structsmooth.factors import Table
from structsmooth.structures.graph_cut import compiled_expansion

_INSTANCES = 5
_POINTS = 10_000
_LARGEST_TABLE = 50_000_000


@command(
    option("--graphs", ["50x100", "150x400", "1000x3000"], type=sizes(2), nargs="*", metavar="NODESxEDGES"),
    option("--tables", [2, 3], "slices of graphs of tables", nargs="*"),
    option("--matchings", ["10x10", "30x30", "30x60", "100x100"], type=sizes(2), nargs="*", metavar="ROWSxCOLUMNS"),
    option("--images", ["375x500"], type=sizes(2), nargs="*", metavar="HEIGHTxWIDTH"),
    option("--grids", ["16x16", "32x32", "64x64", "128x128"], type=sizes(2), nargs="*", metavar="HEIGHTxWIDTH"),
    option("--labels", ["60x4", "120x3", "120x4", "256x3"], type=sizes(2), nargs="*", metavar="HEIGHTxLABELS"),
    option("--nodes", 14, "nodes of deformable trees"),
    option("--k", [5, 20], "outputs of the top-K oracle, but of deformable trees", nargs="*"),
    option("--repeats", 20, "calls per instance, of which the fastest counts"),
)
def main(options: Namespace) -> None:
    """Measure every size and print the table."""
    print(f"median over {_INSTANCES} instances of the best of {options.repeats}, in milliseconds of the CPU\n")
    columns = ["one pass", "max", "logsumexp", "max_marginals", *(f"topk({k})" for k in options.k), "max of Tree"]
    print_table(["structure", "size", "scores", *columns], rows(options, columns), text_columns=2)
    print()
    columns = ["relaxed()", "energy", "gap, percent", "moves alone", "energy"]
    print_table(["Potts grid", *columns], (labelled(size, options) for size in options.labels))


def rows(options: Namespace, columns: list[str]) -> Iterator[list[str]]:
    """One for each structure and size; a structure has a dash for an oracle that it has not."""
    cases: list[tuple[str, Callable[..., Structure], list[tuple[int, ...]]]] = [
        ("BinaryGraph", graph, options.graphs),
        ("FactorGraph of tables", tables, [(slices,) for slices in options.tables]),
        ("Matching", matching, options.matchings),
        ("Subwindows, clusters", clusters, options.images),
        ("Subwindows, noise", noise, options.images),
        ("DeformableTree, Gaussian", partial(deformable, nodes=options.nodes, smooth=False), options.grids),
        ("DeformableTree, smooth", partial(deformable, nodes=options.nodes, smooth=True), options.grids),
    ]
    for name, build, shapes in cases:
        for shape in shapes:
            structures = [build(*shape, seed) for seed in range(_INSTANCES)]
            found = [measured(structure, options) for structure in structures]
            cells = [f"{1e3 * median(times[c] for times in found):.3f}" if c in found[0] else "—" for c in columns]
            yield [name, "x".join(map(str, shape)), f"{structures[0].potentials[0].numel():,}", *cells]


def measured(structure: Structure, options: Namespace) -> dict[str, float]:
    """Seconds of the fastest pass over the scores, and of the fastest call of each oracle that there is."""
    scores, target = structure.potentials[0], torch.empty_like(structure.potentials[0])
    calls: dict[str, Callable[[], object]] = {
        "one pass": partial(torch.add, scores, 1.0, out=target),
        "max": structure.max,
        "logsumexp": structure.logsumexp,
        "max_marginals": structure.max_marginals,
    }
    if not isinstance(structure, DeformableTree):
        calls |= {f"topk({k})": partial(structure.topk, k) for k in options.k}
    elif structure.unary.shape[1] * structure.unary[0, 0].numel() ** 2 <= _LARGEST_TABLE:
        calls["max of Tree"] = tabulated(structure).max
    times = {}
    for name, call in calls.items():
        with suppress(NotImplementedError):
            times[name] = min(timings(call, options.repeats, time.process_time))
    return times


def graph(nodes: int, edges: int, seed: int) -> BinaryGraph:
    """A random graph without loops."""
    generator = torch.Generator().manual_seed(seed)
    unary, tables = (torch.randn(1, n, 2 * m, generator=generator) for n, m in ((nodes, 1), (edges, 2)))
    tables = tables.view(1, edges, 2, 2)
    submodular = tables[..., 0, 0] + tables[..., 1, 1] < tables[..., 0, 1] + tables[..., 1, 0]
    pairwise = torch.where(submodular[..., None, None], tables.flip(2), tables)
    ends = torch.rand(edges, nodes, generator=generator).argsort(1)[:, :2]
    return BinaryGraph(unary, ends, pairwise)


# Of each node of a slice: the nodes of the slice before with which it has a table, and its states.
_PARENTS = (0,), (0, 1, 3, 4, 6), (1, 2, 7), (2, 3, 5), (4,), (4, 5), (1, 6, 7), (3, 5, 6, 7)
_STATES = 4, 4, 3, 3, 4, 3, 4, 4


def tables(slices: int, seed: int) -> FactorGraph:
    """A graph of slices in time."""
    unary, factors = slices_in_time(slices, seed)
    states = unary.shape[-1]
    return FactorGraph(unary, torch.zeros(0, 2, dtype=torch.int64), torch.zeros(0, states, states), factors=factors)


def slices_in_time(slices: int, seed: int) -> tuple[Tensor, list[Table]]:
    """Scores of the nodes, [1, V, S], and tables of the graph."""
    generator, width, states = torch.Generator().manual_seed(seed), len(_STATES), max(_STATES)
    real = torch.arange(states) < torch.tensor(_STATES * slices).unsqueeze(1)
    unary = torch.where(real, torch.randn(real.shape, generator=generator), -torch.inf).unsqueeze(0)
    factors = []
    for t in range(1, slices):
        for v, parents in enumerate(_PARENTS):
            scores = 2 * torch.randn([states] * (len(parents) + 1), generator=generator)
            forbidden = torch.rand(scores.shape, generator=generator) < 0.4
            forbidden.view(-1)[0] = False  # the first labels are allowed
            scope = torch.tensor([*(width * (t - 1) + p for p in parents), width * t + v])
            factors.append(Table(scope, scores.masked_fill(forbidden, -torch.inf)))
    return unary, factors


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


def deformable(height: int, width: int, seed: int, nodes: int, smooth: bool) -> DeformableTree:
    """A tree in which node v hangs on node (v − 1) // 2; smooth scores have a standard deviation of 1, too."""
    generator = torch.Generator().manual_seed(seed)
    unary = torch.randn(1, nodes, height, width, dtype=torch.float64, generator=generator)
    if smooth:
        unary = torch.nn.functional.avg_pool2d(unary, 5, 1, 2, count_include_pad=False)
        unary = unary / unary.std()
    springs = torch.tensor([0.1, 0.1, -0.1, 0.05], dtype=torch.float64).repeat(nodes, 1)
    anchors = torch.tensor([1.0, 2.5], dtype=torch.float64).repeat(nodes, 1)
    return DeformableTree(unary, springs, (torch.arange(nodes) - 1).div(2, rounding_mode="floor"), anchors)


def tabulated(tree: DeformableTree) -> Tree:
    """A tree with the outputs and scores of a deformable one, by tables of pairs of positions."""
    height, width = tree.unary.shape[2:]
    places = tree.coordinates(torch.arange(height * width)).double()
    d = places - places.unsqueeze(1) - tree.anchors[:, None, None]
    costs = torch.einsum("vijc,vc->vij", torch.stack([d, d.square()], -1).flatten(3), tree.deformation)
    return Tree(tree.unary.flatten(2), -costs.unsqueeze(0), tree.parents.unsqueeze(0))


def potts(height: int, labels: int) -> FactorGraph:
    """A square grid of patches under Gaussian noise, with strengths of 1."""
    at, place = torch.arange(height**2).view(height, height), torch.arange(height)
    pairs = (at[:, :-1], at[:, 1:]), (at[:-1], at[1:])
    edges = torch.cat([torch.stack([a.flatten(), b.flatten()], 1) for a, b in pairs])
    patches = (3 * place // height).unsqueeze(1) + 2 * place // height
    scores = 1.5 * torch.randn(1, height**2, labels, generator=torch.Generator().manual_seed(height)).double()
    scores = scores + one_hot(patches.flatten() % labels, labels)
    return FactorGraph(scores, edges, torch.ones(1, len(edges)).double())


def labelled(size: tuple[int, int], options: Namespace) -> list[str]:
    """Milliseconds of the relaxation of a grid, its energy and the gap to its bound, and those of moves alone."""
    height, labels = size
    graph = potts(height, labels)
    scores, edges = graph.unary, graph.edges
    tables = torch.eye(labels).double().expand(len(edges), -1, -1).contiguous()

    def moves() -> Tensor:
        y = scores[0].argmax(1)
        compiled_expansion.expand(scores[0].numpy(), tables.numpy(), edges.numpy(), y.numpy(), 1e-9)
        return y

    relaxation = graph.relaxed()
    energies = [len(edges) - float(score) for score in (relaxation.score, graph.score(moves().unsqueeze(0)))]
    gap = 100 * float(relaxation.gap) / abs(energies[0])
    times = [1e3 * median(timings(call, options.repeats, time.process_time)) for call in (graph.relaxed, moves)]
    cells = f"{times[0]:.1f}", f"{energies[0]:.1f}", f"{gap:.3f}", f"{times[1]:.1f}", f"{energies[1]:.1f}"
    return [f"{height}x{height}, {labels} labels", *cells]
