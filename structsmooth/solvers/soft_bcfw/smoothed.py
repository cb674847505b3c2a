"""The soft dual with smoothed maxima: each block has its entropy in it (Meshi et al. 2015, section 7)."""

from dataclasses import dataclass, replace

import torch
from torch import Tensor

from structsmooth.problems.affine import Parts
from structsmooth.solvers.soft_bcfw.agreement import agreeing
from structsmooth.solvers.soft_bcfw.dual import SoftSteps, SoftValues
from structsmooth.solvers.soft_bcfw.graphs import ModuleGraph, inner
from structsmooth.solvers.soft_bcfw.modules import ModuleSoftDual
from structsmooth.solvers.soft_bcfw.point import SoftPoint


@dataclass(frozen=True)
class SmoothedSoftDual(ModuleSoftDual):
    """The soft dual of maxima that are smoothed by the entropy: h log Σ exp(θ̂_a/h) in the place of max θ̂_a.

    f_ρ(μ) has (h/n) Σ_a H(μ_a) more than without smoothing. It belongs to the smoothed hinges of the local polytope:
    the relaxation of the likelihood in which the entropy of each node and of each edge counts once.

    A step on a block goes from its distribution towards the Gibbs distribution s_a of θ̂_a/h, as in stochastic dual
    coordinate ascent. The entropy is strongly concave in ‖·‖₁. So with d = ‖s_a − μ_a‖₁², the curvature q of the rest
    and the block gap g_a, a step of size γ raises the dual by γ(g_a + hd/2) − γ²(hd + q)/2 at least, and the size that
    makes the most of this is taken. Given the nodes, no edge depends on another, and given the edges no node does: a
    sweep steps on all edges at once, then on all nodes. The line search of an example is that of the parent, with a
    chord in the place of the entropy.

    Raises:
        ValueError: as the parent does, or blocks of several nodes that are no single edges.
    """

    level: float = 1.0  # h

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.decomposition != "factors" or self._all.has_pieces:
            raise ValueError(
                "SoftBCFW smooths the maxima of nodes and edges alone, not of factors, forests or whole examples: take "
                "ProximalSDCA or CasimirSVRG, over a LocalPolytope"
            )

    def values(self, point: SoftPoint, rho: float) -> SoftValues:
        """Values of a point, by the potentials of all examples."""
        total = torch.zeros(5, dtype=torch.float64)
        for i, graph in enumerate(self._all.each):
            own, augmented = self._all.own(point, i), self._augmented(self._potentials(point.weights, i)[1], i)
            scores = _reparameterized(graph, augmented, self._deltas(own, i, rho))
            smoothed = self.level * sum(float(_log_sum(p / self.level).sum()) for p in scores)
            violation = own.violations(self._all.seats_of(i))
            linear, entropy = inner(scores, (own.nodes, own.edges)), self._smoothing(own)
            total[0] += smoothed - graph.at_labels(augmented) + graph.at_labels(graph.costs) - graph.label_score
            total[1] += smoothed - linear - entropy
            total[2] += graph.cost((own.nodes, own.edges)) + entropy
            total[3] += float(violation.square().sum())
            total[4] += float((own.multipliers.view_as(violation) * violation).sum())
        square = self.lam / 2 * float(point.weights.double().square().sum())
        return SoftValues.of(total, self.problem.n, square, rho, point.multipliers.numel())

    def near(self, point: SoftPoint) -> tuple[Tensor, float]:
        """As without smoothing, with the entropy of the marginals in the cost."""
        gradient, cost = super().near(point)
        return gradient, cost + self._smoothing(agreeing(self._all, point)) / self.problem.n

    def _smoothing(self, point: SoftPoint) -> float:
        """h Σ_a H(μ_a)."""
        return -self.level * sum(float(torch.special.xlogy(m, m).sum()) for m in (point.nodes, point.edges))

    def _swept(
        self,
        own: SoftPoint,
        augmented: Parts,
        i: int,
        rho: float,
        steps: SoftSteps,
        sweeps: int,
        norm: float,
        labels: Tensor | None,
    ) -> SoftPoint:
        """The marginals of an example after sweeps, if ‖Bᵀm‖² were ``norm`` times ‖m‖²."""
        graph, per_weight, new = self._all.each[i], norm / (self.lam * self.problem.n), own
        degrees = torch.bincount(self._all.seats_of(i), minlength=len(own.nodes))[:, None]
        for _ in range(sweeps):
            scores = _reparameterized(graph, self._moved(augmented, own, new, per_weight), self._deltas(new, i, rho))
            change = self._towards_gibbs(new.edges, scores[1])
            ends = change.sum(2).square().sum(1) + change.sum(1).square().sum(1)
            new = replace(new, edges=self._stepped(new.edges, scores[1], change, per_weight, ends / rho))
            scores = _reparameterized(graph, self._moved(augmented, own, new, per_weight), self._deltas(new, i, rho))
            change = self._towards_gibbs(new.nodes, scores[0])
            messages = (degrees * change.square()).sum(1) / rho
            new = replace(new, nodes=self._stepped(new.nodes, scores[0], change, per_weight, messages))
        return new

    def _moved(self, augmented: Parts, own: SoftPoint, new: SoftPoint, per_weight: float) -> Parts:
        """θ + ℓ after the weights have followed the marginals from ``own`` to ``new``, if each moved alone."""
        nodes, edges = augmented
        return nodes - per_weight * (new.nodes - own.nodes), edges - per_weight * (new.edges - own.edges)

    def _towards_gibbs(self, own: Tensor, scores: Tensor) -> Tensor:
        """s_a − μ_a of all blocks of one kind."""
        gibbs: Tensor = (scores.flatten(1) / self.level).softmax(1)
        return gibbs.view_as(own) - own

    def _stepped(self, own: Tensor, scores: Tensor, change: Tensor, per_weight: float, messages: Tensor) -> Tensor:
        """Distributions after a step on all blocks of one kind, with the curvature of messages [blocks]."""
        m, direction, potentials = (tensor.flatten(1) for tensor in (own, change, scores))
        entropy = -torch.special.xlogy(m, m).sum(1)
        gaps = self.level * (_log_sum(potentials / self.level) - entropy) - (potentials * m).sum(1)
        concavity = self.level * direction.abs().sum(1).square()
        curvature = concavity + per_weight * direction.square().sum(1) + messages
        sizes = ((gaps.clamp_min(0.0) + concavity / 2) / curvature.clamp_min(_TINY)).clamp_max(1.0)
        return torch.addcmul(own, sizes.view(-1, *[1] * (own.dim() - 1)), change)


_TINY = torch.finfo(torch.float64).tiny


def _log_sum(scores: Tensor) -> Tensor:
    """log Σ exp of the scores of each block."""
    return torch.logsumexp(scores.flatten(1), 1)


def _reparameterized(graph: ModuleGraph, augmented: Parts, deltas: Tensor) -> Parts:
    """θ̂ of nodes and of edges, given messages [2E, S]."""
    nodes, edges = augmented
    ends = deltas.view(-1, 2, nodes.shape[1])
    received = nodes.index_add(0, graph.edges.flatten(), deltas)
    return received, edges - ends[:, 0, :, None] - ends[:, 1, None, :]
