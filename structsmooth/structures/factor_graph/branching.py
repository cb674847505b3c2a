"""Branch and bound: exact outputs of graphs that are too large for elimination, best first."""

from dataclasses import dataclass
from functools import cached_property
from itertools import islice
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from structsmooth.structures.factor_graph import roof_duality
from structsmooth.structures.factor_graph.descent import solve
from structsmooth.structures.factor_graph.layout import Layout
from structsmooth.structures.factor_graph.messages import Messages, with_penalties
from structsmooth.structures.search import SearchSpace

# Sweeps of message passing for the bounds of a search.
_SWEEPS = 300
_TOLERANCE = 1e-9


@dataclass(frozen=True)
class Branching:
    """The exact oracles of graphs that share their nodes and edges, as far as a search gives them.

    Attributes:
        nodes: the nodes that the examples have.
        edges: pairs (a, b) of nodes for the E edges; ``None`` for an edge that they do not have.
        max_sets: largest number of sets of outputs that may be queued at a time.
    """

    nodes: tuple[int, ...]
    edges: tuple[tuple[int, int] | None, ...]
    max_sets: int

    def top_k(self, unary: Tensor, pairwise: Tensor, k: int) -> tuple[Tensor, Tensor]:
        """Values [B, k] and outputs [B, k, N].

        Raises:
            MemoryError: the search of an example exceeds ``max_sets``.
        """
        values = torch.full((len(unary), k), -torch.inf, dtype=unary.dtype)
        y = torch.zeros(len(unary), k, unary.shape[1], dtype=torch.int64)
        for b in range(len(unary)):
            for slot, (value, labels) in enumerate(self._best(unary[b], pairwise[b], k)):
                values[b, slot], y[b, slot, list(self.nodes)] = value, torch.tensor(labels)
        return values, y

    def _best(self, unary: Tensor, pairwise: Tensor, k: int) -> list[tuple[float, tuple[int, ...]]]:
        try:
            return list(islice(_Search(unary, pairwise, self).best_first(0), k))
        except MemoryError as error:
            raise MemoryError(
                f"the search of a graph of {len(self.nodes)} nodes would hold more than max_sets = {self.max_sets:,} "
                "sets at a time: take relaxed(), which gives a labeling and a bound, or raise max_sets or max_table"
            ) from error

    def logsumexp(self, unary: Tensor, pairwise: Tensor) -> Tensor:
        """Not known."""
        raise self._no_oracle("logsumexp")

    def marginals(self, unary: Tensor, pairwise: Tensor) -> tuple[Tensor, Tensor]:
        """Not known."""
        raise self._no_oracle("marginals")

    def entropy(self, unary: Tensor, pairwise: Tensor) -> Tensor:
        """Not known."""
        raise self._no_oracle("entropy")

    def max_marginals(self, unary: Tensor, pairwise: Tensor) -> Tensor:
        """Not known."""
        raise self._no_oracle("max_marginals")

    def sample(self, unary: Tensor, pairwise: Tensor, uniform: Tensor) -> Tensor:
        """Not known."""
        raise self._no_oracle("sample")

    def _no_oracle(self, oracle: str) -> NotImplementedError:
        return NotImplementedError(
            f"FactorGraph has no exact {oracle} oracle; use max() or topk(), e.g. the L2 smoother: elimination of this "
            "graph takes tables of more than max_table entries; LocalPolytope(graph) has bounds, perturb_and_max() "
            "estimates"
        )


class _Set(NamedTuple):
    """Outputs whose first variables, in the order of the search, are given, and the next is one of some states."""

    labels: tuple[int, ...]
    allowed: tuple[int, ...]


class _Search(SearchSpace[_Set]):
    """One example. The bound of a set is that of a reparameterization whose bound for all outputs is small.

    Variables come in the order in which they are uncertain, for the search to end soon once these are decided.
    """

    potential_names = ("unary",)

    def __init__(self, unary: Tensor, pairwise: Tensor, branching: Branching) -> None:
        self.unary = unary.unsqueeze(0)
        super().__init__(validate_args=False, max_sets=branching.max_sets)
        nodes = list(branching.nodes)
        position = {v: i for i, v in enumerate(nodes)}
        kept = [(e, position[edge[0]], position[edge[1]]) for e, edge in enumerate(branching.edges) if edge]
        own, tables = unary[nodes], pairwise[[e for e, _, _ in kept]]
        pairs = torch.tensor([(a, b) for _, a, b in kept]).view(-1, 2)
        node, edge = _reparameterized(own, tables, pairs)
        margins = node.topk(min(2, node.shape[1])).values
        order = (margins[:, 0] - margins[:, -1]).argsort(stable=True)
        rank = order.argsort()
        self._order = rank.tolist()  # place of each node in the search
        self._node = node[order].numpy()
        first, second = rank[pairs].unbind(-1)
        # Tables by the end that is decided first.
        turned = torch.where((first > second)[:, None, None], edge.transpose(1, 2), edge).numpy()
        ends = torch.stack([torch.minimum(first, second), torch.maximum(first, second)], -1).tolist()
        self._later: list[list[tuple[int, Any]]] = [[] for _ in nodes]
        for (a, b), table in zip(ends, turned, strict=True):
            self._later[a].append((b, table))
        # What edges between undecided variables can give: by the place of the first of their ends.
        best = np.array([sum(float(table.max()) for _, table in own) for own in self._later])
        self._rest = np.append(np.cumsum(best[::-1])[::-1], 0.0)

    def score(self, y: Tensor) -> Tensor:
        """Not needed: scores are bounds of single outputs."""
        raise NotImplementedError

    def parts(self, y: Tensor) -> tuple[Tensor, ...]:
        """Not needed."""
        raise NotImplementedError

    @cached_property
    def _states(self) -> tuple[int, ...]:
        return tuple(range(self._node.shape[1]))

    def initial(self, example: int) -> _Set:
        """No variable decided."""
        return self._set((), self._states)

    def split(self, subset: _Set) -> tuple[_Set, _Set]:
        """The next variable in the best of its states, or in another."""
        scores = self._given(subset.labels)[len(subset.labels)]
        best = max(subset.allowed, key=lambda s: (scores[s], -s))
        others = tuple(s for s in subset.allowed if s != best)
        return self._set((*subset.labels, best), self._states), self._set(subset.labels, others)

    def upper_bound(self, subset: _Set) -> float:
        """Scores of what is decided, and the best of every other part by itself."""
        count = len(subset.labels)
        given = self._given(subset.labels)
        total = sum(float(given[v, label]) for v, label in enumerate(subset.labels))
        if count < len(given):
            total += float(given[count, list(subset.allowed)].max()) + float(given[count + 1 :].max(1).sum())
        return total + float(self._rest[count])

    def is_singleton(self, subset: _Set) -> bool:
        """Whether all variables are decided."""
        return len(subset.labels) == len(self._node)

    def lowest(self, subset: _Set) -> tuple[int, ...]:
        """The decided labels, followed by the lowest."""
        labels = (*subset.labels, *subset.allowed[:1], *(0 for _ in self._order))
        return tuple(labels[place] for place in self._order)

    def _set(self, labels: tuple[int, ...], allowed: tuple[int, ...]) -> _Set:
        """The set of these outputs; a variable with one state left is decided."""
        while len(allowed) == 1 and len(labels) < len(self._node):
            labels, allowed = (*labels, *allowed), self._states
        return _Set(labels, allowed)

    def _given(self, labels: tuple[int, ...]) -> Any:
        """Scores of all variables with those of their edges to decided ones, each counted at its later end."""
        given = self._node.copy()
        for v, label in enumerate(labels):
            for other, table in self._later[v]:
                given[other] += table[label]
        return given


def _reparameterized(unary: Tensor, pairwise: Tensor, pairs: Tensor) -> tuple[Tensor, Tensor]:
    """Scores [N, S] and [E, S, S] with the same sums, whose maxima sum to a small bound."""
    nodes, edges = (torch.ones(1, len(rows), dtype=torch.bool) for rows in (unary, pairs))
    layout = Layout(pairs.unsqueeze(0), nodes, edges)
    scores = unary.unsqueeze(0), pairwise.unsqueeze(0)
    finite, _ = with_penalties(*scores, layout)
    deltas = roof_duality.solve(finite)[1] if unary.shape[1] == 2 else solve(finite, _TOLERANCE, _SWEEPS).deltas
    node, edge = Messages(*scores, layout).reparameterized(deltas)
    return node[0], edge[0]
