"""Labelled graphs of any shapes with features of their nodes and edges, in compressed rows."""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import torch
from torch import Tensor

from structsmooth.sequences import compressed_rows
from structsmooth.structures.checks import require_integers, require_scores, require_shape

_NOT_GIVEN = torch.empty(0)
# Links that are gone through at once, unless one example has more.
_CHUNK = 2**18


class Links(NamedTuple):
    """Links of some examples: a link is an edge of one example."""

    span: slice  # their numbers among the links of all examples
    edges: Tensor  # [links]
    ends: Tensor  # the two nodes of each link, by their numbers among those of all examples, [links, 2]


@dataclass(frozen=True)
class FactorGraphs:
    """n labelled graphs with dense features: the data of a :class:`~structsmooth.problems.FactorGraphProblem`.

    Example i has the nodes node_offsets[i] to node_offsets[i + 1] - 1 and the edges of set s = edge_sets[i], which are
    edge_offsets[s] to edge_offsets[s + 1] - 1. Examples may share a set of edges, with its types and features.

    Args:
        features: rows of features of nodes: floating point [R, D], kept as float64.
        labels: label of every node: integers [nodes], from 0.
        node_offsets: int64 [n + 1].
        edges: the two nodes of every edge, by their numbers within the example: integers [E, 2].
        edge_offsets: int64 [sets + 1].
        rows: the row of features that a node has: [nodes]; nodes may share one, as the labels of one input do. One row
            for each node if not given.
        types: which block of weights a node has: [nodes]; all the same if not given.
        costs: cost of a wrong label, at least 0: [nodes]; 1 if not given, so that the task loss counts mistakes.
        edge_types: which block of weights an edge has: [E]; all the same if not given.
        edge_features: floating point [E, De], kept as float64; a column of ones if not given.
        base_scores: what nodes score in each state beside what weights add, such as log-probabilities of another model:
            floating point [nodes, S], kept as float64; zeros if not given.
        edge_sets: which set of edges an example has: [n]; one set for each example if not given.

    Raises:
        TypeError: no tensors, features that are not floating point, or numbers that are not integers.
        ValueError: tensors of the wrong shapes, values that are not finite, offsets that do not rise from 0 to the end
            of the data, an example without nodes, negative labels, types or costs, rows or sets that there are not,
            edges to nodes that an example does not have, an edge from a node to itself, or two edges between the same
            nodes.

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
    edge_sets: Tensor = _NOT_GIVEN

    def __post_init__(self) -> None:
        for name, value in vars(self).items():
            if isinstance(value, Tensor):  # compiled passes read them
                object.__setattr__(self, name, value if value is _NOT_GIVEN else value.cpu())
        require_integers("labels", self.labels)
        require_integers("edges", self.edges)
        require_integers("edge_offsets", self.edge_offsets)
        nodes, edges = len(self.labels), len(self.edges)
        defaults = {
            "rows": torch.arange(nodes),
            "types": torch.zeros(nodes, dtype=torch.int64),
            "costs": torch.ones(nodes, dtype=torch.float64),
            "edge_types": torch.zeros(edges, dtype=torch.int64),
            "edge_features": torch.ones(edges, 1, dtype=torch.float64),
            "base_scores": torch.zeros(nodes, 0, dtype=torch.float64),
            "edge_sets": torch.arange(max(len(self.edge_offsets) - 1, 0)),
        }
        for name, default in defaults.items():
            if getattr(self, name) is _NOT_GIVEN:
                object.__setattr__(self, name, default)
        for name in ("features", "costs", "edge_features", "base_scores"):
            self._keep_finite(name)
        for name in ("labels", "types", "rows", "edge_types", "edges", "node_offsets", "edge_offsets", "edge_sets"):
            require_integers(name, getattr(self, name))
            object.__setattr__(self, name, getattr(self, name).long().contiguous())
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
    def shares_edges(self) -> bool:
        """Whether examples share sets of edges, or have them in another order."""
        return not torch.equal(self.edge_sets, torch.arange(len(self.edge_offsets) - 1))

    @cached_property
    def link_offsets(self) -> Tensor:
        """Where the links of each example begin: int64 [n + 1]."""
        return torch.nn.functional.pad(self.edge_offsets.diff()[self.edge_sets].cumsum(0), (1, 0))

    @cached_property
    def links(self) -> Links:
        """The links of all graphs, made at once."""
        return self._linked(0, len(self))

    @property
    def ends(self) -> Tensor:
        """The two nodes of every link, by their numbers among the nodes of all examples: int64 [links, 2]."""
        return self.links.ends

    def chunks(self) -> Iterator[Links]:
        """The links of all examples, some examples at a time."""
        begin = 0
        while begin < len(self):
            most = self.link_offsets[begin] + _CHUNK
            end = max(begin + 1, int(torch.searchsorted(self.link_offsets, most, right=True)) - 1)
            yield self._linked(begin, min(end, len(self)))
            begin = end

    @cached_property
    def degrees(self) -> Tensor:
        """Number of edges of every node: int64 [nodes]."""
        sizes, found = self.node_offsets.diff(), torch.zeros_like(self.labels)
        number = torch.arange(len(found)) - self.node_offsets[:-1].repeat_interleave(sizes)
        has_edges = number < self._size
        keys = self.edge_sets.repeat_interleave(sizes)[has_edges] * self._size + number[has_edges]
        ends = (self._set_of_edges[:, None] * self._size + self.edges).flatten()
        counts = torch.bincount(ends, minlength=(len(self.edge_offsets) - 1) * self._size)
        found[has_edges] = counts[keys]
        return found

    @property
    def mean_degree(self) -> float:
        """Mean number of edges of a node."""
        return 2 * int(self.link_offsets[-1]) / len(self.labels)

    def nodes_of(self, i: int) -> slice:
        """The nodes of an example."""
        return slice(*self._places[0][i : i + 2])

    def edges_of(self, i: int) -> slice:
        """The edges of an example."""
        _, sets, offsets = self._places
        return slice(*offsets[sets[i] : sets[i] + 2])

    def links_of(self, i: int) -> slice:
        """The links of an example: its edges, where no other example has them."""
        return slice(*self.link_offsets[i : i + 2].tolist())

    def select(self, indices: Tensor) -> "FactorGraphs":
        """The examples at ``indices``, in that order; rows of features are shared, and so are sets of edges if any."""
        if indices.numel() and not 0 <= int(indices.min()) <= int(indices.max()) < len(self):
            raise IndexError(f"indices must be from 0 to {len(self) - 1}")
        nodes, node_offsets = compressed_rows(self.node_offsets, indices)
        sets = self.edge_sets[indices]
        if self.shares_edges:
            edges, edge_offsets = torch.arange(len(self.edges)), self.edge_offsets
        else:
            edges, edge_offsets = compressed_rows(self.edge_offsets, sets)
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
            sets if self.shares_edges else torch.arange(len(indices)),
        )

    def _linked(self, begin: int, end: int) -> Links:
        """The links of a range of examples."""
        edges, offsets = compressed_rows(self.edge_offsets, self.edge_sets[begin:end])
        first = self.node_offsets[begin:end].repeat_interleave(offsets.diff())
        span = slice(int(self.link_offsets[begin]), int(self.link_offsets[end]))
        return Links(span, edges, self.edges[edges] + first[:, None])

    @cached_property
    def _places(self) -> tuple[list[int], list[int], list[int]]:
        """Offsets of nodes, sets of edges and their offsets, which a list gives faster than a tensor."""
        return self.node_offsets.tolist(), self.edge_sets.tolist(), self.edge_offsets.tolist()

    @property
    def _size(self) -> int:
        """One more than the largest number of a node that has an edge; 0 without edges."""
        return int(self.edges.max()) + 1 if len(self.edges) else 0

    @property
    def _set_of_edges(self) -> Tensor:
        """The set that each edge is of: [E]."""
        return torch.arange(len(self.edge_offsets) - 1).repeat_interleave(self.edge_offsets.diff())

    def _keep_finite(self, name: str) -> None:
        value = getattr(self, name)
        require_scores(name, value)
        if not bool(value.isfinite().all()):
            raise ValueError(f"{name} must be finite, got NaN or an infinity")
        object.__setattr__(self, name, value.detach().double().contiguous())

    def _check_offsets(self) -> None:
        for name, end in {"node_offsets": len(self.labels), "edge_offsets": len(self.edges)}.items():
            offsets = getattr(self, name)
            rises = offsets.dim() == 1 and len(offsets) and offsets[0] == 0 and offsets[-1] == end
            if not rises or bool((offsets.diff() < 0).any()):
                raise ValueError(f"{name} must be [n + 1] and rise from 0 to {end}")
        if self.edge_sets.shape != (len(self),):
            raise ValueError(
                f"edge_offsets or edge_sets must be for as many examples as node_offsets, {len(self)}, "
                f"got {len(self.edge_sets)}"
            )
        empty = (self.node_offsets.diff() == 0).nonzero()
        if len(empty):
            raise ValueError(f"example {int(empty[0])} has no nodes")

    def _check_values(self) -> None:
        for name in ("labels", "types", "costs", "edge_types"):
            _require(getattr(self, name) >= 0, f"{name} must not be negative", getattr(self, name))
        rows = len(self.features)
        _require((self.rows >= 0) & (self.rows < rows), f"rows must be from 0 to {rows - 1}", self.rows)
        sets = len(self.edge_offsets) - 1
        inside = (self.edge_sets >= 0) & (self.edge_sets < sets)
        _require(inside, f"edge_sets must be from 0 to {sets - 1}", self.edge_sets)
        set_of, sizes = self._set_of_edges, self.node_offsets.diff()
        least = torch.full((sets,), torch.iinfo(torch.int64).max).scatter_reduce(0, self.edge_sets, sizes, "amin")
        known = (self.edges >= 0) & (self.edges < least[set_of, None])
        if not bool(known.all()):
            bad = int((~known.all(1)).nonzero()[0])
            example = int(((self.edge_sets == set_of[bad]) & (sizes == least[set_of[bad]])).nonzero()[0])
            raise ValueError(
                f"edges must be between nodes 0 to {int(sizes[example]) - 1} of example {example}, "
                f"got {self.edges[bad].tolist()}"
            )
        _require(self.edges[:, 0] != self.edges[:, 1], "edges must not lead from a node to itself", self.edges)
        first, second = self.edges.sort(1).values.unbind(1)
        keys, order = ((set_of * self._size + first) * self._size + second).sort(stable=True)
        twice = (keys.diff() == 0).nonzero()
        if len(twice):
            edge = order[int(twice[0]) + 1]
            example = int((self.edge_sets == set_of[edge]).nonzero()[0])
            raise ValueError(
                f"edges must not be given twice, got {self.edges[edge].tolist()} again in example {example}"
            )


def _require(holds: Tensor, requirement: str, values: Tensor) -> None:
    if not bool(holds.all()):
        raise ValueError(f"{requirement}, got {values[int((~holds).nonzero()[0, 0])].tolist()}")
