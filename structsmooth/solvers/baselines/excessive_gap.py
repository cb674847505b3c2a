"""Excessive gap minimization: a batch primal-dual method, accelerated, with entropy smoothing that vanishes."""

import math
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from structsmooth.problems.base import FullPass, Problem
from structsmooth.problems.linear.base import LinearProblem
from structsmooth.settings import Positive
from structsmooth.smoothing import Entropy, Smoother
from structsmooth.solvers.dual.base import DualSolver, uniform
from structsmooth.solvers.lower_bound import DualPoint
from structsmooth.solvers.state import State


@dataclass
class ExcessiveGapState(State):
    """Adds the dual iterate α, and the Gibbs distributions α_μ(w) of the last pass."""

    point: DualPoint = field(kw_only=True)  # of α
    gibbs: DualPoint = field(kw_only=True)  # of α_μ(w)
    smoothed_loss: float = 0.0  # of the last pass
    mu: float = 0.0
    lipschitz: float = 0.0  # L of the next step
    log_outputs: float = 0.0  # (1/n) Σ log |Y_i|
    excess: float = 0.0  # D(α) − J_μ(w) ≥ 0


@dataclass(frozen=True)
class ExcessiveGap(DualSolver[ExcessiveGapState]):
    """Excessive gap minimization: a duality gap of O(1/k²) after k passes, by one exp pass each.

    The iterates keep J_μ(w) ≤ D(α), where J_μ is the objective with maxima smoothed from below by entropy, so that the
    duality gap is at most μ (1/n) Σ log |Y_i|; and μ falls as fast as that allows. The Bregman projections of the
    paper are the Gibbs distributions of the next pass, and distributions enter by their statistics alone. So memory is
    O(dim), and processes share the passes.

    A step is admissible if μ is large enough for L, the smoothness of the dual. The value that the paper proves is
    thousands of times too large in practice. Both sides of J_μ(w) ≤ D(α) are known after the pass, so L is tried out:
    a step that fails is undone and L doubled, which costs a pass, and after each success L falls by a fourth. The
    guarantee is the same. Needs a linear problem of hinges with an exp oracle, and λ > 0; keeps the weights within the
    bounds of the problem.

    A run starts from the uniform distribution and from no other weights.

    Args:
        lipschitz: L; found by trial if not given. The paper's is G²/λ, where G is the largest norm of the difference
            between the feature vectors of a label and another output. Its schedule, μ_k = 6L/((k + 1)(k + 2)), goes
            with it.

    Reference:
        Zhang, Saha and Vishwanathan (2014), Algorithms 1 and 2, Theorem 4; Nesterov (2005).

    Example:
        >>> from structsmooth import LinearChain, LinearModuleProblem, LinearScore
        >>> data = [(x, x.argmax(1)) for x in torch.randn(20, 5, 3, dtype=torch.float64)]
        >>> problem = LinearModuleProblem(LinearScore(3, 3, torch.float64), data)
        >>> last = ExcessiveGap().solve(problem, lam=0.1, passes=60).row
        >>> last.gap < 0.01 * last.objective
        True
    """

    lipschitz: Positive | None = None

    state_type = ExcessiveGapState

    @property
    def oracle(self) -> str:
        """The exp oracle; lower bounds near the end of a run take a max oracle."""
        return "exp"

    def smoother(self, state: ExcessiveGapState) -> Smoother:
        """Entropy smoothing at the current μ."""
        return Entropy(state.mu)

    def first_state(self, problem: Problem, lam: float, start: Any, seed: int) -> ExcessiveGapState:
        """One step from the uniform distribution, with a μ that is large enough."""
        linear = self.linear(problem, lam)
        if start is not None:
            raise TypeError(f"start must be None, got {type(start).__name__}: runs start from the uniform distribution")
        point, log_outputs = uniform(linear)
        lipschitz = self.lipschitz or float(point.gradient @ point.gradient) / lam or 1.0
        weights = linear.within_bounds(point.gradient / -lam)
        state = ExcessiveGapState(weights, point=point, gibbs=point, log_outputs=log_outputs)
        while True:
            first = self._after(linear, lam, state, state.weights, lipschitz, lipschitz, 1.0)
            if self.lipschitz or _holds(first):
                return first
            lipschitz *= _FIRST_RISE

    def advance(
        self, problem: Problem, lam: float, state: ExcessiveGapState, rng: np.random.Generator, budget: int
    ) -> ExcessiveGapState:
        """One pass: a step, or the finding that L is too small for it."""
        tau = self._tau(state)
        ahead = torch.lerp(state.point.gradient, state.gibbs.gradient, tau)
        linear = self.linear(problem, lam)
        weights = torch.lerp(state.weights, linear.within_bounds(ahead / -lam), tau)
        new = self._after(linear, lam, state, weights, (1 - tau) * state.mu, state.lipschitz, tau)
        new.passes += 1
        if self.lipschitz:
            return new
        if _holds(new):
            return replace(new, lipschitz=state.lipschitz / _FALL)
        return replace(state, passes=new.passes, lipschitz=state.lipschitz * _RISE)

    def evaluate(self, problem: Problem, lam: float, state: ExcessiveGapState) -> FullPass:
        """The pass that the solver has just made, with the loss."""
        last = (state.smoothed_loss, state.gibbs.gradient, problem.loss(state.weights), state.gibbs.cost)
        return FullPass(state.weights, self.smoother(state), *last)

    def metrics(self, state: ExcessiveGapState) -> dict[str, float]:
        """The bound on the duality gap, and what is left of it: D(α) − J_μ(w)."""
        return {"gap_bound": state.mu * state.log_outputs, "excess": state.excess}

    def _tau(self, state: ExcessiveGapState) -> float:
        """The part τ of the new point: 2/(k + 3) in step k, from 1, or the largest with τ² ≤ (1 − τ) μ/L."""
        if self.lipschitz:
            return 2 / (state.passes + 4)
        ratio = state.mu / state.lipschitz
        return (math.sqrt(ratio * (ratio + 4)) - ratio) / 2

    def _after(
        self,
        problem: LinearProblem,
        lam: float,
        state: ExcessiveGapState,
        weights: Tensor,
        mu: float,
        lipschitz: float,
        tau: float,
    ) -> ExcessiveGapState:
        """The state after a step to these weights and this μ, of which the distributions make the part τ."""
        full = problem.full_pass(weights, Entropy(mu))
        assert full.expected_cost is not None
        gibbs = DualPoint(full.gradient, full.expected_cost)
        point = state.point.towards(gibbs, tau)
        dual = point.value(lam, problem.bounds)
        smoothed = lam / 2 * float(weights @ weights) + full.smoothed_loss - mu * state.log_outputs
        return replace(
            state,
            weights=weights,
            dual=dual if state.dual is None else max(dual, state.dual),
            point=point,
            gibbs=gibbs,
            smoothed_loss=full.smoothed_loss,
            mu=mu,
            lipschitz=lipschitz,
            excess=dual - smoothed,
        )


def _holds(state: ExcessiveGapState) -> bool:
    """Whether J_μ(w) ≤ D(α), up to rounding of the values that are compared."""
    # NaN is for the run to report.
    return not state.excess < -_ROUNDING * (abs(state.smoothed_loss) + state.mu * state.log_outputs)


# Factors of L after a step that fails at the start, one that fails later, and one that succeeds.
_FIRST_RISE = 4.0
_RISE = 2.0
_FALL = 1.3
_ROUNDING = 1e-12
