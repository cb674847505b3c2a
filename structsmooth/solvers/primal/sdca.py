"""Proximal points of a smoothed objective by stochastic dual coordinate ascent (Shalev-Shwartz and Zhang 2014)."""

from dataclasses import dataclass, field, replace
from typing import TypeVar

import torch
from torch import Tensor

from structsmooth.problems.base import FullPass
from structsmooth.problems.linear.ascent import SmoothedIterate
from structsmooth.problems.linear.base import LinearProblem
from structsmooth.smoothing import Max, Smoother
from structsmooth.solvers.averaging import ONE_A_PASS, newest_share
from structsmooth.solvers.lower_bound import DualPoint
from structsmooth.solvers.primal.svrg import SmoothedState
from structsmooth.solvers.state import empty


@dataclass
class AscentState(SmoothedState):
    """Adds a point of the smoothed dual; its tensors are empty for a run that has none.

    They are described at :class:`~structsmooth.problems.linear.ascent.SmoothedIterate`.
    """

    statistics: Tensor = field(default_factory=empty)
    surplus: Tensor = field(default_factory=empty)
    plane: Tensor = field(default_factory=empty)  # (1/n) Σ B_iᵀ(m_i − ν(y_i)), [dim]
    center: Tensor = field(default_factory=empty)  # prox-center z_k, of which ``weights`` may be an average

    @property
    def ascends(self) -> bool:
        """Whether there is a point of the dual."""
        return len(self.statistics) > 0

    def observe(self, full: FullPass, lam: float) -> None:
        """Nothing to learn where there is a point of the dual, which has its own bound."""
        if not self.ascends:
            super().observe(full, lam)


A = TypeVar("A", bound=AscentState)


def from_labels(problem: LinearProblem, lam: float, state: A) -> A:
    """``state`` with the point of the dual that the labels are."""
    statistics = problem.label_statistics()
    surplus = state.weights.new_zeros(problem.blocks)
    plane = torch.zeros_like(state.weights)
    point = replace(state, statistics=statistics, surplus=surplus, plane=plane, center=state.weights)
    return _with_bound(problem, lam, point)


def proximal_pass(problem: LinearProblem, lam: float, state: A, smoother: Smoother, kappa: float, order: Tensor) -> A:
    """One pass of ascent on F_μ(w) + (κ/2)‖w − z‖² around the prox-center z of ``state``, which μ the surplus is for.

    It starts from the planes of the last pass, and from the weights (κz − g)/(λ + κ) that belong to them, where g is
    their mean slope. The weights of hinges are an average of the prox-centers, as in ``ProximalBCFW``. Smooth losses
    converge too fast for that.
    """
    hinges, passes = isinstance(problem.smoother, Max), state.passes + 1
    pull = kappa * (state.center if len(state.center) else state.weights)  # states of older versions have no center
    start = SmoothedIterate((pull - state.plane) / (lam + kappa), state.statistics, state.surplus)
    point = problem.sdca_epoch(start, order, lam=lam + kappa, smoother=smoother)
    new = replace(
        state,
        weights=torch.lerp(state.weights, point.weights, newest_share(passes, ONE_A_PASS)) if hinges else point.weights,
        center=point.weights,
        statistics=point.statistics,
        surplus=point.surplus,
        plane=pull - (lam + kappa) * point.weights,
        passes=passes,
    )
    return _with_bound(problem, lam, new)


def _with_bound(problem: LinearProblem, lam: float, state: A) -> A:
    """``state`` with a bound that its point in the dual of F itself has improved.

    The surplus counts only where it comes from the problem's own smoother: other smoothing is no part of F.
    """
    if lam == 0:
        return state
    cost = problem.expected_cost(state.statistics)
    if not isinstance(problem.smoother, Max):
        cost += float(problem.block_shares.to(state.surplus) @ state.surplus)
    new = replace(state)
    new.raise_bound(DualPoint(state.plane, cost), lam)
    return new
