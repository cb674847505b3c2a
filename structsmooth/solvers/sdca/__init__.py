"""Proximal points of a smoothed objective by stochastic dual coordinate ascent (Shalev-Shwartz and Zhang 2014)."""

from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from structsmooth.problems.base import Problem
from structsmooth.problems.derived import TiltedProblem
from structsmooth.problems.linear.base import LinearProblem
from structsmooth.problems.reductions import agreed
from structsmooth.settings import Positive
from structsmooth.smoothing import Max, Smoother
from structsmooth.solvers.averaging import ONE_A_PASS, newest_weight
from structsmooth.solvers.base import SmoothingSolver
from structsmooth.solvers.dual.base import checked_linear
from structsmooth.solvers.lower_bound import BoundedState, DualPoint
from structsmooth.solvers.primal.gradient import estimate_loss_scale, first_weights
from structsmooth.solvers.sdca import chain_loop  # noqa: F401 - it registers its loop
from structsmooth.solvers.sdca.steps import SmoothedIterate, epoch
from structsmooth.solvers.state import empty


@dataclass
class ProximalSDCAState(BoundedState):
    """After pass k; ``weights`` are w_k, or for hinges an average of the prox-centers up to it."""

    point: SmoothedIterate = field(kw_only=True)  # its weights are the prox-center z_k
    mu: float = 0.0  # μ_k
    kappa: float = 0.0  # κ
    plane: Tensor = field(default_factory=empty)  # (1/n) Σ B_iᵀ(m_i − ν(y_i)), [dim]


@dataclass(frozen=True)
class ProximalSDCA(SmoothingSolver[ProximalSDCAState]):
    """Proximal points of a smoothed objective, each by one pass of stochastic dual coordinate ascent.

    Pass k ascends the dual of F_{μ_k}(w) + (κ/2)‖w − z_{k-1}‖² with μ_k = μ/k, from the statistics of the pass before,
    and the weights that belong to them are z_k. A step calls the smoothed oracle once and has an exact line search, so
    there is no step size. The problem is linear; λ may be 0, and its losses may be hinges or smooth. For hinges, the
    weights are an average of the prox-centers, in proportion to the eighth power of their number, and for smooth
    losses the last one.

    It differs from :class:`~structsmooth.CasimirSVRG` in the solver of the inner problems, and in that it does not
    extrapolate. It trains likelihoods with a certificate; for hinges, :class:`~structsmooth.ProximalBCFW` is the same
    idea without smoothing, and mostly faster.

    Args:
        mu: level of smoothing μ of the first pass. If not given, a twentieth of the mean loss of a few examples.
        kappa: strength κ of the proximal term. If not given, a tenth of κ_0 = mean ‖∇f_i‖² / (n · mean f_i) over a few
            examples, or λ if that is larger: with κ_0 in place of λ, a typical first step would be a full one.

    Reference:
        Shalev-Shwartz and Zhang (2014), "Accelerated proximal stochastic dual coordinate ascent for regularized loss
        minimization".
    """

    mu: Positive | None = None
    kappa: Positive | None = None

    state_type = ProximalSDCAState

    def check(self, problem: Problem, lam: float) -> None:
        """Refuse bounds, and problems that are not linear."""
        _linear(problem)
        super().check(problem, lam)

    def first_state(self, problem: Problem, lam: float, start: Any, seed: int) -> ProximalSDCAState:
        """The given weights as z_0 and the planes of the labels, with μ and κ from a few examples.

        Of a state, weights and statistics are those to begin with.
        """
        linear, given = _linear(problem), isinstance(start, ProximalSDCAState)
        weights = first_weights(problem, start.weights if given else start)
        few = estimate_loss_scale(linear, weights, seed, batch_size=1)  # of a few, a tilt may lower the loss below 0
        plane = _slope(problem)
        statistics = start.point.statistics if given else linear.label_statistics()
        state = ProximalSDCAState(
            weights,
            point=SmoothedIterate(weights, statistics, weights.new_zeros(linear.blocks)),
            mu=self.mu or _SMOOTHED * few.loss or _SMOOTHED,
            kappa=self.kappa or max(lam, _HELD / (problem.n * few.polyak_step_size)),
            plane=plane - linear.dual_weights(statistics, 1.0) if given else plane,
        )
        return _with_bound(state, problem, lam)

    def advance(
        self, problem: Problem, lam: float, state: ProximalSDCAState, rng: np.random.Generator, budget: int
    ) -> ProximalSDCAState:
        """One pass from the planes of the last, and from the weights (κz − g)/(λ + κ) of their mean slope g."""
        linear, k = _linear(problem), state.passes + 1
        lower = state.passes / k if k > 1 else 1.0
        new = replace(state, passes=k, mu=state.mu * lower)
        # The offsets of planes are in proportion to μ, but a problem's own smoother stays.
        hinges = isinstance(linear.smoother, Max)
        offset = state.point.smoothing_offset * lower if hinges else state.point.smoothing_offset
        pull, convexity = state.kappa * state.point.weights, lam + state.kappa
        start = SmoothedIterate((pull - state.plane) / convexity, state.point.statistics, offset)
        order = torch.from_numpy(rng.permutation(linear.blocks))
        smoother = linear.effective_smoother(self.smoother(new))
        new.point = agreed(linear, epoch(linear, start, order, lam=convexity, smoother=smoother))
        center = new.point.weights
        new.plane = pull - convexity * center
        new.weights = torch.lerp(state.weights, center, newest_weight(k, ONE_A_PASS)) if hinges else center
        return _with_bound(new, problem, lam)

    def smoother(self, state: ProximalSDCAState) -> Smoother:
        """Smoothing by μ_k."""
        return self.smooth(state.mu)


def _linear(problem: Problem) -> LinearProblem:
    """The problem, known to be linear up to a tilt, without it."""
    return checked_linear("ProximalSDCA", problem.problem if isinstance(problem, TiltedProblem) else problem)


def _slope(problem: Problem) -> Tensor:
    """The slope of the tilt, zero without one: [dim]."""
    return problem.slope.clone() if isinstance(problem, TiltedProblem) else torch.zeros_like(problem.start())


def _with_bound(state: ProximalSDCAState, problem: Problem, lam: float) -> ProximalSDCAState:
    """``state`` with a bound that its point in the dual of F itself has improved.

    Offsets of planes count only where they come from the problem's own smoother: other smoothing is no part of F.
    """
    if lam > 0:
        linear = _linear(problem)
        point, tilt = state.point, problem.constant if isinstance(problem, TiltedProblem) else 0
        cost = linear.expected_cost(point.statistics) + tilt
        if not isinstance(linear.smoother, Max):
            cost += float(linear.block_weights.to(point.smoothing_offset) @ point.smoothing_offset)
        state.raise_bound(DualPoint(state.plane, cost), lam)
    return state


# The first level of smoothing in units of the mean loss, and κ in units of κ_0.
_SMOOTHED, _HELD = 0.05, 0.1
