"""The factor graphs of a module problem, without padding, as the blocks of a soft dual."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate, pairwise
from typing import Any
from weakref import WeakKeyDictionary

import torch
from torch import Tensor
from torch.nn.functional import one_hot, pad

from structsmooth.problems.affine import Parts
from structsmooth.problems.linear.factor_graph.data import FactorGraphs
from structsmooth.problems.linear.module import LinearModuleProblem
from structsmooth.solvers.soft_bcfw.pieces import BARELY_ALLOWED, FORBIDDEN, SLOTS, Decomposition, Pieces
from structsmooth.solvers.soft_bcfw.point import SoftPoint
from structsmooth.structures.factor_graph import FactorGraph


@dataclass(frozen=True)
class ModuleGraph:
    """The graph of an example.

    Attributes:
        kept: which nodes, edges and factors are not padding.
        labels: [N].
        edges: [E, 2].
        alone: the edges that are blocks of their own: all or none, [E, 2] or [0, 2].
        pieces: the other blocks of several nodes, if there are any.
        costs: of labels [N, S], of pairs [E, S, S] and, with factors, of final states [F, Q], with constants and what
            is forbidden, float64.
        label_parts: ν(y) in the same shapes.
        label_score: of the constants.
    """

    kept: tuple[Tensor, ...]
    labels: Tensor
    edges: Tensor
    alone: Tensor
    pieces: Pieces | None
    costs: Parts
    label_parts: Parts
    label_score: float

    @classmethod
    def of(cls, problem: LinearModuleProblem, i: int, by: Decomposition) -> "ModuleGraph":
        """The graph of an example, and its pieces.

        Raises:
            TypeError: a structure that is no :class:`~structsmooth.FactorGraph`.
            ValueError: exact inference on a structure whose outputs are fractional.
        """
        example = problem.example(i)
        bound, y = example.structure.detach(), example.y.cpu()
        if not isinstance(bound, FactorGraph):
            raise TypeError(f"SoftBCFW needs a FactorGraph in every example, got {type(bound).__name__}")
        structure = bound.to("cpu")
        if structure.is_fractional and by == "whole":
            raise ValueError("decomposition='whole' infers exactly: give the FactorGraph, not its LocalPolytope")
        kept = [structure.node_mask[0].nonzero()[:, 0], structure.edge_mask[0].nonzero()[:, 0]]
        # Numbers of the nodes without padding.
        number = structure.node_mask[0].cumsum(0) - 1
        edges, automata = number[structure.edges.view(-1, 2)[kept[1]]], []
        if structure.factors is not None:
            kept.append((structure.scopes[0] >= 0).any(1).nonzero()[:, 0])
            for f in kept[2].tolist():
                scope = structure.scopes[0, f]
                automata.append((number[scope[scope >= 0]], structure.transitions[f]))
        costs = without_padding(kept, bound.replace(*example.constants.with_barriers(example.costs)))
        nodes, pairs, *finals = (part.clamp_min(FORBIDDEN) for part in costs)
        a, b = (nodes > BARELY_ALLOWED)[edges].unbind(1)
        pairs = torch.where(a.unsqueeze(2) & b.unsqueeze(1), pairs, FORBIDDEN)  # what a node forbids, its edges do too
        parts = structure.parts(y)
        return cls(
            kept=tuple(kept),
            labels=y[0][kept[0]],
            edges=edges,
            alone=edges if by == "factors" else edges[:0],
            pieces=Pieces.of(structure, edges, automata, by),
            costs=(nodes, pairs, *finals),
            label_parts=tuple(part[0][rows].double() for part, rows in zip(parts, kept, strict=True)),
            label_score=example.label_score,
        )

    def cost(self, parts: Parts) -> float:
        """⟨ℓ + c, μ⟩ − ⟨c, ν(y)⟩ of marginals μ, with the constants c."""
        return inner(self.costs, parts) - self.label_score

    def at_labels(self, scores: Parts) -> float:
        """The score of the labels."""
        return inner(scores, self.label_parts)

    def arrays(self, nodes: Tensor, edges: Tensor) -> tuple[Any, ...]:
        """Potentials as compiled steps take them: weights of a feature of one, for each statistic its own."""
        (count, states), pairs = nodes.shape, len(self.alone)
        degrees = torch.bincount(self.alone.flatten(), minlength=count)
        if self.pieces is not None:
            degrees += torch.bincount(self.pieces.nodes, minlength=count)
        numbers = torch.stack([torch.zeros_like(self.labels), torch.arange(count), self.labels, degrees], 1)
        # Relative to the label: compiled steps take its score from the weights alone, which are zero here.
        constants = nodes - nodes.gather(1, self.labels[:, None])
        node_data = (numbers, torch.cat([torch.ones(count, 1).double(), constants], 1), torch.ones(1, 1).double())
        ends = torch.cat([self.alone, torch.arange(pairs)[:, None]], 1)
        places = torch.tensor([[0, 0, 0], [count, pairs, pairs]])
        edge_data = (ends, torch.ones(pairs).double(), torch.ones(pairs, 1).double(), places)
        weights = (torch.zeros(count, states, 1).double(), edges[:pairs].reshape(pairs, 1, states**2).clone())
        return tuple(tuple(t.numpy() for t in tensors) for tensors in (node_data, edge_data, weights))


@dataclass(frozen=True)
class ModuleGraphs:
    """The graphs of all examples of a problem, one by one and together.

    Attributes:
        each: the graphs.
        graphs: the same as one set, without features.
        states: S.
        seats: the node behind each row of messages, [R]: both ends of all edges that are alone, then the places of all
            pieces.
        rows: where the places, the final states and the pieces of each example are among all.
    """

    each: list[ModuleGraph]
    graphs: FactorGraphs
    states: int
    seats: Tensor
    rows: tuple[list[slice], list[slice], list[slice]]

    @classmethod
    def of(cls, problem: LinearModuleProblem, by: Decomposition) -> "ModuleGraphs":
        """The graphs of a problem, which are kept as long as it is.

        Raises:
            TypeError: as :meth:`ModuleGraph.of`.
            ValueError: as :meth:`ModuleGraph.of`, or different numbers of states.
        """
        known = _KNOWN.setdefault(problem, {})
        if by not in known:
            known[by] = cls._found(problem, by)
        return known[by]

    @classmethod
    def _found(cls, problem: LinearModuleProblem, by: Decomposition) -> "ModuleGraphs":
        each = [ModuleGraph.of(problem, i, by) for i in range(problem.n)]
        states = {graph.costs[0].shape[1] for graph in each}
        if len(states) > 1:
            raise ValueError(f"SoftBCFW needs as many states in all examples, got {sorted(states)}; take BCFW")
        labels, edges = [graph.labels for graph in each], [graph.edges for graph in each]
        nodes, starts = torch.cat(labels), _offsets(map(len, labels))
        graphs = FactorGraphs(torch.zeros(len(nodes), 0), nodes, starts, torch.cat(edges), _offsets(map(len, edges)))
        shifted = list(zip(each, starts.tolist(), strict=False))
        ends = [graph.alone.flatten() + start for graph, start in shifted]
        places = [graph.pieces.nodes + start for graph, start in shifted if graph.pieces is not None]
        pieces = [graph.pieces for graph in each]
        rows = (
            _slices(0 if piece is None else len(piece.nodes) for piece in pieces),
            _slices(len(graph.costs[2]) if len(graph.costs) == 3 else 0 for graph in each),
            _slices(0 if piece is None else piece.count for piece in pieces),
        )
        return cls(each, graphs, states.pop(), torch.cat([*ends, *places]), rows)

    @property
    def has_pieces(self) -> bool:
        """Whether some block is no node and no edge."""
        return any(graph.pieces is not None for graph in self.each)

    @property
    def links(self) -> int:
        """Number of rows of messages that are of edges."""
        return len(self.seats) - int(self.rows[0][-1].stop)

    @property
    def mean_degree(self) -> float:
        """In how many blocks a node is besides its own, on average."""
        return len(self.seats) / len(self.graphs.labels)

    def labels(self, weights: Tensor) -> SoftPoint:
        """The point of the labels, with these weights."""
        point = SoftPoint.of_labels(self.graphs, self.states, weights)
        if not self.has_pieces:
            return point
        seated = self.graphs.labels[self.seats[self.links :]]
        finals = [graph.label_parts[2] for graph in self.each if len(graph.label_parts) == 3]
        wide = max((final.shape[1] for final in finals), default=1)
        alphas = torch.zeros(self.rows[2][-1].stop, SLOTS, dtype=torch.float64)
        alphas[:, 0] = 1.0
        return replace(
            point,
            multipliers=torch.zeros(len(self.seats), self.states, dtype=torch.float64),
            places=one_hot(seated, self.states).double(),
            finals=torch.cat([pad(final, (0, wide - final.shape[1])) for final in finals]) if finals else point.finals,
            atoms=seated[:, None].int().repeat(1, SLOTS),
            alphas=alphas,
        )

    def of_example(self, point: SoftPoint, i: int) -> SoftPoint:
        """The part of a point that belongs to an example: views, but a copy of its messages if there are pieces."""
        nodes, edges, graph = self.graphs.nodes_of(i), self.graphs.edges_of(i), self.each[i]
        if not self.has_pieces:
            return SoftPoint(point.weights, point.nodes[nodes], point.edges[edges], point.multipliers[edges])
        (places, finals, pieces), first = (rows[i] for rows in self.rows), self.links
        ends = slice(2 * edges.start, 2 * edges.stop) if len(graph.alone) else slice(0, 0)
        of_places = point.multipliers[first + places.start : first + places.stop]
        return SoftPoint(
            point.weights,
            point.nodes[nodes],
            point.edges[edges],
            torch.cat([point.multipliers[ends], of_places]),
            point.places[places],
            point.finals[finals, : graph.costs[2].shape[1]] if len(graph.costs) == 3 else point.finals[:0],
            point.atoms[places],
            point.alphas[pieces],
            point.entropies[i : i + 1],
        )

    def seats_of(self, i: int) -> Tensor:
        """The nodes of an example behind its rows of messages."""
        graph = self.each[i]
        ends = graph.alone.flatten()
        return ends if graph.pieces is None else torch.cat([ends, graph.pieces.nodes])


_KNOWN: WeakKeyDictionary[LinearModuleProblem, dict[Decomposition, ModuleGraphs]] = WeakKeyDictionary()


def inner(a: Parts, b: Parts) -> float:
    """⟨a, b⟩ of two tuples of the same shapes, as a number."""
    return sum(float((p * q).sum()) for p, q in zip(a, b, strict=True))


def without_padding(kept: Sequence[Tensor], structure: FactorGraph) -> Parts:
    """Potentials of nodes [N, S], edges [E, S, S] and perhaps factors [F, Q] in float64 on the CPU; differentiable."""
    whole = structure.batched()
    return tuple(p[0].cpu()[rows].double() for p, rows in zip(whole.potentials, kept, strict=True))


def _offsets(sizes: Iterable[int]) -> Tensor:
    return torch.tensor([0, *accumulate(sizes)])


def _slices(sizes: Iterable[int]) -> list[slice]:
    return [slice(a, b) for a, b in pairwise([0, *accumulate(sizes)])]
