"""The prox-linear algorithm for scores that are not linear (Pillutla et al. 2019, Algorithm 5)."""

import math
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor

from structsmooth.problems.base import Problem
from structsmooth.problems.shifted import ShiftedProblem
from structsmooth.smoothing import Smoother
from structsmooth.solvers.checks import check_choices, check_number, check_positive
from structsmooth.solvers.primal.casimir import CasimirSVRG
from structsmooth.solvers.primal.gradient import GradientSolver, GradientState
from structsmooth.solvers.primal.svrg import ORACLES, SVRG, SmoothedSolver


@dataclass
class ProxLinearState(GradientState):
    """After iteration k: ``weights`` is w_k, ``step_size`` is η."""

    iteration: int = 0  # k
    objective: float = math.inf  # F(w_k)
    tolerance: float = 0.0  # ε_0
    lipschitz: float = 0.0  # L_0
    mu: float = 0.0  # μ_k
    mapping: float = 0.0  # norm of the gradient mapping ϱ_η(w_{k-1}), with the candidate ŵ_k for the exact minimum


@dataclass(frozen=True)
class ProxLinear(GradientSolver[ProxLinearState]):
    """Prox-linear steps for any score module, by a convex solver on linearized scores.

    Iteration k looks for the minimum of the convex model
    F_η(w; w_{k-1}) = (1/n) Σ h(θ_i(w_{k-1}) + J_i(w − w_{k-1}) + ℓ_i) − ... + (λ/2)‖w‖² + (1/2η)‖w − w_{k-1}‖²
    from w_{k-1}, and goes to the candidate it finds if F is no larger there. The inner solver has μ_k = μ/k and
    L_k = k L_0 (``schedule="adaptive"``), or μ_k = μ and L_k = L_0 (``"constant"``).

    The history has one row for each iteration; its ``step_size`` is η, and the metrics are ``gradient_mapping``
    ‖w_{k-1} − ŵ_k‖/η and ``inner_mu`` μ_k.

    Args:
        learning_rate: step size η. If not given, it adapts. At first the proximal term is a tenth of the loss after the
            gradient step that would make the linearized loss zero. Then η decreases when F at the candidate is above
            the model, which cannot happen below the inverse curvature of the scores (Assumption 33), and increases
            when the proximal term held the candidate back and was far above the error of the model; by a factor of at
            most ten.
        mu: level of smoothing μ at the start. If not given, 1 for the adaptive and 0.03 for the constant schedule.
        k: number of outputs of the top-K oracle (ℓ₂ smoothing).
        smoothing: ``"l2"`` for the top-K oracle or ``"entropy"`` for the exp oracle.
        schedule: ``"adaptive"`` for smoothing that decreases with the iterations, or ``"constant"``.
        lipschitz: estimate L_0 of the Lipschitz constant of the smoothed gradient, doubled when the inner solver does
            not decrease the model. If not given, it is estimated from a few examples.
        inner: solver of the convex models: ``"casimir-svrg"`` with its constant schedule, or ``"svrg"``.
        warm_start: where the inner problems of Casimir-SVRG start; see that solver.
        inner_passes: passes of the inner solver in an iteration; under ``"gradient"`` the limit on them.
        inner_stop: ``"budget"`` to make all inner passes; ``"gradient"`` to stop when the gradient of the smoothed
            model implies that its value is within ε_0/k of the minimum: ‖∇‖² ≤ 2(λ + 1/η) ε_0/k.
        tolerance: accuracy ε_0 of the models. If not given, the objective at the start (Remark 38).
        accept: ``"descent"`` for candidates where F is no larger (line 4), ``"always"`` for all (Remark 36).
    """

    mu: float | None = None
    k: int = 5
    smoothing: Literal["l2", "entropy"] = "l2"
    schedule: Literal["adaptive", "constant"] = "adaptive"
    lipschitz: float | None = None
    inner: Literal["casimir-svrg", "svrg"] = "casimir-svrg"
    warm_start: Literal["prox-center", "extrapolation", "prev-iterate"] = "prox-center"
    inner_passes: int = 5
    inner_stop: Literal["budget", "gradient"] = "budget"
    tolerance: float | None = None
    accept: Literal["descent", "always"] = "descent"

    state_type = ProxLinearState

    def __post_init__(self) -> None:
        super().__post_init__()
        check_positive(self, "mu", "lipschitz", "tolerance")
        check_number("inner_passes", self.inner_passes, integer=True, positive=True)
        check_choices(self, "schedule", "inner", "inner_stop", "accept")
        self.inner_solver(self._first_mu)  # checks the hyperparameters that it gets

    @property
    def oracle(self) -> str:
        """The oracle of the inner solver."""
        return ORACLES[self.smoothing]

    def inner_solver(self, mu: float) -> SmoothedSolver[Any]:
        """The solver of convex models at a level of smoothing, without its step size."""
        shared: dict[str, Any] = {"mu": mu, "k": self.k, "smoothing": self.smoothing, "batch_size": self.batch_size}
        if self.inner == "svrg":
            return SVRG(**shared)
        return CasimirSVRG(schedule="constant", warm_start=self.warm_start, **shared)

    def first_state(self, problem: Problem, lam: float, start: Any, seed: int) -> ProxLinearState:
        """The given weights, η and L_0."""
        state = super().first_state(problem, lam, start, seed)
        state.objective = _objective(problem, state.weights, lam)
        state.tolerance = state.objective if self.tolerance is None else self.tolerance
        if self.lipschitz is None and math.isfinite(state.objective):
            state.lipschitz = self._estimate_lipschitz(problem, lam, state, seed)
        return state

    def begin(self, problem: Problem, lam: float, weights: Tensor, step_size: float) -> ProxLinearState:
        """The given weights and η."""
        return ProxLinearState(weights, step_size, lipschitz=self.lipschitz or 0.0, mu=self._first_mu)

    def estimate_step_size(self, problem: Problem, lam: float, weights: Tensor, seed: int) -> float:
        """The η whose proximal term is a small part of the loss after a step that makes the linearized loss zero.

        This step along the gradient is as long as the loss over the norm of the gradient.
        """
        loss, gradient = problem.loss_and_grad(weights, problem.smoother)
        square = float(gradient.square().sum())
        return loss / (2 * _HELD * square) if square > 0 and 0 < loss < math.inf else 1.0

    def advance(
        self, problem: Problem, lam: float, state: ProxLinearState, rng: np.random.Generator, budget: int
    ) -> ProxLinearState:
        """One iteration: lines 3 and 4, then η and L_0 for the next."""
        new = replace(state, iteration=state.iteration + 1)
        model = _Model(problem.linearize(state.weights), lam, state)
        candidate = self._minimize(model, new, rng, budget)
        distance = float((candidate - state.weights).norm())
        new.mapping = distance / state.step_size
        objective, linearized = (_objective(p, candidate, lam) for p in (problem, model.linear))
        if self.accept == "always" or objective <= state.objective:
            new.weights, new.objective = candidate, objective
        gain, proximity = state.objective - linearized, distance**2 / (2 * state.step_size)
        if not gain >= proximity:
            new.lipschitz *= 2
        if self.learning_rate is None:
            rounding = _ROUNDING * torch.finfo(candidate.dtype).eps * abs(objective)
            new.step_size *= _change(objective - linearized, proximity, gain, rounding)
        return new

    def with_step_size(self, problem: Problem, lam: float, state: ProxLinearState, step_size: float) -> ProxLinearState:
        """Also L_0 in inverse proportion: the model, or its solver, may be what went wrong."""
        return replace(state, step_size=step_size, lipschitz=state.lipschitz * state.step_size / step_size)

    def metrics(self, state: ProxLinearState) -> dict[str, float]:
        """Gradient mapping and level of smoothing of the iteration."""
        return {"gradient_mapping": state.mapping, "inner_mu": state.mu} if state.iteration else {}

    @property
    def _first_mu(self) -> float:
        return self.mu or (1.0 if self.schedule == "adaptive" else 0.03)

    def _estimate_lipschitz(self, problem: Problem, lam: float, state: ProxLinearState, seed: int) -> float:
        """L_0, on a few examples: linearized scores take long, and iterations double L_0 where it is too small."""
        few = problem.subset(torch.from_numpy(np.random.default_rng(seed).permutation(problem.n)[:_SAMPLE]))
        model = _Model(few.linearize(state.weights), lam, state)
        tried = self.inner_solver(state.mu).try_step_sizes(model.problem, model.lam, model.start, seed)
        problem.oracle_calls += few.oracle_calls
        # The best: steps that are too long get shorter late here, once the model does not decrease at all.
        return 1 / min(tried, key=lambda step_size: tried[step_size])

    def _minimize(self, model: "_Model", state: ProxLinearState, rng: np.random.Generator, budget: int) -> Tensor:
        """Line 3: ŵ_k; counts passes in ``state``."""
        level = state.iteration if self.schedule == "adaptive" else 1
        state.mu = self._first_mu / level
        solver, tolerance = self.inner_solver(state.mu), state.tolerance / state.iteration
        inner = solver.begin(model.problem, model.lam, model.start, 1 / (level * state.lipschitz + model.lam))
        for _ in range(min(self.inner_passes, budget)):
            inner = solver.advance(model.problem, model.lam, inner, rng, budget=1)
            state.passes += 1
            if self.inner_stop == "gradient" and model.accurate(inner.weights, solver.smooth(state.mu), tolerance):
                break
        candidate: Tensor = model.problem.origin + inner.weights
        return candidate


class _Model:
    """F_η(·; w_{k-1}), up to a constant, as a problem for convex solvers.

    Attributes:
        linear: the problem with linearized scores.
        problem: the same in coordinates where the proximal term is part of the regularizer.
        lam: of that regularizer, λ + 1/η.
        start: w_{k-1} there.
    """

    def __init__(self, linear: Problem, lam: float, state: ProxLinearState) -> None:
        self.linear, self.lam = linear, lam + 1 / state.step_size
        self.problem = ShiftedProblem.proximal(linear, lam, 1 / state.step_size, state.weights)
        self.start = state.weights - self.problem.origin

    def accurate(self, weights: Tensor, smoother: Smoother, tolerance: float) -> bool:
        """Whether the gradient is so small that the smoothed model is within the tolerance of its minimum.

        For a model that is strongly convex with a = λ + 1/η: ‖∇‖² ≤ 2aε.
        """
        full = self.problem.full_pass(weights, self.problem.surrogate(smoother))
        gradient = full.gradient + self.lam * weights
        return float(gradient.square().sum()) <= 2 * self.lam * tolerance


def _objective(problem: Problem, weights: Tensor, lam: float) -> float:
    return problem.loss(weights) + lam / 2 * float(weights.square().sum())


def _change(error: float, proximity: float, gain: float, rounding: float) -> float:
    """Factor for η, from the error of the linearization at ŵ, the proximal term there, and the decrease of F(·; w).

    Error and proximal term grow with the square of the distance, so their ratio says which η would make the proximal
    term twice the error. As large as the error is enough, and a larger η helps only where the proximal term holds ŵ
    back.
    """
    if not error <= proximity + rounding:
        return max(1 / _MOST, proximity / (2 * error))
    if proximity == 0 or not _HELD * gain <= proximity <= gain:
        return 1.0
    factor = proximity / (2 * max(error, rounding, proximity / (2 * _MOST)))
    return factor if factor >= 2 else 1.0


# η changes by this factor, at most.
_MOST = 10.0
# Examples on which L_0 is estimated, at most.
_SAMPLE = 20
# At the minimum of a linear function plus a proximal term that is half of the decrease.
_HELD = 0.1
# Error of the difference of two objectives, in units in the last place.
_ROUNDING = 16
