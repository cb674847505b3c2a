"""Exact oracles of factor graphs: each example is solved as a forest, by elimination, or by search.

Scores are float64: unary [B, N, S], pairwise [B, E, S, S] and those of the final states of tables, [B, F, Q], with
zeros where there is no node, edge or table.
"""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Literal, NamedTuple

import torch
from torch import Tensor

from structsmooth.structures.base import Structure
from structsmooth.structures.derivatives import gradients_of
from structsmooth.structures.factor_graph.branching import Searched
from structsmooth.structures.factor_graph.elimination import Eliminated, elimination
from structsmooth.structures.factor_graph.layout import Expanded, Forest, Layout, Tabled, Tables, forest, score, turned
from structsmooth.structures.factor_graph.reading import automata
from structsmooth.structures.tree import Tree

Rows = Tensor | slice  # of some examples
# The structure whose oracles are those of some examples, from their scores.
Bind = Callable[[Tensor, Tensor, Tensor], Structure]
Way = Literal["tree", "elimination", "search"]


class Limits(NamedTuple):
    """What exact inference may take; see :class:`~structsmooth.FactorGraph`."""

    max_table: int
    max_sets: int
    variables: int  # how many of the first nodes a search decides


class Group(NamedTuple):
    """Examples that are solved together, the structure whose oracles solve them, and what it does."""

    rows: Tensor
    bind: Bind
    way: Way


def hessian_product(
    marginals: Callable[..., Sequence[Tensor]], potentials: Sequence[Tensor], weights: Sequence[Tensor | None]
) -> tuple[Tensor, ...]:
    """Gradient of ⟨weights, marginals⟩: second derivatives of the log-partition function; no weights count as zeros."""

    def weighted(*potentials: Tensor) -> Tensor:
        pairs = zip(weights, marginals(*potentials), strict=True)
        return torch.stack([(w * m).sum() for w, m in pairs if w is not None]).sum()

    return gradients_of(weighted, potentials)


class Forests(Tree):
    """Forests, of any shapes, which are trees in another notation. Tables are those of other examples."""

    field_names = ("layout", "forest", "edge_scores", "finals")

    def __init__(self, unary: Tensor, pairwise: Tensor, finals: Tensor, layout: Layout, forest: Forest) -> None:
        self.layout, self.forest, self.edge_scores, self.finals = layout, forest, pairwise, finals
        tables = unary.new_zeros(*unary.shape, unary.shape[-1])  # of each node and its parent
        if pairwise.shape[1]:
            index = forest.above[:, :, None, None].expand(-1, -1, *pairwise.shape[2:])
            tables = turned(pairwise, forest.flipped).gather(1, index)
        super().__init__(unary, tables, forest.parents, layout.node_mask, validate_args=False)

    def marginals(self) -> tuple[Tensor, Tensor]:
        """Marginals [B, N, S] and [B, E, S, S]."""
        node, by_child = super().marginals()
        index = self.forest.below[:, :, None, None].expand(-1, -1, *by_child.shape[2:])
        edge = turned(by_child.gather(1, index), self.forest.flipped)
        return node, torch.where(self.layout.edge_mask[:, :, None, None], edge, 0.0)

    def statistics(self) -> tuple[Tensor, Tensor, Tensor]:
        """The marginals, and zeros [B, F, Q]."""
        return *self.marginals(), torch.zeros_like(self.finals)

    def second_derivatives(self, *weights: Tensor) -> tuple[Tensor, ...]:
        """The gradient of ⟨weights, marginals⟩."""

        def run(unary: Tensor, pairwise: Tensor) -> tuple[Tensor, Tensor]:
            return Forests(unary, pairwise, self.finals, self.layout, self.forest).marginals()

        return *hessian_product(run, (self.unary, self.edge_scores), weights[:2]), torch.zeros_like(self.finals)

    def entropy(self) -> Tensor:
        """Entropies of the pairs, less those of the nodes but for one in each: no large sums that cancel."""
        node, edge = self.marginals()
        real = self.layout.edge_mask.unsqueeze(-1)
        ends = torch.where(real, self.layout.edges, 0).flatten(1)
        degrees = torch.zeros_like(node[..., 0]).scatter_add(1, ends, real.expand(-1, -1, 2).flatten(1).to(node))
        of_nodes: Tensor = torch.special.entr(node).sum(2)
        of_edges: Tensor = torch.special.entr(edge).sum((1, 2, 3))
        return of_edges - ((degrees - 1) * of_nodes).sum(1)


def groups(layout: Layout, tables: Tables, sizes: tuple[int, ...], limits: Limits) -> list[Group]:
    """The examples, whose nodes have ``sizes`` states, by the way in which they are solved."""
    as_forests = forest(layout)
    is_forest = as_forests.is_forest & ~(tables.scopes >= 0).flatten(1).any(1)
    rows = is_forest.nonzero()[:, 0]
    trees = partial(Forests, layout=layout.rows(rows), forest=Forest(*(tensor[rows] for tensor in as_forests)))
    alike: dict[Any, list[int]] = {}
    for b in (~is_forest).nonzero()[:, 0].tolist():
        alike.setdefault((*layout.graph(b), tables.of(b)), []).append(b)
    others = []
    for graph, listed in alike.items():
        members, plan = torch.tensor(listed), elimination(*graph, sizes)
        if plan.order(limits.max_table):
            others.append(Group(members, partial(Eliminated, plan=plan, tables=tables), "elimination"))
            continue
        own = tables._replace(scopes=tables.scopes[members])
        search = partial(_searched, layout=layout.rows(members), tables=own, limits=limits)
        others.append(Group(members, search, "search"))
    return [Group(rows, trees, "tree"), *others] if len(rows) or not others else others


def _searched(
    unary: Tensor, pairwise: Tensor, finals: Tensor, layout: Layout, tables: Tables, limits: Limits
) -> Searched:
    """The search of examples that share their graph, whose tables get auxiliary nodes behind all others."""
    graph, sizes = Expanded(unary, pairwise, *layout), (tables.scopes[0] >= 0).sum(-1)
    own = sizes > 0
    if bool(own.any()):
        read, _ = automata(tables.scopes[:, own], tables.transitions[own], sizes[own].tolist(), read_scopes=True)
        graph = read.expanded(graph, finals[:, own])
    nodes, edges = Layout(*graph[2:]).graph(0)
    scores = graph.unary, graph.pairwise
    return Searched(*scores, nodes=nodes, edges=edges, variables=limits.variables, max_sets=limits.max_sets)


def sizes_of(unary: Tensor) -> tuple[int, ...]:
    """How many states each node has: those up to the last that some example allows, and one at least."""
    batch, nodes, states = unary.shape
    if not batch or bool((unary[..., -1].amax(0) > -torch.inf).all()):
        return (states,) * nodes
    used = (unary > -torch.inf).any(0) * torch.arange(1, states + 1)
    return tuple(used.amax(1).clamp_min(1).tolist())


class Exact(NamedTuple):
    """The examples of a batch, with how they are solved."""

    scores: tuple[Tensor, Tensor, Tensor]
    graph: Tabled
    groups: list[Group]

    def score(self, y: Tensor) -> Tensor:
        """Scores [B] of labels [B, N]."""
        unary, pairwise, finals = self.scores
        _, states = Tables(self.graph.scopes, self.graph.transitions).runs(y)
        of_tables = finals.gather(2, states[-1].unsqueeze(-1)).squeeze(-1).sum(1)
        return score(unary, pairwise, self.graph.layout, y) + of_tables

    def solved(self, run: Callable[[Any, Rows], tuple[Tensor, ...]]) -> tuple[Tensor, ...]:
        """Answers for all examples: ``run`` is called with structures and their rows."""
        if len(self.groups) == 1:
            return run(self.groups[0].bind(*self.scores), slice(None))
        answers = [run(bind(*(scores[rows] for scores in self.scores)), rows) for rows, bind, _ in self.groups]
        order = torch.cat([group.rows for group in self.groups]).argsort()
        return tuple(torch.cat(answer)[order] for answer in zip(*answers, strict=True))
