"""Stochastic subgradient descent on the objective itself."""

from dataclasses import dataclass, field, replace
from typing import Literal

import numpy as np
import torch
from torch import Tensor

from structsmooth.problems.base import Problem
from structsmooth.problems.reductions import agreed
from structsmooth.settings import Positive, PositiveInt
from structsmooth.solvers.averaging import weights_of_iterates
from structsmooth.solvers.primal.gradient import GradientSolver, GradientState
from structsmooth.solvers.sgd import chain_loop  # noqa: F401 - it registers its loop
from structsmooth.solvers.sgd.steps import epoch
from structsmooth.solvers.state import empty


@dataclass
class SGDState(GradientState):
    """Adds the last iterate (``weights`` is the average) and the number of steps made."""

    iterate: Tensor = field(default_factory=empty)
    steps: int = 0


@dataclass(frozen=True)
class SGD(GradientSolver[SGDState]):
    """Stochastic subgradient descent, without smoothing.

    The weights are a weighted average of the iterates, see :func:`~structsmooth.solvers.averaging.newest_weight`.

    Args:
        schedule: step sizes: ``"strongly-convex"`` for γ_t = 1/(2λ(t + t₀)), with t₀ such that the first step is the
            learning rate (half the steps of Shalev-Shwartz et al. 2011, for half the noise; needs λ > 0);
            ``"inverse"`` for γ₀/(1 + ⌊t/t₀⌋); ``"inverse-sqrt"`` for the same with the square root of the denominator;
            ``"constant"`` for γ₀.
        t0: t₀ of the ``"inverse"`` and ``"inverse-sqrt"`` schedules, in passes.
        average: return the average of the iterates instead of the last one.
        threads: number of threads that share the steps of a pass (Niu et al. 2011), each on one example, for a
            :class:`~structsmooth.problems.SparseChainProblem`; they also share full passes. A step does not see the
            unfinished steps of other threads, so two runs with the same seed differ. One thread gives the same iterates
            in every run.
    """

    schedule: Literal["strongly-convex", "inverse", "inverse-sqrt", "constant"] = "strongly-convex"
    t0: Positive = 1.0
    average: bool = True
    threads: PositiveInt = 1

    state_type = SGDState

    @property
    def polyak_factor(self) -> float:
        """Longer for schedules whose steps soon are shorter."""
        return 10.0 if self.schedule in ("strongly-convex", "inverse") else 2.5

    def check(self, problem: Problem, lam: float) -> None:
        """Refuse bounds, several threads where steps are not compiled for them, and λ = 0 where it divides."""
        super().check(problem, lam)
        problem.check_threads(self.threads)
        if self.threads > 1 and self.examples_per_step(problem) > 1:
            raise ValueError(
                f"threads must be 1 for steps on {self.examples_per_step(problem)} examples, got {self.threads}: only "
                "steps on one example are compiled for several"
            )
        if lam == 0 and self.schedule == "strongly-convex":
            raise ValueError('the "strongly-convex" schedule needs lam > 0; use schedule="inverse"')

    def begin(self, problem: Problem, lam: float, weights: Tensor, step_size: float) -> SGDState:
        """State before the first pass: the given weights, no steps made."""
        return SGDState(weights, step_size, iterate=weights)

    def advance(self, problem: Problem, lam: float, state: SGDState, rng: np.random.Generator, budget: int) -> SGDState:
        """Make one pass over the examples in random order."""
        order = self.order(problem, rng)
        t = torch.arange(state.steps + 1, state.steps + len(order) + 1, dtype=torch.float64)
        averaging_weights, old_weight = weights_of_iterates(t, _DEGREES[self.schedule])
        result = epoch(
            problem,
            state.iterate,
            order,
            step_sizes=self.step_sizes(t, len(order), lam, state.step_size),
            lam=lam,
            smoother=problem.smoother,
            averaging_weights=averaging_weights,
            threads=self.threads,
        )
        iterate, total = agreed(problem, result)
        weights = (old_weight * state.weights).add_(total) if self.average else iterate
        return replace(state, weights=weights, iterate=iterate, steps=state.steps + len(order), passes=state.passes + 1)

    def step_sizes(self, t: Tensor, steps_per_pass: int, lam: float, first: float) -> Tensor:
        """γ_t at steps ``t`` = 1, 2, ..., for a first step size γ₀."""
        if self.schedule == "strongly-convex":
            return 1 / (2 * lam * (t - 1) + 1 / first)
        if self.schedule == "constant":
            return torch.full_like(t, first)
        decay = 1 + torch.floor((t - 1) / (self.t0 * steps_per_pass))
        return first / (decay if self.schedule == "inverse" else decay.sqrt())


# Without strong convexity the first iterates deserve to be remembered longer: the weights of Pillutla et al. 2019, 7.2.
_DEGREES = {"strongly-convex": 12, "inverse": 1, "inverse-sqrt": 1, "constant": 1}
