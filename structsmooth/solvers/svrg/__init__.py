"""Stochastic variance-reduced gradient on a smoothed objective."""

import math
from dataclasses import dataclass, field, replace
from typing import Literal, TypeVar

import numpy as np
import torch
from torch import Tensor

from structsmooth.problems.base import FullPass, Problem
from structsmooth.problems.sharding import agreed
from structsmooth.settings import Positive
from structsmooth.smoothing import Smoother
from structsmooth.solvers.averaging import newest_weight
from structsmooth.solvers.primal.gradient import GradientSolver, GradientState
from structsmooth.solvers.smoothing import SmoothingSolver
from structsmooth.solvers.state import empty
from structsmooth.solvers.step_control import StepControl
from structsmooth.solvers.svrg import fused_chain  # noqa: F401 - it registers its loop
from structsmooth.solvers.svrg.steps import epoch


@dataclass
class SmoothedState(GradientState):
    """Adds the value of the smoothed objective, or of the inner problem, where the last epoch started."""

    epoch_start: float = math.inf


S = TypeVar("S", bound=SmoothedState)


@dataclass(frozen=True)
class SmoothedSolver(GradientSolver[S], SmoothingSolver[S]):
    """A solver of smoothed objectives by SVRG epochs."""

    mu: Positive | None = None

    reuses_evaluations = counts_evaluations = True

    def step_control(self, problem: Problem, lam: float) -> StepControl[S] | None:
        """Two passes in a row that do not decrease what they work on halve the step size too."""
        return StepControl(self, problem, lam, patience=2)

    def epoch_objective(self, state: S, full: FullPass, lam: float) -> float:
        """What an epoch minimizes, at the weights of ``full``: F_μ."""
        return full.smoothed_loss + lam / 2 * float(full.weights.square().sum())


@dataclass
class SVRGState(SmoothedState):
    """Adds where the next epoch starts, and the value where the one before the last did; ``weights`` are an average."""

    iterate: Tensor = field(default_factory=empty)
    previous_start: float = math.inf


@dataclass(frozen=True)
class SVRG(SmoothedSolver[SVRGState]):
    """SVRG (Johnson and Zhang 2013) on the objective smoothed by a constant μ.

    An epoch is a full pass, then one pass of stochastic steps that starts from its weights. The smoothed objective is
    within μ/2 of the objective (ℓ₂ smoothing), so μ also limits the accuracy.

    Args:
        mu: level of smoothing μ. If not given, 0.03.
        restart: where the next epoch starts: ``"last"`` for the last iterate, with a weighted average of the means of
            the epochs as weights, see :func:`~structsmooth.solvers.averaging.newest_weight`; ``"average"`` for the
            mean of the iterates of the epoch, which are then the weights. This is the form that Pillutla et al. (2019)
            compare with; its full passes also are evaluations.
    """

    restart: Literal["last", "average"] = "last"

    state_type = SVRGState

    def begin(self, problem: Problem, lam: float, weights: Tensor, step_size: float) -> SVRGState:
        """The given weights."""
        # Longer steps would diverge on the regularizer alone.
        return SVRGState(weights, min(step_size, 0.5 / lam) if lam > 0 else step_size, iterate=weights)

    def advance(
        self, problem: Problem, lam: float, state: SVRGState, rng: np.random.Generator, budget: int
    ) -> SVRGState:
        """One epoch, whose snapshot is where the epoch before it ended."""
        new = replace(state, passes=state.passes + 1, previous_start=state.epoch_start)
        snapshot = state.memo.full_pass(problem, state.iterate, self.smoother(state))
        new.observe(snapshot, lam)
        new.epoch_start = self.epoch_objective(new, snapshot, lam)
        order = self.order(problem, rng)
        last, mean = agreed(problem, epoch(problem, snapshot, order, step_size=state.step_size, lam=lam))
        if self.restart == "average":
            new.iterate = new.weights = mean
            return new
        new.iterate = last
        new.weights = torch.lerp(state.weights, mean, newest_weight(new.passes))
        return new

    def restarted(self, state: SVRGState) -> SVRGState:
        """From the average: the last iterate may be where the explosion began."""
        return replace(state, iterate=state.weights, epoch_start=math.inf)

    def stalled(self, state: SVRGState, full: FullPass, lam: float) -> bool:
        """Whether the epoch before the last ended no lower than it started."""
        return state.epoch_start >= state.previous_start

    def smoother(self, state: SVRGState) -> Smoother:
        """Smoothing by the constant μ."""
        return self.smooth(self.mu or 0.03)
