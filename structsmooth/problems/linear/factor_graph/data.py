"""Labelled graphs of any shapes with features of their nodes and edges, in compressed rows."""

from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor

from structsmooth.sequences import compressed_rows
from structsmooth.structures.checks import require_integers, require_scores, require_shape

_NOT_GIVEN = torch.empty(0)
# Edges are checked for duplicates by one number each: an example may have this many nodes.
_MOST_NODES = 2**31


@dataclass(frozen=True)
class FactorGraphs:
    """n labelled graphs with dense features: the data of a :class:`~structsmooth.FactorGraphProblem`.

    Example i has the nodes node_offsets[i] to node_offsets[i + 1] - 1 and the edges edge_offsets[i] to
    edge_offsets[i + 1] - 1.

    Args:
        features: rows of features of nodes: floating point [R, D], kept as float64.
        labels: label of every node: integers [nodes], from 0.
        node_offsets: int64 [n + 1].
        edges: the two nodes of every edge, by their numbers within the example: integers [E, 2].
        edge_offsets: int64 [n + 1].
        rows: the row of features that a node has: [nodes]; nodes may share one, as the labels of one input do. One row
            for each node if not given.
        types: which block of weights a node has: [nodes]; all the same if not given.
        costs: cost of a wrong label, at least 0: [nodes]; 1 if not given, so that the task loss counts mistakes.
        edge_types: which block of weights an edge has: [E]; all the same if not given.
        edge_features: floating point [E, De], kept as float64; a column of ones if not given.
        base_scores: what nodes score in each state beside what weights add, such as log-probabilities of another model:
            floating point [nodes, S], kept as float64; zeros if not given.

    Raises:
        TypeError: no tensors, features that are not floating point, or numbers that are not integers.
        ValueError: tensors of the wrong shapes, values that are not finite, offsets that do not rise from 0 to the end
            of the data, an example without nodes, negative labels, types or costs, rows that there are not, edges to
            nodes that the example does not have, an edge from a node to itself, or two edges between the same nodes.

    Example:
        >>> import torch
        >>> graphs = FactorGraphs(  # a path of three nodes, and a single node
        ...     features=torch.randn(4, 5),
        ...     labels=torch.tensor([0, 1, 1, 0]),
        ...     node_offsets=torch.tensor([0, 3, 4]),
        ...     edges=torch.tensor([[0, 1], [1, 2]]),
        ...     edge_offsets=torch.tensor([0, 2, 2]),
        ... )
        >>> len(graphs)
        2
    """

    features: Tensor
    labels: Tensor
    node_offsets: Tensor
    edges: Tensor
    edge_offsets: Tensor
    rows: Tensor = _NOT_GIVEN
    types: Tensor = _NOT_GIVEN
    costs: Tensor = _NOT_GIVEN
    edge_types: Tensor = _NOT_GIVEN
    edge_features: Tensor = _NOT_GIVEN
    base_scores: Tensor = _NOT_GIVEN

    def __post_init__(self) -> None:
        require_integers("labels", self.labels)
        require_integers("edges", self.edges)
        nodes, edges = len(self.labels), len(self.edges)
        defaults = {
            "rows": torch.arange(nodes),
            "types": torch.zeros(nodes, dtype=torch.int64),
            "costs": torch.ones(nodes, dtype=torch.float64),
            "edge_types": torch.zeros(edges, dtype=torch.int64),
            "edge_features": torch.ones(edges, 1, dtype=torch.float64),
            "base_scores": torch.zeros(nodes, 0, dtype=torch.float64),
        }
        for name, default in defaults.items():
            if getattr(self, name) is _NOT_GIVEN:
                object.__setattr__(self, name, default)
        for name in ("features", "costs", "edge_features", "base_scores"):
            self._keep_finite(name)
        for name in ("labels", "types", "rows", "edge_types", "edges", "node_offsets", "edge_offsets"):
            self._keep_integers(name)
        for name in ("features", "edge_features", "base_scores"):
            if getattr(self, name).dim() != 2:
                raise ValueError(f"{name} must have two dimensions, got shape {tuple(getattr(self, name).shape)}")
        for name in ("labels", "rows", "types", "costs"):
            require_shape(name, getattr(self, name), "[nodes]", (nodes,))
        require_shape("edges", self.edges, "[E, 2]", (edges, 2))
        require_shape("edge_types", self.edge_types, "[E]", (edges,))
        require_shape("edge_features", self.edge_features, "[E, De]", (edges, self.edge_features.shape[1]))
        require_shape("base_scores", self.base_scores, "[nodes, S]", (nodes, self.base_scores.shape[1]))
        self._check_offsets()
        self._check_values()

    def __len__(self) -> int:
        return len(self.node_offsets) - 1

    @cached_property
    def ends(self) -> Tensor:
        """The two nodes of every edge, by their numbers among the nodes of all examples: int64 [E, 2]."""
        return self.edges + self.node_offsets[:-1].repeat_interleave(self.edge_offsets.diff())[:, None]

    @cached_property
    def degrees(self) -> Tensor:
        """Number of edges of every node: int64 [nodes]."""
        return torch.bincount(self.ends.flatten(), minlength=len(self.labels))

    def nodes_of(self, i: int) -> slice:
        """The nodes of an example."""
        return slice(*self.node_offsets[i : i + 2].tolist())

    def edges_of(self, i: int) -> slice:
        """The edges of an example."""
        return slice(*self.edge_offsets[i : i + 2].tolist())

    def select(self, indices: Tensor) -> "FactorGraphs":
        """The examples at ``indices``, in that order; rows of features are shared."""
        if indices.numel() and not 0 <= int(indices.min()) <= int(indices.max()) < len(self):
            raise IndexError(f"indices must be from 0 to {len(self) - 1}")
        nodes, node_offsets = compressed_rows(self.node_offsets, indices)
        edges, edge_offsets = compressed_rows(self.edge_offsets, indices)
        return FactorGraphs(
            self.features,
            self.labels[nodes],
            node_offsets,
            self.edges[edges],
            edge_offsets,
            self.rows[nodes],
            self.types[nodes],
            self.costs[nodes],
            self.edge_types[edges],
            self.edge_features[edges],
            self.base_scores[nodes],
        )

    def _keep_finite(self, name: str) -> None:
        value = getattr(self, name)
        require_scores(name, value)
        if not bool(value.isfinite().all()):
            raise ValueError(f"{name} must be finite, got NaN or an infinity")
        object.__setattr__(self, name, value.detach().double().contiguous())

    def _keep_integers(self, name: str) -> None:
        require_integers(name, getattr(self, name))
        object.__setattr__(self, name, getattr(self, name).long().contiguous())

    def _check_offsets(self) -> None:
        for name, end in {"node_offsets": len(self.labels), "edge_offsets": len(self.edges)}.items():
            offsets = getattr(self, name)
            rises = offsets.dim() == 1 and len(offsets) and offsets[0] == 0 and offsets[-1] == end
            if not rises or bool((offsets.diff() < 0).any()):
                raise ValueError(f"{name} must be [n + 1] and rise from 0 to {end}")
        if len(self.node_offsets) != len(self.edge_offsets):
            raise ValueError(
                f"edge_offsets must be for as many examples as node_offsets, {len(self)}, "
                f"got {len(self.edge_offsets) - 1}"
            )
        empty = (self.node_offsets.diff() == 0).nonzero()
        if len(empty):
            raise ValueError(f"example {int(empty[0])} has no nodes")

    def _check_values(self) -> None:
        for name in ("labels", "types", "costs", "edge_types"):
            _require(getattr(self, name) >= 0, f"{name} must not be negative", getattr(self, name))
        rows = len(self.features)
        _require((self.rows >= 0) & (self.rows < rows), f"rows must be from 0 to {rows - 1}", self.rows)
        example = torch.arange(len(self)).repeat_interleave(self.edge_offsets.diff())
        sizes = self.node_offsets.diff()[example, None]
        known = (self.edges >= 0) & (self.edges < sizes)
        if not bool(known.all()):
            bad = int((~known.all(1)).nonzero()[0])
            raise ValueError(
                f"edges must be between nodes 0 to {int(sizes[bad]) - 1} of example {int(example[bad])}, "
                f"got {self.edges[bad].tolist()}"
            )
        _require(self.edges[:, 0] != self.edges[:, 1], "edges must not lead from a node to itself", self.edges)
        ends = self.ends.sort(1).values
        keys, order = (ends[:, 0] * _MOST_NODES + ends[:, 1]).sort()
        twice = (keys.diff() == 0).nonzero()
        if len(twice):
            edge = order[int(twice[0]) + 1]
            raise ValueError(
                f"edges must not be given twice, got {self.edges[edge].tolist()} again in example {int(example[edge])}"
            )


def _require(holds: Tensor, requirement: str, values: Tensor) -> None:
    if not bool(holds.all()):
        raise ValueError(f"{requirement}, got {values[int((~holds).nonzero()[0, 0])].tolist()}")
