"""Exponentiated gradient on the dual, all examples at once (Collins et al. 2008)."""

import math
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from structsmooth.problems.base import Problem
from structsmooth.problems.linear.base import LinearProblem
from structsmooth.smoothing import Entropy
from structsmooth.solvers.dual.base import DualSolver, checked_hinges_or_likelihood, entropy_level, uniform
from structsmooth.solvers.state import State

# What a success divides γ by: before the first failure, and later.
_FIRST_FALL = 2.0
_FALL = 1.05
_ROUNDING = 1e-12


@dataclass(frozen=True)
class GibbsPoint:
    """Gibbs distributions of all examples, with log-potentials B_i W + βℓ_i, and what the dual sees of them.

    Statistics enter by g = (1/n) Σ B_iᵀ(m_i − ν(y_i)) and c = (1/n) Σ ⟨ℓ_i, m_i⟩.
    """

    log_weights: Tensor  # W, [dim]
    beta: float  # β
    gradient: Tensor  # g, [dim]
    cost: float  # c
    log_partition: float  # mean of log Σ_y exp⟨B_i W + βℓ_i, ν(y) − ν(y_i)⟩

    @classmethod
    def uniform(cls, problem: LinearProblem) -> "GibbsPoint":
        """The uniform distributions."""
        point, log_outputs = uniform(problem)
        return cls(torch.zeros_like(point.gradient), 0.0, point.gradient, point.cost, log_outputs)

    @classmethod
    def of(cls, problem: LinearProblem, log_weights: Tensor, beta: float) -> "GibbsPoint":
        """By the exp pass for log-potentials B_i W + βℓ_i, which are β times the potentials of weights W/β."""
        mu = 1 / beta
        if mu == entropy_level(problem):
            # The costs of a pass under the problem's own smoother have its entropy in them.
            mu = math.nextafter(mu, math.inf)
        full = problem.full_pass(log_weights / beta, Entropy(mu))
        assert full.expected_cost is not None
        return cls(log_weights, beta, full.gradient, full.expected_cost, beta * full.smoothed_loss)

    def divergence(self, before: "GibbsPoint") -> float:
        """The mean of KL(p_i ‖ q_i) of these distributions p and those before, and what rounding may take away."""
        rise = (self.beta - before.beta) * self.cost + float((self.log_weights - before.log_weights) @ self.gradient)
        rounding = _ROUNDING * (abs(rise) + abs(self.log_partition) + abs(before.log_partition))
        return rise - self.log_partition + before.log_partition + rounding


@dataclass
class BatchExponentiatedGradientState(State):
    """Adds the distributions, one for each example; ``weights`` are those of their point of the dual.

    They are Gibbs distributions, since all of their steps were of this form.
    """

    point: GibbsPoint = field(kw_only=True)
    curvature: float = 0.0  # γ of the next step
    has_failed: bool = False  # whether a step has been too long


@dataclass(frozen=True)
class BatchExponentiatedGradient(DualSolver[BatchExponentiatedGradientState]):
    """Exponentiated gradient in batches: one step on the distributions of all examples, by one exp pass.

    A step goes to the distributions p that maximize the dual with its quadratic term linearized, less γ times the mean
    of KL(p_i ‖ p_i of before): log-potentials grow by the gradient over γ, and the exp oracle gives the new marginals.
    The gap is of O(log|Y|/k) after k passes. A step is admissible if the quadratic term rises by no more than that
    divergence. What the features guarantee is far larger than needed, so γ is tried out: a step for which it is too
    small is undone and γ doubled, which costs a pass, and after a success γ falls by a twentieth, as the paper raises
    its steps. The dual never falls.

    Log-potentials of all examples are sums of B_i w and ℓ_i, so they are kept as one vector of weights and a number;
    memory is O(dim), and processes share the passes. Needs a linear problem of hinges, or one with the smoother
    ``Entropy(h)``, an exp oracle and λ > 0; keeps the weights within the bounds of the problem. It is a baseline, and
    slow: :class:`~structsmooth.solvers.ExponentiatedGradient` makes a step on every example for the same oracle calls.

    A run starts from uniform distributions and from no other weights.

    Reference:
        Collins, Globerson, Koo, Carreras and Bartlett (2008), "Exponentiated gradient algorithms for conditional random
        fields and max-margin Markov networks", section 4.2.

    Example:
        >>> from structsmooth import LinearChain, LinearModuleProblem, LinearScore
        >>> data = [(x, x.argmax(1)) for x in torch.randn(20, 5, 3, dtype=torch.float64)]
        >>> problem = LinearModuleProblem(LinearScore(3, 3, torch.float64), data)
        >>> last = BatchExponentiatedGradient().solve(problem, lam=0.1, passes=100).row
        >>> last.gap < 0.1 * last.objective
        True
    """

    state_type = BatchExponentiatedGradientState
    oracle = "exp"

    def linear(self, problem: Problem, lam: float) -> LinearProblem:
        """The problem, known to have a dual with distributions."""
        return checked_hinges_or_likelihood(type(self).__name__, problem, lam)

    def first_state(self, problem: Problem, lam: float, start: Any, seed: int) -> BatchExponentiatedGradientState:
        """State before the first pass: the uniform distributions."""
        linear = self.linear(problem, lam)
        if start is not None:
            raise TypeError(f"start must be None, got {type(start).__name__}: runs start from uniform distributions")
        point = GibbsPoint.uniform(linear)
        curvature = float(point.gradient @ point.gradient) / lam or 1.0
        state = BatchExponentiatedGradientState(point.gradient, point=point, curvature=curvature)
        return _valued(state, linear, lam)

    def advance(
        self,
        problem: Problem,
        lam: float,
        state: BatchExponentiatedGradientState,
        rng: np.random.Generator,
        budget: int,
    ) -> BatchExponentiatedGradientState:
        """One pass: a step, or the finding that γ is too small for it."""
        linear, gamma, before = self.linear(problem, lam), state.curvature, state.point
        whole = gamma + entropy_level(linear)
        log_weights = (gamma * before.log_weights + state.weights) / whole
        point = GibbsPoint.of(linear, log_weights, (gamma * before.beta + 1) / whole)
        change = point.gradient - before.gradient
        if float(change.square().sum()) / (2 * lam) > gamma * point.divergence(before):
            return replace(state, passes=state.passes + 1, curvature=2 * gamma, has_failed=True)
        curvature = gamma / (_FALL if state.has_failed else _FIRST_FALL)
        return _valued(replace(state, passes=state.passes + 1, point=point, curvature=curvature), linear, lam)


def _valued(
    state: BatchExponentiatedGradientState, problem: LinearProblem, lam: float
) -> BatchExponentiatedGradientState:
    """``state`` with the weights and the value of its point of the dual, if that is a bound."""
    point, v = state.point, state.point.gradient / -lam
    entropy = point.log_partition - float(point.log_weights @ point.gradient) - point.beta * point.cost
    dual = point.cost + entropy_level(problem) * entropy - lam * problem.conjugate(v)
    # Losses are not negative, so zero is a bound.
    return replace(state, weights=problem.within_bounds(v), dual=max(dual, 0.0))
