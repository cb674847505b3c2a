"""How models of prox-linear iterations are minimized: in the dual by block-coordinate steps, or smoothed by SVRG."""

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, NamedTuple

import numpy as np
import torch
from numpy.random import Generator
from torch import Tensor

from structsmooth.problems.base import FullPass, Problem
from structsmooth.smoothing import Max, Smoother
from structsmooth.solvers.primal.gradient import GradientState
from structsmooth.solvers.primal.proximal_dual import BlockStatistics, ProximalDual, linearized
from structsmooth.solvers.primal.smoothed_model import SmoothedModel
from structsmooth.solvers.primal.svrg import SmoothedSolver
from structsmooth.solvers.state import empty


@dataclass
class ProxLinearState(GradientState):
    """After iteration k: ``weights`` is w_k, ``step_size`` is η."""

    iteration: int = 0  # k
    objective: float = math.inf  # F(w_k)
    tolerance: float = 0.0  # ε_0
    lipschitz: float = 0.0  # L_0
    mu: float = 0.0  # μ_k
    mapping: float = 0.0  # norm of the gradient mapping ϱ_η(w_{k-1}), with the candidate ŵ_k for the exact minimum
    statistics: Tensor = field(default_factory=empty)  # of BCFW, with sizes and constants; see BlockStatistics
    sizes: Tensor = field(default_factory=lambda: torch.zeros(0, dtype=torch.int64))
    constants: Tensor = field(default_factory=empty)
    seen_gap: float = 0.0  # of model k, by the last pass of BCFW
    model_gap: float | None = None  # of model k at ŵ_k, where it has been evaluated

    def observe(self, full: FullPass, lam: float) -> None:
        """Learn F(w_k), too."""
        super().observe(full, lam)
        self.objective = objective(full, lam)


class Limits(NamedTuple):
    """Passes on a model, and how near its minimum they may end before; one more call on each example tells."""

    passes: int
    tolerance: float | None


@dataclass
class Candidate:
    """ŵ_k, the linearized problem and, from BCFW, a lower bound on model k."""

    weights: Tensor
    linear: Problem
    bound: float | None = None


class Models(ABC):
    """A way to minimize the models of all iterations.

    Attributes:
        passes: of an iteration, if their number is not given.
    """

    passes: ClassVar[int]

    @abstractmethod
    def smoother(self, iteration: int) -> Smoother:
        """Smoothing of the full pass that an iteration begins with."""

    @abstractmethod
    def evaluate(self, problem: Problem, weights: Tensor, iteration: int) -> FullPass:
        """The pass that gives F, and that the iteration begins with where it goes on from these weights."""

    @abstractmethod
    def minimize(
        self, problem: Problem, lam: float, state: ProxLinearState, rng: Generator, limits: Limits
    ) -> Candidate:
        """Line 3 of iteration k.

        Args:
            problem: with scores of any kind.
            lam: λ.
            state: of iteration k, with w_{k-1}; passes, and what the next model starts from, are kept there.
            rng: of the order of examples.
            limits: when to stop.
        """

    @abstractmethod
    def metrics(self, state: ProxLinearState) -> dict[str, float]:
        """What the history tells of the last model."""

    def first_lipschitz(self, problem: Problem, lam: float, state: ProxLinearState, seed: int) -> float:
        """Estimate of L_0; 0 where none is needed."""
        return 0.0


@dataclass(frozen=True)
class DualModels(Models):
    """By block-coordinate Frank-Wolfe, from the statistics of the model before.

    Attributes:
        blocks: examples of the blocks of a problem.
    """

    blocks: Callable[[Problem], Sequence[Tensor]]

    passes = 2

    def smoother(self, iteration: int) -> Smoother:
        """None."""
        return Max()

    def evaluate(self, problem: Problem, weights: Tensor, iteration: int) -> FullPass:
        """F alone: iterations begin with their statistics."""
        return problem.full_pass(weights, problem.surrogate(Max()), with_loss=True, with_statistics=False)

    def minimize(
        self, problem: Problem, lam: float, state: ProxLinearState, rng: Generator, limits: Limits
    ) -> Candidate:
        """Until the duality gap is small enough, if there is a tolerance."""
        linear = linearized(problem, state.weights)
        dual = ProximalDual(linear, lam, state.step_size, state.weights, self.blocks(problem))
        point = dual.point(BlockStatistics(state.statistics, state.sizes, state.constants))
        for _ in range(limits.passes):
            point = dual.ascend(point, rng)
            state.passes += 1
            if limits.tolerance is not None:
                state.model_gap = dual.gap(point)
                if state.model_gap <= limits.tolerance:
                    break
        state.seen_gap = float(point.gap)
        blocks = point.blocks
        state.statistics, state.sizes, state.constants = blocks.statistics, blocks.sizes, blocks.constants
        return Candidate(point.weights, linear, float(point.value))

    def metrics(self, state: ProxLinearState) -> dict[str, float]:
        """Gaps of the model."""
        exact = {} if state.model_gap is None else {"model_gap": state.model_gap}
        return {"estimated_model_gap": state.seen_gap} | exact


@dataclass(frozen=True)
class SmoothedModels(Models):
    """By SVRG or Casimir-SVRG, from w_{k-1}, on models that are smoothed.

    Attributes:
        solver: of models with a level of smoothing, without its step size.
        first_mu: μ.
        adaptive: whether μ_k = μ/k and L_k = k L_0, instead of μ and L_0.
    """

    solver: Callable[[float], SmoothedSolver[Any]]
    first_mu: float
    adaptive: bool

    passes = 5

    def level(self, iteration: int) -> int:
        """What μ is divided by and L_0 multiplied with."""
        return iteration if self.adaptive else 1

    def smoother(self, iteration: int) -> Smoother:
        """That of the model."""
        mu = self.first_mu / self.level(iteration)
        return self.solver(mu).smooth(mu)

    def evaluate(self, problem: Problem, weights: Tensor, iteration: int) -> FullPass:
        """On the linearized problem, with statistics for the first epoch."""
        smoother = problem.surrogate(self.smoother(iteration))
        return problem.linearize(weights).full_pass(weights, smoother, with_loss=True)

    def minimize(
        self, problem: Problem, lam: float, state: ProxLinearState, rng: Generator, limits: Limits
    ) -> Candidate:
        """Until the gradient of the smoothed model is small enough, if there is a tolerance."""
        first = state.evaluation or self.evaluate(problem, state.weights, state.iteration)
        level = self.level(state.iteration)
        state.mu = self.first_mu / level
        model = SmoothedModel(problem.linearize(state.weights), lam, state.step_size, state.weights)
        weights, made = model.minimize(self.solver(state.mu), level * state.lipschitz, first, rng, *limits)
        state.passes += made
        return Candidate(weights, model.linear)

    def metrics(self, state: ProxLinearState) -> dict[str, float]:
        """The level of smoothing."""
        return {"inner_mu": state.mu}

    def first_lipschitz(self, problem: Problem, lam: float, state: ProxLinearState, seed: int) -> float:
        """L_0, on a few examples: linearized scores take long, and iterations double L_0 where it is too small."""
        few = problem.subset(torch.from_numpy(np.random.default_rng(seed).permutation(problem.n)[:_SAMPLE]))
        model = SmoothedModel(few.linearize(state.weights), lam, state.step_size, state.weights)
        tried = self.solver(state.mu).try_step_sizes(model.problem, model.lam, model.start, seed)
        problem.oracle_calls += few.oracle_calls
        # The best: steps that are too long get shorter late here, once the model does not decrease at all.
        return 1 / min(tried, key=lambda step_size: tried[step_size])


def objective(full: FullPass, lam: float) -> float:
    """F of an evaluation."""
    assert full.loss is not None
    return full.loss + lam / 2 * float(full.weights.square().sum())


# Examples on which L_0 is estimated, at most.
_SAMPLE = 20
