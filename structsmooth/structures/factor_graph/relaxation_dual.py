"""The dual of the relaxation as a function of messages, and sweeps of block coordinate descent on it, in torch.

Scores are float64 and finite: unary [B, N, S] and pairwise [B, E, S, S], with zeros where there is no node or edge.
Messages δ are [B, E, 2, S]: what edge e gives to its ends a and b, and takes from itself. The dual bound is

    g(δ) = Σ_i max_s (θ_i + Σ_e δ_ei)(s) + Σ_e max_st (θ_e(s, t) − δ_ea(s) − δ_eb(t)),

with max replaced by τ log Σ exp(·/τ) at a temperature τ > 0 (Sontag et al. 2011; Meshi et al. 2012).
"""

from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple, Protocol

import torch
from torch import Tensor
from torch.nn.functional import one_hot

from structsmooth.compiled.threads import over_batch
from structsmooth.structures.factor_graph.layout import Layout, colors
from structsmooth.structures.factor_graph.rounding import with_marginals
from structsmooth.structures.semirings import logsumexp


class Marginals(NamedTuple):
    """A point of the local polytope: distributions of nodes and of edges."""

    node: Tensor  # [B, N, S]
    edge: Tensor  # [B, E, S, S]


class Search(Protocol):
    """Improves labels [B, N] where nodes cannot move one by one."""

    def __call__(self, problem: "RelaxationDual", y: Tensor) -> Tensor:
        """Labels [B, N] of the graph of ``problem`` that score no less than ``y``."""

    def rows(self, index: Tensor) -> "Search":
        """The search over some of the examples."""


@dataclass(frozen=True)
class RelaxationDual:
    """The dual of a batch of graphs as a function of messages.

    Attributes:
        unary: [B, N, S].
        pairwise: [B, E, S, S].
        layout: which nodes and edges there are.
        least: a value [B] that every allowed output exceeds, if scores have penalties.
        search: in place of :meth:`improved`, if nodes cannot move one by one.
    """

    unary: Tensor
    pairwise: Tensor
    layout: Layout
    least: Tensor | None = None
    search: Search | None = None

    def rows(self, index: Tensor) -> "RelaxationDual":
        """The dual of some of the examples."""
        least = None if self.least is None else self.least[index]
        search = None if self.search is None else self.search.rows(index)
        return RelaxationDual(self.unary[index], self.pairwise[index], self.layout.rows(index), least, search)

    def allowed(self) -> tuple[Tensor, Tensor]:
        """Which labels of nodes [B, N, S] and pairs [B, E, S, S] exist and have no penalty."""
        node, edge = self.layout.node_mask.unsqueeze(-1), self.layout.edge_mask[:, :, None, None]
        if self.least is None:
            return node.expand_as(self.unary), edge.expand_as(self.pairwise)
        return node & (self.unary > self.least[:, None, None]), edge & (self.pairwise > self.least[:, None, None, None])

    def variables(self) -> Tensor:
        """Number of labels and pairs that are allowed, [B]."""
        node, edge = self.allowed()
        return node.flatten(1).sum(1) + edge.flatten(1).sum(1)

    @cached_property
    def color(self) -> Tensor:
        """Colors of the nodes, [B, N]; see :func:`~structsmooth.structures.factor_graph.layout.colors`."""
        return colors(self.layout)

    @cached_property
    def independent_sets(self) -> list[Tensor]:
        """The nodes of each color, bool [B, N]."""
        count = int(self.color.amax()) + 1 if self.color.numel() else 0
        return [self.color == c for c in range(count)]

    @cached_property
    def ends(self) -> Tensor:
        """End nodes of the edges, [B, E, 2]; 0 where there is no edge."""
        return torch.where(self.layout.edge_mask.unsqueeze(-1), self.layout.edges, 0)

    def zero(self) -> Tensor:
        """Messages of zero, [B, E, 2, S], from which sweeps start."""
        batch, count, states, _ = self.pairwise.shape
        return self.pairwise.new_zeros(batch, count, 2, states)

    def reparameterized(self, deltas: Tensor) -> tuple[Tensor, Tensor]:
        """θ̂: scores of nodes and edges whose sum over the parts of an output is its score, whatever the messages."""
        index = self.ends.flatten(1).unsqueeze(-1).expand(-1, -1, deltas.shape[-1])
        node = self.unary.scatter_add(1, index, deltas.flatten(1, 2))
        return node, self.pairwise - deltas[:, :, 0].unsqueeze(-1) - deltas[:, :, 1].unsqueeze(-2)

    def dual(self, deltas: Tensor, tau: Tensor | None = None) -> Tensor:
        """g(δ), [B]; at temperatures ``tau`` [B], if they are given."""
        node, edge = self.reparameterized(deltas)
        node, edge = (largest(scores, tau) for scores in (node, edge.flatten(2)))
        node, edge = torch.where(self.layout.node_mask, node, 0.0), torch.where(self.layout.edge_mask, edge, 0.0)
        return node.sum(1) + edge.sum(1)

    def softmax(self, deltas: Tensor, tau: Tensor) -> Marginals:
        """Distributions of each node and of each edge at temperatures ``tau`` [B]; zero where there is none."""
        node, edge = self.reparameterized(deltas)
        node = (node / tau.view(-1, 1, 1)).softmax(-1) * self.layout.node_mask.unsqueeze(-1)
        edge = (edge.flatten(2) / tau.view(-1, 1, 1)).softmax(-1).view_as(edge)
        return Marginals(node, edge * self.layout.edge_mask[:, :, None, None])

    def value(self, marginals: Marginals) -> Tensor:
        """⟨θ, μ⟩ of a point μ of the local polytope, [B]."""
        return (self.unary * marginals.node).sum((1, 2)) + (self.pairwise * marginals.edge).sum((1, 2, 3))

    def vertex(self, y: Tensor) -> Marginals:
        """The vertex ν(y) of the local polytope for labels [B, N]."""
        states = self.unary.shape[-1]
        node = one_hot(y, states).to(self.unary) * self.layout.node_mask.unsqueeze(-1)
        first, second = (node.gather(1, e.unsqueeze(-1).expand(-1, -1, states)) for e in self.ends.unbind(-1))
        return Marginals(node, first.unsqueeze(-1) * second.unsqueeze(-2) * self.layout.edge_mask[:, :, None, None])

    def projected(self, marginals: Marginals) -> Marginals:
        """A point of the local polytope near distributions of nodes and edges that do not agree.

        Each node takes the mean of its distribution and those that its edges have for it.
        """
        edge, ends = marginals.edge, self.ends
        node, states = marginals.node, marginals.node.shape[-1]
        index = ends.flatten(1).unsqueeze(-1).expand(-1, -1, states)
        votes = torch.stack([edge.sum(-1), edge.sum(-2)], 2).flatten(1, 2)
        node = node.scatter_add(1, index, votes)
        node = node / node.sum(-1, keepdim=True).clamp_min(torch.finfo(node.dtype).tiny)
        first, second = (node.gather(1, e.unsqueeze(-1).expand(-1, -1, states)) for e in ends.unbind(-1))
        edge = with_marginals(edge, first, second)
        return Marginals(node, edge * self.layout.edge_mask[:, :, None, None])

    def disagreement(self, marginals: Marginals) -> Tensor:
        """Largest difference between the distribution of a node and that which an edge has for it, []."""
        states = marginals.node.shape[-1]
        index = self.ends.flatten(1).unsqueeze(-1).expand(-1, -1, states)
        sums = torch.stack([marginals.edge.sum(-1), marginals.edge.sum(-2)], 2).flatten(1, 2)
        wrong = (sums - marginals.node.gather(1, index)).view(*self.ends.shape, states)
        wrong = wrong.abs() * self.layout.edge_mask[:, :, None, None]
        return wrong.amax() if wrong.numel() else wrong.sum()

    def improved(self, y: Tensor, sweeps: int) -> Tensor:
        """Labels [B, N] after sweeps in which each node takes the best label given those of its neighbours."""
        if self.search is not None:
            return self.search(self, y)
        if y.device.type == "cpu":
            return self._compiled("batch_improvements", y, sweeps)
        a, b = self.ends.unbind(-1)
        states = self.unary.shape[-1]
        for _ in range(sweeps):
            for chosen in self.independent_sets:
                total = self.unary
                for end, other, tables in ((a, b, self.pairwise), (b, a, self.pairwise.transpose(2, 3))):
                    label = y.gather(1, other)[:, :, None, None].expand(-1, -1, states, 1)
                    given = tables.gather(3, label).squeeze(-1) * self.layout.edge_mask.unsqueeze(-1)
                    total = total.scatter_add(1, end.unsqueeze(-1).expand_as(given), given)
                best, now = total.argmax(-1), total.gather(-1, y.unsqueeze(-1))
                better = (total.amax(-1, keepdim=True) > now).squeeze(-1)
                y = torch.where(chosen & better, best, y)
        return y

    def sweep(self, deltas: Tensor, tau: Tensor, count: int = 1) -> Tensor:
        """Messages after sweeps of star updates at temperatures ``tau`` [B]: exact minimization, node after node.

        With M_e(s) the max (or soft max) over the other end's states of what is left of edge e, node i of degree d
        makes all its shares equal: δ_ei = M_e − (θ_i + Σ M_e)/(1 + d) (Meshi et al. 2010). Nodes go by their colors.
        """
        if deltas.device.type == "cpu":
            return self._compiled("batch_sweeps", deltas, count, tau.numpy())
        for _ in range(count):
            for chosen in self.independent_sets:
                deltas = self.star(deltas, tau, chosen)
        return deltas

    def star(self, deltas: Tensor, tau: Tensor, chosen: Tensor) -> Tensor:
        """Messages after updates of all nodes of an independent set, bool [B, N]."""
        ends, states = self.ends, self.unary.shape[-1]
        left = self.pairwise - deltas[:, :, 1].unsqueeze(-2), self.pairwise - deltas[:, :, 0].unsqueeze(-1)
        message = torch.stack([largest(left[0], tau), largest(left[1].transpose(2, 3), tau)], 2)
        real = self.layout.edge_mask[:, :, None, None].to(message)
        index = ends.flatten(1).unsqueeze(-1).expand(-1, -1, states)
        total = self.unary.scatter_add(1, index, (message * real).flatten(1, 2))
        degrees = torch.ones_like(total).scatter_add(1, index, real.expand_as(message).flatten(1, 2))
        share = (total / degrees).gather(1, index).view_as(message)
        moved = chosen.gather(1, ends.flatten(1)).view(*ends.shape, 1) & self.layout.edge_mask[:, :, None, None]
        return torch.where(moved, message - share, deltas)

    def _compiled(self, loop: str, values: Tensor, sweeps: int, *settings: Any) -> Tensor:
        """What sweeps of a compiled loop make of messages or labels."""
        from structsmooth.structures.factor_graph import compiled  # numba loads with the first sweep

        values, run = values.contiguous().clone(), getattr(compiled, loop)
        arrays = (*self._arrays, *settings, values.numpy(), sweeps)
        over_batch(lambda *bounds: run(*arrays, *bounds), len(self.unary), 2 * self.pairwise.numel() * sweeps)
        return values

    @cached_property
    def _arrays(self) -> tuple[Any, ...]:
        """Scores, edges, and the nodes in the order of their colors, as compiled sweeps take them."""
        order = torch.where(self.color < 0, self.color.shape[1], self.color).argsort(dim=1, stable=True)
        tensors = (self.unary, self.pairwise, self.ends, self.layout.edge_mask, order, self.layout.node_mask.sum(1))
        return tuple(tensor.contiguous().numpy() for tensor in tensors)


def with_penalties(
    unary: Tensor, pairwise: Tensor, layout: Layout, search: Search | None = None
) -> tuple[RelaxationDual, Tensor]:
    """The problem with large penalties instead of -inf, and a value [B] that every allowed output exceeds.

    Penalties are so large that a few percent of one take a value below that, and that a share of one, as messages
    spread it, leaves no probability at temperature 1.
    """
    node, edge = (scores.detach().flatten(1) for scores in (unary, pairwise))
    spread = _size(node) + _size(edge)
    penalty = -100 * (1 + spread + unary.shape[1] + pairwise.shape[1])
    filled = [torch.where(p > -torch.inf, p, penalty.view(-1, *[1] * (p.dim() - 1))) for p in (unary, pairwise)]
    least = -2 * (1 + spread)
    return RelaxationDual(filled[0], filled[1], layout, least, search), least


def _size(scores: Tensor) -> Tensor:
    """The sum of the absolute values of all finite scores [B, D] of each example, [B]."""
    return torch.where(scores > -torch.inf, scores.abs(), 0.0).sum(1)


def largest(scores: Tensor, tau: Tensor | None) -> Tensor:
    """Maxima over the last dimension, or soft maxima at temperatures [B] where these are positive."""
    hard = scores.amax(-1)
    if tau is None:
        return hard
    wide = tau.view(-1, *[1] * (scores.dim() - 1))
    soft = wide.squeeze(-1) * logsumexp(scores / torch.where(wide > 0, wide, 1.0), scores.dim() - 1)
    return torch.where(wide.squeeze(-1) > 0, soft, hard)
