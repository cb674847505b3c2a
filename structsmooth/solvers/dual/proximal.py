"""Proximal points outside, block-coordinate Frank-Wolfe inside."""

import math
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar

import numpy as np
import torch
from torch import Tensor

from structsmooth.problems.affine import inner, minus
from structsmooth.problems.base import Problem
from structsmooth.problems.linear.base import LinearProblem
from structsmooth.settings import Positive
from structsmooth.solvers.averaging import ONE_A_PASS, newest_weight
from structsmooth.solvers.bcfw import BCFW, BCFWState, valued
from structsmooth.solvers.lower_bound import DualPoint
from structsmooth.solvers.state import empty


@dataclass
class ProximalBCFWState(BCFWState):
    """Adds the proximal term. The weights of ``point`` are those of the statistics at λ, and ``weights`` are near them.

    These are the average of the prox-centers, or the last one. ``dual`` is the bound of a mixture of the statistics so
    far. For λ = 0 the weights of ``point`` are those of λ = 1, and there is no ``dual``.
    """

    center: Tensor = field(default_factory=empty)  # prox-center z
    scale: float = 0.0  # estimate of κ_0
    kappa: float = 0.0  # κ of the last pass
    halvings: int = 0  # of κ so far
    highest: float = 0.0  # largest D(m) of statistics so far
    last_rise: int = 0  # pass whose statistics raised it last, or that halved κ
    mixture: DualPoint | None = None  # none for the labels
    lam: float = 0.0  # λ of ``point``
    distance: float = 0.0  # F(z) less the bound and all block gaps; for the bound D(m) it is (λ/2)‖z − v‖²

    def towards_labels(self, ratio: float) -> "ProximalBCFWState":
        """The state for λ times a ratio below 1, as for BCFW; the mixture is scaled, too."""
        mixture = self.mixture and DualPoint(ratio * self.mixture.gradient, ratio * self.mixture.cost)
        scaled = super().towards_labels(ratio)
        return replace(scaled, highest=ratio * self.highest, mixture=mixture, lam=ratio * self.lam)


@dataclass(frozen=True)
class ProximalBCFW(BCFW):
    """Block-coordinate Frank-Wolfe within proximal point iterations, one pass of it in each.

    A pass maximizes the dual of F(w) + (κ/2)‖w − z‖² by the steps of :class:`~structsmooth.BCFW`, from the statistics
    of the last pass and from the weights w = (κz + λv)/(λ + κ) that belong to them, clipped to the bounds. Here
    v = −(1/(λn)) Σ B_iᵀ(m_i − ν(y_i)) are the weights of the statistics at λ. Then z = w is the prox-center of the next
    pass. It is the outer loop of :class:`~structsmooth.CasimirSVRG` without extrapolation, around a dual solver that
    needs no smoothing: inner problems with λ + κ in place of λ are better conditioned, and since statistics are kept,
    one pass is enough for each.

    Statistics are a point of the dual of F itself, whatever κ is, so D(m) = (1/n) Σ ⟨ℓ_i, m_i⟩ − λh*(v) is a lower
    bound after every pass. The gap is F(w) − D(m) = Σ g_i(w, m) + (λ/2)‖w − v‖²: what Frank-Wolfe has left to do, and
    how far the proximal points have to go. D(m) may fall from pass to pass, since v = w + (κ/λ)(w − z) depends on the
    last steps. Mixtures even that out: the bound is that of the best mixture of the labels, the last mixture and the
    new statistics, of which only v and the cost are needed.

    Block gaps sum to the duality gap of the inner problem, so a pass from z to w has
    F(w) − F* ≤ κ/(λ + κ) · (F(z) − F*) + Σ g_i(w, m): the iterates converge if block gaps vanish. That one pass is
    enough for this is observed and not proved. As a safeguard, κ is halved whenever D(m) has not risen for
    ``refresh`` passes and the proximal term (κ/2)‖w − z‖² is larger than the sum of block gaps: inner problems are
    then solved well enough, and it is the proximal term that holds w back. As κ vanishes, passes become those of BCFW.

    The weights are an average of the prox-centers, in proportion to the eighth power of their number, so mostly of the
    last ninth of them. It evens out what the last steps of a pass do, at the cost of one addition of vectors.

    It also takes λ = 0, unlike BCFW, since inner problems have a dual even so. Then F has none: there is no bound, κ
    stays as it is, and a run makes all its passes.

    Args:
        kappa: strength κ of the proximal term, at first. If not given, the largest of λ, the geometric mean of λ and
            κ_0, and κ_0/10. With κ_0 in place of λ, a typical first step of BCFW would be a full one:
            κ_0 = Σ ‖B_iᵀ(s_i − ν(y_i))‖² / (n Σ f_i(0)), over a few blocks i with outputs s_i of the oracle.
        average: return the average of the prox-centers instead of the last one.
    """

    kappa: Positive | None = None
    average: bool = True

    state_type: ClassVar[type[BCFWState]] = ProximalBCFWState

    def linear(self, problem: Problem, lam: float) -> LinearProblem:
        """The problem, known to have a dual with a proximal term."""
        return super().linear(problem, _divisor(lam))

    def begin(
        self,
        problem: LinearProblem,
        lam: float,
        statistics: Tensor,
        sets: tuple[Tensor, Tensor, Tensor],
        weights: Tensor | None = None,
    ) -> BCFWState:
        """As for BCFW, with the weights as the prox-center and an estimate of κ_0."""
        state = super().begin(problem, _divisor(lam), statistics, sets, weights)
        assert isinstance(state, ProximalBCFWState)
        scale = _estimate_scale(problem) if self.kappa is None else 0.0
        if lam == 0:
            return replace(state, center=state.weights, scale=scale, dual=None)
        assert state.dual is not None
        return replace(state, center=state.weights, scale=scale, highest=state.dual, lam=lam)

    def first_state(self, problem: Problem, lam: float, start: Any, seed: int) -> BCFWState:
        """As for BCFW, with the mixture of ``start`` if its statistics have the costs and gradients that they had."""
        state, linear = super().first_state(problem, lam, start, seed), self.linear(problem, lam)
        assert isinstance(state, ProximalBCFWState)
        if state.dual is None or not isinstance(start, ProximalBCFWState) or start.mixture is None:
            return state
        same_gradient = _agree(lam * state.point.weights, start.lam * linear.grown(start.point.weights))
        if not (same_gradient and math.isclose(state.cost, start.cost)):
            return state  # the problem has other costs or features, and the mixture would be wrong
        return replace(state, mixture=start.mixture, dual=max(state.dual, start.mixture.value(lam, problem.bounds)))

    def advance(
        self, problem: Problem, lam: float, state: BCFWState, rng: np.random.Generator, budget: int
    ) -> BCFWState:
        """One pass of BCFW on the objective with its proximal term, around the weights of the last pass."""
        assert isinstance(state, ProximalBCFWState)
        linear, kappa, divisor = self.linear(problem, lam), self.strength(state, lam), _divisor(lam)
        begin = (kappa * state.center).add_(state.point.weights, alpha=divisor).div_(lam + kappa)
        new = self.step_through(linear, lam + kappa, replace(state.moved(weights=begin), kappa=kappa), rng)
        reached, center = new.point.weights, linear.grown(state.center)
        new.center = linear.within_bounds(reached)
        if self.average:
            share = newest_weight(new.passes, ONE_A_PASS)
            new.weights = torch.lerp(linear.grown(state.weights), new.center, share)
        v = (reached - center).mul_(kappa / divisor).add_(reached, alpha=lam / divisor)
        new = new.moved(weights=v)
        if lam == 0:
            return new
        new = valued(new, linear, lam)
        step = new.center - center
        self._safeguard(new, state, kappa / 2 * float(step @ step))
        mixed = DualPoint(torch.zeros_like(v)) if state.mixture is None else state.mixture
        mixture = replace(mixed, gradient=linear.grown(mixed.gradient))
        new.mixture = mixture.improved(DualPoint(-lam * v, new.cost), lam, linear.bounds)
        assert state.dual is not None
        new.dual = max(state.dual, new.mixture.value(lam, linear.bounds))
        overlap = float(new.center @ v - new.center @ new.center / 2)
        new.distance = new.cost - new.dual - lam * overlap
        return new

    def averaging(self, begin: int, end: int) -> tuple[Tensor | None, float]:
        """No averages of the iterates after single steps."""
        return None, 0.0

    def strength(self, state: ProximalBCFWState, lam: float) -> float:
        """κ of the next pass."""
        first = self.kappa or kappa_of(lam, state.scale)
        return math.ldexp(first, -state.halvings)

    def metrics(self, state: BCFWState) -> dict[str, float]:
        """The metrics of BCFW, with κ, and with the part of the estimated gap that belongs to no block."""
        metrics = super().metrics(state)
        if metrics and isinstance(state, ProximalBCFWState):
            metrics["estimated_gap"] += state.distance
            metrics["kappa"] = state.kappa
            if state.dual is None:  # block gaps are of the inner problem alone
                del metrics["estimated_gap"]
        return metrics

    def _safeguard(self, new: ProximalBCFWState, old: ProximalBCFWState, proximity: float) -> None:
        """Halve κ if the proximal term has held the statistics of ``new`` back for long."""
        assert new.dual is not None
        if new.dual > old.highest:
            new.highest, new.last_rise = new.dual, new.passes
            return
        # Gaps of a pass that samples are too small where it did not look.
        held_back = proximity > max(float(new.point.gaps.sum()), float(old.point.gaps.sum()))
        if held_back and new.passes - new.last_rise >= self.refresh_period:
            new.halvings, new.last_rise = new.halvings + 1, new.passes


def _agree(a: Tensor, b: Tensor) -> bool:
    """Whether two vectors differ by rounding alone."""
    return a.shape == b.shape and float((a - b).norm()) <= math.sqrt(torch.finfo(a.dtype).eps) * float(a.norm())


def _divisor(lam: float) -> float:
    """The number by which v is divided: λ, or 1 if λ = 0."""
    return lam or 1.0


def kappa_of(lam: float, scale: float) -> float:
    """κ by default, for λ and κ_0."""
    return max(lam, math.sqrt(lam * scale), _LEAST * scale) or 1.0


def _estimate_scale(problem: LinearProblem) -> float:
    """κ_0, by one oracle call on each of a few blocks at zero weights."""
    w = problem.within_bounds(torch.zeros_like(problem.start()))
    square, loss = 0.0, 0.0
    for block in range(0, problem.blocks, -(-problem.blocks // _SAMPLE)):
        augmented = problem.augmented(w, block)
        towards = minus(problem.call(augmented, block).statistics, problem.label_parts(block))
        square += problem.block_weight(block) * problem.feature_map.squared_norm(towards, block)
        loss += float(inner(augmented, towards))
    return square / loss if loss > 0 else 0.0


# Blocks on which κ_0 is estimated, about.
_SAMPLE = 30
# Least κ in units of κ_0. For tiny λ the best κ is a constant of the data.
_LEAST = 0.1
