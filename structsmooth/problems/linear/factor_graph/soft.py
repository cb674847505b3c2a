"""The dual of soft agreement (Meshi et al. 2015): its points, compiled steps on them, and their values."""

from dataclasses import dataclass, replace
from typing import Any, Literal

import torch
from torch import Tensor

from structsmooth.problems.linear.factor_graph import FactorGraphProblem
from structsmooth.problems.linear.factor_graph.point import SoftPoint

SoftSteps = Literal["pairwise", "fw"]

# A step goes away from what has more weight than this: the rest is rounding.
LEAST_WEIGHT = 1e-14


@dataclass(frozen=True)
class SoftValues:
    """Values of a point; sums over blocks are divided by the number n of examples.

    Attributes:
        hard: g(w, δ) of Eq. (2), an upper bound on the objective of the local polytope at w; with λ/2‖w‖².
        soft: g_ρ, which is ``hard`` and (ρ/(2n))‖δ − δ̄‖².
        dual: f_ρ, the value of the dual point, with multipliers if there are any.
        gaps: the block gaps (1/n)(max θ̂_a − ⟨θ̂_a, μ_a⟩); they sum to soft − dual exactly.
        disagreement: the root mean square of μ_c(y_i) − μ_i(y_i).
    """

    hard: float
    soft: float
    dual: float
    gaps: float
    disagreement: float

    @classmethod
    def of(cls, sums: Tensor, n: int, square: float, rho: float, entries: int) -> "SoftValues":
        """The values from sums over all blocks of n examples.

        Args:
            sums: the maxima minus the scores of labels; the block gaps; the costs; and ‖e‖² and ⟨δ̄, e⟩ with
                e = μ_c − μ_i: float64 [5].
            n: number of examples.
            square: λ/2‖w‖².
            rho: ρ.
            entries: number of entries of e.
        """
        hinge, gaps, cost, squares, product = (sums / n).tolist()
        penalty = squares / (2 * rho)
        return cls(
            hard=hinge + square,
            soft=hinge + square + penalty,
            dual=cost - square - penalty - product,
            gaps=gaps,
            disagreement=(squares * n / entries) ** 0.5 if entries else 0.0,
        )


@dataclass(frozen=True)
class SoftDual:
    """The soft dual of a problem at λ, with ρ for each example.

    f_ρ(μ) = (1/n) Σ_m [⟨ℓ_m, μ_m⟩ − ‖μ_c − μ_i‖²/(2ρ) − ⟨δ̄, μ_c − μ_i⟩] − (λ/2)‖Ψμ‖² is maximized over simplices, one
    for each node and each edge. It belongs to the minimum over w and δ of g(w, δ) + (ρ/(2n))‖δ − δ̄‖², at w = Ψμ and
    δ_ci = δ̄_ci + (μ_c(y_i) − μ_i(y_i))/ρ.
    """

    problem: FactorGraphProblem
    lam: float

    @property
    def blocks(self) -> int:
        """Number of nodes and edges of all examples."""
        graphs = self.problem.graphs
        return len(graphs.labels) + int(graphs.link_offsets[-1])

    @property
    def binary(self) -> bool:
        """Whether points have the short form of Potts scores of two states."""
        return self.problem.feature_map.potts and self.problem.states == 2

    def labels(self) -> SoftPoint:
        """The point of the labels: w = 0, δ = 0."""
        problem, potts = self.problem, self.problem.feature_map.potts
        return SoftPoint.of_labels(problem.graphs, problem.states, problem.start(), potts=potts)

    def weights(self, point: SoftPoint) -> Tensor:
        """Ψμ, [dim], of the marginals of a point."""
        scores, total = self.problem.feature_map, self.problem.start()
        scores.add_nodes(point.nodes, slice(0, None), 1.0, total)
        for links in self.problem.graphs.chunks():
            scores.add_edges(self._parts(point.edges[links.own]), links.edges, 1.0, total)
        return self._weights_of(total)

    def with_multipliers(self, point: SoftPoint, rho: float) -> SoftPoint:
        """The point with δ in place of δ̄."""
        if not self.binary:
            return point.with_multipliers(self.problem.graphs.ends, rho)
        multipliers = _copy(point.multipliers)
        arrays = (tensor.contiguous().numpy() for tensor in (point.nodes, point.edges))
        self._loops.add_disagreement(self._data[1], *arrays, multipliers[:, :, 0].numpy(), 1 / rho)
        return replace(point, multipliers=multipliers)

    def values(self, point: SoftPoint, rho: float) -> SoftValues:
        """Values of a point, by one pass over all blocks."""
        sums, entries = torch.zeros(5, dtype=torch.float64), 2 * self.problem.states * len(point.edges)
        own, vectors = self._arrays(point), self._weights(point.weights)
        self._loops.values(*self._data, vectors, own, 1 / rho, self._form, sums.numpy())
        square = self.lam / 2 * float(point.weights @ point.weights)
        return SoftValues.of(sums, self.problem.n, square, rho, entries)

    def bound(self, point: SoftPoint) -> float:
        """f(μ') ≤ min G of marginals μ' that agree and are near those of the point: a bound on the hard problem."""
        scores = self.problem.feature_map
        if self.binary:
            nodes, total = torch.empty_like(point.nodes), self.problem.start()
            arrays = (tensor.contiguous().numpy() for tensor in (point.nodes, point.edges))
            self._loops.agreeing(*self._data, *arrays, scores.first, nodes.numpy(), scores.views(total)[1].numpy())
            scores.add_nodes(nodes, slice(0, None), 1.0, total)
            w = self._weights_of(total)
        else:
            near = point.agreeing(self.problem.graphs, scores.first)
            nodes, w = near.nodes, self.weights(near)
        costs = float(scores.constants.flatten() @ nodes.flatten())
        return costs / self.problem.n - self.lam / 2 * float(w @ w)

    def sweep_examples(
        self, point: SoftPoint, order: Tensor, rho: float, steps: SoftSteps = "pairwise", sweeps: int = 1
    ) -> SoftPoint:
        """Steps on all blocks of each example of an order in turn, so many times."""
        graphs = self.problem.graphs
        schedule: tuple[Any, ...] = (order.numpy(), sweeps)
        if not self.binary:
            schedule = (*schedule, (graphs.node_offsets.numpy(), graphs.link_offsets.numpy()))
        return self._stepped(self._loops.sweep_examples, schedule, point, rho, steps)

    def sweep_blocks(self, point: SoftPoint, order: Tensor, rho: float, steps: SoftSteps = "fw") -> SoftPoint:
        """Steps on the blocks of an order: nodes of all examples, then edges."""
        schedule: tuple[Any, ...] = (order.numpy(),)
        if self.binary:
            links = order - len(point.nodes)
            examples = torch.searchsorted(self.problem.graphs.link_offsets, links, right=True) - 1
            schedule = (*schedule, examples.numpy())
        return self._stepped(self._loops.sweep_blocks, schedule, point, rho, steps)

    def _stepped(
        self, loop: Any, schedule: tuple[Any, ...], point: SoftPoint, rho: float, steps: SoftSteps
    ) -> SoftPoint:
        new = SoftPoint(_copy(point.weights), _copy(point.nodes), _copy(point.edges), point.multipliers.contiguous())
        own = self._arrays(new)
        scales = (1 / (self.lam * self.problem.n), 1 / rho, LEAST_WEIGHT, steps == "pairwise")
        loop(*schedule, *self._data, self._weights(new.weights), own, scales, self._form)
        return new

    def _weights_of(self, total: Tensor) -> Tensor:
        """w of the sum of the statistics, Σ Bᵀμ: [dim]."""
        return (self.problem.feature_map.label_sum - total) / (self.lam * self.problem.n)  # exactly zero for the labels

    def _parts(self, edges: Tensor) -> Tensor:
        """Statistics of the parts that have weights: [E, P]."""
        scores = self.problem.feature_map
        if self.binary:
            return edges[:, :1] if scores.first else 1 - edges[:, 1:].sum(1, keepdim=True)
        if scores.potts:
            return edges[:, scores.first : scores.states].sum(1, keepdim=True)
        return edges[:, scores.first :, scores.first :].flatten(1)

    def _weights(self, w: Tensor) -> tuple[Any, Any]:
        unary, pairwise = self.problem.feature_map.views(w)
        return unary.numpy(), pairwise.numpy()

    def _arrays(self, point: SoftPoint) -> tuple[Any, ...]:
        edges, messages = point.edges.flatten(1), torch.zeros_like(point.nodes)
        multipliers = point.multipliers[:, :, 0] if self.binary else point.multipliers
        tensors = (point.nodes, edges, multipliers, messages)
        return tuple(tensor.contiguous().numpy() for tensor in tensors)

    @property
    def _data(self) -> tuple[Any, Any]:
        scores = self.problem.feature_map
        return scores.binary_arrays if self.binary else scores.arrays

    @property
    def _form(self) -> Any:
        scores = self.problem.feature_map
        return scores.first if self.binary else (scores.first, scores.potts)

    @property
    def _loops(self) -> Any:
        from structsmooth.problems.linear.factor_graph import compiled_binary, compiled_soft  # numba loads with a pass

        return compiled_binary if self.binary else compiled_soft


def _copy(tensor: Tensor) -> Tensor:
    """A copy that compiled steps can change, whatever the strides."""
    return tensor.clone(memory_format=torch.contiguous_format)
