"""Nodes and edges of the graphs of a batch, without scores, and what follows from them."""

from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from structsmooth.lazy import LazyLoops
from structsmooth.structures import checks
from structsmooth.structures.operators import compiled_operator

compiled = LazyLoops("structsmooth.structures.factor_graph.compiled")

# Nodes of an example, and the ends of its edges.
Graph = tuple[tuple[int, ...], tuple[tuple[int, int] | None, ...]]


class Layout(NamedTuple):
    """Which nodes and edges the B examples have."""

    edges: Tensor  # [B, E, 2], or [E, 2] if all have the same, end nodes a and b; anything where there is no edge
    node_mask: Tensor  # [B, N]
    edge_mask: Tensor  # [B, E]

    def rows(self, index: Tensor) -> "Layout":
        """The layout of some of the examples."""
        return Layout(*(tensor[index] for tensor in self))

    def graph(self, example: int) -> Graph:
        """Nodes of an example, and its edges, ``None`` where there is none."""
        nodes = self.node_mask[example].nonzero()[:, 0].tolist()
        pairs = zip(self.edges[example].tolist(), self.edge_mask[example].tolist(), strict=True)
        return tuple(nodes), tuple((a, b) if real else None for (a, b), real in pairs)


class Tables(NamedTuple):
    """Factors of a batch, as tables whose entries are the scores of final states."""

    scopes: Tensor  # nodes [B, F, K], followed by -1 at padding
    transitions: Tensor  # [F, 1, Q, S], or [F, K, Q, S] for each place of the scopes

    def of(self, example: int) -> tuple[tuple[int, ...], ...]:
        """The scopes of an example; empty for factors that it does not have."""
        return tuple(tuple(v for v in scope if v >= 0) for scope in self.scopes[example].tolist())

    def runs(self, y: Tensor) -> tuple[list[Tensor], list[Tensor]]:
        """Labels [B, F] at the places of scopes, and states of the automata before each of them and at the end."""
        labels = [y.gather(1, nodes.clamp_min(0)) for nodes in self.scopes.unbind(-1)]
        states, factor = [torch.zeros_like(self.scopes[..., 0])], torch.arange(self.scopes.shape[1], device=y.device)
        for i, (nodes, label) in enumerate(zip(self.scopes.unbind(-1), labels, strict=True)):
            then = self.transitions[factor, min(i, self.transitions.shape[1] - 1), states[-1], label]
            states.append(torch.where(nodes >= 0, then, states[-1]))
        return labels, states

    def final_states(self, f: int, sizes: Sequence[int]) -> Tensor:
        """The final state of a factor for all joint labels of so many nodes, the first labels of each: [*sizes]."""
        states = self.transitions.new_zeros(1)
        for i, size in enumerate(sizes):
            place = min(i, self.transitions.shape[1] - 1)
            states = self.transitions[f, place, states, :size].flatten()
        return states.view(*sizes)


class Tabled(NamedTuple):
    """A graph whose factors are tables: potentials, a layout in three tensors, and the tables in two."""

    unary: Tensor  # [B, N, S]
    pairwise: Tensor  # [B, E, S, S]
    finals: Tensor  # scores of the final states of factors, [B, F, Q]
    edges: Tensor  # [B, E, 2]
    node_mask: Tensor  # [B, N]
    edge_mask: Tensor  # [B, E]
    scopes: Tensor  # [B, F, K]
    transitions: Tensor  # [F, 1 or K, Q, S]

    @property
    def layout(self) -> Layout:
        """Nodes and edges."""
        return Layout(self.edges, self.node_mask, self.edge_mask)

    def scores_in_float64(self) -> tuple[Tensor, Tensor, Tensor]:
        """Potentials in float64, zero where there is no node, edge or factor."""
        unary, pairwise, _ = Expanded(self.unary, self.pairwise, *self.layout).in_float64()
        finals = self.finals.to(unary)
        return unary, pairwise, torch.where((self.scopes >= 0).any(-1, keepdim=True), finals, 0.0)


class Expanded(NamedTuple):
    """A pairwise graph: potentials, and a layout in its three tensors."""

    unary: Tensor  # [B, N, S]
    pairwise: Tensor  # [B, E, S, S]
    edges: Tensor  # [B, E, 2]
    node_mask: Tensor  # [B, N]
    edge_mask: Tensor  # [B, E]

    def in_float64(self) -> tuple[Tensor, Tensor, Layout]:
        """Potentials in float64, zero where there is no node or edge, and the layout, on whose device they are."""
        unary, pairwise = (scores.to(self.edges.device, torch.float64) for scores in (self.unary, self.pairwise))
        node, edge = self.node_mask.unsqueeze(-1), self.edge_mask[:, :, None, None]
        layout = Layout(self.edges, self.node_mask, self.edge_mask)
        return torch.where(node, unary, 0.0), torch.where(edge, pairwise, 0.0), layout


def joint_states(y: Tensor, layout: Layout, states: int) -> Tensor:
    """Joint states S y_a + y_b [B, E] at the edges, for labels [B, N]; 0 where there is no edge."""
    ends = torch.where(layout.edge_mask.unsqueeze(-1), layout.edges, 0)
    first, second = (y.gather(1, end) for end in ends.unbind(-1))
    return torch.where(layout.edge_mask, states * first + second, 0)


def score(unary: Tensor, pairwise: Tensor, layout: Layout, y: Tensor) -> Tensor:
    """Sums [B] of the scores of labels [B, N] and of their pairs at the edges."""
    pairs = joint_states(y, layout, unary.shape[-1])
    nodes = unary.gather(2, y.unsqueeze(-1)).squeeze(-1)
    edges = pairwise.flatten(2).gather(2, pairs.unsqueeze(-1)).squeeze(-1)
    return torch.where(layout.node_mask, nodes, 0.0).sum(1) + torch.where(layout.edge_mask, edges, 0.0).sum(1)


class Forest(NamedTuple):
    """The graphs of a batch as forests, where they are; what is below is of no use in the other rows."""

    is_forest: Tensor  # [B]
    parents: Tensor  # [B, N], -1 at roots and padding
    above: Tensor  # [B, N], the edge to the parent; 0 where there is none
    below: Tensor  # [B, E], the end of each edge that is the child
    flipped: Tensor  # [B, E], whether that is its first end
    order: Tensor  # [B, E], edges from the leaves to the roots; -1 at the end, after those that there are


def _checked_ends(edges: Tensor, edge_mask: Tensor, nodes: int) -> tuple[Tensor, Tensor]:
    """Edges that a compiled loop may read."""
    ends = torch.where(edge_mask.unsqueeze(-1), edges, 0)
    if ends.numel() and not 0 <= int(ends.min()) <= int(ends.max()) < nodes:
        raise IndexError(f"edges must hold nodes from 0 to {nodes - 1}, got {int(ends.min())} to {int(ends.max())}")
    return ends, edge_mask


def _no_forest(edges: Tensor, edge_mask: Tensor, nodes: int) -> tuple[Tensor, ...]:
    of_nodes, of_edges = (edges.shape[0], nodes), edge_mask.shape
    return (
        edge_mask.new_zeros(edges.shape[0]),
        edges.new_full(of_nodes, -1),
        edges.new_zeros(of_nodes),
        edges.new_zeros(of_edges),
        edge_mask.new_zeros(of_edges),
        edges.new_full(of_edges, -1),
    )


_forest = compiled_operator(
    "factor_graph_forest(Tensor edges, Tensor edge_mask, SymInt nodes)"
    " -> (Tensor, Tensor, Tensor, Tensor, Tensor, Tensor)",
    results=_no_forest,
    loop=compiled.batch_forests,
    reads=_checked_ends,
    operations=lambda edges, *_: 10 * edges.numel(),
)
"""The fields of :class:`Forest`."""


def forest(layout: Layout) -> Forest:
    """Parents of nodes, by removing leaves and their edges, round by round, until no edge or no leaf is left."""
    return Forest(*_forest(layout.edges, layout.edge_mask, layout.node_mask.shape[1]))


def colors(layout: Layout) -> Tensor:
    """A color [B, N] for each node, from 0, other than those of its neighbours; -1 at padding.

    Round by round, the nodes whose rank is above that of all their neighbours that are left form an independent set.
    """
    (batch, nodes), device = layout.node_mask.shape, layout.edges.device
    a, b = torch.where(layout.edge_mask.unsqueeze(-1), layout.edges, 0).unbind(-1)
    # Ranks in random order give fewer colors than those in the order of an image or a chain.
    ranks = torch.randperm(nodes, generator=torch.Generator().manual_seed(0)).to(device).expand(batch, nodes)
    color, left, round_ = torch.full((batch, nodes), -1, device=device), layout.node_mask, 0
    while bool(left.any()):
        rank = torch.where(left, ranks, -1)
        highest = torch.full((batch, nodes), -1, device=device)
        for end, other in ((a, b), (b, a)):
            neighbour = torch.where(layout.edge_mask, rank.gather(1, other), -1)
            highest = highest.scatter_reduce(1, end, neighbour, "amax")
        chosen = left & (rank > highest)
        color, left, round_ = torch.where(chosen, round_, color), left & ~chosen, round_ + 1
    return color


def turned(pairwise: Tensor, flipped: Tensor) -> Tensor:
    """Tables [B, E, S, S] with the ends exchanged where ``flipped`` [B, E] says so."""
    return torch.where(flipped[:, :, None, None], pairwise.transpose(2, 3), pairwise)


def where_rows(condition: Tensor, tensor: Tensor, other: Tensor) -> Tensor:
    """``torch.where`` for a condition [B]."""
    return torch.where(condition.view(-1, *[1] * (tensor.dim() - 1)), tensor, other)


def checked(unary: Tensor, edges: Tensor, node_mask: Tensor | None, edge_mask: Tensor | None) -> Layout:
    """Edges [E, 2] or [B, E, 2] as int64, and masks, all true if not given; raises for wrong dtypes or shapes."""
    checks.require_integers("edges", edges)
    if edges.dim() not in (2, 3) or edges.shape[-1] != 2 or (edges.dim() == 3 and edges.shape[0] != unary.shape[0]):
        raise ValueError(f"edges must have shape [E, 2] or [B, E, 2], got {tuple(edges.shape)}")
    if node_mask is None:
        node_mask = torch.ones(unary.shape[:2], dtype=torch.bool, device=unary.device)
    if edge_mask is None:
        edge_mask = torch.ones(unary.shape[0], edges.shape[-2], dtype=torch.bool, device=unary.device)
    node_mask = checks.as_mask("node_mask", node_mask)
    edge_mask = checks.as_mask("edge_mask", edge_mask)
    checks.require_shape("node_mask", node_mask, "[B, N]", tuple(unary.shape[:2]))
    checks.require_shape("edge_mask", edge_mask, "[B, E]", (unary.shape[0], edges.shape[-2]))
    for name, tensor in (("edges", edges), ("node_mask", node_mask), ("edge_mask", edge_mask)):
        checks.require_device(name, tensor, "unary", unary)
    return Layout(edges.to(torch.int64), node_mask, edge_mask)


def check_edges(layout: Layout) -> None:
    """Raise ``ValueError`` for edges to nodes that there are not, from a node to itself, or to padding."""
    nodes = layout.node_mask.shape[1]
    ends = layout.edges
    outside = ((ends < 0) | (ends >= nodes)).any(-1)
    _refuse(layout, outside, f"must hold nodes from 0 to {nodes - 1}")
    _refuse(layout, ends[..., 0] == ends[..., 1], "must join two nodes")
    inside = torch.where(layout.edge_mask.unsqueeze(-1), ends, 0)
    real = layout.node_mask.gather(1, inside.flatten(1)).view_as(inside).all(-1)
    _refuse(layout, ~real, "must not lead to padding")


def _refuse(layout: Layout, wrong: Tensor, rule: str) -> None:
    wrong = wrong & layout.edge_mask
    if bool(wrong.any()):
        b, e = wrong.nonzero()[0].tolist()
        raise ValueError(f"edges {rule}; example {b}: edge {e} is {tuple(layout.edges[b, e].tolist())}")
