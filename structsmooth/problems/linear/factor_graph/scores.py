"""The map from weights to the potentials of factor graphs: dense features of nodes and edges."""

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import one_hot

from structsmooth.lazy import LazyModule
from structsmooth.problems.affine import Parts
from structsmooth.problems.linear.factor_graph.data import FactorGraphs

compiled_scores = LazyModule("structsmooth.problems.linear.factor_graph.compiled_scores")


@dataclass(frozen=True)
class GraphScores:
    """Scores of nodes and edges: a weight for each state, or for agreement or each pair of states, and each feature.

    θ_i(s) = ⟨w_{type(i), s}, x_i⟩, and θ_c(s, r) = [s = r] ⟨w_{type(c)}, f_c⟩ or ⟨w_{type(c), s, r}, f_c⟩.
    With a reference, state 0 has no weights: a node in state 0 scores 0, and so do its edges.
    """

    graphs: FactorGraphs
    features: Tensor  # of rows, with a constant if there is a bias: [R, D]
    states: int  # S
    potts: bool
    reference: bool
    node_types: int
    edge_types: int

    @property
    def weighted(self) -> int:
        """S', the number of states that have weights: the last ones."""
        return self.states - self.reference

    @property
    def first(self) -> int:
        """The first state that has weights."""
        return self.states - self.weighted

    @property
    def shapes(self) -> tuple[tuple[int, ...], tuple[int, ...]]:
        """The shapes of the weights of nodes [types, S', D] and of edges [types, De, P], with P = 1 or S'²."""
        parts = 1 if self.potts else self.weighted**2
        nodes = (self.node_types, self.weighted, self.features.shape[1])
        return nodes, (self.edge_types, self.graphs.edge_features.shape[1], parts)

    @property
    def dim(self) -> int:
        """Number of weights."""
        return sum(torch.Size(shape).numel() for shape in self.shapes)

    def views(self, w: Tensor) -> tuple[Tensor, Tensor]:
        """A vector [dim] as weights of nodes and of edges, in these shapes."""
        if w.shape != (self.dim,):
            raise ValueError(f"w must have shape [dim] = {(self.dim,)}, got {tuple(w.shape)}")
        nodes, edges = self.shapes
        unary, pairwise = w.split([torch.Size(nodes).numel(), torch.Size(edges).numel()])
        return unary.view(nodes), pairwise.view(edges)

    def scores(self, w: Tensor, block: int) -> Parts:
        """B_i w: potentials of the nodes [N, S] and edges [E, S, S] of an example."""
        nodes, edges = self.graphs.nodes_of(block), self.graphs.edges_of(block)
        theta = w.new_zeros(nodes.stop - nodes.start, self.states)
        pairs = w.new_zeros(edges.stop - edges.start, self.states, self.states)
        outputs = (theta.numpy(), pairs.numpy())
        compiled_scores.add_potentials(self._numpy_views(w), *self.arrays, block, self.first, *outputs)
        return theta, pairs

    def add_adjoint(self, m: Parts, block: int, scale: float, w: Tensor) -> None:
        """w += scale · B_iᵀm in place, for statistics [N, S] and [E, S, S]."""
        nodes, edges = (part.contiguous().numpy() for part in m)
        compiled_scores.add_adjoint(self._numpy_views(w), *self.arrays, block, self.first, nodes, edges, scale)

    def squared_norm(self, m: Parts, block: int) -> float:
        """‖B_iᵀm‖²."""
        vector = m[0].new_zeros(self.dim)
        self.add_adjoint(m, block, 1.0, vector)
        return float(vector @ vector)

    def add_nodes(self, nodes: Tensor, span: slice, scale: float, w: Tensor) -> None:
        """w += scale · Bᵀ in place, for statistics [N, S] of a range of nodes."""
        unary, _ = self.views(w)
        used, rows = self.graphs.rows[span].unique(return_inverse=True)
        x = self.features if len(used) == len(self.features) else self.features[used]
        # Nodes of one type may share a row of features.
        sums = nodes.new_zeros(len(used), *unary.shape[:2])
        sums.index_put_((rows, self.graphs.types[span]), nodes[:, self.first :], accumulate=True)
        unary.flatten(0, 1).addmm_(sums.flatten(1).T, x, alpha=scale)

    def add_edges(self, parts: Tensor, edges: slice | Tensor, scale: float, w: Tensor) -> None:
        """w += scale · Bᵀ in place, for statistics [E, P] of these edges."""
        _, pairwise = self.views(w)
        f, types = self.graphs.edge_features[edges], self.graphs.edge_types[edges]
        pairwise.index_add_(0, types, f[:, :, None] * parts[:, None, :], alpha=scale)

    @cached_property
    def label_sum(self) -> Tensor:
        """Σ B_iᵀν(y_i), [dim]."""
        nodes = one_hot(self.graphs.labels, self.states).double()
        total = torch.zeros(self.dim, dtype=torch.float64)
        self.add_nodes(nodes, slice(0, None), 1.0, total)
        for links in self.graphs.chunks():
            a, b = nodes[:, self.first :][links.ends].unbind(1)
            parts = (a * b).sum(1, keepdim=True) if self.potts else torch.einsum("es,er->esr", a, b).flatten(1)
            self.add_edges(parts, links.edges, 1.0, total)
        return total

    @cached_property
    def constants(self) -> Tensor:
        """What states of nodes score without weights: costs, and base scores minus those of the labels; [nodes, S]."""
        graphs = self.graphs
        costs = graphs.costs[:, None] * (1 - one_hot(graphs.labels, self.states))
        if not graphs.base_scores.shape[1]:
            return costs
        return costs + graphs.base_scores - graphs.base_scores.gather(1, graphs.labels[:, None])

    @property
    def form(self) -> tuple[int, bool]:
        """Which states have weights, from the first on, and whether scores are Potts."""
        return self.first, self.potts

    @property
    def arrays(self) -> tuple[tuple[Any, ...], tuple[Any, ...]]:
        """Numbers, norms and features of all nodes and edges, as compiled passes take them."""
        return self._node_arrays, self._edge_arrays

    def _numpy_views(self, w: Tensor) -> tuple[Any, Any]:
        unary, pairwise = self.views(w.detach())
        return unary.numpy(), pairwise.numpy()

    @cached_property
    def _node_arrays(self) -> tuple[Any, ...]:
        graphs, x = self.graphs, self.features
        nodes = torch.stack([graphs.rows, graphs.types, graphs.labels, graphs.degrees], 1)
        reals = torch.cat([x.square().sum(1)[graphs.rows, None], self.constants], 1)
        return nodes.numpy(), reals.numpy(), x.numpy()

    @cached_property
    def _edge_arrays(self) -> tuple[Any, ...]:
        """Numbers, norms and features of edges, and where nodes, links and edges of each example begin: [n + 1, 3]."""
        graphs, f = self.graphs, self.graphs.edge_features
        edges = torch.cat([graphs.edges, graphs.edge_types[:, None]], 1)
        first = torch.nn.functional.pad(graphs.edge_offsets[graphs.edge_sets], (0, 1))
        places = torch.stack([graphs.node_offsets, graphs.link_offsets, first], 1)
        return edges.numpy(), f.square().sum(1).numpy(), f.numpy(), places.numpy()
