"""Extragradient steps to the saddle point of weights and marginals, with Bregman projections by the exp oracle."""

from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from structsmooth.problems.base import FullPass, Problem
from structsmooth.problems.linear.base import LinearProblem
from structsmooth.smoothing import Entropy
from structsmooth.solvers.dual.base import DualSolver, uniform
from structsmooth.solvers.state import State, empty


@dataclass
class ExtragradientState(State):
    """Adds the last point (w, m) of the saddle, and the mean of the points ahead, of which ``weights`` are the weights.

    The distributions have log-potentials B_i W + βℓ_i, since all of their steps were of this form. Statistics enter by
    g = (1/n) Σ B_iᵀ(m_i − ν(y_i)) and c = (1/n) Σ ⟨ℓ_i, m_i⟩.
    """

    iterate: Tensor = field(default_factory=empty)  # w, [dim]
    log_weights: Tensor = field(default_factory=empty)  # W, [dim]
    beta: float = 0.0  # β, the sum of all step sizes
    gradient: Tensor = field(default_factory=empty)  # g of m, [dim]
    cost: float = 0.0  # c of m
    log_partition: float = 0.0  # mean of log Σ_y exp⟨B_i W + βℓ_i, ν(y) − ν(y_i)⟩
    mean_gradient: Tensor = field(default_factory=empty)  # g of the mean
    mean_cost: float = 0.0  # c of the mean
    gamma: float = 0.0  # size of the next step
    ratio: float = 0.0  # step size of weights over that of distributions
    has_failed: bool = False  # whether a step has been too long


@dataclass(frozen=True)
class Extragradient(DualSolver[ExtragradientState]):
    """Extragradient: weights and marginals descend and ascend together, each by gradients at a point ahead.

    The optimum of F is the saddle point of (λ/2)‖w‖² + (1/n) Σ ⟨ℓ_i + B_i w, m_i − ν(y_i)⟩, minimized in w and
    maximized in the marginals m. A pass steps to a point ahead, and then again from where it was, by the gradients
    there. Weights take Euclidean steps, with the regularizer and the bounds of the problem in closed form. Marginals
    take Bregman steps: log-potentials grow by γ times a gradient, and the exp oracle gives the new marginals. Two exp
    passes make one pass here. The mean of the points ahead has a duality gap of O(1/k) after k passes.

    Log-potentials of all examples are sums of B_i w and ℓ_i, so they are kept as one vector of weights and a number;
    memory is O(dim), and processes share the passes. The step size γ is tried out: a step for which the proof of the
    rate fails is undone and γ halved, which costs two exp passes, and after a success γ grows. Needs a linear problem
    of hinges with an exp oracle, and λ > 0. It is a baseline.

    The paper also has Euclidean projections of marginals, which are quadratic flow problems on matchings and cuts. They
    need no exp oracle, but a solver for each structure, and are left out. Without λ it constrains ‖w‖ in its place.

    A run starts from zero weights and uniform distributions.

    Reference:
        Taskar, Lacoste-Julien and Jordan (2006), section 5; Nemirovski (2004), whose method of step sizes allows the
        test.

    Example:
        >>> from structsmooth import LinearChain, LinearModuleProblem, LinearScore
        >>> data = [(x, x.argmax(1)) for x in torch.randn(20, 5, 3, dtype=torch.float64)]
        >>> problem = LinearModuleProblem(LinearScore(3, 3, torch.float64), data)
        >>> last = Extragradient().solve(problem, lam=0.1, passes=100).row
        >>> last.gap < 0.1 * last.objective
        True
    """

    state_type = ExtragradientState
    oracle = "exp"

    def first_state(self, problem: Problem, lam: float, start: Any, seed: int) -> ExtragradientState:
        """Zero weights, or the nearest within the bounds, and uniform distributions."""
        linear = self.linear(problem, lam)
        if start is not None:
            raise TypeError(f"start must be None, got {type(start).__name__}: runs start from uniform distributions")
        gradient, cost, log_outputs = uniform(linear)
        zero = torch.zeros_like(gradient)
        w = linear.within_bounds(zero)
        return ExtragradientState(
            w,
            dual=0.0,  # losses are not negative
            iterate=w,
            log_weights=zero,
            gradient=gradient,
            cost=cost,
            log_partition=log_outputs,
            mean_gradient=zero,
            gamma=log_outputs / cost if cost > 0 else 1.0,
            # The squared distance of zero to the optimum is about cost/λ, the divergence to it about log_outputs.
            ratio=cost / (lam * log_outputs) if cost > 0 and log_outputs > 0 else 1.0,
        )

    def advance(
        self, problem: Problem, lam: float, state: ExtragradientState, rng: np.random.Generator, budget: int
    ) -> ExtragradientState:
        """One pass: a step, or the finding that γ is too large for it."""
        linear, gamma, beta = self.linear(problem, lam), state.gamma, state.beta + state.gamma
        w_ahead = _descended(linear, lam, state, state.gradient)
        ahead = _gibbs(linear, state.log_weights + gamma * state.iterate, beta)
        w = _descended(linear, lam, state, ahead.gradient)
        log_weights = state.log_weights + gamma * w_ahead
        full = _gibbs(linear, log_weights, beta)
        assert ahead.expected_cost is not None
        assert full.expected_cost is not None
        log_partition = beta * full.smoothed_loss
        step = gamma * (full.expected_cost + float(w_ahead @ full.gradient))  # ⟨change of the log-potentials, m⟩
        divergence = step - log_partition + state.log_partition
        distance = float((w - state.iterate).square().sum()) / (2 * state.ratio) + divergence
        change = float(ahead.gradient @ (w_ahead - w)) + lam / 2 * float(w_ahead @ w_ahead - w @ w)
        change -= ahead.expected_cost - full.expected_cost + float(w_ahead @ (ahead.gradient - full.gradient))
        rounding = _ROUNDING * (abs(step) + abs(log_partition) + abs(state.log_partition))
        if gamma * change > distance + rounding:
            return replace(state, passes=state.passes + 1, gamma=gamma / 2, has_failed=True)
        newest = gamma / beta
        new = replace(
            state,
            passes=state.passes + 1,
            weights=torch.lerp(state.weights, w_ahead, newest),
            iterate=w,
            log_weights=log_weights,
            beta=beta,
            gradient=full.gradient,
            cost=full.expected_cost,
            log_partition=log_partition,
            mean_gradient=torch.lerp(state.mean_gradient, ahead.gradient, newest),
            mean_cost=state.mean_cost + newest * (ahead.expected_cost - state.mean_cost),
            gamma=gamma * (_RISE if state.has_failed else _FIRST_RISE),
        )
        assert state.dual is not None
        dual = new.mean_cost - lam * linear.conjugate(new.mean_gradient / -lam)
        return replace(new, dual=max(state.dual, dual))


def _gibbs(problem: LinearProblem, log_weights: Tensor, beta: float) -> FullPass:
    """The exp pass for log-potentials B_i W + βℓ_i, which are β times the potentials of weights W/β."""
    return problem.full_pass(log_weights / beta, Entropy(1 / beta))


def _descended(problem: LinearProblem, lam: float, state: ExtragradientState, gradient: Tensor) -> Tensor:
    """The weights after a step by a gradient of the losses, and by the regularizer at its end."""
    size = state.ratio * state.gamma
    return problem.within_bounds((state.iterate - size * gradient) / (1 + lam * size))


# Factors of γ after a success: before the first failure, and later.
_FIRST_RISE = 2.0
_RISE = 1.1
_ROUNDING = 1e-12
