"""Graphs over the superpixels of images: for training, and in batches for prediction."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple

import numpy as np
import torch
from torch import Tensor

from structsmooth.problems import FactorGraphProblem, FactorGraphs
from structsmooth.structures import FactorGraph
from structsmooth.tasks.scenes.regions import Regions
from structsmooth.tasks.scenes.unaries import Levels

Graph = Literal["none", "stars", "adjacency", "both"]
TREES = ("none", "stars")

# Features are log(1 + p / _DOUBT): the differences between classes that are all unlikely are not evidence.
_DOUBT = 0.01
# How fast agreement fades with the squared contrast of a border.
_FADING = (10.0, 40.0, 160.0)
EDGE_FEATURES = 1 + len(_FADING)
EDGE_NAMES = (
    [("border", "length"), *(("border", f"length, fading with contrast at rate {rate:g}") for rate in _FADING)],
    [("fine in coarse", "constant"), ("fine in coarse", "size of the fine one")],
)
"""The edge and the feature of each weight, by type of edges; the second type has no other features."""
# Images that are predicted together: their tables of pairs should stay in the caches of the processor.
_BATCH = 4
# Sweeps of message passing.
_SWEEPS = 10
# Alternatives are sought among this many labelings of all superpixels.
_MOST_LABELINGS = 1024


@dataclass(frozen=True)
class SceneGraph:
    """The superpixels of an image as a graph.

    Attributes:
        features: of nodes, float64 [n, 2C]: what is known of a fine superpixel and of its coarse one, or of a coarse
            superpixel alone.
        types: 0 for fine superpixels, which come first, 1 for coarse ones: int64 [n].
        edges: int64 [E, 2].
        edge_types: 0 for borders, 1 for edges between levels: int64 [E].
        edge_features: float64 [E, De].
        base_scores: log-probabilities of the classes of nodes, float64 [n, C].
    """

    features: Tensor
    types: Tensor
    edges: Tensor
    edge_types: Tensor
    edge_features: Tensor
    base_scores: Tensor

    @classmethod
    def of(cls, regions: Regions, levels: Levels, graph: Graph) -> "SceneGraph":
        """The graph of an image; coarse superpixels are nodes if it has stars."""
        fine, mean = regions.fine, regions.fine.sizes.mean()
        stars, count = graph in ("stars", "both"), len(fine.sizes)
        fine_x, coarse_x = (torch.log1p(log_p.double().exp() / _DOUBT) for log_p in levels)
        x = torch.cat([fine_x, coarse_x[torch.from_numpy(regions.parents)]], 1)
        if stars:
            x = torch.cat([x, torch.nn.functional.pad(coarse_x, (coarse_x.shape[1], 0))])
        edges, features = [np.zeros((0, 2), np.int64)], [np.zeros((0, EDGE_FEATURES))]
        if graph in ("adjacency", "both"):
            fading = np.exp(-np.array((0.0, *_FADING)) * regions.contrasts[:, None])
            edges.append(fine.edges)
            features.append(fading * (fine.borders / np.sqrt(mean))[:, None])
        borders = sum(map(len, edges))
        if stars:
            edges.append(np.stack([np.arange(count), count + regions.parents], 1))
            constant = np.zeros((count, EDGE_FEATURES))
            constant[:, 0], constant[:, 1] = 1, fine.sizes / mean
            features.append(constant)
        joined = torch.from_numpy(np.concatenate(edges))
        return cls(
            features=x,
            types=(torch.arange(len(x)) >= count).long(),
            edges=joined,
            edge_types=(torch.arange(len(joined)) >= borders).long(),
            edge_features=torch.from_numpy(np.concatenate(features)),
            base_scores=(torch.cat(levels) if stars else levels.fine).double(),
        )

    def induced(self, kept: Tensor) -> "SceneGraph":
        """The graph of some of the nodes, bool [n], and the edges between them."""
        number, inside = kept.cumsum(0) - 1, kept[self.edges].all(1)
        return SceneGraph(
            self.features[kept],
            self.types[kept],
            number[self.edges[inside]],
            self.edge_types[inside],
            self.edge_features[inside],
            self.base_scores[kept],
        )


class Labelled(NamedTuple):
    """A graph with the labels [n] of its nodes, and what it costs to label them otherwise, [n]."""

    graph: SceneGraph
    labels: Tensor
    costs: Tensor


def problem(examples: Sequence[Labelled], kind: Graph) -> FactorGraphProblem:
    """Structural hinge losses of graphs of a kind."""
    graphs, labels = [one.graph for one in examples], [one.labels for one in examples]

    def offsets(rows: Sequence[Tensor]) -> Tensor:
        return torch.tensor([0, *map(len, rows)]).cumsum(0)

    return FactorGraphProblem(
        FactorGraphs(
            features=torch.cat([g.features for g in graphs]),
            labels=torch.cat(labels),
            node_offsets=offsets(labels),
            edges=torch.cat([g.edges for g in graphs]),
            edge_offsets=offsets([g.edges for g in graphs]),
            types=torch.cat([g.types for g in graphs]),
            costs=torch.cat([one.costs for one in examples]),
            edge_types=torch.cat([g.edge_types for g in graphs]),
            edge_features=torch.cat([g.edge_features for g in graphs]),
            base_scores=torch.cat([g.base_scores for g in graphs]),
        ),
        states=graphs[0].features.shape[1] // 2,
        inference="exact" if kind in TREES else "relaxed",
        node_types=2,
        edge_types=2,
    )


def edge_types_of(kind: Graph) -> list[int]:
    """The types of the edges in graphs of a kind."""
    return [t for t, with_it in enumerate(("adjacency", "stars")) if kind in (with_it, "both")]


def dim(classes: int) -> int:
    """Number of weights for so many classes."""
    return 2 * classes * (2 * classes + 1) + 2 * EDGE_FEATURES


def split_weights(weights: Tensor, classes: int) -> tuple[Tensor, Tensor]:
    """Weights of nodes [2, C, 2C + 1], the last those of a constant, and of edges [2, EDGE_FEATURES], by type."""
    unary, pairwise = weights.tensor_split([dim(classes) - 2 * EDGE_FEATURES])
    return unary.view(2, classes, -1), pairwise.view(2, EDGE_FEATURES)


def batches(graphs: Sequence[SceneGraph], weights: Tensor) -> Iterator[tuple[list[int], FactorGraph]]:
    """Bound structures of graphs of similar size, with the numbers of the graphs."""
    unary, pairwise = split_weights(weights, graphs[0].features.shape[1] // 2)
    order = sorted(range(len(graphs)), key=lambda i: (len(graphs[i].edges), len(graphs[i].types)))
    for begin in range(0, len(order), _BATCH):
        numbers = order[begin : begin + _BATCH]
        yield numbers, _bound([graphs[i] for i in numbers], unary, pairwise)


def decoded(graph: FactorGraph, kind: Graph) -> tuple[Tensor, Tensor]:
    """Scores [B] and labels [B, N] of graphs of a kind: the best of trees, and good ones of graphs with loops.

    In these, some sweeps of message passing are far faster than to bracket the optimum.
    """
    relaxation = graph.relaxed("tree") if kind in TREES else graph.relaxed("messages", max_sweeps=_SWEEPS)
    rounded = relaxation.decode()
    return rounded.score, rounded.labels


def ranked(graph: FactorGraph, kind: Graph, fine: Sequence[int], k: int) -> list[list[tuple[float, Tensor]]]:
    """The k best labels of the fine superpixels of each graph, of which it has so many, with scores, best first.

    Raises:
        ValueError: k > 1, and a graph that exact inference gives up on.
    """
    if k == 1:
        scores, y = decoded(graph, kind)
        return [[(float(score), labels[:count])] for score, labels, count in zip(scores, y, fine, strict=True)]
    # Labelings may differ in coarse superpixels alone.
    asked = k
    while True:
        scores, y = _listed(graph, asked)
        found = [_distinct(*one)[:k] for one in zip(scores, y, fine, strict=True)]
        if asked >= _MOST_LABELINGS or all(len(labelings) == k for labelings in found):
            return found
        asked *= 4


def _listed(graph: FactorGraph, k: int) -> tuple[Tensor, Tensor]:
    try:
        return graph.topk(k)
    except MemoryError as error:
        raise ValueError("alternatives of graphs with borders take too long: predict one output") from error


def _distinct(scores: Tensor, labelings: Tensor, fine: int) -> list[tuple[float, Tensor]]:
    """The best score of each labeling [K, N] of the first nodes, in order."""
    found: dict[bytes, tuple[float, Tensor]] = {}
    for score, labels in zip(scores.tolist(), labelings[:, :fine], strict=True):
        if score > -torch.inf:
            found.setdefault(labels.numpy().tobytes(), (score, labels))
    return list(found.values())


def _bound(graphs: Sequence[SceneGraph], unary: Tensor, pairwise: Tensor) -> FactorGraph:
    """A batch of graphs under weights of nodes [types, C, 2C + 1] and of edges [types, De]."""
    nodes, edges = (
        max(len(part) for part in parts) for parts in zip(*((g.types, g.edges) for g in graphs), strict=True)
    )
    states = unary.shape[1]
    scores, ends = torch.zeros(len(graphs), nodes, states).double(), torch.zeros(len(graphs), edges, 2).long()
    tables = torch.zeros(len(graphs), edges, states, states).double()
    node_mask, edge_mask = (torch.zeros(len(graphs), size, dtype=torch.bool) for size in (nodes, edges))
    for b, g in enumerate(graphs):
        n, m = len(g.types), len(g.edges)
        x = torch.nn.functional.pad(g.features, (0, 1), value=1.0)
        scores[b, :n] = g.base_scores + torch.einsum("nsd,nd->ns", unary[g.types], x)
        strengths = (pairwise[g.edge_types] * g.edge_features).sum(1)
        tables[b, :m].diagonal(dim1=1, dim2=2).copy_(strengths[:, None].expand(-1, states))
        ends[b, :m], node_mask[b, :n], edge_mask[b, :m] = g.edges, True, True
    return FactorGraph(scores, ends, tables, node_mask=node_mask, edge_mask=edge_mask, validate_args=False)
