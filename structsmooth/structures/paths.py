"""Paths through a graph without cycles: lattices, shortest paths."""

import numpy as np
import torch
from torch import Tensor

from structsmooth.structures import checks
from structsmooth.structures.base import no_class_penalties, widened
from structsmooth.structures.programs import DynamicProgram, Program, ProgramBuilder
from structsmooth.structures.programs.program import Integers


class PathGraph:
    """A directed graph without cycles, between whose nodes all paths are outputs of :class:`Paths`.

    Args:
        edges: the nodes that each edge leaves and enters, integers [E, 2]; there may be several between two nodes.
        source: the node where paths start.
        target: the node where they end.

    Raises:
        ValueError: edges of the wrong shape, or a cycle.
    """

    def __init__(self, edges: Integers, source: int, target: int) -> None:
        pairs = np.asarray(edges, dtype=np.int64)
        if pairs.ndim != 2 or pairs.shape[1:] != (2,) or not len(pairs) or pairs.min() < 0:
            raise ValueError(f"edges must be nodes >= 0 in pairs, [E, 2] with E >= 1, got shape {pairs.shape}")
        self.edges = len(pairs)
        place = _topological(pairs, 1 + max(int(pairs.max()), source, target))
        builder = ProgramBuilder(scores=self.edges + 1)
        builder.add(place[source])
        builder.add(place[pairs[:, 1]], place[pairs[:, 0]], index=np.arange(self.edges))
        builder.add(len(place), place[target], index=self.edges)
        self.program = builder.build()


def _topological(pairs: np.ndarray, nodes: int) -> np.ndarray:
    """Places [N] of nodes in an order in which edges lead upwards."""
    entering = np.bincount(pairs[:, 1], minlength=nodes)
    place, found = np.full(nodes, -1), 0
    ready = np.flatnonzero(entering == 0)
    while len(ready):
        place[ready] = found + np.arange(len(ready))
        found += len(ready)
        heads = pairs[np.isin(pairs[:, 0], ready), 1]
        np.subtract.at(entering, heads, 1)
        ready = np.unique(heads[entering[heads] == 0])
    if found < nodes:
        raise ValueError(
            f"edges must form no cycle; nodes {np.flatnonzero(place < 0).tolist()} are on one or behind one"
        )
    return place


class Paths(DynamicProgram):
    """All paths from the source to the target of a graph, bound to weights of its edges; the best path has the largest.

    An output is an int64 tensor [B, E]: 1 for the edges on the path, 0 for the others. Complexity per example: max and
    exp oracle O(E), top-K up to K times that. For shortest paths, negate lengths.

    Backends, forbidden (-inf) scores and infeasible examples are as in :class:`~structsmooth.programs.DynamicProgram`.

    Args:
        weights: scores [B, E] of edges, floating point.
        graph: the graph, the same for all examples; -inf removes an edge from one of them.
        offset: a score [B] of every path, which costs use; 0 if not given.
        validate_args: whether to check values too. Default: ``Structure.validate_args_default``.
        backend: ``"compiled"`` (CPU only), ``"triton"`` (GPU only), ``"torch"``, or ``"auto"`` for the fastest.

    Raises:
        TypeError: a tensor of the wrong dtype.
        ValueError: wrong shapes or values, or tensors on different devices.

    Example:
        >>> graph = PathGraph([[0, 1], [1, 3], [0, 2], [2, 3], [1, 2]], source=0, target=3)
        >>> lengths = torch.tensor([[1.0, 5.0, 4.0, 1.0, 1.0]])
        >>> Paths(-lengths, graph).topk(3)
        (tensor([[-3., -5., -6.]]), tensor([[[1, 0, 0, 1, 1],
                 [0, 0, 1, 1, 0],
                 [1, 1, 0, 0, 0]]]))
    """

    potential_names = ("weights", "offset")
    field_names = ("graph",)

    def __init__(
        self,
        weights: Tensor,
        graph: PathGraph,
        *,
        offset: Tensor | None = None,
        validate_args: bool | None = None,
        backend: checks.Backend = "auto",
    ) -> None:
        self.weights, self.graph = weights, graph
        checks.require_scores("weights", weights)
        self.offset = widened(weights).new_zeros(weights.shape[:1]) if offset is None else offset
        super().__init__(validate_args, backend)

    def check_shapes(self) -> None:
        """Raise unless scores are [B, E] and [B]."""
        checks.require_scores("weights", self.weights)
        checks.require_scores("offset", self.offset)
        if self.weights.dim() != 2 or self.weights.shape[1] != self.graph.edges:
            raise ValueError(
                f"weights must have shape [B, E] with E = {self.graph.edges}, got {tuple(self.weights.shape)}"
            )
        checks.require_shape("offset", self.offset, "[B]", (self.weights.shape[0],))
        checks.require_device("offset", self.offset, "weights", self.weights)

    def program(self) -> Program:
        """The program of the graph."""
        return self.graph.program

    def program_scores(self) -> Tensor:
        """Weights of edges and the offset: [B, E + 1]."""
        return torch.cat([widened(self.weights), widened(self.offset).unsqueeze(1)], 1)

    def checked_labels(self, y: Tensor) -> Tensor:
        """Labels as int64."""
        return checks.checked_classes(self, y, "[B, E]", 2)

    def as_classes(self, y: Tensor) -> tuple[Tensor, int]:
        """Whether each edge is on the path, 0 or 1, as one of two classes."""
        return y, 2

    def potential_costs(self, costs: Tensor) -> tuple[Tensor, Tensor]:
        """Costs of labels, [B, E, 2], as costs of edges and of all paths."""
        return costs[..., 1] - costs[..., 0], costs[..., 0].sum(1)

    def class_penalties(self, allowed: Tensor) -> Tensor | tuple[Tensor, ...]:
        """Not for edges, whose absence is no part: :meth:`restrict` forbids those that are."""
        raise no_class_penalties(self, "edges")

    def class_marginals(self) -> Tensor:
        """Probabilities [B, E, 2] that edges are on the path, or not."""
        edges, feasible = self.marginals()
        return torch.stack([feasible.unsqueeze(1) - edges, edges], 2)

    def derivation(self, y: Tensor) -> Tensor:
        """The scores that paths ``y`` use: those of their edges, and the offset."""
        edges = self.graph.edges
        used = torch.where(y > 0, torch.arange(edges, device=y.device), edges + 1)
        return torch.cat([used, torch.full_like(used[:, :1], edges)], 1)

    def outputs(self, used: Tensor) -> Tensor:
        """Outputs [B, K, E] from the scores that they use: 1 for edges on the path, 0 elsewhere."""
        y = torch.zeros(*used.shape[:2], self.graph.edges + 2, dtype=torch.int64, device=used.device)
        return y.scatter(2, used, 1)[..., :-2]
