"""Exact oracles of factor graphs: each example is solved as a forest, by elimination, or by search.

Scores are float64: unary [B, N, S] and pairwise [B, E, S, S], with zeros where there is no node or edge.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from typing import NamedTuple, Protocol

import torch
from torch import Tensor

from structsmooth.structures.factor_graph.branching import Branching
from structsmooth.structures.factor_graph.elimination import Elimination
from structsmooth.structures.factor_graph.layout import Forest, Graph, Layout, forest, tree, turned
from structsmooth.structures.factor_graph.min_fill import min_fill_order
from structsmooth.structures.tree import Tree

Rows = Tensor | slice  # of some examples


@dataclass(frozen=True)
class Limits:
    """What exact inference may take; see :class:`~structsmooth.FactorGraph`."""

    max_table: int
    max_sets: int


class Method(Protocol):
    """Exact oracles of some examples."""

    def top_k(self, unary: Tensor, pairwise: Tensor, k: int) -> tuple[Tensor, Tensor]:
        """Values [B, k] and outputs [B, k, N]."""

    def logsumexp(self, unary: Tensor, pairwise: Tensor) -> Tensor:
        """Log-partition function [B]."""

    def marginals(self, unary: Tensor, pairwise: Tensor) -> tuple[Tensor, Tensor]:
        """Marginals [B, N, S] and [B, E, S, S]."""

    def entropy(self, unary: Tensor, pairwise: Tensor) -> Tensor:
        """Entropy [B], without large sums that cancel; 0 without any output."""

    def max_marginals(self, unary: Tensor, pairwise: Tensor) -> Tensor:
        """Max-marginals [B, N, S]."""

    def sample(self, unary: Tensor, pairwise: Tensor, uniform: Tensor) -> Tensor:
        """Samples [B, n, N] at uniform numbers."""


class Group(NamedTuple):
    """Examples that are solved together."""

    rows: Tensor
    method: Method


@dataclass(frozen=True)
class Forests:
    """Forests, of any shapes, are trees in another notation."""

    layout: Layout
    forest: Forest

    def top_k(self, unary: Tensor, pairwise: Tensor, k: int) -> tuple[Tensor, Tensor]:
        """By dynamic programming."""
        return self._tree(unary, pairwise).topk(k)

    def logsumexp(self, unary: Tensor, pairwise: Tensor) -> Tensor:
        """By dynamic programming."""
        return self._tree(unary, pairwise).logsumexp()

    def marginals(self, unary: Tensor, pairwise: Tensor) -> tuple[Tensor, Tensor]:
        """By dynamic programming."""
        node, by_child = self._tree(unary, pairwise).marginals()
        index = self.forest.below[:, :, None, None].expand_as(pairwise)
        edge = turned(by_child.gather(1, index), self.forest.flipped)
        return node, torch.where(self.layout.edge_mask[:, :, None, None], edge, 0.0)

    def entropy(self, unary: Tensor, pairwise: Tensor) -> Tensor:
        """Those of the pairs, less those of the nodes but for one in each."""
        node, edge = self.marginals(unary, pairwise)
        real = self.layout.edge_mask.unsqueeze(-1)
        ends = torch.where(real, self.layout.edges, 0).flatten(1)
        degrees = torch.zeros_like(node[..., 0]).scatter_add(1, ends, real.expand(-1, -1, 2).flatten(1).to(node))
        of_nodes: Tensor = torch.special.entr(node).sum(2)
        of_edges: Tensor = torch.special.entr(edge).sum((1, 2, 3))
        return of_edges - ((degrees - 1) * of_nodes).sum(1)

    def max_marginals(self, unary: Tensor, pairwise: Tensor) -> Tensor:
        """By dynamic programming."""
        return self._tree(unary, pairwise).max_marginals()

    def sample(self, unary: Tensor, pairwise: Tensor, uniform: Tensor) -> Tensor:
        """By dynamic programming."""
        return self._tree(unary, pairwise).inverse_cdf(uniform)

    def _tree(self, unary: Tensor, pairwise: Tensor) -> Tree:
        return tree(unary, pairwise, self.forest, self.layout.node_mask)


def groups(layout: Layout, sizes: tuple[int, ...], limits: Limits) -> list[Group]:
    """The examples, whose nodes have ``sizes`` states, by the way in which they are solved."""
    as_forests = forest(layout)
    others = [
        Group(rows, _by_size(nodes, edges, sizes, limits))
        for rows, (nodes, edges) in _alike(layout, ~as_forests.is_forest)
    ]
    chosen = [_forests(layout, as_forests), *others]
    return [group for group in chosen if len(group.rows)] or chosen[:1]


def eliminations(layout: Layout, sizes: tuple[int, ...]) -> list[tuple[Tensor, Elimination]]:
    """Elimination for all examples, forests too, whose treewidth is 1."""
    everything = torch.ones(len(layout.edges), dtype=torch.bool)
    return [(rows, Elimination(*graph, sizes)) for rows, graph in _alike(layout, everything)]


def sizes_of(unary: Tensor) -> tuple[int, ...]:
    """How many states each node has: those up to the last that some example allows, and one at least."""
    batch, nodes, states = unary.shape
    if not batch or bool((unary[..., -1].amax(0) > -torch.inf).all()):
        return (states,) * nodes
    used = (unary > -torch.inf).any(0) * torch.arange(1, states + 1)
    return tuple(used.amax(1).clamp_min(1).tolist())


def _alike(layout: Layout, chosen: Tensor) -> list[tuple[Tensor, Graph]]:
    """The chosen examples by their graphs."""
    alike: dict[Graph, list[int]] = {}
    for b in chosen.nonzero()[:, 0].tolist():
        alike.setdefault(layout.graph(b), []).append(b)
    return [(torch.tensor(examples), graph) for graph, examples in alike.items()]


def _forests(layout: Layout, as_forests: Forest) -> Group:
    rows = as_forests.is_forest.nonzero()[:, 0]
    return Group(rows, Forests(layout.rows(rows), Forest(*(tensor[rows] for tensor in as_forests))))


@lru_cache(maxsize=1024)
def _by_size(
    nodes: tuple[int, ...], edges: tuple[tuple[int, int] | None, ...], sizes: tuple[int, ...], limits: Limits
) -> Method:
    """Elimination where its largest table is small enough, search elsewhere."""
    order = min_fill_order(nodes, edges, sizes, limits.max_table)
    return Elimination(nodes, edges, sizes) if order else Branching(nodes, edges, limits.max_sets)


def solved(chosen: list[Group], run: Callable[[Method, Rows], tuple[Tensor, ...]]) -> tuple[Tensor, ...]:
    """Answers for all examples: ``run`` is called with a method and its rows."""
    if len(chosen) == 1:
        return run(chosen[0].method, slice(None))
    answers = [run(method, rows) for rows, method in chosen]
    order = torch.cat([rows for rows, _ in chosen]).argsort()
    return tuple(torch.cat(parts)[order] for parts in zip(*answers, strict=True))
