"""Solvers whose steps follow gradients and have a size: batches, lower bounds, and first step sizes from the data."""

import math
import sys
from abc import abstractmethod
from dataclasses import dataclass, field
from typing import Any, TypeVar

import numpy as np
import torch
from torch import Tensor

from structsmooth.problems.base import FullPass, Problem
from structsmooth.smoothing import Max
from structsmooth.solvers.base import Solver
from structsmooth.solvers.checks import check_positive
from structsmooth.solvers.lower_bound import DualPoint
from structsmooth.solvers.state import empty
from structsmooth.solvers.step_control import Steered, SteeredState, StepControl

# Step sizes that are tried before a run, at most, in each direction.
_TRIES = 40
# Examples on which step sizes are tried, at least.
_SAMPLE = 500
# An objective within this factor of the best that was tried is close to it.
_CLOSE = 1.5


@dataclass
class GradientState(SteeredState):
    """Adds a :class:`~structsmooth.solvers.lower_bound.DualPoint`, which full passes improve."""

    dual_gradient: Tensor = field(default_factory=empty)  # empty without a dual
    dual_cost: float = 0.0

    def observe(self, full: FullPass, lam: float) -> None:
        """Improve the lower bound; without an expected cost, or with λ = 0, there is none."""
        if full.expected_cost is None or lam == 0:
            return
        gradient = self.dual_gradient if len(self.dual_gradient) else torch.zeros_like(full.gradient)
        point = DualPoint(gradient, self.dual_cost).improved(full, lam)
        self.dual_gradient, self.dual_cost, self.dual = point.gradient, point.cost, point.value(lam)


S = TypeVar("S", bound=GradientState)


@dataclass(frozen=True)
class GradientSolver(Solver[S], Steered[S]):
    """A solver whose steps have a size, which :class:`~structsmooth.solvers.step_control.StepControl` steers.

    Args:
        learning_rate: first step size. If not given, it is estimated by passes over a sample of the data.
        batch_size: examples per step. If not given, the problem decides.
    """

    learning_rate: float | None = None
    batch_size: int | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        check_positive(self, "learning_rate")
        check_positive(self, "batch_size", integer=True)

    @abstractmethod
    def begin(self, problem: Problem, lam: float, weights: Tensor, step_size: float) -> S:
        """State before the first pass, given a step size."""

    def first_state(self, problem: Problem, lam: float, start: Any, seed: int) -> S:
        """The given weights, and the first step size."""
        weights = problem.start()
        if start is not None:
            if not isinstance(start, Tensor):
                raise TypeError(f"start must be a torch.Tensor, got {type(start).__name__}")
            weights = start.detach().to(weights, copy=True)
        if weights.shape != (problem.dim,):
            raise ValueError(f"start must have shape [dim] = {(problem.dim,)}, got {tuple(weights.shape)}")
        step_size = self.learning_rate or self.estimate_step_size(problem, lam, weights, seed)
        return self.begin(problem, lam, weights, step_size)

    def step_control(self, problem: Problem, lam: float) -> StepControl[S]:
        """Passes that explode are undone and repeated with half the step size."""
        return StepControl(self, problem, lam)

    def estimate_step_size(self, problem: Problem, lam: float, weights: Tensor, seed: int) -> float:
        """The largest step size tried whose objective, after one pass over a sample of the data, is close to the best.

        A single pass over a sample favours steps that are too short for the passes to come, while steps that are too
        long get halved when noise takes over.
        """
        return largest_near_best(self.try_step_sizes(problem, lam, weights, seed), _CLOSE)

    def try_step_sizes(self, problem: Problem, lam: float, weights: Tensor, seed: int) -> dict[float, float]:
        """Step sizes and the objective after one pass over a sample of the data with each.

        They are powers of two around the inverse of the largest squared norm of a subgradient (a row of A_i).
        """
        rng = np.random.default_rng(seed)
        size = min(problem.n, max(_SAMPLE, problem.n // 20))
        sample, weights = problem.restrict(torch.from_numpy(rng.permutation(problem.n)[:size]), weights)

        def objective(w: Tensor) -> float:
            value = sample.loss(w) + lam / 2 * float(w.square().sum())
            # Rounding may take it below zero, where no value is within a factor of the least.
            return max(value, 0.0) if math.isfinite(value) else math.inf

        def after_pass(step_size: float) -> float:
            state = self.begin(sample, lam, weights, step_size)
            return objective(self.advance(sample, lam, state, np.random.default_rng(seed), sys.maxsize).weights)

        first, start = 1 / _largest_row(sample, weights), objective(weights)
        tried = {first: after_pass(first)}
        while len(tried) < _TRIES and tried[max(tried)] < start and 2 * max(tried) * lam < 1:
            tried[2 * max(tried)] = after_pass(2 * max(tried))
        while len(tried) < 2 * _TRIES and tried[min(tried)] == min(tried.values()):
            tried[min(tried) / 2] = after_pass(min(tried) / 2)
        problem.oracle_calls += sample.oracle_calls
        return tried

    def order(self, problem: Problem, rng: np.random.Generator) -> Tensor:
        """Examples of the steps of one pass: a random permutation in batches, [steps, b]."""
        steps, size = self.steps_per_pass(problem), self.examples_per_step(problem)
        return torch.from_numpy(rng.permutation(problem.n)[: steps * size]).view(steps, size)

    def steps_per_pass(self, problem: Problem) -> int:
        """Number of batches in a pass."""
        return problem.n // self.examples_per_step(problem)

    def examples_per_step(self, problem: Problem) -> int:
        """Number of examples in a batch."""
        return min(self.batch_size or problem.batch_size, problem.n)


def largest_near_best(tried: dict[float, float], factor: float) -> float:
    """The largest step size whose objective is within a factor of the least."""
    return max(step_size for step_size, value in tried.items() if value <= factor * min(tried.values()))


def _largest_row(problem: Problem, weights: Tensor) -> float:
    """Largest squared norm of a subgradient among the first examples."""
    indices = range(min(problem.n, 32))
    gradients = (problem.batch_loss_and_grad(weights, torch.tensor([i]), Max())[1] for i in indices)
    return max(1e-12, *(float(gradient.square().sum()) for gradient in gradients))
