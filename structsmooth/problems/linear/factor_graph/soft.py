"""The dual of soft agreement (Meshi et al. 2015): its points, compiled steps on them, and their values."""

from dataclasses import dataclass
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
        return len(graphs.labels) + len(graphs.edges)

    def labels(self) -> SoftPoint:
        """The point of the labels: w = 0, δ = 0."""
        problem, potts = self.problem, self.problem.feature_map.potts
        return SoftPoint.of_labels(problem.graphs, problem.states, problem.start(), potts=potts)

    def weights(self, point: SoftPoint) -> Tensor:
        """Ψμ, [dim], of the marginals of a point."""
        scores, total, everything = self.problem.feature_map, self.problem.start(), slice(0, None)
        scores.add(point.nodes, self._parts(point.edges), everything, everything, 1.0, total)
        return (scores.label_sum - total) / (self.lam * self.problem.n)  # exactly zero for the labels

    def with_multipliers(self, point: SoftPoint, rho: float) -> SoftPoint:
        """The point with δ in place of δ̄."""
        return point.with_multipliers(self.problem.graphs.ends, rho)

    def values(self, point: SoftPoint, rho: float) -> SoftValues:
        """Values of a point, by one pass over all blocks."""
        from structsmooth.problems.linear.factor_graph import compiled_soft  # numba loads with the first pass

        sums = torch.zeros(5, dtype=torch.float64)
        own, per_message = self._arrays(point), 1 / rho
        vectors = self._weights(point.weights)
        compiled_soft.values(*self.problem.feature_map.arrays, vectors, own, per_message, self._form, sums.numpy())
        square = self.lam / 2 * float(point.weights @ point.weights)
        return SoftValues.of(sums, self.problem.n, square, rho, point.multipliers.numel())

    def bound(self, point: SoftPoint) -> float:
        """f(μ') ≤ min G of marginals μ' that agree and are near those of the point: a bound on the hard problem."""
        near = point.agreeing(self.problem.graphs, self.problem.feature_map.first)
        w = self.weights(near)
        costs = float(self.problem.feature_map.constants.flatten() @ near.nodes.flatten())
        return costs / self.problem.n - self.lam / 2 * float(w @ w)

    def sweep_examples(
        self, point: SoftPoint, order: Tensor, rho: float, steps: SoftSteps = "pairwise", sweeps: int = 1
    ) -> SoftPoint:
        """Steps on all blocks of each example of an order in turn, so many times."""
        from structsmooth.problems.linear.factor_graph import compiled_soft

        offsets = (self.problem.graphs.node_offsets.numpy(), self.problem.graphs.edge_offsets.numpy())
        return self._stepped(compiled_soft.sweep_examples, (order.numpy(), sweeps, offsets), point, rho, steps)

    def sweep_blocks(self, point: SoftPoint, order: Tensor, rho: float, steps: SoftSteps = "fw") -> SoftPoint:
        """Steps on the blocks of an order: nodes of all examples, then edges."""
        from structsmooth.problems.linear.factor_graph import compiled_soft

        return self._stepped(compiled_soft.sweep_blocks, (order.numpy(),), point, rho, steps)

    def _stepped(
        self, loop: Any, schedule: tuple[Any, ...], point: SoftPoint, rho: float, steps: SoftSteps
    ) -> SoftPoint:
        new = SoftPoint(_copy(point.weights), _copy(point.nodes), _copy(point.edges), point.multipliers.contiguous())
        own = self._arrays(new)
        scales = (1 / (self.lam * self.problem.n), 1 / rho, LEAST_WEIGHT, steps == "pairwise")
        loop(*schedule, *self.problem.feature_map.arrays, self._weights(new.weights), own, scales, self._form)
        return new

    def _parts(self, edges: Tensor) -> Tensor:
        """Statistics of the parts that have weights: [E, P]."""
        scores = self.problem.feature_map
        if scores.potts:
            return edges[:, scores.first : scores.states].sum(1, keepdim=True)
        return edges[:, scores.first :, scores.first :].flatten(1)

    def _weights(self, w: Tensor) -> tuple[Any, Any]:
        unary, pairwise = self.problem.feature_map.views(w)
        return unary.numpy(), pairwise.numpy()

    def _arrays(self, point: SoftPoint) -> tuple[Any, ...]:
        edges, messages = point.edges.flatten(1), torch.zeros_like(point.nodes)
        return tuple(tensor.numpy() for tensor in (point.nodes, edges, point.multipliers, messages))

    @property
    def _form(self) -> tuple[int, bool]:
        return self.problem.feature_map.first, self.problem.feature_map.potts


def _copy(tensor: Tensor) -> Tensor:
    """A copy that compiled steps can change, whatever the strides."""
    return tensor.clone(memory_format=torch.contiguous_format)
