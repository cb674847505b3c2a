"""The soft dual with smoothed maxima: each block has its entropy in it (Meshi et al. 2015, section 7)."""

from dataclasses import dataclass, replace

import torch
from torch import Tensor

from structsmooth.problems.affine import Parts, minus
from structsmooth.solvers.soft_bcfw.agreement import agreeing
from structsmooth.solvers.soft_bcfw.graphs import ModuleGraph, inner
from structsmooth.solvers.soft_bcfw.modules import ModuleSoftDual, Sweeps, _held, _parts, _scores, _with
from structsmooth.solvers.soft_bcfw.pieces import Held, Norms
from structsmooth.solvers.soft_bcfw.point import SoftPoint


@dataclass(frozen=True)
class SmoothedSoftDual(ModuleSoftDual):
    """The soft dual of maxima that are smoothed by the entropy: h log Σ exp(θ̂_a/h) in the place of max θ̂_a.

    f_ρ(μ) has (h/n) Σ_a H(μ_a) more than without smoothing. It belongs to the smoothed hinges of the local polytope:
    the relaxation of the likelihood in which the entropy of each node and of each edge counts once.

    A step on a block goes from its distribution towards the Gibbs distribution s_a of θ̂_a/h, as in stochastic dual
    coordinate ascent. The entropy is strongly concave in ‖·‖₁. So with d = ‖s_a − μ_a‖₁², the curvature q of the rest
    and the block gap g_a, a step of size γ raises the dual by γ(g_a + hd/2) − γ²(hd + q)/2 at least, and the size that
    makes the most of this is taken. Given the nodes, no edge or piece depends on another, and given these no node does:
    a sweep steps on all edges and pieces at once, then on all nodes. The line search of an example is that of the
    parent, with a chord in the place of the entropy.

    A piece holds no labelings here, but marginals and a lower bound on its entropy: that of a mixture is no less than
    the mixture of entropies. The bound forgets the past, because step sizes do not tend to zero. All pieces of an
    example take steps of one size.

    Raises:
        ValueError: as the parent does, or pieces that are forests.
    """

    level: float = 1.0  # h

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.decomposition == "forests":
            raise ValueError("decomposition='forests' has no smoothed maxima; take 'factors' or 'whole'")

    def labels(self) -> SoftPoint:
        """The point of the labels, which have no entropy."""
        point = super().labels()
        if not self._all.has_pieces:
            return point
        entropies = torch.zeros(self.problem.n, dtype=torch.float64)
        return replace(point, alphas=torch.zeros_like(point.alphas), entropies=entropies)

    def _sums(self, point: SoftPoint, augmented: Parts, i: int, rho: float) -> Tensor:
        """The sums with smoothed maxima, and with entropies among the costs."""
        graph, deltas, parts = self._all.each[i], self._deltas(point, i, rho), _parts(point, augmented)
        scores = self._reparameterized(i, augmented, deltas)
        smoothed = self.level * sum(float(_log_sum(p / self.level).sum()) for p in scores)
        linear = inner(scores, (point.nodes, point.edges[: len(scores[1])]))
        if graph.pieces is not None:
            of_pieces = _scores(graph, deltas, augmented)
            smoothed += graph.pieces.gibbs(of_pieces, self.level)[0]
            linear += inner(of_pieces, _held(graph, point).parts)
        violation, entropy = point.violations(self._all.seats_of(i)), self._smoothing(point)
        hinge = smoothed - graph.at_labels(augmented) + graph.at_labels(graph.costs) - graph.label_score
        squares, product = violation.square().sum(), (point.multipliers.view_as(violation) * violation).sum()
        sums = (hinge, smoothed - linear - entropy, graph.cost(parts) + entropy, float(squares), float(product))
        return torch.tensor(sums, dtype=torch.float64)

    def near(self, point: SoftPoint) -> tuple[Tensor, float]:
        """As without smoothing, with the entropy of the marginals in the cost."""
        gradient, cost = super().near(point)
        return gradient, cost + self._smoothing(agreeing(self._all, point)) / self.problem.n

    def _best(self, point: SoftPoint, augmented: Parts, i: int, rho: float) -> None:
        """Nothing: steps do not go to single labelings."""

    def _smoothing(self, point: SoftPoint) -> float:
        """h Σ_a H(μ_a), or a lower bound on it."""
        explicit = (point.nodes, point.edges) if self.decomposition == "factors" else (point.nodes,)
        entropy = -sum(float(torch.special.xlogy(m, m).sum()) for m in explicit)
        return self.level * (entropy + float(point.entropies.sum()))

    def _swept(
        self, point: SoftPoint, augmented: Parts, i: int, sweeps: Sweeps, norm: float, labels: Tensor | None
    ) -> SoftPoint:
        """The marginals of an example after sweeps, if ‖Bᵀm‖² were ``norm`` times ‖m‖²."""
        graph, new, rho = self._all.each[i], point, sweeps.rho
        norms = Norms(1 / rho, norm / (self.lam * self.problem.n))
        degrees, count = torch.bincount(self._all.seats_of(i), minlength=len(point.nodes)), len(graph.alone)
        for _ in range(sweeps.times):
            moved, deltas = self._moved(augmented, point, new, norms), self._deltas(new, i, rho)
            if count:
                scores = self._reparameterized(i, moved, deltas)[1]
                change = self._towards_gibbs(new.edges, scores)
                ends = change.sum(2).square().sum(1) + change.sum(1).square().sum(1)
                edges = self._stepped(new.edges, scores, change, norms, ends)
            if graph.pieces is not None:
                new = self._with_pieces(graph, new, _scores(graph, deltas, moved), norms)
            if count:
                new = replace(new, edges=edges)
            moved, deltas = self._moved(augmented, point, new, norms), self._deltas(new, i, rho)
            scores = self._reparameterized(i, moved, deltas)[0]
            change = self._towards_gibbs(new.nodes, scores)
            messages = degrees * change.square().sum(1)
            new = replace(new, nodes=self._stepped(new.nodes, scores, change, norms, messages))
        return new

    def _with_pieces(self, graph: ModuleGraph, point: SoftPoint, scores: Parts, norms: Norms) -> SoftPoint:
        """A point of an example after a step on its pieces."""
        assert graph.pieces is not None
        pieces, held = graph.pieces, _held(graph, point)
        smoothed, gibbs = pieces.gibbs(scores, self.level)
        change, old = minus(gibbs, held.parts), float(point.entropies)
        gap = smoothed - inner(scores, held.parts) - self.level * old
        entropy = (smoothed - inner(scores, gibbs)) / self.level
        # The distance of two distributions of labelings is that of their marginals at least.
        apart = torch.zeros(pieces.count, dtype=torch.float64)
        apart.scatter_reduce_(0, pieces.owners[0], change[0].abs().sum(1), "amax")
        apart_squared = float(apart.square().sum())
        places, *others = (float(part.square().sum()) for part in change)
        concavity = self.level * apart_squared
        curvature = concavity + norms.per_message * places + norms.per_weight * sum(others)
        size = min(1.0, (max(gap, 0.0) + concavity / 2) / max(curvature, _TINY))
        new = old + size * (entropy - old) + size * (1 - size) / 2 * apart_squared
        parts = tuple(m + size * d for m, d in zip(held.parts, change, strict=True))
        moved = _with(graph, point, Held(parts, held.atoms, held.alphas))
        return replace(moved, entropies=torch.full_like(point.entropies, new))

    def _moved(self, augmented: Parts, old: SoftPoint, new: SoftPoint, norms: Norms) -> Parts:
        """θ + ℓ after the weights have followed the marginals from ``old`` to ``new``, if each moved alone."""
        change = minus(_parts(new, augmented), _parts(old, augmented))
        return tuple(p - norms.per_weight * m for p, m in zip(augmented, change, strict=True))

    def _reparameterized(self, i: int, augmented: Parts, deltas: Tensor) -> tuple[Tensor, Tensor]:
        """θ̂ of the nodes of an example and of its edges that are alone, given messages of all rows."""
        nodes, edges = augmented[:2]
        count = len(self._all.each[i].alone)
        ends = deltas[: 2 * count].view(count, 2, nodes.shape[1])
        received = nodes.index_add(0, self._all.seats_of(i), deltas)
        return received, edges[:count] - ends[:, 0, :, None] - ends[:, 1, None, :]

    def _towards_gibbs(self, mu: Tensor, scores: Tensor) -> Tensor:
        """s_a − μ_a of all blocks of one kind."""
        gibbs: Tensor = (scores.flatten(1) / self.level).softmax(1)
        return gibbs.view_as(mu) - mu

    def _stepped(self, mu: Tensor, scores: Tensor, change: Tensor, norms: Norms, messages: Tensor) -> Tensor:
        """Distributions after a step on all blocks of one kind, with squared changes of marginals [blocks]."""
        m, direction, potentials = (tensor.flatten(1) for tensor in (mu, change, scores))
        entropy = -torch.special.xlogy(m, m).sum(1)
        gaps = self.level * (_log_sum(potentials / self.level) - entropy) - (potentials * m).sum(1)
        concavity = self.level * direction.abs().sum(1).square()
        curvature = concavity + norms.per_weight * direction.square().sum(1) + norms.per_message * messages
        sizes = ((gaps.clamp_min(0.0) + concavity / 2) / curvature.clamp_min(_TINY)).clamp_max(1.0)
        return torch.addcmul(mu, sizes.view(-1, *[1] * (mu.dim() - 1)), change)


_TINY = torch.finfo(torch.float64).tiny


def _log_sum(scores: Tensor) -> Tensor:
    """log Σ exp of the scores of each block."""
    return torch.logsumexp(scores.flatten(1), 1)
