"""The prox-linear algorithm for scores that are not linear (Pillutla et al. 2019, Algorithm 5)."""

import math
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor

from structsmooth.problems.base import FullPass, Problem
from structsmooth.settings import Positive, PositiveInt
from structsmooth.smoothing import Smoother
from structsmooth.solvers.base import Solver
from structsmooth.solvers.bcfw import BCFW
from structsmooth.solvers.primal.casimir import CasimirSVRG
from structsmooth.solvers.primal.gradient import GradientSolver, first_weights
from structsmooth.solvers.prox_linear.models import (
    Candidate,
    DualModels,
    Limits,
    ProxLinearState,
    SmoothedModels,
    objective,
)
from structsmooth.solvers.prox_linear.proximal_dual import BlockStatistics
from structsmooth.solvers.state import PassMemo
from structsmooth.solvers.svrg import SVRG, SmoothedSolver


@dataclass(frozen=True)
class ProxLinear(GradientSolver[ProxLinearState]):
    """Prox-linear steps for any score module, by a convex solver on linearized scores.

    Iteration k looks for the minimum of the convex model
    F_η(w; w_{k-1}) = (1/n) Σ h(θ_i(w_{k-1}) + J_i(w − w_{k-1}) + ℓ_i) − ... + (λ/2)‖w‖² + (1/2η)‖w − w_{k-1}‖²
    and goes to the candidate ŵ_k that it finds if F is no larger there.

    The inner solver minimizes the models:

    - :class:`~structsmooth.CasimirSVRG`, as in the paper, or :class:`~structsmooth.solvers.SVRG`, from w_{k-1}, on
      smoothed models, with μ_k = μ/k and L_k = k L_0 (``schedule="adaptive"``), or μ_k = μ and L_k = L_0
      (``"constant"``). The first full pass on model k + 1 also finds F(ŵ_k), by the same calls of the smoothed oracle.
    - :class:`~structsmooth.BCFW`, without smoothing, and faster on all networks that we have tried: each step has an
      exact line search on a batch of examples, and a pass calls the max oracle once on each example. Statistics stay a
      point of the dual when the linearization changes, so each model starts from those of the model before.

    The history has one row for each iteration; its ``step_size`` is η, and the metrics are ``gradient_mapping``
    ‖w_{k-1} − ŵ_k‖/η; for solvers that smooth ``inner_mu`` μ_k; for BCFW ``estimated_model_gap``, the sum of the block
    gaps that the last pass found, each before the step on its block, and under ``inner_stop="gradient"`` also
    ``model_gap``, the duality gap of the model at ŵ_k.

    Args:
        learning_rate: step size η. If not given, it adapts. At first the proximal term is a tenth of the loss after the
            gradient step that would make the linearized loss zero. Then η decreases when F at the candidate is above
            the model, which cannot happen below the inverse curvature of the scores (Assumption 33), and increases
            when the proximal term held the candidate back and was far above the error of the model; by a factor of at
            most ten. With BCFW, the dual bound of the model tells in most iterations, without evaluating the model: η
            is doubled when F decreased by more than three quarters of what the bound allows.
        batch_size: examples per step of the inner solver. If not given, the problem decides.
        inner: solver of the convex models: ``CasimirSVRG``, ``SVRG`` or ``BCFW``. Its ``mu``, ``k`` and ``smoothing``
            are those of the models; if ``mu`` is not given, it is 1 for the adaptive and 0.03 for the constant
            schedule. Its step size follows L_k, and how many passes it makes is for the fields below to say, so that
            it may have no ``learning_rate``, ``lipschitz`` or ``batch_size`` of its own.
        schedule: ``"adaptive"`` for smoothing that decreases with the iterations, or ``"constant"``; for inner solvers
            that smooth.
        lipschitz: estimate L_0 of the Lipschitz constant of the smoothed gradient. It is doubled when SVRG does not
            decrease the model; with a given η, when F is larger at the candidate. If not given, it is estimated from a
            few examples. BCFW has no use for it.
        inner_passes: passes of the inner solver in an iteration; under ``"gradient"`` the limit on them. If not given,
            2 for BCFW and 5 for the others.
        inner_stop: ``"budget"`` to make all inner passes; ``"gradient"`` to stop when the model is within ε_0/k of its
            minimum: by ‖∇‖² ≤ 2(λ + 1/η) ε_0/k for the smoothed model, or by the duality gap for BCFW. It takes one
            more call on each example after every inner pass.
        tolerance: accuracy ε_0 of the models. If not given, the objective at the start (Remark 38).
        accept: ``"descent"`` for candidates where F is no larger (line 4), ``"always"`` for all (Remark 36).
    """

    inner: Solver[Any] = CasimirSVRG(schedule="constant")  # noqa: RUF009 - immutable
    schedule: Literal["adaptive", "constant"] = "adaptive"
    lipschitz: Positive | None = None
    inner_passes: PositiveInt | None = None
    inner_stop: Literal["budget", "gradient"] = "budget"
    tolerance: Positive | None = None
    accept: Literal["descent", "always"] = "descent"

    state_type = ProxLinearState
    reuses_evaluations = counts_evaluations = True

    def __post_init__(self) -> None:
        super().__post_init__()
        _check_inner(self.inner)

    def check(self, problem: Problem, lam: float) -> None:
        """Also refuse partial labels where the inner solver goes on from the statistics of the model before.

        Raises:
            ValueError: partial labels with ``BCFW``, or as for other solvers.
        """
        super().check(problem, lam)
        if problem.partial and not isinstance(self.inner, SmoothedSolver):
            raise ValueError(
                "ProxLinear(inner=BCFW()) starts each model from statistics relative to the labels, which change from "
                "model to model where labels are partial: take inner=CasimirSVRG()"
            )

    @property
    def oracle(self) -> str:
        """The oracle of the inner solver."""
        return self.inner.oracle

    @property
    def models(self) -> DualModels | SmoothedModels:
        """What minimizes the models: in the dual, or smoothed, as the inner solver needs it."""
        if isinstance(self.inner, SmoothedSolver):
            return SmoothedModels(replace(self.inner, batch_size=self.batch_size), self.schedule == "adaptive")
        return DualModels(self.blocks)

    def first_state(self, problem: Problem, lam: float, start: Any, seed: int) -> ProxLinearState:
        """State before the first pass: the given weights with their evaluation, η and L_0."""
        state = self.begin(problem, lam, first_weights(problem, start), self.learning_rate or 1.0)
        full = self.evaluate(problem, lam, state)
        state.memo, state.objective = PassMemo(full), objective(full, lam)
        state.tolerance = state.objective if self.tolerance is None else self.tolerance
        if self.learning_rate is None:
            state.step_size = first_step_length(full)
        if self.lipschitz is None and math.isfinite(state.objective):
            state.lipschitz = self.models.first_lipschitz(problem, lam, state, seed)
        return state

    def begin(self, problem: Problem, lam: float, weights: Tensor, step_size: float) -> ProxLinearState:
        """State at the given weights and η, and for BCFW at the statistics of the labels."""
        labels = BlockStatistics.of_labels(weights, len(self.blocks(problem)))
        lipschitz = self.lipschitz or 0.0
        return ProxLinearState(weights, step_size, blocks=labels, lipschitz=lipschitz, mu=self.models.first_mu)

    def evaluate(self, problem: Problem, lam: float, state: ProxLinearState) -> FullPass:
        """The pass that gives F, and that the next iteration may begin with."""
        smoother, models = problem.effective_smoother(self.smoother(state)), self.models
        return problem.full_pass(state.weights, smoother, with_loss=True, with_statistics=models.use_statistics)

    def smoother(self, state: ProxLinearState) -> Smoother:
        """Smoothing of that pass."""
        return self.models.smoother(state.iteration + 1)

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
            new.weights, new.memo = candidate.weights, PassMemo(full)
        self._steer(new, state, candidate, reached, lam)
        return new

    def with_step_size(self, problem: Problem, lam: float, state: ProxLinearState, step_size: float) -> ProxLinearState:
        """``state`` with another η, and L_0 in inverse proportion: the model, or its solver, may be what went wrong."""
        return replace(state, step_size=step_size, lipschitz=state.lipschitz * state.step_size / step_size)

    def metrics(self, state: ProxLinearState) -> dict[str, float]:
        """Gradient mapping, and level of smoothing or gaps of the model."""
        return {"gradient_mapping": state.mapping} | self.models.metrics(state) if state.iteration else {}

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


# The proximal term is small below this share of the decrease; half of it at the minimum of a linear function.
_HELD = 0.1
# By the error of the linearization, η changes by this factor, at most.
_MOST = 10.0
# It grows by this one if F decreases by more than so much of what the dual bound allows.
_GROWTH, _MUCH = 2.0, 0.75
# A decrease of less than this part of what it is at least, for a right model, leaves a doubt.
_LITTLE = 0.25
# Error of the difference of two objectives, in units in the last place.
_ROUNDING = 16


def _check_inner(inner: Any) -> None:
    """Refuse a solver that cannot minimize the models, and hyperparameters that have no use there.

    Raises:
        TypeError: a solver of another kind.
        ValueError: a hyperparameter that ProxLinear sets itself, or steps that need the outputs of single examples.
    """
    if isinstance(inner, CasimirSVRG | SVRG):
        unused: dict[str, Any] = {"learning_rate": None, "lipschitz": None, "batch_size": None}
    elif type(inner) is BCFW:
        unused = {name: getattr(BCFW, name) for name in ("cache", "average", "threads")}
        for name, only in (("sampling", "uniform"), ("steps", "fw")):
            if getattr(inner, name) not in (None, only):
                raise ValueError(
                    f'the inner BCFW of ProxLinear has only {name}="{only}", since the outputs of single examples are '
                    f"not kept; got {getattr(inner, name)!r}"
                )
    else:
        raise TypeError(f"inner must be a CasimirSVRG, an SVRG or a BCFW, got {inner!r}")
    for name, only in unused.items():
        if getattr(inner, name, only) != only:
            raise ValueError(f"the inner solver of ProxLinear has no {name} of its own; got {getattr(inner, name)}")


def first_step_length(full: FullPass) -> float:
    """The η whose proximal term is a small part of the loss after a step that makes the linearized loss zero.

    This step along the gradient is as long as the loss over the norm of the gradient.
    """
    loss, square = full.smoothed_loss, float(full.gradient.square().sum())
    return loss / (2 * _HELD * square) if square > 0 and 0 < loss < math.inf else 1.0


def change_by_bound(decrease: float, most: float, gap: float) -> float | None:
    """Factor for η, from the decrease of F, the most that the dual bound of the model allows, and the model's gap.

    At the candidate, the model has decreased by what the bound allows less the gap. If F has decreased by far less, the
    model may be wrong there, or the gap, which is an estimate: ``None`` for that doubt.
    """
    least = most - gap
    if not decrease >= min(least, _LITTLE * least):
        return None
    return _GROWTH if decrease > _MUCH * most > 0 else 1.0


def change_by_error(error: float, proximity: float, gain: float, rounding: float) -> float:
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
