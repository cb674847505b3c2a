"""Variable elimination in plain torch: the exact oracles of graphs of small treewidth, over any semiring.

A graph is eliminated node by node. The scores that involve a node are joined into one table over the node and its
neighbours, which is summed over the states of the node; the result is a message to these neighbours. The largest table
has S^(treewidth + 1) entries.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from itertools import combinations
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from structsmooth.structures import semirings
from structsmooth.structures.semirings import Log, Semiring, TopK, inverse_cdf

Scope = tuple[int, ...]  # nodes, in ascending order

# All outputs of a graph are enumerated up to this number: it takes no longer than elimination step by step.
MOST_OUTPUTS = 2**16


class Table(NamedTuple):
    """Scores [B, S, ..., S], or values of a semiring [B, S, ..., S, R], of the joint states of some nodes."""

    scope: Scope
    values: Tensor


class Joined(NamedTuple):
    """All that involves a node: values [B, S, ..., S, R] of the joint states of a scope, where it is ``position``."""

    scope: Scope
    position: int
    values: Tensor

    def given(self, y: Tensor, v: int) -> Tensor:
        """Scores [B, n, S] of the states of the node ``v``, given labels [B, n, N] of the others; for one slot."""
        scores = self.values.squeeze(-1).movedim(1 + self.position, -1).unsqueeze(1).flatten(1, -2)
        index = torch.zeros_like(y[..., 0])
        for other in self.scope:
            if other != v:
                index = index * scores.shape[-1] + y[..., other]
        return scores.gather(1, index.unsqueeze(-1).expand(*index.shape, scores.shape[-1]))


class _Maximum(Semiring):
    """Sums are maxima, without a gradient that would tell of one maximizer."""

    def sum(self, values: Tensor, dim: int) -> Tensor:
        """The maximum over ``dim``."""
        return values.amax(dim)


class _Eliminated(NamedTuple):
    joined: list[Joined]  # for each node, in the order of elimination
    total: Tensor  # [B, R]


@dataclass(frozen=True)
class Elimination:
    """The oracles of graphs that share their nodes and edges; potentials are [B, N, S] and [B, E, S, S].

    Attributes:
        nodes: the nodes that the examples have.
        edges: pairs (a, b) of nodes for the E edges; ``None`` for an edge that they do not have.
    """

    nodes: Scope
    edges: tuple[tuple[int, int] | None, ...]

    @cached_property
    def order(self) -> tuple[int, ...]:
        """Nodes in the order of their elimination."""
        return min_fill_order(self.nodes, self.edges)[0]

    def recursion(self, semiring: Semiring, unary: Tensor, pairwise: Tensor) -> Tensor:
        """Semiring sum of the scores of all outputs: [B, R]."""
        return self._eliminated(semiring, unary, pairwise, self.order).total

    def logsumexp(self, unary: Tensor, pairwise: Tensor) -> Tensor:
        """Log-partition function [B]."""
        return self.recursion(Log(), unary, pairwise).squeeze(-1)

    def marginals(self, unary: Tensor, pairwise: Tensor) -> tuple[Tensor, Tensor]:
        """Marginals [B, N, S] and [B, E, S, S], differentiable; zero where there is no node or edge."""
        return semirings.marginals(self.recursion, unary, pairwise)

    def top_k(self, unary: Tensor, pairwise: Tensor, k: int) -> tuple[Tensor, Tensor]:
        """Values [B, k] and outputs [B, k, N]."""
        if k > 1:
            return semirings.top_k(self.recursion, unary, pairwise, k)
        values, y = self._best(unary, pairwise)
        return values.unsqueeze(1), y.unsqueeze(1)

    def _best(self, unary: Tensor, pairwise: Tensor) -> tuple[Tensor, Tensor]:
        """The best output of each example: values [B] and labels [B, N]."""
        states = unary.shape[-1]
        if states ** len(self.nodes) <= MOST_OUTPUTS:
            return self._best_of_all(unary, pairwise)
        return self._decoded(unary, pairwise)

    def _best_of_all(self, unary: Tensor, pairwise: Tensor) -> tuple[Tensor, Tensor]:
        """By enumeration, compiled."""
        from structsmooth.structures.factor_graph import compiled  # numba loads with the first oracle

        position = {v: i for i, v in enumerate(self.order)}
        kept = [e for e, edge in enumerate(self.edges) if edge is not None]
        pairs = torch.tensor([[position[v] for v in self.edges[e] or ()] for e in kept]).view(-1, 2).long()
        values, y = unary.new_empty(len(unary)), torch.zeros(unary.shape[:2], dtype=torch.int64)
        labels = np.zeros(len(self.nodes), np.int64)
        for b in range(len(unary)):
            arrays = (unary[b, list(self.order)].numpy(), pairwise[b, kept].numpy(), pairs.numpy())
            values[b] = compiled.best_output(*arrays, labels)
            y[b, list(self.order)] = torch.from_numpy(labels)
        return values, y

    def _decoded(self, unary: Tensor, pairwise: Tensor) -> tuple[Tensor, Tensor]:
        """By elimination: nodes in reverse order, each in its best state given those decided before."""
        joined, total = self._eliminated(_Maximum(), unary, pairwise, self.order)
        y = torch.zeros(unary.shape[:2], dtype=torch.int64)
        for v, own in zip(reversed(self.order), reversed(joined), strict=True):
            y[:, v] = own.given(y.unsqueeze(1), v).squeeze(1).argmax(-1)
        return total.squeeze(-1), torch.where(total > -torch.inf, y, 0)

    def max_marginals(self, unary: Tensor, pairwise: Tensor) -> Tensor:
        """Largest score [B, N, S] with each node in each state: for each node, all others are eliminated."""
        tables = torch.zeros_like(unary).unbind(1)
        own = [self._all_but(v, unary, pairwise) if v in self.nodes else zero for v, zero in enumerate(tables)]
        return torch.stack(own, 1)

    def sample(self, unary: Tensor, pairwise: Tensor, uniform: Tensor) -> Tensor:
        """Samples [B, n, N] at uniform numbers of that shape: nodes in reverse order, given those drawn before."""
        joined, total = self._eliminated(Log(), unary, pairwise, self.order)
        y = torch.zeros(uniform.shape, dtype=torch.int64, device=uniform.device)
        for v, own in zip(reversed(self.order), reversed(joined), strict=True):
            y[..., v] = inverse_cdf(own.given(y, v), uniform[..., v])
        return torch.where(total.unsqueeze(-1) > -torch.inf, y, 0)

    def _all_but(self, kept: int, unary: Tensor, pairwise: Tensor) -> Tensor:
        """Max-marginals [B, S] of a node, which is the last to remain."""
        order = [v for v in self.order if v != kept]
        return self._eliminated(TopK(1), unary, pairwise, [*order, kept]).joined[-1].values.squeeze(-1)

    def _eliminated(self, semiring: Semiring, unary: Tensor, pairwise: Tensor, order: Sequence[int]) -> "_Eliminated":
        """The nodes eliminated one by one."""
        scores = [Table((v,), unary[:, v]) for v in self.nodes]
        for e, edge in enumerate(self.edges):
            if edge is not None:
                a, b = edge
                scores.append(Table(*((edge, pairwise[:, e]) if a < b else ((b, a), pairwise[:, e].transpose(1, 2)))))
        messages = [Table((), semiring.embed(unary.new_zeros(len(unary))))]
        joined = []
        for v in order:
            own_scores, scores = _split(scores, v)
            own_messages, messages = _split(messages, v)
            scope = tuple(sorted({node for table in (*own_scores, *own_messages) for node in table.scope}))
            values = _joined(semiring, scope, own_scores, own_messages)
            position = scope.index(v)
            messages.append(Table(scope[:position] + scope[position + 1 :], semiring.sum(values, 1 + position)))
            joined.append(Joined(scope, position, values))
        return _Eliminated(joined, _product(semiring, (message.values for message in messages)))


def _split(tables: list[Table], v: int) -> tuple[list[Table], list[Table]]:
    """Those that involve a node, and the others."""
    return [t for t in tables if v in t.scope], [t for t in tables if v not in t.scope]


def _joined(semiring: Semiring, scope: Scope, scores: list[Table], messages: list[Table]) -> Tensor:
    """Values of the joint states of a scope."""
    total = sum((_aligned(table, scope) for table in scores[1:]), _aligned(scores[0], scope))
    if not messages:
        return semiring.embed(total)
    return _product(semiring, (_aligned(message, scope) for message in messages)) + total.unsqueeze(-1)


def _product(semiring: Semiring, values: Iterable[Tensor]) -> Tensor:
    first, *others = values
    for other in others:
        first = semiring.product(first, other)
    return first


def _aligned(table: Table, scope: Scope) -> Tensor:
    """The values of a table with a dimension for every node of a larger scope."""
    values = table.values
    for i, node in enumerate(scope):
        if node not in table.scope:
            values = values.unsqueeze(1 + i)
    return values


@lru_cache(maxsize=1024)
def min_fill_order(
    nodes: Scope, edges: tuple[tuple[int, int] | None, ...], limit: int | None = None
) -> tuple[tuple[int, ...], int]:
    """An order of elimination, and the size of the largest scope: next is the node that needs the fewest new edges.

    The search ends early, with no order, when a scope is larger than ``limit``.
    """
    neighbours: dict[int, set[int]] = {v: set() for v in nodes}
    for edge in edges:
        if edge is not None:
            a, b = edge
            neighbours[a].add(b)
            neighbours[b].add(a)

    def missing(v: int) -> tuple[int, int]:
        pairs = combinations(neighbours[v], 2)
        return sum(b not in neighbours[a] for a, b in pairs), v

    cost = {v: missing(v) for v in nodes}
    order, largest = [], 0
    while cost:
        v = min(cost, key=lambda node: cost[node])
        order.append(v)
        del cost[v]
        own = neighbours.pop(v)
        largest = max(largest, 1 + len(own))
        if limit is not None and largest > limit:
            return (), largest
        for a in own:
            neighbours[a] |= own - {a}
            neighbours[a].discard(v)
        for a in {a for node in own for a in (node, *neighbours[node])}:
            cost[a] = missing(a)
    return tuple(order), largest
