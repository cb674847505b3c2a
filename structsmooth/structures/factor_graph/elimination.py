"""Variable elimination as a program: the exact oracles of graphs of small treewidth.

A graph is eliminated node by node. The scores that involve a node, of itself, of edges and of factors, are joined into
one table over the node and its neighbours, which is summed over the states of the node; the result is a message to
these neighbours. The largest table has S^(treewidth + 1) entries. Entries of tables are the scores of a program, and
entries of messages are its nodes: an oracle takes a few operations for each entry of each table, and no more.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from math import prod
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import pad

from structsmooth.structures.distribution import by_example
from structsmooth.structures.factor_graph.layout import Tables
from structsmooth.structures.factor_graph.order import Scope, elimination_order
from structsmooth.structures.programs import DynamicProgram, Program, ProgramBuilder, cached_program, operators
from structsmooth.structures.semirings import inverse_cdf

Edges = tuple[tuple[int, int] | None, ...]

# All outputs of a graph are enumerated up to this number: it takes no longer than elimination step by step.
MOST_OUTPUTS = 2**16


class Step(NamedTuple):
    """The elimination of a node.

    Attributes:
        node: which it is.
        scope: the node and its neighbours at that time.
        edges: the edges to these neighbours.
        factors: the factors that join it to these neighbours alone.
        children: numbers of the earlier steps whose messages it takes.
    """

    node: int
    scope: Scope
    edges: tuple[int, ...]
    factors: tuple[int, ...]
    children: tuple[int, ...]

    @property
    def position(self) -> int:
        """Where the node stands in the scope."""
        return self.scope.index(self.node)

    @property
    def rest(self) -> Scope:
        """The neighbours of the node in the scope, which the message is a function of."""
        return tuple(v for v in self.scope if v != self.node)


@dataclass(frozen=True)
class Elimination:
    """How graphs that share their nodes, edges and factors are eliminated.

    Attributes:
        nodes: the nodes that the examples have.
        edges: pairs (a, b) of nodes for the E edges; ``None`` for an edge that they do not have.
        factors: scopes of the F factors, in any order; empty for a factor that they do not have.
        sizes: numbers of states of all N nodes, <= S; the states above are forbidden.
    """

    nodes: Scope
    edges: Edges
    factors: tuple[Scope, ...]
    sizes: tuple[int, ...]

    def order(self, max_table: int | None = None) -> tuple[int, ...]:
        """The nodes in the order of their elimination; none if tables have more than ``max_table`` entries."""
        scopes = (*(edge for edge in self.edges if edge is not None), *self.factors)
        return elimination_order(self.nodes, scopes, self.sizes, max_table)

    @cached_property
    def steps(self) -> list[Step]:
        """The elimination of each node, in order."""
        edges: dict[int, Scope] = {e: edge for e, edge in enumerate(self.edges) if edge is not None}
        factors = {f: scope for f, scope in enumerate(self.factors) if scope}
        messages: dict[int, Scope] = {}
        steps = []
        for i, v in enumerate(self.order()):
            taken, scopes = [], []
            for left in (edges, factors, messages):  # that no step took yet
                taken.append(tuple(key for key, scope in left.items() if v in scope))
                scopes += [left.pop(key) for key in taken[-1]]
            steps.append(Step(v, tuple(sorted({v}.union(*scopes))), *taken))
            messages[i] = steps[-1].rest
        return steps

    def shape(self, scope: Scope) -> list[int]:
        """Numbers of states of the nodes of a scope."""
        return [self.sizes[v] for v in scope]

    @cached_property
    def decided(self) -> Tensor:
        """Of each step: its first entry, its node, the entries between two states of this, and their number, [M, 4].

        A last step, of no entries, decides a node behind all.
        """
        rows, first = [], 0
        for step in self.steps:
            shape = self.shape(step.scope)
            rows.append((first, step.node, prod(shape[step.position + 1 :]), self.sizes[step.node]))
            first += prod(shape)
        return torch.tensor([*rows, (first, len(self.sizes), 1, 1)])

    def ends(self, e: int) -> tuple[int, int]:
        """The ends of an edge that the examples have."""
        edge = self.edges[e]
        assert edge is not None
        return edge


@lru_cache(maxsize=1024)
def elimination(nodes: Scope, edges: Edges, factors: tuple[Scope, ...], sizes: tuple[int, ...]) -> Elimination:
    """The :class:`Elimination` of these arguments, made once."""
    return Elimination(nodes, edges, factors, sizes)


@cached_program
def message_program(nodes: Scope, edges: Edges, factors: tuple[Scope, ...], sizes: tuple[int, ...]) -> Program:
    """The program of the elimination of these arguments: scores are the entries of all tables, step by step."""
    plan = elimination(nodes, edges, factors, sizes)
    shapes = [plan.shape(step.scope) for step in plan.steps]
    builder = ProgramBuilder(scores=sum(map(prod, shapes)))
    first: dict[int, Any] = {}  # node of the program for the first entry of each message
    count = offset = 0
    for i, (step, shape) in enumerate(zip(plan.steps, shapes, strict=True)):
        # Nodes with one state need no dimension, of which numpy has few.
        wide = [v for v in step.scope if sizes[v] > 1]
        states = dict(zip(wide, np.ix_(*(np.arange(sizes[v]) for v in wide)), strict=True))
        entries = np.arange(prod(shape)).reshape([sizes[v] for v in wide])
        tails = [first.pop(j) + _joint_state(states, plan.steps[j].rest, sizes) for j in step.children]
        while len(tails) > 2:
            builder.add(count + entries, tails.pop(), tails.pop())
            tails.append(count + entries)
            count += entries.size
        left, right, *_ = (*tails, -1, -1)
        builder.add(count + _joint_state(states, step.rest, sizes), left, right, offset + entries)
        first[i] = count
        count, offset = count + prod(plan.shape(step.rest)), offset + entries.size
    components = list(first.values())
    while len(components) > 1:
        builder.add(count, components.pop(), components.pop())
        components.append(count)
        count += 1
    return builder.build()


def _joint_state(states: Mapping[int, Any], scope: Scope, sizes: Sequence[int]) -> Any:
    """Numbers of the joint states of a scope, from the states of nodes; those with one state have none."""
    number: Any = 0
    for v in scope:
        number = number * sizes[v] + states.get(v, 0)
    return number


class Eliminated(DynamicProgram):
    """Examples that share their graph, as a program.

    Args:
        unary: [B, N, S], float64 on the CPU.
        pairwise: [B, E, S, S], zero where there is no edge.
        finals: scores of the final states of factors, [B, F, Q].
        plan: of the elimination.
        tables: of the factors.
    """

    potential_names = ("unary", "pairwise", "finals")
    field_names = ("plan", "tables")

    def __init__(self, unary: Tensor, pairwise: Tensor, finals: Tensor, plan: Elimination, tables: Tables) -> None:
        self.unary, self.pairwise, self.finals = unary, pairwise, finals
        self.plan, self.tables = plan, tables
        super().__init__(validate_args=False)

    def program(self) -> Program:
        """The program of :func:`message_program` for the plan of the elimination."""
        return message_program(self.plan.nodes, self.plan.edges, self.plan.factors, self.plan.sizes)

    def program_scores(self) -> Tensor:
        """The entries of the tables of all steps, [B, P], step by step."""
        return self._entries

    @cached_property
    def _entries(self) -> Tensor:
        return torch.cat([self._table(step).flatten(1) for step in self.plan.steps], 1)

    def _table(self, step: Step) -> Tensor:
        """The scores that a step joins, [B, S, ..., S]."""
        sizes = self.plan.sizes
        total = _aligned(self.unary[:, step.node, : sizes[step.node]], (step.node,), step.scope)
        for e in step.edges:
            a, b = self.plan.ends(e)
            table = self.pairwise[:, e, : sizes[a], : sizes[b]]
            table = table if a < b else table.transpose(1, 2)
            total = total + _aligned(table, (min(a, b), max(a, b)), step.scope)
        for f in step.factors:
            scope, states = self._final_states(f)
            total = total + _aligned(self.finals[:, f, states], scope, step.scope)
        return total.expand(len(total), *self.plan.shape(step.scope))

    def _final_states(self, f: int) -> tuple[Scope, Tensor]:
        """The scope of a factor in ascending order, and its final state for all joint states, int64 [S, ..., S]."""
        scope = self.plan.factors[f]
        order = sorted(range(len(scope)), key=scope.__getitem__)
        states = self.tables.final_states(f, self.plan.shape(scope))
        return tuple(sorted(scope)), states.permute(order)

    def derivation(self, y: Tensor) -> Tensor:
        """The entry of each table that outputs ``y`` [B, N] use: int64 [B, steps]."""
        states, entries, offset = dict(enumerate(y.unbind(-1))), [], 0
        for step in self.plan.steps:
            entries.append(offset + _joint_state(states, step.scope, self.plan.sizes))
            offset += prod(self.plan.shape(step.scope))
        return torch.stack(entries, 1)

    def outputs(self, used: Tensor) -> Tensor:
        """Labels [B, K, N] of the outputs that use the entries ``used`` [B, K, M] of tables."""
        decided = self.plan.decided
        step = torch.searchsorted(decided[:, 0].contiguous(), used, right=True) - 1
        first, node, stride, size = decided[step].unbind(-1)
        y = torch.zeros(*used.shape[:2], self.unary.shape[1] + 1, dtype=torch.int64)
        return y.scatter(2, node, (used - first) // stride % size)[..., :-1]

    def logsumexp(self) -> Tensor:
        """Log-partition function [B], found with the probabilities."""
        return self._sums[0]

    def statistics(self) -> tuple[Tensor, Tensor, Tensor]:
        """Marginals [B, N, S], [B, E, S, S] and [B, F, Q]."""
        return self._statistics(self._sums[1])

    def second_derivatives(self, *weights: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """The gradient of ⟨weights, marginals⟩."""
        directions = self.replace(*weights).program_scores()
        inputs = (self.program_scores(), directions, self.sizes(), self.program().handle)
        return self._statistics(operators.tangents(*inputs))

    @cached_property
    def _sums(self) -> tuple[Tensor, Tensor]:
        return self.sums()

    def _statistics(self, parts: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Sums over tables, of which a node, an edge and a factor are in one each: the adjoint of the scores."""
        node, edge, final = (list(torch.zeros_like(scores).unbind(1)) for scores in self.potentials)
        for step, table in self._tables(parts):
            node[step.node] = self._marginal(table, step.scope, step.node)
            for e in step.edges:
                a, b = self.plan.ends(e)
                pair = self._marginal(table, step.scope, a, b)
                edge[e] = pair if a < b else pair.mT
            for f in step.factors:
                kept, states = self._final_states(f)
                sums = _summed(table, step.scope, kept).flatten(1)
                final[f] = final[f].scatter_add(1, states.flatten().expand_as(sums), sums)
        return torch.stack(node, 1), torch.stack(edge, 1), torch.stack(final, 1)

    def _marginal(self, table: Tensor, scope: Scope, *kept: int) -> Tensor:
        """Sums over all nodes of a scope but some, zero for the states that there are not: [B, S] or [B, S, S]."""
        sums = _summed(table, scope, kept)
        missing = [end for size in reversed(sums.shape[1:]) for end in (0, self.unary.shape[2] - size)]
        return pad(sums, missing) if any(missing) else sums

    def topk(self, k: int) -> tuple[Tensor, Tensor]:
        """As for all programs; the best output of a small graph by enumeration."""
        if k == 1 and not any(self.plan.factors) and self.unary.shape[-1] ** len(self.plan.nodes) <= MOST_OUTPUTS:
            return self._best_of_all()
        return super().topk(k)

    def read_max_marginals(self, values: Tensor) -> Tensor:
        """The largest score [B, N, S] with each state of each node, zero where there is no node."""
        columns = list(torch.zeros_like(self.unary).unbind(1))
        for step, table in self._tables(values):
            best = table.movedim(1 + step.position, 1).unsqueeze(-1).flatten(2).max(2).values
            columns[step.node] = pad(best, (0, self.unary.shape[2] - best.shape[1]), value=-torch.inf)
        return torch.stack(columns, 1)

    def entropy(self) -> Tensor:
        """The sum of the expected entropies of nodes given their neighbours, without large sums that cancel."""
        total = self.unary.new_zeros(len(self.unary))
        for step, joint in self._tables(self._sums[1]):
            for sign, table in ((1.0, joint), (-1.0, joint.sum(1 + step.position))):
                total = total + sign * by_example(torch.special.entr(table))
        return total

    def inverse_cdf(self, uniform: Tensor) -> Tensor:
        """Samples [B, n, N] at uniform numbers of that shape: nodes in reverse order, given those drawn before."""
        y = torch.zeros(uniform.shape, dtype=torch.int64)
        for step, joint in reversed(list(self._tables(self._sums[1]))):
            given = joint.movedim(1 + step.position, -1).unsqueeze(1).flatten(1, -2).log()
            cell = _joint_state(dict(enumerate(y.unbind(-1))), step.rest, self.plan.sizes) + torch.zeros_like(y[..., 0])
            scores = given.gather(1, cell.unsqueeze(-1).expand(*cell.shape, given.shape[-1]))
            y[..., step.node] = inverse_cdf(scores, uniform[..., step.node])
        return y

    def _tables(self, values: Tensor) -> Iterator[tuple[Step, Tensor]]:
        """Values [B, P] of the entries by step, [B, S, ..., S]."""
        shapes = [self.plan.shape(step.scope) for step in self.plan.steps]
        tables = values.split(list(map(prod, shapes)), 1)
        for step, shape, table in zip(self.plan.steps, shapes, tables, strict=True):
            yield step, table.view(len(values), *shape)

    def _best_of_all(self) -> tuple[Tensor, Tensor]:
        """The best output by enumeration, compiled, with nodes in the order of elimination."""
        from structsmooth.structures.factor_graph import compiled  # numba loads with the first oracle

        order = [step.node for step in self.plan.steps]
        position = {v: i for i, v in enumerate(order)}
        kept = [e for e, edge in enumerate(self.plan.edges) if edge is not None]
        pairs = torch.tensor([[position[v] for v in self.plan.ends(e)] for e in kept]).view(-1, 2).long()
        values, y = self.unary.new_empty(len(self.unary)), torch.zeros(self.unary.shape[:2], dtype=torch.int64)
        labels = np.zeros(len(order), np.int64)
        for b in range(len(self.unary)):
            arrays = (self.unary[b, order].numpy(), self.pairwise[b, kept].numpy(), pairs.numpy())
            values[b] = compiled.best_output(*arrays, labels)
            y[b, order] = torch.from_numpy(labels)
        return values.unsqueeze(1), y.unsqueeze(1)


def _aligned(values: Tensor, scope: Scope, larger: Scope) -> Tensor:
    """Values [B, S, ..., S] of a scope with a dimension for every node of a larger one."""
    for i, node in enumerate(larger):
        if node not in scope:
            values = values.unsqueeze(1 + i)
    return values


def _summed(table: Tensor, scope: Scope, kept: Scope) -> Tensor:
    """A table [B, S, ..., S] of a scope summed over all nodes but some."""
    others = [1 + i for i, v in enumerate(scope) if v not in kept]
    return table.sum(others) if others else table
