"""Variable elimination in plain torch: the exact oracles of graphs of small treewidth.

A graph is eliminated node by node. The scores that involve a node are joined into one table over the node and its
neighbours, which is summed over the states of the node; the result is a message to these neighbours. The largest table
has S^(treewidth + 1) entries. Going back, nodes are decided, or marginals computed, in the reverse order.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from structsmooth.structures.factor_graph.k_best import Merged, at, ranked
from structsmooth.structures.factor_graph.min_fill import Scope, min_fill_order
from structsmooth.structures.semirings import inverse_cdf, logsumexp

Reduction = Callable[[Tensor, int], Tensor]

# All outputs of a graph are enumerated up to this number: it takes no longer than elimination step by step.
MOST_OUTPUTS = 2**16


class Step(NamedTuple):
    """The elimination of a node.

    Attributes:
        node: which it is.
        scope: the node and its neighbours at that time.
        edges: the edges to these neighbours.
        children: numbers of the earlier steps whose messages it takes.
    """

    node: int
    scope: Scope
    edges: tuple[int, ...]
    children: tuple[int, ...]

    @property
    def position(self) -> int:
        """Of the node in the scope."""
        return self.scope.index(self.node)

    @property
    def rest(self) -> Scope:
        """The neighbours."""
        return tuple(v for v in self.scope if v != self.node)


@dataclass(frozen=True)
class Elimination:
    """The oracles of graphs that share their nodes and edges; potentials are [B, N, S] and [B, E, S, S].

    Attributes:
        nodes: the nodes that the examples have.
        edges: pairs (a, b) of nodes for the E edges; ``None`` for an edge that they do not have.
        sizes: numbers of states of all N nodes, <= S; the states above are forbidden.
    """

    nodes: Scope
    edges: tuple[tuple[int, int] | None, ...]
    sizes: tuple[int, ...]

    @cached_property
    def steps(self) -> list[Step]:
        """In min-fill order."""
        return self._steps(min_fill_order(self.nodes, self.edges, self.sizes))

    def logsumexp(self, unary: Tensor, pairwise: Tensor) -> Tensor:
        """Log-partition function [B]."""
        return self._summed(unary, pairwise)[1]

    def marginals(self, unary: Tensor, pairwise: Tensor) -> tuple[Tensor, Tensor]:
        """Marginals [B, N, S] and [B, E, S, S], differentiable; zero where there is no node or edge."""
        tables, _ = self._summed(unary, pairwise)
        joint, _ = self._joint_marginals(tables)
        node, edge = list(torch.zeros_like(unary).unbind(1)), list(torch.zeros_like(pairwise).unbind(1))
        for step, own in zip(self.steps, joint, strict=True):
            node[step.node] = _filled(_marginal(own, step.scope, (step.node,)), node[step.node])
            for e in step.edges:
                a, b = self._ends(e)
                pair = _marginal(own, step.scope, (min(a, b), max(a, b)))
                edge[e] = _filled(pair if a < b else pair.transpose(1, 2), edge[e])
        return torch.stack(node, 1), torch.stack(edge, 1) if edge else torch.zeros_like(pairwise)

    def top_k(self, unary: Tensor, pairwise: Tensor, k: int) -> tuple[Tensor, Tensor]:
        """Values [B, k] and outputs [B, k, N]."""
        if k == 1 and unary.shape[-1] ** len(self.nodes) <= MOST_OUTPUTS:
            return self._best_of_all(unary, pairwise)
        values, chosen, root = self._ranked(unary, pairwise, k)
        batch, found = values.shape
        y = torch.zeros(batch, found, unary.shape[1], dtype=torch.int64)
        nothing = torch.zeros(batch, found, dtype=torch.int64)
        slots = root.slots(nothing, torch.arange(found).expand(batch, found))
        for i, (step, (index, merged)) in reversed(list(enumerate(zip(self.steps, chosen, strict=True)))):
            index = at(index, self._cell(y, step.rest), slots[i])
            width = merged.values.shape[-1]
            y[..., step.node] = index // width
            slots |= merged.slots(self._cell(y, step.scope), index % width)
        y = torch.where(values.unsqueeze(-1) > -torch.inf, y, 0)
        missing = (0, k - found)
        return (
            torch.nn.functional.pad(values, missing, value=-torch.inf),
            torch.nn.functional.pad(y, (0, 0, *missing)),
        )

    def max_marginals(self, unary: Tensor, pairwise: Tensor) -> Tensor:
        """Largest score [B, N, S] with each node in each state: for each node, all others are eliminated."""
        values = torch.zeros_like(unary)
        for v in self.nodes:
            values[:, v] = -torch.inf
            _, _, values[:, v, : self.sizes[v]] = self._maximized(unary, pairwise, v)
        return values

    def max_outputs(self, unary: Tensor, pairwise: Tensor, v: int) -> tuple[Tensor, Tensor]:
        """The max-marginals of a node, [B, S], and the outputs [B, S, N] that attain them, for its own S states."""
        (batch, size, _), states = unary.shape, self.sizes[v]
        steps, tables, values = self._maximized(unary, pairwise, v)
        y = torch.zeros(batch, states, size, dtype=torch.int64)
        y[..., v] = torch.arange(states)
        for step, table in reversed(list(zip(steps[:-1], tables[:-1], strict=True))):
            y[..., step.node] = self._given(table, step, y).argmax(-1)
        return values, y

    def sample(self, unary: Tensor, pairwise: Tensor, uniform: Tensor) -> Tensor:
        """Samples [B, n, N] at uniform numbers of that shape: nodes in reverse order, given those drawn before."""
        tables, total = self._summed(unary, pairwise)
        y = torch.zeros(uniform.shape, dtype=torch.int64, device=uniform.device)
        for step, table in reversed(list(zip(self.steps, tables, strict=True))):
            y[..., step.node] = inverse_cdf(self._given(table, step, y), uniform[..., step.node])
        return torch.where(total[:, None, None] > -torch.inf, y, 0)

    def _steps(self, order: Sequence[int]) -> list[Step]:
        left = {e: edge for e, edge in enumerate(self.edges) if edge is not None}
        messages: dict[int, Scope] = {}  # of the steps that nobody took yet
        steps = []
        for i, v in enumerate(order):
            edges = tuple(e for e, edge in left.items() if v in edge)
            children = tuple(j for j, scope in messages.items() if v in scope)
            scopes = [left.pop(e) for e in edges] + [messages.pop(j) for j in children]
            steps.append(Step(v, tuple(sorted({v}.union(*scopes))), edges, children))
            messages[i] = steps[-1].rest
        return steps

    def _ends(self, e: int) -> tuple[int, int]:
        """The ends of an edge that the examples have."""
        edge = self.edges[e]
        assert edge is not None
        return edge

    def _scores(self, unary: Tensor, pairwise: Tensor, step: Step) -> Tensor:
        """The scores that a step joins, [B, S, ..., S]."""
        total = _aligned(unary[:, step.node, : self.sizes[step.node]], (step.node,), step.scope)
        for e in step.edges:
            a, b = self._ends(e)
            table = pairwise[:, e, : self.sizes[a], : self.sizes[b]]
            table = table if a < b else table.transpose(1, 2)
            total = total + _aligned(table, (min(a, b), max(a, b)), step.scope)
        return total.expand(len(unary), *(self.sizes[node] for node in step.scope))

    def _cell(self, y: Tensor, scope: Scope) -> Tensor:
        """Numbers [B, n] of the joint states of a scope under labels [B, n, N]."""
        cell = torch.zeros_like(y[..., 0])
        for node in scope:
            cell = cell * self.sizes[node] + y[..., node]
        return cell

    def _given(self, table: Tensor, step: Step, y: Tensor) -> Tensor:
        """Scores [B, n, S] of the states of a step's node, given labels [B, n, N] of its neighbours."""
        scores = table.movedim(1 + step.position, -1).unsqueeze(1).flatten(1, -2)
        cell = self._cell(y, step.rest)
        return scores.gather(1, cell.unsqueeze(-1).expand(*cell.shape, scores.shape[-1]))

    def _eliminated(self, unary: Tensor, pairwise: Tensor, steps: list[Step], reduce: Reduction) -> "_Eliminated":
        """All nodes eliminated by sums of one kind."""
        messages: dict[int, Tensor] = {}
        tables = []
        for i, step in enumerate(steps):
            table = self._scores(unary, pairwise, step)
            for j in step.children:
                table = table + _aligned(messages.pop(j), steps[j].rest, step.scope)
            tables.append(table)
            messages[i] = reduce(table, 1 + step.position)
        return _Eliminated(tables, list(messages.values()))

    def _summed(self, unary: Tensor, pairwise: Tensor) -> tuple[list[Tensor], Tensor]:
        """Log-sums: the joined table of each step, [B, S, ..., S], and the total [B]."""
        tables, components = self._eliminated(unary, pairwise, self.steps, logsumexp)
        return tables, sum(components, unary.new_zeros(len(unary)))

    def entropy(self, unary: Tensor, pairwise: Tensor) -> Tensor:
        """The sum of the expected entropies of nodes given their neighbours: [B]."""
        joint, given = self._joint_marginals(self._summed(unary, pairwise)[0])
        terms = [torch.special.xlogy(own, of_node) for own, of_node in zip(joint, given, strict=True)]
        return -sum((own.flatten(1).sum(1) for own in terms), unary.new_zeros(len(unary)))

    def _joint_marginals(self, tables: list[Tensor]) -> tuple[list[Tensor], list[Tensor]]:
        """The distribution of the scope of each step, and that of its node given the neighbours."""
        parents = {j: i for i, step in enumerate(self.steps) for j in step.children}
        joint: dict[int, Tensor] = {}
        given: dict[int, Tensor] = {}
        for i in reversed(range(len(tables))):
            step, table = self.steps[i], tables[i]
            total = logsumexp(table, 1 + step.position).unsqueeze(1 + step.position)
            own = torch.where(table > -torch.inf, table - torch.where(total > -torch.inf, total, 0.0), -torch.inf)
            joint[i] = given[i] = own.exp()
            if i in parents:
                above = _marginal(joint[parents[i]], self.steps[parents[i]].scope, step.rest)
                joint[i] = joint[i] * above.unsqueeze(1 + step.position)
        # A component without outputs leaves none to the others.
        possible = torch.stack([own.flatten(1).sum(1) > 0 for own in joint.values()]).all(0)
        rows = [(i, possible.view(-1, *[1] * len(step.scope))) for i, step in enumerate(self.steps)]
        return [torch.where(own, joint[i], 0.0) for i, own in rows], [given[i] for i, _ in rows]

    def _maximized(self, unary: Tensor, pairwise: Tensor, v: int) -> tuple[list[Step], list[Tensor], Tensor]:
        """Steps of which that of ``v`` is the last, their joined tables, and the max-marginals [B, S] of ``v``."""
        steps = self._steps([*(step.node for step in self.steps if step.node != v), v])
        tables, components = self._eliminated(unary, pairwise, steps, torch.amax)
        others = sum(components[:-1], unary.new_zeros(len(unary)))
        return steps, tables, tables[-1] + others.unsqueeze(1)

    def _ranked(self, unary: Tensor, pairwise: Tensor, k: int) -> tuple[Tensor, list[tuple[Tensor, Merged]], Merged]:
        """The k best values [B, k], what each step chose, and the merge of the components."""
        messages: dict[int, Tensor] = {}
        chosen = []
        for i, step in enumerate(self.steps):
            merged = Merged(self._scores(unary, pairwise, step).unsqueeze(-1))
            for j in step.children:
                merged = merged.with_message(j, _aligned(messages.pop(j), self.steps[j].rest, step.scope), k)
            by_state = merged.values.movedim(1 + step.position, -2).flatten(-2)
            messages[i], index = ranked(by_state, k)
            chosen.append((index, merged))
        root = Merged(unary.new_zeros(len(unary), 1))
        for j, message in messages.items():
            root = root.with_message(j, message, k)
        return root.values, chosen, root

    def _best_of_all(self, unary: Tensor, pairwise: Tensor) -> tuple[Tensor, Tensor]:
        """The best output by enumeration, compiled, with nodes in the order of elimination."""
        from structsmooth.structures.factor_graph import compiled  # numba loads with the first oracle

        order = [step.node for step in self.steps]
        position = {v: i for i, v in enumerate(order)}
        kept = [e for e, edge in enumerate(self.edges) if edge is not None]
        pairs = torch.tensor([[position[v] for v in self._ends(e)] for e in kept]).view(-1, 2).long()
        values, y = unary.new_empty(len(unary)), torch.zeros(unary.shape[:2], dtype=torch.int64)
        labels = np.zeros(len(order), np.int64)
        for b in range(len(unary)):
            arrays = (unary[b, order].numpy(), pairwise[b, kept].numpy(), pairs.numpy())
            values[b] = compiled.best_output(*arrays, labels)
            y[b, order] = torch.from_numpy(labels)
        return values.unsqueeze(1), y.unsqueeze(1)


class _Eliminated(NamedTuple):
    tables: list[Tensor]  # that each step joined, [B, S, ..., S]
    components: list[Tensor]  # what is left of each connected component, [B], in the order of their last steps


def _aligned(values: Tensor, own: Scope, scope: Scope) -> Tensor:
    """Values [B, S, ..., S] or [B, S, ..., S, K] of a scope with a dimension for every node of a larger one."""
    for i, node in enumerate(scope):
        if node not in own:
            values = values.unsqueeze(1 + i)
    return values


def _marginal(joint: Tensor, scope: Scope, kept: Scope) -> Tensor:
    """Sums of a distribution [B, S, ..., S] over all nodes but some."""
    dims = [1 + i for i, node in enumerate(scope) if node not in kept]
    return joint.sum(dims) if dims else joint


def _filled(values: Tensor, like: Tensor) -> Tensor:
    """Values with zeros for the states that there are not."""
    if values.shape == like.shape:
        return values
    missing = [wide - own for own, wide in zip(values.shape[1:], like.shape[1:], strict=True)]
    return torch.nn.functional.pad(values, [end for size in reversed(missing) for end in (0, size)])
