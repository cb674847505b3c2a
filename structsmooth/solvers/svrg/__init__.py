"""Stochastic variance-reduced gradient on a smoothed objective."""

import math
from dataclasses import dataclass, replace
from typing import Literal, TypeVar

import numpy as np
from torch import Tensor

from structsmooth.problems.base import FullPass, Problem
from structsmooth.problems.reductions import agreed
from structsmooth.settings import Positive
from structsmooth.smoothing import Smoother
from structsmooth.solvers.base import SmoothingSolver
from structsmooth.solvers.primal.gradient import GradientSolver, GradientState
from structsmooth.solvers.svrg import chain_loop  # noqa: F401 - it registers its loop
from structsmooth.solvers.svrg.steps import epoch


@dataclass
class SmoothedState(GradientState):
    """State of a solver by SVRG epochs: the full pass that evaluates ``weights`` is the snapshot of the next one."""

    epoch_start: float = math.inf  # value of what the last epoch minimized, where the epoch started


S = TypeVar("S", bound=SmoothedState)


@dataclass(frozen=True)
class SmoothedSolver(GradientSolver[S], SmoothingSolver[S]):
    """A solver of smoothed objectives by SVRG epochs.

    A pass takes two oracle calls on each example: one in a step, and one in the full pass at the weights after it,
    which both evaluates them and is the snapshot of the next epoch.
    """

    mu: Positive | None = None

    reuses_evaluations = counts_evaluations = True
    patience = 2

    def stalled(self, state: S, full: FullPass, lam: float) -> bool:
        """Whether the last epoch ended no lower than it started."""
        return self.epoch_objective(state, state.reached, full, lam) >= state.epoch_start

    def epoch_objective(self, state: S, w: Tensor, full: FullPass, lam: float) -> float:
        """What an epoch minimizes, at ``w``: F_μ, by the tangent of the smoothed loss at the weights of ``full``.

        It is the value itself at these weights, and elsewhere no more than that, since the loss is convex.
        """
        smoothed_loss = full.smoothed_loss + float(full.gradient @ (w - full.weights))
        return smoothed_loss + lam / 2 * float(w.square().sum())


@dataclass(frozen=True)
class SVRG(SmoothedSolver[SmoothedState]):
    """SVRG (Johnson and Zhang 2013) on the objective smoothed by a constant μ.

    An epoch is a full pass, then one pass of stochastic steps that starts from its weights. The smoothed objective is
    within μ/2 of the objective (ℓ₂ smoothing), so μ also limits the accuracy.

    Args:
        mu: level of smoothing μ. If not given, 0.03.
        restart: the weights after an epoch, where the next one starts: ``"last"`` for the last iterate, or
            ``"average"`` for the mean of its iterates, the form that Pillutla et al. (2019) compare with.
    """

    restart: Literal["last", "average"] = "last"

    state_type = SmoothedState

    def begin(self, problem: Problem, lam: float, weights: Tensor, step_size: float) -> SmoothedState:
        """State before the first pass, at the given weights."""
        # Longer steps would diverge on the regularizer alone.
        return SmoothedState(weights, min(step_size, 0.5 / lam) if lam > 0 else step_size)

    def advance(
        self, problem: Problem, lam: float, state: SmoothedState, rng: np.random.Generator, budget: int
    ) -> SmoothedState:
        """One epoch, whose snapshot is where the epoch before it ended."""
        snapshot = state.memo.full_pass(problem, state.weights, self.smoother(state))
        order = self.order(problem, rng)
        last, mean = agreed(problem, epoch(problem, snapshot, order, step_size=state.step_size, lam=lam))
        return replace(
            state,
            weights=mean if self.restart == "average" else last,
            passes=state.passes + 1,
            epoch_start=self.epoch_objective(state, state.weights, snapshot, lam),
        )

    def smoother(self, state: SmoothedState) -> Smoother:
        """Smoothing by the constant μ."""
        return self.smooth(self.mu or 0.03)
