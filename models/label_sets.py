"""Sets of labels: linear scores of labels, and of pairs of labels that are both present, over scaled features."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn.functional import pad

from structsmooth.messages import tracked
from structsmooth.problems import FactorGraphProblem, FactorGraphs
from structsmooth.structures import FactorGraph

Scaling = Literal["unit", "standard", "none"]
LabelPairs = Literal["auto", "none", "tree", "full"]
Inference = Literal["auto", "exact", "relaxed", "lp"]
Ranked = list[tuple[float, list[int]]]
"""The best sets of labels of an example with their scores, best first; a set as 0 or 1 for each label."""

# Up to this many labels, all pairs have a score by default.
_FEW = 30
# Examples of a batch of predictions, and pairs of labels that they may have together.
_BATCH = 256
_BATCH_PAIRS = 2**19
# Outputs up to which full graphs are solved exactly.
_FEW_OUTPUTS = 2**16


@dataclass(frozen=True)
class LabelSets:
    """A model of sets of L labels over D features, with weights [L·(D + 1) + E], or [L·D + E] without biases.

    Args:
        count: number L of labels.
        edges: the E pairs (a, b), a < b, that have a score where both labels are present.
        mean: of the features, [D].
        scale: what features are divided by, [D].
        unit: rows of features are then scaled to norm 1.
        inference: of training: exact, or relaxed to the local polytope, by cuts or, for lp, by a solver of linear
            programs; auto for exact where that is fast.
        bias: whether labels have a score of their own.
    """

    count: int
    edges: Sequence[Sequence[int]]
    mean: Sequence[float]
    scale: Sequence[float]
    unit: bool = True
    inference: Inference = "auto"
    bias: bool = True

    def problem(self, x: NDArray[np.float64], present: NDArray[np.bool_]) -> FactorGraphProblem:
        """Structural hinge losses of the label graphs of examples with features [n, D] and labels [n, L]."""
        n, pairs = len(x), self._edges
        graphs = FactorGraphs(
            features=torch.from_numpy(self.scaled(x)),
            labels=torch.from_numpy(present).long().flatten(),
            node_offsets=self.count * torch.arange(n + 1),
            edges=pairs,
            edge_offsets=torch.tensor([0, len(pairs)]),
            rows=torch.arange(n).repeat_interleave(self.count),
            types=torch.arange(self.count).repeat(n),
            edge_types=torch.arange(len(pairs)),
            edge_sets=torch.zeros(n, dtype=torch.int64),  # one graph for all
        )
        inference = ("exact" if self.is_exact else "relaxed") if self.inference == "auto" else self.inference
        return FactorGraphProblem(
            graphs,
            states=2,
            pairwise="potts",  # pairs that are both present agree
            reference=True,
            bias=self.bias,
            node_types=self.count,
            edge_types=len(pairs) or None,
            inference=inference,
        )

    def best(self, weights: Tensor, x: NDArray[np.float64], k: int) -> "RankedSets":
        """The k best sets of each example with features [n, D].

        Full graphs of many labels are relaxed, and the labels rounded, for k = 1; else they are searched.
        """
        found: list[Ranked] = []
        graphs = list(self._graphs(weights, x))
        for graph in tracked(graphs, "predicting"):
            if self.is_exact or k > 1:
                values, y = graph.topk(k)
            else:
                rounded = graph.relaxed().decode()
                values, y = rounded.score.unsqueeze(1), rounded.labels.unsqueeze(1)
            for scores, outputs in zip(values.tolist(), y.tolist(), strict=True):
                found.append([pair for pair in zip(scores, outputs, strict=True) if pair[0] > -torch.inf])
        return RankedSets(found, graphs)

    def split(self, weights: Tensor) -> tuple[Tensor, Tensor]:
        """Weights of labels [L, D + 1], the bias last, or zero if there is none, and of pairs [E]."""
        size = self.count * (len(self.mean) + self.bias)
        unary, pairwise = weights[:size].view(self.count, -1), weights[size:]
        unary = unary if self.bias else pad(unary, (0, 1))
        return unary, pairwise[: len(self.edges)]  # one that nothing uses without pairs

    def scaled(self, x: NDArray[np.float64]) -> NDArray[np.float64]:
        """The features that are scored, [n, D]."""
        x = (x - np.array(self.mean)) / np.array(self.scale)
        if self.unit:
            x /= np.maximum(np.linalg.norm(x, axis=1, keepdims=True), 1e-12)
        return np.asarray(x, dtype=np.float64)

    @property
    def is_exact(self) -> bool:
        """Whether exact inference is fast: few outputs, or a tree."""
        return 2**self.count <= _FEW_OUTPUTS or len(self.edges) < self.count

    @property
    def _edges(self) -> Tensor:
        return torch.tensor(self.edges, dtype=torch.int64).view(-1, 2)

    def _graphs(self, weights: Tensor, x: NDArray[np.float64]) -> Iterator[FactorGraph]:
        """Batches of examples as graphs."""
        unary, pairwise = self.split(weights.double())
        tables = torch.zeros(len(self.edges), 2, 2, dtype=torch.float64)
        tables[:, 1, 1] = pairwise
        size = max(1, min(_BATCH, _BATCH_PAIRS // max(1, len(self.edges))))
        for begin in range(0, len(x), size):
            scores = pad(torch.from_numpy(self.scaled(x[begin : begin + size])), (0, 1), value=1.0) @ unary.T
            yield FactorGraph(torch.stack([torch.zeros_like(scores), scores], -1), self._edges, tables)


class RankedSets(list[Ranked]):
    """The best sets of labels of each example with their scores, and the graphs that they are outputs of.

    Args:
        sets: for each example, best first.
        graphs: of the examples, in batches.
    """

    def __init__(self, sets: Sequence[Ranked], graphs: Sequence[FactorGraph]) -> None:
        super().__init__(sets)
        self.graphs = graphs

    def margins(self) -> Tensor:
        """For each label, the largest score of a set with it minus the largest of one without it: [n, L].

        Computed on demand: it takes far longer than the best sets.
        """
        return torch.cat([graph.max_marginals().diff(dim=-1).squeeze(-1) for graph in self.graphs])


def feature_scaling(x: NDArray[np.float64], scaling: Scaling) -> tuple[list[float], list[float]]:
    """Mean and scale of features [n, D]: those of the data for ``"standard"``, else 0 and 1."""
    if scaling != "standard":
        return [0.0] * x.shape[1], [1.0] * x.shape[1]
    deviation = x.std(0)
    return x.mean(0).tolist(), np.where(deviation > 1e-12, deviation, 1.0).tolist()


def label_pairs(present: NDArray[np.bool_], pairs: LabelPairs) -> list[tuple[int, int]]:
    """The pairs (a, b), a < b, of the labels of examples ``present`` [n, L]."""
    count = present.shape[1]
    if pairs == "auto":
        pairs = "full" if count <= _FEW else "tree"
    if pairs == "none" or count < 2:
        return []
    if pairs == "full":
        return [(a, b) for a in range(count) for b in range(a + 1, count)]
    return spanning_tree(mutual_information(present))


def mutual_information(present: NDArray[np.bool_]) -> NDArray[np.float64]:
    """Mutual information of each pair of labels, in nats: [L, L]."""
    n, x = len(present), present.astype(np.float64)
    both = x.T @ x / n
    single = np.diag(both)
    first, second = np.broadcast_arrays(single[:, None], single[None, :])
    total = np.zeros_like(both)
    for joint, product in (
        (both, first * second),
        (first - both, first * (1 - second)),
        (second - both, (1 - first) * second),
        (1 - first - second + both, (1 - first) * (1 - second)),
    ):
        used = joint > 1e-12
        total[used] += joint[used] * np.log(joint[used] / product[used])
    return total


def spanning_tree(weights: NDArray[np.float64]) -> list[tuple[int, int]]:
    """The edges of a tree of the largest weight (Prim 1957): that of Chow and Liu (1968) for mutual information."""
    pairs = enumerate(spanning_parents(weights)[1:], 1)
    return sorted((min(v, parent), max(v, parent)) for v, parent in pairs)


def spanning_parents(weights: NDArray[np.float64]) -> list[int]:
    """The parents of nodes in a tree of the largest weight whose root is the first node, which has the parent -1."""
    best, parents = weights[0].copy(), np.zeros(len(weights), dtype=np.int64)
    parents[0] = -1
    outside = np.arange(len(weights)) > 0
    while outside.any():
        v = int(np.where(outside, best, -np.inf).argmax())
        outside[v] = False
        closer = outside & (weights[v] > best)
        best[closer], parents[closer] = weights[v][closer], v
    return list(map(int, parents))
