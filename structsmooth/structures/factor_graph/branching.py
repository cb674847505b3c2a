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
from structsmooth.structures.factor_graph.layout import Layout, forest, turned
from structsmooth.structures.factor_graph.order import Scope
from structsmooth.structures.factor_graph.relaxation_dual import RelaxationDual, with_penalties
from structsmooth.structures.search import SearchSpace

# Sweeps of message passing for the bounds of a search: few, where nodes are eliminated exactly.
_SWEEPS, _FEW_SWEEPS = 300, 30
_TOLERANCE = 1e-9


class Outputs(NamedTuple):
    """Outputs whose first variables, in the order of the search, are given, and the next is one of some states."""

    example: int
    labels: tuple[int, ...]
    allowed: tuple[int, ...]
    bounds: tuple[float, ...]  # for each state of the next variable; that of the output itself if there is none


class _Reparameterized(NamedTuple):
    """Scores of an example whose maxima sum to a small bound; variables come first, in the order of the search."""

    rank: list[int]  # the place of each variable in the search
    arrays: tuple[Any, ...]  # what compiled loops take: see :func:`compiled.bounds_of_states`


class Searched(SearchSpace[Outputs]):
    """Examples that share their graph, whose exact outputs are found by a search.

    The bound of a set is that of a reparameterization whose bound for all outputs is small. Variables come in the order
    in which they are uncertain, for the search to end soon once these are decided. Nodes that are no variables, the
    auxiliary ones of factors, form a forest, and take their best states by dynamic programming.

    Args:
        unary: [B, N, S], float64 on the CPU.
        pairwise: [B, E, S, S].
        nodes: the nodes that the examples have.
        edges: pairs (a, b) of nodes for the E edges; ``None`` for an edge that they do not have.
        variables: how many of the first of the N nodes are searched over.
        max_sets: largest number of sets of outputs that may be queued at a time.
    """

    potential_names = ("unary", "pairwise")
    field_names = ("nodes", "edges", "_count")

    def __init__(
        self, unary: Tensor, pairwise: Tensor, *, nodes: Scope, edges: Edges, variables: int, max_sets: int
    ) -> None:
        self.unary, self.pairwise, self.nodes, self.edges = unary, pairwise, list(nodes), edges
        super().__init__(validate_args=False, max_sets=max_sets)
        self._count = sum(v < variables for v in nodes)

    @cached_property
    def _examples(self) -> list[_Reparameterized]:
        position = {v: i for i, v in enumerate(self.nodes)}
        kept = [e for e, edge in enumerate(self.edges) if edge]
        pairs = torch.tensor([[position[v] for v in edge] for edge in self.edges if edge]).view(-1, 2)
        rows = zip(self.unary[:, self.nodes], self.pairwise[:, kept], strict=True)
        return [_ordered(unary, pairwise, pairs, self._count) for unary, pairwise in rows]

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
                    f"the search of a graph of {self._count} nodes would hold more than max_sets = "
                    f"{self.max_sets:,} sets at a time: take relaxed(), which gives a labeling and a bound, or raise "
                    "max_sets or max_table"
                ) from error
            for slot, (value, labels) in enumerate(found):
                values[b, slot], y[b, slot, self.nodes] = value, self._completed(b, labels)
        return values, y

    def _no_oracle(self, oracle: str) -> NotImplementedError:
        return NotImplementedError(
            f"FactorGraph has no exact {oracle} oracle; use max() or topk(), e.g. the L2 smoother: elimination of this "
            "graph takes tables of more than max_table entries, or 16 times as many in all: raise it if memory allows; "
            "LocalPolytope(graph) has bounds, perturb_and_max() estimates"
        )

    def initial(self, example: int) -> Outputs:
        """No variable decided."""
        return self._decided(example, ())

    def split(self, subset: Outputs) -> tuple[Outputs, Outputs]:
        """The next variable in the best of its states, or in another."""
        best = max(subset.allowed, key=lambda s: (subset.bounds[s], -s))
        others = tuple(s for s in subset.allowed if s != best)
        decided = self._decided(subset.example, (*subset.labels, best))
        if len(others) == 1:
            return decided, self._decided(subset.example, (*subset.labels, *others))
        return decided, subset._replace(allowed=others)

    def upper_bound(self, subset: Outputs) -> float:
        """Scores of what is decided, and the best of every other part by itself."""
        return max([subset.bounds[s] for s in subset.allowed], default=-np.inf)

    def is_singleton(self, subset: Outputs) -> bool:
        """Whether all variables are decided."""
        return len(subset.labels) == self._count

    def lowest(self, subset: Outputs) -> tuple[int, ...]:
        """The decided labels, followed by the lowest."""
        labels = (*subset.labels, *subset.allowed[:1], *[0] * self._count)
        return tuple(labels[place] for place in self._examples[subset.example].rank)

    def _decided(self, example: int, labels: tuple[int, ...]) -> Outputs:
        """The set of outputs with these first labels, and those that leave no choice."""
        from structsmooth.structures.factor_graph import compiled

        while True:
            bounds = np.full(self.unary.shape[2] if len(labels) < self._count else 1, -np.inf)
            given = np.array([*labels, *[-1] * (self._count - len(labels))], dtype=np.int64)
            compiled.bounds_of_states(*self._examples[example].arrays, given, len(labels), bounds)
            allowed = tuple(np.flatnonzero(bounds > -np.inf).tolist())
            if len(allowed) != 1 or len(labels) == self._count:
                return Outputs(example, labels, allowed, tuple(bounds.tolist()))
            labels = (*labels, *allowed)

    def _completed(self, example: int, labels: tuple[int, ...]) -> Tensor:
        """The states of all nodes, for labels of the variables."""
        from structsmooth.structures.factor_graph import compiled

        found = self._examples[example]
        given = np.empty(len(self.nodes), dtype=np.int64)
        given[found.rank] = labels
        compiled.complete(*found.arrays, self._count, given)
        return torch.from_numpy(np.concatenate([given[found.rank], given[self._count :]]))


def _ordered(unary: Tensor, pairwise: Tensor, pairs: Tensor, variables: int) -> _Reparameterized:
    """The example of scores [N, S] and [E, S, S] at the edges ``pairs`` [E, 2]; the first nodes are the variables."""
    node, edge = _reparameterized(unary, pairwise, pairs, _SWEEPS if variables == len(unary) else _FEW_SWEEPS)
    margins = node[:variables].topk(min(2, node.shape[1])).values
    order = (margins[:, 0] - margins[:, -1]).argsort(stable=True)
    place = torch.cat([order.argsort(), torch.arange(variables, len(node))])
    ends = place[pairs]
    # Edges of variables come first, then those of variables with others, and the forest of others from its leaves.
    kind = (ends >= variables).sum(1)
    rest = kind == 2
    trees = forest(Layout(ends.unsqueeze(0), torch.ones(1, len(node), dtype=torch.bool), rest.unsqueeze(0)))
    # A child, or else the variable, becomes the first end.
    flips = torch.where(rest, ~trees.flipped[0], ends[:, 0] > ends[:, 1])
    order_of_edges = torch.cat([*((kind == k).nonzero()[:, 0] for k in (0, 1)), trees.order[0][trees.order[0] >= 0]])
    edge = turned(edge.unsqueeze(0), flips.unsqueeze(0))[0][order_of_edges].contiguous()
    ends = torch.where(flips.unsqueeze(1), ends.flip(1), ends)[order_of_edges].contiguous()
    node = node[place.argsort()].contiguous()
    roots = trees.parents[0] < 0
    arrays = (node, edge, ends, edge.amax(1), roots)
    return _Reparameterized(place[:variables].tolist(), tuple(tensor.numpy() for tensor in arrays))


def _reparameterized(unary: Tensor, pairwise: Tensor, pairs: Tensor, sweeps: int) -> tuple[Tensor, Tensor]:
    """Scores [N, S] and [E, S, S] with the same sums, whose maxima sum to a small bound."""
    nodes, edges = (torch.ones(1, len(rows), dtype=torch.bool) for rows in (unary, pairs))
    layout = Layout(pairs.unsqueeze(0), nodes, edges)
    scores = unary.unsqueeze(0), pairwise.unsqueeze(0)
    finite, _ = with_penalties(*scores, layout)
    deltas = roof_duality.solve(finite)[1] if unary.shape[1] == 2 else solve(finite, _TOLERANCE, sweeps).deltas
    node, edge = RelaxationDual(*scores, layout).reparameterized(deltas)
    return node[0], edge[0]
