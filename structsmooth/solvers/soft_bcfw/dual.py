"""The dual of soft agreement (Meshi et al. 2015): its points, compiled steps on them, and their values."""

from dataclasses import dataclass, replace
from typing import Any, Literal, NamedTuple

import torch
from torch import Tensor

from structsmooth.lazy import LazyModule
from structsmooth.problems.base import Problem
from structsmooth.problems.bounds import step_length
from structsmooth.problems.linear.factor_graph import FactorGraphProblem
from structsmooth.problems.linear.factor_graph.data import FactorGraphs
from structsmooth.solvers.dual.base import check_unweighted, checked_hinges
from structsmooth.solvers.soft_bcfw.point import SoftPoint, extreme_diagonals

compiled = LazyModule("structsmooth.solvers.soft_bcfw.compiled")
compiled_binary = LazyModule("structsmooth.solvers.soft_bcfw.compiled_binary")

SoftSteps = Literal["pairwise", "fw"]

# A step goes away from what has more weight than this: the rest is rounding.
LEAST_WEIGHT = 1e-14
_TINY = torch.finfo(torch.float64).tiny


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


class Agreeing(NamedTuple):
    """Marginals that agree, as far as their weights need them.

    Attributes:
        nodes: marginals of nodes, [nodes, S].
        pairs: sums over links of the statistics of their parts, [types, De, P], for marginals near those of a point.
        least: the same, with as little agreement as nodes leave; as ``pairs``, if links have tables.
        most: the same, with as much as they leave.
    """

    nodes: Tensor
    pairs: Tensor
    least: Tensor
    most: Tensor


@dataclass(frozen=True)
class SoftDual:
    """The soft dual of a problem at λ, with ρ for each example.

    f_ρ(μ) = (1/n) Σ_m [⟨ℓ_m, μ_m⟩ − ‖μ_c − μ_i‖²/(2ρ) − ⟨δ̄, μ_c − μ_i⟩] − (λ/2)‖Ψμ‖² is maximized over simplices, one
    for each node and each edge. It belongs to the minimum over w and δ of g(w, δ) + (ρ/(2n))‖δ − δ̄‖², at w = Ψμ and
    δ_ci = δ̄_ci + (μ_c(y_i) − μ_i(y_i))/ρ.

    Passes are compiled, for each form in which a point has its links; see :class:`SoftPoint`.
    """

    problem: FactorGraphProblem
    lam: float

    @property
    def graphs(self) -> FactorGraphs:
        """The graphs of all examples."""
        return self.problem.graphs

    @property
    def blocks(self) -> int:
        """Number of nodes and edges of all examples."""
        graphs = self.problem.graphs
        return len(graphs.labels) + int(graphs.link_offsets[-1])

    @property
    def mean_degree(self) -> float:
        """Mean number of edges of a node."""
        return self.problem.graphs.mean_degree

    def labels(self, *, short: bool = True) -> SoftPoint:
        """The point of the labels, w = 0 and δ = 0, with Potts scores of two states in their short form or not."""
        problem, potts = self.problem, self.problem.feature_map.potts
        binary = short and potts and problem.states == 2
        return SoftPoint.of_labels(problem.graphs, problem.states, problem.start(), potts=potts, binary=binary)

    def weights(self, point: SoftPoint) -> Tensor:
        """Ψμ, [dim], of the marginals of a point."""
        scores, total = self.problem.feature_map, self.problem.start()
        scores.add_nodes(point.nodes, slice(0, None), 1.0, total)
        for links in self.problem.graphs.chunks():
            scores.add_edges(self._parts(point, point.edges[links.span]), links.edges, 1.0, total)
        return (scores.label_sum - total) / (self.lam * self.problem.n)  # exactly zero for the labels

    def with_multipliers(self, point: SoftPoint, rho: float) -> SoftPoint:
        """The point with δ in place of δ̄; for two states without arrays of the ends of all links."""
        if not point.binary:
            return point.with_multipliers(self.problem.graphs.ends.flatten(), rho)
        multipliers = point.multipliers.clone(memory_format=torch.contiguous_format)
        _, edges = self.problem.feature_map.arrays
        compiled_binary.add_disagreement(edges, *_marginals(point), multipliers.numpy(), 1 / rho)
        return replace(point, multipliers=multipliers)

    def values(self, point: SoftPoint, rho: float) -> SoftValues:
        """Values of a point, by one pass over all blocks."""
        sums, entries = torch.zeros(5, dtype=torch.float64), 2 * self.problem.states * len(point.edges)
        compiled.values(*self._arrays(point), 1 / rho, self._form(point), sums.numpy())
        square = self.lam / 2 * float(point.weights @ point.weights)
        return SoftValues.of(sums, self.problem.n, square, rho, entries)

    def bound(self, point: SoftPoint) -> float:
        """A bound f(μ') ≤ min G on the hard problem, by marginals μ' on the way from the labels to :meth:`near`."""
        gradient, cost = self.near(point)
        curvature = float(gradient @ gradient) / self.lam
        share = step_length(cost, curvature)
        return cost * share - curvature * share**2 / 2

    def near(self, point: SoftPoint) -> tuple[Tensor, float]:
        """Marginals μ' that agree, near those of a point: (1/n) Σ Bᵀ(μ' − ν(y)) [dim], and their mean cost.

        Links have the agreement that leaves the smallest weights of edges: between what it was and the least or the
        most that nodes allow, by the same share for all links of a type.
        """
        scores, near, total = self.problem.feature_map, self._agreeing(point), self.problem.start()
        scores.add_nodes(near.nodes, slice(0, None), 1.0, total)
        scores.views(total)[1].copy_(_nearest(near, scores.views(scores.label_sum)[1]))
        cost = float(scores.constants.flatten() @ near.nodes.flatten())
        return (total - scores.label_sum) / self.problem.n, cost / self.problem.n

    def scale(self) -> float:
        """κ_0, at which a typical first step of an example would be a full one; 0 if no label costs anything.

        It is Σ ‖B_iᵀ(s_i − ν(y_i))‖² / (n Σ f_i), over some examples, with s_i the best labels at zero weights.
        """
        problem, norm, loss = self.problem, 0.0, 0.0
        for block in sample(problem.n):
            nodes = problem.graphs.nodes_of(block)
            worst, wrong = problem.feature_map.constants[nodes].max(1)
            parts = zip(problem.parts(wrong, block), problem.label_parts(block), strict=True)
            loss += float(worst.sum())
            norm += problem.feature_map.squared_norm(tuple(a - b for a, b in parts), block)
        return norm / (problem.n * loss) if loss > 0 else 0.0

    def sweep_examples(
        self, point: SoftPoint, order: Tensor, rho: float, steps: SoftSteps = "pairwise", sweeps: int = 1
    ) -> SoftPoint:
        """Steps on all blocks of each example of an order in turn, so many times."""
        new = _copy(point)
        compiled.sweep_examples(order.numpy(), sweeps, *self._arrays(new), self._scales(rho, steps), self._form(new))
        return new

    def sweep_blocks(self, point: SoftPoint, order: Tensor, rho: float, steps: SoftSteps = "fw") -> SoftPoint:
        """Steps on the blocks of an order: nodes of all examples, then edges."""
        new = _copy(point)
        compiled.sweep_blocks(order.numpy(), *self._arrays(new), self._scales(rho, steps), self._form(new))
        return new

    def _agreeing(self, point: SoftPoint) -> Agreeing:
        """What is near the marginals of a point and agrees; see :meth:`SoftPoint.agreeing`."""
        graphs, scores = self.problem.graphs, self.problem.feature_map
        if point.binary:
            nodes, (_, pairs) = torch.empty_like(point.nodes), scores.views(self.problem.start())
            found = torch.zeros(3, *pairs.shape[:2], dtype=torch.float64)
            outputs = (nodes.numpy(), found.numpy())
            compiled_binary.agreeing(*scores.arrays, *_marginals(point), scores.first, *outputs)
            return Agreeing(nodes, *found.unsqueeze(-1))
        near, sums = point.agreeing(graphs, scores.first), [self.problem.start() for _ in range(3)]
        for links in graphs.chunks():
            least = most = parts = self._parts(near, near.edges[links.span])
            if scores.potts:  # tables allow no more or less agreement than they have
                diagonals = extreme_diagonals(*near.nodes[links.ends].unbind(1))
                least, most = (d[:, scores.first :].sum(1, keepdim=True) for d in diagonals)
            for total, statistics in zip(sums, (parts, least, most), strict=True):
                scores.add_edges(statistics, links.edges, 1.0, total)
        return Agreeing(near.nodes, *(scores.views(total)[1] for total in sums))

    def _parts(self, point: SoftPoint, edges: Tensor) -> Tensor:
        """Statistics [links, P] of the parts of links that have weights, of their marginals in the form of a point."""
        first, states = self.problem.feature_map.first, self.problem.states
        if not point.potts:
            return edges[:, first:, first:].flatten(1)
        if not point.binary:
            return edges[:, first:states].sum(1, keepdim=True)
        return edges[:, :1] if first else 1 - edges[:, 1:].sum(1, keepdim=True)

    def _arrays(self, point: SoftPoint) -> tuple[Any, ...]:
        """What compiled passes take of nodes, edges, weights, and of marginals and messages."""
        scores = self.problem.feature_map
        unary, pairwise = scores.views(point.weights)
        tensors = (point.nodes, point.edges.flatten(1), point.multipliers, torch.zeros_like(point.nodes))
        arrays = tuple(tensor.contiguous().numpy() for tensor in tensors)
        return *scores.arrays, (unary.numpy(), pairwise.numpy()), arrays

    def _form(self, point: SoftPoint) -> tuple[int] | tuple[int, bool]:
        """The first state that has weights and, unless links have their short form, whether scores are Potts."""
        scores = self.problem.feature_map
        return (scores.first,) if point.binary else scores.form

    def _scales(self, rho: float, steps: SoftSteps) -> tuple[float, float, float, bool]:
        return 1 / (self.lam * self.problem.n), 1 / rho, LEAST_WEIGHT, steps == "pairwise"


def soft_dual(user: str, problem: Problem, lam: float) -> SoftDual:
    """The dual of a factor graph problem over nodes and edges.

    Raises:
        TypeError: another problem.
        ValueError: λ = 0, or weights of examples.
    """
    linear = checked_hinges(user, problem, lam)
    if not isinstance(linear, FactorGraphProblem):
        raise TypeError(f"{user} needs a FactorGraphProblem, got {type(problem).__name__}; take BCFW")
    check_unweighted(user, linear)
    return SoftDual(linear, lam)


def sample(n: int) -> range:
    """Numbers of a hundred examples or fewer, at equal distances."""
    return range(0, n, -(-n // 100))


def _copy(point: SoftPoint) -> SoftPoint:
    """A copy that compiled steps can change, whatever the strides; they do not change multipliers."""
    weights, nodes, edges = (
        tensor.clone(memory_format=torch.contiguous_format) for tensor in (point.weights, point.nodes, point.edges)
    )
    return SoftPoint(weights, nodes, edges, point.multipliers.contiguous())


def _marginals(point: SoftPoint) -> tuple[Any, Any]:
    return point.nodes.contiguous().numpy(), point.edges.contiguous().numpy()


def _nearest(near: Agreeing, labels: Tensor) -> Tensor:
    """Sums of statistics of pairs nearest to those of labels, on the way from ``pairs`` to ``least`` or ``most``."""
    rest = (labels - near.pairs).flatten(1)
    changes = torch.stack([_towards(rest, (end - near.pairs).flatten(1)) for end in (near.least, near.most)])
    best = (rest - changes).square().sum(2).argmin(0)
    return near.pairs + changes[best, torch.arange(len(best))].view_as(near.pairs)


def _towards(target: Tensor, limit: Tensor) -> Tensor:
    """The point nearest to each row of a target, on the line from zero to that row of ``limit``: [rows, K]."""
    share = (target * limit).sum(1) / limit.square().sum(1).clamp_min(_TINY)
    return share.clamp(0, 1)[:, None] * limit
