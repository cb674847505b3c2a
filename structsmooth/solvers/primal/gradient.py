"""Solvers whose steps follow gradients and have a size: batches, lower bounds, and first step sizes from the data."""

import math
import sys
from abc import abstractmethod
from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np
import torch
from torch import Tensor

from structsmooth.problems.base import FullPass, Problem
from structsmooth.settings import Positive, PositiveInt
from structsmooth.smoothing import Max
from structsmooth.solvers.base import Solver
from structsmooth.solvers.lower_bound import DualPoint
from structsmooth.solvers.step_control import Steered, SteeredState, StepControl

# Step sizes that are tried before a run, at most, in each direction.
_TRIES = 40
# Examples on which step sizes are tried, at least.
_SAMPLE = 500
# Examples that an estimate takes without trying, at most; never more than half of all, rounded up.
_FEW = 100


@dataclass
class GradientState(SteeredState):
    """State of a solver with a step size, whose full passes give lower bounds."""

    @property
    def reached(self) -> Tensor:
        """Where the last pass has led, [dim]: the weights, unless the next pass starts elsewhere."""
        return self.weights

    def observe(self, full: FullPass, lam: float) -> None:
        """Improve the lower bound; without an expected cost, or with λ = 0, there is none."""
        if full.expected_cost is None or lam == 0:
            return
        self.raise_bound(DualPoint(full.gradient, full.expected_cost), lam)


S = TypeVar("S", bound=GradientState)


@dataclass(frozen=True)
class GradientSolver(Solver[S], Steered[S]):
    """A solver whose steps have a size, which :class:`~structsmooth.solvers.step_control.StepControl` steers.

    Args:
        learning_rate: first step size. If not given, it is estimated from the losses and gradients of a few examples.
        batch_size: examples per step. If not given, the problem decides.
    """

    learning_rate: Positive | None = None
    batch_size: PositiveInt | None = None

    @property
    def polyak_factor(self) -> float:
        """First step size in units of Polyak's, if it is estimated."""
        return 2.5

    @abstractmethod
    def begin(self, problem: Problem, lam: float, weights: Tensor, step_size: float) -> S:
        """State before the first pass, given a step size."""

    def first_state(self, problem: Problem, lam: float, start: Any, seed: int) -> S:
        """State before the first pass: the given weights, and the first step size."""
        weights = first_weights(problem, start)
        step_size = self.learning_rate or self.estimate_step_size(problem, lam, weights, seed)
        return self.begin(problem, lam, weights, step_size)

    def step_control(self, problem: Problem, lam: float) -> StepControl[S] | None:
        """Passes that explode, or for long do not decrease what they work on, halve the step size."""
        return StepControl(self, problem, lam)

    def estimate_step_size(self, problem: Problem, lam: float, weights: Tensor, seed: int) -> float:
        """A multiple of Polyak's step size for an optimum of zero, mean f_B / mean ‖∇f_B‖², over a few batches.

        It is too long for some data, where :class:`~structsmooth.solvers.step_control.StepControl` halves it.

        Reference:
            Polyak (1987), "Introduction to Optimization", section 5.3.
        """
        few = estimate_loss_scale(problem, weights, seed, self.examples_per_step(problem))
        step_size = self.polyak_factor * few.polyak_step_size
        # Longer steps would diverge on the regularizer alone.
        return min(step_size, 0.5 / lam) if lam > 0 else step_size

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
            return objective(self.advance(sample, lam, state, np.random.default_rng(seed), sys.maxsize).reached)

        first, start = 1 / min(_largest_row(sample, weights), sys.float_info.max), objective(weights)
        tried = {first: after_pass(first)}
        while len(tried) < _TRIES and tried[max(tried)] < start and 2 * max(tried) * lam < 1:
            tried[2 * max(tried)] = after_pass(2 * max(tried))
        while len(tried) < 2 * _TRIES and min(tried) / 2 > 0 and tried[min(tried)] == min(tried.values()):
            tried[min(tried) / 2] = after_pass(min(tried) / 2)
        problem.oracle_calls += sample.oracle_calls
        return tried

    def order(self, problem: Problem, rng: np.random.Generator) -> Tensor:
        """Examples of the steps of one pass: a random permutation in batches, [steps, b]."""
        steps, size = self.steps_per_pass(problem), self.examples_per_step(problem)
        return torch.from_numpy(rng.permutation(problem.n)[: steps * size]).view(steps, size)

    def blocks(self, problem: Problem) -> tuple[Tensor, ...]:
        """Batches whose examples stay the same, for solvers that keep something for each: a random partition."""
        order = torch.from_numpy(np.random.default_rng(0).permutation(problem.n))
        blocks: tuple[Tensor, ...] = order.split(self.examples_per_step(problem))
        return blocks

    def steps_per_pass(self, problem: Problem) -> int:
        """Number of batches in a pass."""
        return problem.n // self.examples_per_step(problem)

    def examples_per_step(self, problem: Problem) -> int:
        """Number of examples in a batch."""
        return min(self.batch_size or problem.batch_size, problem.n)


def first_weights(problem: Problem, start: Any) -> Tensor:
    """A copy of the given weights, or those of the problem; refuses what are no weights of it."""
    weights = problem.start()
    if start is not None:
        if not isinstance(start, Tensor):
            raise TypeError(f"start must be a torch.Tensor, got {type(start).__name__}")
        weights = start.detach().to(weights, copy=True)
    if weights.shape != (problem.dim,):
        raise ValueError(f"start must have shape [dim] = {(problem.dim,)}, got {tuple(weights.shape)}")
    return weights


@dataclass(frozen=True)
class LossScale:
    """Mean loss and mean squared norm of the gradient over a few batches, each the mean of its examples."""

    loss: float
    square: float

    @property
    def polyak_step_size(self) -> float:
        """The step along a typical gradient that would make its loss zero; 1 where there is nothing to go by."""
        step_size = self.loss / self.square if self.square > 0 else math.nan
        return step_size if 0 < step_size < math.inf else 1.0


def estimate_loss_scale(problem: Problem, weights: Tensor, seed: int, batch_size: int) -> LossScale:
    """Losses and gradients of a few examples at some weights, under the problem's own smoother; less than a pass."""
    size = max(batch_size, min(_FEW, (problem.n + 1) // 2))
    chosen = torch.from_numpy(np.random.default_rng(seed).permutation(problem.n)[:size])
    sample, weights = problem.restrict(chosen, weights)
    losses, squares = [], []
    for loss, gradient in sample.losses_and_grads(weights, torch.arange(sample.n).split(batch_size), problem.smoother):
        losses.append(float(loss))
        squares.append(float(gradient.square().sum()))
    problem.oracle_calls += sample.oracle_calls
    # Sums depend on the number of threads by rounding, which should not decide on a run.
    mean_loss, mean_square = (float(f"{sum(values) / len(values):.9g}") for values in (losses, squares))
    return LossScale(mean_loss, mean_square)


def _largest_row(problem: Problem, weights: Tensor) -> float:
    """Largest squared norm of a subgradient among the first examples."""
    indices = range(min(problem.n, 32))
    gradients = (problem.batch_loss_and_grad(weights, torch.tensor([i]), Max())[1] for i in indices)
    return max(1e-12, *(float(gradient.square().sum()) for gradient in gradients))
