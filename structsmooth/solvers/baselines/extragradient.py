"""Extragradient steps to the saddle point of weights and marginals, with Bregman projections by the exp oracle."""

from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from structsmooth.problems.base import Problem
from structsmooth.problems.linear.base import LinearProblem
from structsmooth.solvers.baselines.batch_exponentiated import GibbsPoint
from structsmooth.solvers.dual.base import DualSolver
from structsmooth.solvers.lower_bound import DualPoint
from structsmooth.solvers.state import State, empty


@dataclass
class ExtragradientState(State):
    """Adds the last point (w, m) of the saddle, and the mean of the points ahead, of which ``weights`` are the weights.

    The distributions are Gibbs distributions, since all of their steps were of this form. β is the sum of step sizes.
    """

    iterate: Tensor = field(default_factory=empty)  # w, [dim]
    point: GibbsPoint = field(kw_only=True)  # m
    mean: DualPoint = field(kw_only=True)
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
        point = GibbsPoint.uniform(linear)
        cost, log_outputs = point.cost, point.log_partition
        zero = torch.zeros_like(point.gradient)
        w = linear.within_bounds(zero)
        return ExtragradientState(
            w,
            dual=0.0,  # losses are not negative
            iterate=w,
            point=point,
            mean=DualPoint(zero),
            gamma=log_outputs / cost if cost > 0 else 1.0,
            # The squared distance of zero to the optimum is about cost/λ, the divergence to it about log_outputs.
            ratio=cost / (lam * log_outputs) if cost > 0 and log_outputs > 0 else 1.0,
        )

    def advance(
        self, problem: Problem, lam: float, state: ExtragradientState, rng: np.random.Generator, budget: int
    ) -> ExtragradientState:
        """One pass: a step, or the finding that γ is too large for it."""
        linear, gamma, before = self.linear(problem, lam), state.gamma, state.point
        beta = before.beta + gamma
        w_ahead = _descended(linear, lam, state, before.gradient)
        ahead = GibbsPoint.of(linear, before.log_weights + gamma * state.iterate, beta)
        w = _descended(linear, lam, state, ahead.gradient)
        point = GibbsPoint.of(linear, before.log_weights + gamma * w_ahead, beta)
        distance = float((w - state.iterate).square().sum()) / (2 * state.ratio) + point.divergence(before)
        change = float(ahead.gradient @ (w_ahead - w)) + lam / 2 * float(w_ahead @ w_ahead - w @ w)
        change -= ahead.cost - point.cost + float(w_ahead @ (ahead.gradient - point.gradient))
        if gamma * change > distance:
            return replace(state, passes=state.passes + 1, gamma=gamma / 2, has_failed=True)
        newest = gamma / beta
        mean = state.mean.towards(DualPoint(ahead.gradient, ahead.cost), newest)
        assert state.dual is not None
        return replace(
            state,
            passes=state.passes + 1,
            weights=torch.lerp(state.weights, w_ahead, newest),
            iterate=w,
            point=point,
            mean=mean,
            gamma=gamma * (_RISE if state.has_failed else _FIRST_RISE),
            dual=max(state.dual, mean.value(lam, linear.bounds)),
        )


def _descended(problem: LinearProblem, lam: float, state: ExtragradientState, gradient: Tensor) -> Tensor:
    """The weights after a step by a gradient of the losses, and by the regularizer at its end."""
    size = state.ratio * state.gamma
    return problem.within_bounds((state.iterate - size * gradient) / (1 + lam * size))


# Factors of γ after a success: before the first failure, and later.
_FIRST_RISE = 2.0
_RISE = 1.1
