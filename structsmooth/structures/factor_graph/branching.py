"""Branch and bound: exact outputs of graphs that are too large for elimination, best first."""

from functools import cached_property
from itertools import islice
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from structsmooth.structures.factor_graph import roof_duality
from structsmooth.structures.factor_graph.descent import solve
from structsmooth.structures.factor_graph.elimination import Edges
from structsmooth.structures.factor_graph.layout import Layout
from structsmooth.structures.factor_graph.min_fill import Scope
from structsmooth.structures.factor_graph.relaxation_dual import RelaxationDual, with_penalties
from structsmooth.structures.search import SearchSpace

# Sweeps of message passing for the bounds of a search.
_SWEEPS = 300
_TOLERANCE = 1e-9


class Outputs(NamedTuple):
    """Outputs whose first variables, in the order of the search, are given, and the next is one of some states."""

    example: int
    labels: tuple[int, ...]
    allowed: tuple[int, ...]


class _Reparameterized(NamedTuple):
    """Scores of an example whose maxima sum to a small bound, with variables in the order of the search."""

    order: list[int]  # the place of each node in the search
    node: Any  # [N, S]
    later: list[list[tuple[int, Any]]]  # for each variable, those decided later that share an edge, and its table
    rest: Any  # [N + 1], what edges between undecided variables can give, by the place of the first of their ends


class Searched(SearchSpace[Outputs]):
    """Examples that share their graph, whose exact outputs are found by a search.

    The bound of a set is that of a reparameterization whose bound for all outputs is small. Variables come in the order
    in which they are uncertain, for the search to end soon once these are decided.

    Args:
        unary: [B, N, S], float64 on the CPU.
        pairwise: [B, E, S, S].
        nodes: the nodes that the examples have.
        edges: pairs (a, b) of nodes for the E edges; ``None`` for an edge that they do not have.
        max_sets: largest number of sets of outputs that may be queued at a time.
    """

    potential_names = ("unary", "pairwise")

    def __init__(self, unary: Tensor, pairwise: Tensor, *, nodes: Scope, edges: Edges, max_sets: int) -> None:
        self.unary, self.pairwise, self.nodes, self.edges = unary, pairwise, list(nodes), edges
        super().__init__(validate_args=False, max_sets=max_sets)
        self._states = tuple(range(unary.shape[2]))

    @cached_property
    def _examples(self) -> list[_Reparameterized]:
        position = {v: i for i, v in enumerate(self.nodes)}
        kept = [e for e, edge in enumerate(self.edges) if edge]
        pairs = torch.tensor([[position[v] for v in edge] for edge in self.edges if edge]).view(-1, 2)
        rows = zip(self.unary[:, self.nodes], self.pairwise[:, kept], strict=True)
        return [_ordered(unary, pairwise, pairs) for unary, pairwise in rows]

    def score(self, y: Tensor) -> Tensor:
        """Not needed: scores are bounds of single outputs."""
        raise NotImplementedError

    def parts(self, y: Tensor) -> tuple[Tensor, ...]:
        """Not needed."""
        raise NotImplementedError

    def topk(self, k: int) -> tuple[Tensor, Tensor]:
        """Values [B, k] and outputs [B, k, N].

        Raises:
            MemoryError: the search of an example exceeds ``max_sets``.
        """
        values = self.unary.new_full((len(self.unary), k), -torch.inf)
        y = torch.zeros(len(self.unary), k, self.unary.shape[1], dtype=torch.int64)
        for b in range(len(self.unary)):
            try:
                found = list(islice(self.best_first(b), k))
            except MemoryError as error:
                raise MemoryError(
                    f"the search of a graph of {len(self.nodes)} nodes would hold more than max_sets = "
                    f"{self.max_sets:,} sets at a time: take relaxed(), which gives a labeling and a bound, or raise "
                    "max_sets or max_table"
                ) from error
            for slot, (value, labels) in enumerate(found):
                values[b, slot], y[b, slot, self.nodes] = value, torch.tensor(labels)
        return values, y

    def _no_oracle(self, oracle: str) -> NotImplementedError:
        return NotImplementedError(
            f"FactorGraph has no exact {oracle} oracle; use max() or topk(), e.g. the L2 smoother: elimination of this "
            "graph takes tables of more than max_table entries; LocalPolytope(graph) has bounds, perturb_and_max() "
            "estimates"
        )

    def initial(self, example: int) -> Outputs:
        """All outputs of an example: no variable is decided."""
        return self._outputs_with(example, (), self._states)

    def split(self, subset: Outputs) -> tuple[Outputs, Outputs]:
        """The next variable in the best of its states, or in another."""
        scores = self._scores_given(subset)[len(subset.labels)]
        best = max(subset.allowed, key=lambda s: (scores[s], -s))
        others = tuple(s for s in subset.allowed if s != best)
        decided = self._outputs_with(subset.example, (*subset.labels, best), self._states)
        return decided, self._outputs_with(subset.example, subset.labels, others)

    def upper_bound(self, subset: Outputs) -> float:
        """Scores of what is decided, and the best of every other part by itself."""
        count = len(subset.labels)
        given = self._scores_given(subset)
        total = sum(float(given[v, label]) for v, label in enumerate(subset.labels))
        if count < len(given):
            total += float(given[count, list(subset.allowed)].max()) + float(given[count + 1 :].max(1).sum())
        return total + float(self._examples[subset.example].rest[count])

    def is_singleton(self, subset: Outputs) -> bool:
        """Whether all variables are decided."""
        return len(subset.labels) == len(self.nodes)

    def lowest(self, subset: Outputs) -> tuple[int, ...]:
        """The decided labels, followed by the lowest."""
        labels = (*subset.labels, *subset.allowed[:1], *(0 for _ in self.nodes))
        return tuple(labels[place] for place in self._examples[subset.example].order)

    def _outputs_with(self, example: int, labels: tuple[int, ...], allowed: tuple[int, ...]) -> Outputs:
        """The set of these outputs; a variable with one state left is decided."""
        while len(allowed) == 1 and len(labels) < len(self.nodes):
            labels, allowed = (*labels, *allowed), self._states
        return Outputs(example, labels, allowed)

    def _scores_given(self, subset: Outputs) -> Any:
        """Scores of all variables with those of their edges to decided ones, each counted at its later end."""
        example = self._examples[subset.example]
        given = example.node.copy()
        for v, label in enumerate(subset.labels):
            for other, table in example.later[v]:
                given[other] += table[label]
        return given


def _ordered(unary: Tensor, pairwise: Tensor, pairs: Tensor) -> _Reparameterized:
    """The example of scores [N, S] and [E, S, S] at the edges ``pairs`` [E, 2]."""
    node, edge = _reparameterized(unary, pairwise, pairs)
    margins = node.topk(min(2, node.shape[1])).values
    order = (margins[:, 0] - margins[:, -1]).argsort(stable=True)
    rank = order.argsort()
    first, second = rank[pairs].unbind(-1)
    # Tables by the end that is decided first.
    turned = torch.where((first > second)[:, None, None], edge.transpose(1, 2), edge).numpy()
    ends = torch.stack([torch.minimum(first, second), torch.maximum(first, second)], -1).tolist()
    later: list[list[tuple[int, Any]]] = [[] for _ in unary]
    for (a, b), table in zip(ends, turned, strict=True):
        later[a].append((b, table))
    best = np.array([sum(float(table.max()) for _, table in tables) for tables in later])
    return _Reparameterized(rank.tolist(), node[order].numpy(), later, np.append(np.cumsum(best[::-1])[::-1], 0.0))


def _reparameterized(unary: Tensor, pairwise: Tensor, pairs: Tensor) -> tuple[Tensor, Tensor]:
    """Scores [N, S] and [E, S, S] with the same sums, whose maxima sum to a small bound."""
    nodes, edges = (torch.ones(1, len(rows), dtype=torch.bool) for rows in (unary, pairs))
    layout = Layout(pairs.unsqueeze(0), nodes, edges)
    scores = unary.unsqueeze(0), pairwise.unsqueeze(0)
    finite, _ = with_penalties(*scores, layout)
    deltas = roof_duality.solve(finite)[1] if unary.shape[1] == 2 else solve(finite, _TOLERANCE, _SWEEPS).deltas
    node, edge = RelaxationDual(*scores, layout).reparameterized(deltas)
    return node[0], edge[0]
