"""Adam on the objective itself, as a baseline for deep models."""

from dataclasses import dataclass, field, replace

import numpy as np
import torch
from torch import Tensor

from structsmooth.problems.base import Problem
from structsmooth.solvers.primal.gradient import GradientSolver, GradientState
from structsmooth.solvers.state import empty


@dataclass
class AdamState(GradientState):
    """Adds the running means of gradients and of their squares, [dim], and the number of steps made."""

    mean: Tensor = field(default_factory=empty)
    mean_square: Tensor = field(default_factory=empty)
    steps: int = 0


@dataclass(frozen=True)
class Adam(GradientSolver[AdamState]):
    """``torch.optim.Adam`` with its defaults and a constant step size, on subgradients; no smoothing, no average.

    The regularizer is part of the objective: Adam scales its gradient together with that of the losses.

    Reference:
        Kingma and Ba (2015), "Adam: A Method for Stochastic Optimization".
    """

    state_type = AdamState

    def begin(self, problem: Problem, lam: float, weights: Tensor, step_size: float) -> AdamState:
        """State before the first pass: the given weights, no steps made."""
        zero = torch.zeros_like(weights)
        return AdamState(weights, step_size, mean=zero, mean_square=zero)

    def estimate_step_size(self, problem: Problem, lam: float, weights: Tensor, seed: int) -> float:
        """The best of the step sizes tried, the largest among equals: Polyak's is for steps along gradients."""
        tried = self.try_step_sizes(problem, lam, weights, seed)
        return max(step_size for step_size, value in tried.items() if value == min(tried.values()))

    def advance(
        self, problem: Problem, lam: float, state: AdamState, rng: np.random.Generator, budget: int
    ) -> AdamState:
        """Make one pass over the examples in random order."""
        order = self.order(problem, rng)
        w, mean, mean_square = (tensor.clone() for tensor in (state.weights, state.mean, state.mean_square))
        optimizer = torch.optim.Adam([w], lr=state.step_size)
        step = torch.tensor(float(state.steps))
        optimizer.state[w] = {"step": step, "exp_avg": mean, "exp_avg_sq": mean_square}
        for batch in order:
            _, gradient = problem.batch_loss_and_grad(w, batch, problem.smoother)
            w.grad = gradient.add(w, alpha=lam)
            optimizer.step()
        w.grad = None
        steps = state.steps + len(order)
        return replace(state, weights=w, mean=mean, mean_square=mean_square, steps=steps, passes=state.passes + 1)

    def restarted(self, state: AdamState) -> AdamState:
        """``state`` with running means of zero, from which an exploded pass is tried again."""
        zero = torch.zeros_like(state.weights)
        return replace(state, mean=zero, mean_square=zero, steps=0)
