"""Stochastic variance-reduced gradient on a smoothed objective."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import ClassVar, Literal, TypeVar

import numpy as np
from torch import Tensor

from structsmooth.problems.base import FullPass, Problem
from structsmooth.smoothing import L2, Entropy, Smoother
from structsmooth.solvers.base import Solver, State, check_positive
from structsmooth.structures.base import check_k


@dataclass
class SmoothedState(State):
    """Adds the value of the smoothed objective, or of the inner problem, where the last epoch started."""

    epoch_start: float = math.inf


S = TypeVar("S", bound=SmoothedState)


@dataclass(frozen=True)
class SmoothedSolver(Solver[S]):
    """A solver of smoothed objectives by SVRG epochs.

    Args:
        k: number of outputs of the top-K oracle (ℓ₂ smoothing).
        smoothing: ``"l2"`` for the top-K oracle or ``"entropy"`` for the exp oracle.
    """

    k: int = 5
    smoothing: Literal["l2", "entropy"] = "l2"

    controls_step: ClassVar[bool] = True

    def __post_init__(self) -> None:
        super().__post_init__()
        check_k(self.k)
        if self.smoothing not in ("l2", "entropy"):
            raise ValueError(f'smoothing must be "l2" or "entropy", got {self.smoothing!r}')

    def smooth(self, mu: float) -> Smoother:
        """The smoother of level ``mu``."""
        return L2(mu, self.k) if self.smoothing == "l2" else Entropy(mu)

    def stalled(self, state: S, full: FullPass, lam: float) -> bool:
        """Whether the epoch ended no lower than it started."""
        return self.epoch_objective(state, full, lam) >= state.epoch_start

    def epoch_objective(self, state: S, full: FullPass, lam: float) -> float:
        """What an epoch minimizes, at the weights of ``full``: F_μ."""
        return full.smoothed_loss + lam / 2 * float(full.weights.square().sum())


@dataclass(frozen=True)
class SVRG(SmoothedSolver[SmoothedState]):
    """SVRG (Johnson and Zhang 2013) on the objective smoothed by a constant μ.

    An epoch is a full pass, then one pass of stochastic steps that starts from its weights; the mean of the iterates
    starts the next epoch (Pillutla et al. 2019, section 7.2). The smoothed objective is within μ/2 of the objective
    (ℓ₂ smoothing), so μ also is the accuracy to be had.

    Args:
        mu: level of smoothing μ.
    """

    mu: float = 0.03

    state_type: ClassVar[type[State]] = SmoothedState

    def __post_init__(self) -> None:
        super().__post_init__()
        check_positive(self, "mu")

    def begin(self, problem: Problem, lam: float, weights: Tensor, step_size: float) -> SmoothedState:
        """The given weights."""
        # Longer steps would diverge on the regularizer alone.
        return SmoothedState(weights, min(step_size, 0.5 / lam) if lam > 0 else step_size)

    def advance(self, problem: Problem, lam: float, state: SmoothedState, rng: np.random.Generator) -> SmoothedState:
        """One epoch."""
        new = replace(state, passes=state.passes + 1)
        snapshot = problem.full_pass(state.weights, problem.surrogate(self.smoother(state)))
        new.improve_dual(snapshot, lam)
        new.epoch_start = self.epoch_objective(new, snapshot, lam)
        step_size = state.step_size
        new.weights = problem.svrg_epoch(snapshot, self.order(problem, rng), step_size=step_size, lam=lam)
        return new

    def smoother(self, state: SmoothedState) -> Smoother:
        """Smoothing by the constant μ."""
        return self.smooth(self.mu)
