"""The prox-linear algorithm for scores that are not linear (Pillutla et al. 2019, Algorithm 5)."""

import math
from dataclasses import dataclass, fields, replace
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor

from structsmooth.problems.base import FullPass, Problem
from structsmooth.smoothing import Smoother
from structsmooth.solvers.checks import check_choices, check_number, check_positive
from structsmooth.solvers.primal.casimir import CasimirSVRG
from structsmooth.solvers.primal.gradient import GradientSolver
from structsmooth.solvers.primal.prox_models import (
    Candidate,
    DualModels,
    Limits,
    Models,
    ProxLinearState,
    SmoothedModels,
    objective,
)
from structsmooth.solvers.primal.proximal_dual import BlockStatistics
from structsmooth.solvers.primal.step_lengths import change_by_bound, change_by_error, first_step_length
from structsmooth.solvers.primal.svrg import ORACLES, SVRG, SmoothedSolver


@dataclass(frozen=True)
class ProxLinear(GradientSolver[ProxLinearState]):
    """Prox-linear steps for any score module, by a convex solver on linearized scores.

    Iteration k looks for the minimum of the convex model
    F_η(w; w_{k-1}) = (1/n) Σ h(θ_i(w_{k-1}) + J_i(w − w_{k-1}) + ℓ_i) − ... + (λ/2)‖w‖² + (1/2η)‖w − w_{k-1}‖²
    and goes to the candidate ŵ_k that it finds if F is no larger there.

    By block-coordinate Frank-Wolfe, without smoothing: each step has an exact line search on a batch of examples, and
    a pass calls the max oracle once on each example. Statistics stay a point of the dual when the linearization
    changes, so each model starts from those of the model before.

    By SVRG, on smoothed models from w_{k-1}: with μ_k = μ/k and L_k = k L_0 (``schedule="adaptive"``), or μ_k = μ and
    L_k = L_0 (``"constant"``). The first full pass on model k + 1 also finds F(ŵ_k), by the same calls of the top-K
    oracle.

    The history has one row for each iteration; its ``step_size`` is η, and the metrics are ``gradient_mapping``
    ‖w_{k-1} − ŵ_k‖/η; for SVRG ``inner_mu`` μ_k; for BCFW ``estimated_model_gap``, the sum of the block gaps that the
    last pass found, each before the step on its block, and under ``inner_stop="gradient"`` also ``model_gap``, the
    duality gap of the model at ŵ_k.

    Args:
        learning_rate: step size η. If not given, it adapts. At first the proximal term is a tenth of the loss after the
            gradient step that would make the linearized loss zero. Then η decreases when F at the candidate is above
            the model, which cannot happen below the inverse curvature of the scores (Assumption 33), and increases
            when the proximal term held the candidate back and was far above the error of the model; by a factor of at
            most ten. With BCFW, the dual bound of the model tells in most iterations, without evaluating the model: η
            is doubled when F decreased by more than three quarters of what the bound allows.
        mu: level of smoothing μ at the start. If not given, 1 for the adaptive and 0.03 for the constant schedule.
        k: number of outputs of the top-K oracle (ℓ₂ smoothing).
        smoothing: ``"l2"`` for the top-K oracle or ``"entropy"`` for the exp oracle.
        schedule: ``"adaptive"`` for smoothing that decreases with the iterations, or ``"constant"``.
        lipschitz: estimate L_0 of the Lipschitz constant of the smoothed gradient. It is doubled when SVRG does not
            decrease the model; with a given η, when F is larger at the candidate. If not given, it is estimated from a
            few examples.
        inner: solver of the convex models: ``"bcfw"``; ``"casimir-svrg"`` with its constant schedule; or ``"svrg"``. If
            not given, BCFW, unless one of the hyperparameters that it does not have differs from its default, ``mu``,
            ``k``, ``smoothing``, ``schedule``, ``lipschitz`` or ``warm_start``: then Casimir-SVRG.
        warm_start: where the inner problems of Casimir-SVRG start; see that solver.
        inner_passes: passes of the inner solver in an iteration; under ``"gradient"`` the limit on them. If not given,
            2 for BCFW and 5 for the others.
        inner_stop: ``"budget"`` to make all inner passes; ``"gradient"`` to stop when the model is within ε_0/k of its
            minimum: by ‖∇‖² ≤ 2(λ + 1/η) ε_0/k for the smoothed model, or by the duality gap for BCFW. It takes one
            more call on each example after every inner pass.
        tolerance: accuracy ε_0 of the models. If not given, the objective at the start (Remark 38).
        accept: ``"descent"`` for candidates where F is no larger (line 4), ``"always"`` for all (Remark 36).
    """

    mu: float | None = None
    k: int = 5
    smoothing: Literal["l2", "entropy"] = "l2"
    schedule: Literal["adaptive", "constant"] = "adaptive"
    lipschitz: float | None = None
    inner: Literal["bcfw", "casimir-svrg", "svrg"] | None = None
    warm_start: Literal["prox-center", "extrapolation", "prev-iterate"] = "prox-center"
    inner_passes: int | None = None
    inner_stop: Literal["budget", "gradient"] = "budget"
    tolerance: float | None = None
    accept: Literal["descent", "always"] = "descent"

    state_type = ProxLinearState
    evaluates = True

    def __post_init__(self) -> None:
        super().__post_init__()
        check_positive(self, "mu", "lipschitz", "tolerance")
        if self.inner_passes is not None:
            check_number("inner_passes", self.inner_passes, integer=True, positive=True)
        check_choices(self, "schedule", "inner_stop", "accept")
        if self.inner not in (None, "bcfw", "casimir-svrg", "svrg"):
            raise ValueError(f'inner must be "bcfw", "casimir-svrg" or "svrg", got {self.inner!r}')
        if self.inner == "bcfw" and self._only_svrg():
            raise ValueError(f'{self._only_svrg()[0]} must have its default with inner="bcfw": only SVRG has it')
        self.inner_solver(self._first_mu)  # checks the hyperparameters that it gets

    @property
    def ascends(self) -> bool:
        """Whether models are solved in the dual, by BCFW."""
        return self.inner == "bcfw" or (self.inner is None and not self._only_svrg())

    @property
    def oracle(self) -> str:
        """That of the inner solver."""
        return "max" if self.ascends else ORACLES[self.smoothing]

    def inner_solver(self, mu: float) -> SmoothedSolver[Any]:
        """The solver of smoothed models at a level of smoothing, without its step size."""
        shared: dict[str, Any] = {"mu": mu, "k": self.k, "smoothing": self.smoothing, "batch_size": self.batch_size}
        if self.inner == "svrg":
            return SVRG(**shared)
        return CasimirSVRG(schedule="constant", warm_start=self.warm_start, **shared)

    @property
    def models(self) -> Models:
        """How models are minimized."""
        if self.ascends:
            return DualModels(self.blocks)
        return SmoothedModels(self.inner_solver, self._first_mu, self.schedule == "adaptive")

    def first_state(self, problem: Problem, lam: float, start: Any, seed: int) -> ProxLinearState:
        """The given weights with their evaluation, η and L_0."""
        state = self.begin(problem, lam, self.first_weights(problem, start), self.learning_rate or 1.0)
        state.evaluation = self.evaluate(problem, lam, state)
        state.objective = objective(state.evaluation, lam)
        state.tolerance = state.objective if self.tolerance is None else self.tolerance
        if self.learning_rate is None:
            state.step_size = first_step_length(state.evaluation)
        if self.lipschitz is None and math.isfinite(state.objective):
            state.lipschitz = self.models.first_lipschitz(problem, lam, state, seed)
        return state

    def begin(self, problem: Problem, lam: float, weights: Tensor, step_size: float) -> ProxLinearState:
        """The given weights and η, and for BCFW the labels."""
        labels = vars(BlockStatistics.of_labels(weights, len(self.blocks(problem))))
        return ProxLinearState(weights, step_size, lipschitz=self.lipschitz or 0.0, mu=self._first_mu, **labels)

    def evaluate(self, problem: Problem, lam: float, state: ProxLinearState) -> FullPass:
        """The pass that gives F, and that the next iteration may begin with."""
        return self.models.evaluate(problem, state.weights, state.iteration + 1)

    def smoother(self, state: ProxLinearState) -> Smoother:
        """Smoothing of that pass."""
        return self.models.smoother(state.iteration + 1)

    def first_pass_at(self, state: ProxLinearState, lam: float) -> tuple[Tensor, Smoother]:
        """The evaluation; BCFW only needs it again where a candidate is rejected."""
        return state.weights, self.smoother(state)

    def advance(
        self, problem: Problem, lam: float, state: ProxLinearState, rng: np.random.Generator, budget: int
    ) -> ProxLinearState:
        """One iteration: lines 3 and 4, then η and L_0 for the next."""
        models, new = self.models, replace(state, iteration=state.iteration + 1, model_gap=None)
        tolerance = state.tolerance / new.iteration if self.inner_stop == "gradient" else None
        limits = Limits(min(self.inner_passes or models.passes, budget), tolerance)
        candidate = models.minimize(problem, lam, new, rng, limits)
        new.mapping = float((candidate.weights - state.weights).norm()) / state.step_size
        full = self.evaluate(problem, lam, replace(new, weights=candidate.weights))
        reached = objective(full, lam)
        if self.accept == "always" or reached <= state.objective:
            new.weights, new.evaluation = candidate.weights, full
        elif state.evaluation is None or state.evaluation.smoother != full.smoother:
            new.evaluation = self.evaluate(problem, lam, new)
        self._steer(new, state, candidate, reached, lam)
        return new

    def with_step_size(self, problem: Problem, lam: float, state: ProxLinearState, step_size: float) -> ProxLinearState:
        """Also L_0 in inverse proportion: the model, or its solver, may be what went wrong."""
        return replace(state, step_size=step_size, lipschitz=state.lipschitz * state.step_size / step_size)

    def metrics(self, state: ProxLinearState) -> dict[str, float]:
        """Gradient mapping, and level of smoothing or gaps of the model."""
        return {"gradient_mapping": state.mapping} | self.models.metrics(state) if state.iteration else {}

    @property
    def _first_mu(self) -> float:
        return self.mu or (1.0 if self.schedule == "adaptive" else 0.03)

    def _only_svrg(self) -> list[str]:
        """Hyperparameters that only SVRG has, and that have been set."""
        return [f.name for f in fields(self) if f.name in _SVRG and getattr(self, f.name) != f.default]

    def _steer(
        self, new: ProxLinearState, state: ProxLinearState, candidate: Candidate, reached: float, lam: float
    ) -> None:
        """η and L_0 of the next iteration, given F at the candidate."""
        decrease = state.objective - reached
        if self.learning_rate is not None:
            new.lipschitz *= 1 if decrease >= 0 else 2
            return
        most = None if candidate.bound is None else state.objective - candidate.bound
        if most is not None and (change := change_by_bound(decrease, most, new.seen_gap)):
            new.step_size *= change
            return
        linearized = candidate.linear.loss(candidate.weights) + lam / 2 * float(candidate.weights.square().sum())
        gain, proximity = state.objective - linearized, new.mapping**2 * state.step_size / 2
        rounding = _ROUNDING * torch.finfo(new.weights.dtype).eps * abs(reached)
        new.step_size *= change_by_error(reached - linearized, proximity, gain, rounding)
        new.lipschitz *= 1 if gain >= proximity else 2


# Error of the difference of two objectives, in units in the last place.
_ROUNDING = 16
# Hyperparameters that BCFW has no use for.
_SVRG = ("mu", "k", "smoothing", "schedule", "lipschitz", "warm_start")
