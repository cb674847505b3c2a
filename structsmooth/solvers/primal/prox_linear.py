"""The prox-linear algorithm for scores that are not linear (Pillutla et al. 2019, Algorithm 5)."""

import math
from dataclasses import dataclass, field, fields, replace
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor

from structsmooth.problems.base import FullPass, Problem
from structsmooth.smoothing import Max, Smoother
from structsmooth.solvers.checks import check_choices, check_number, check_positive
from structsmooth.solvers.primal.casimir import CasimirSVRG
from structsmooth.solvers.primal.gradient import GradientSolver, GradientState
from structsmooth.solvers.primal.proximal_dual import BlockStatistics, ProximalDual, linearized
from structsmooth.solvers.primal.smoothed_model import SmoothedModel
from structsmooth.solvers.primal.step_lengths import change_by_bound, change_by_error, first_step_length
from structsmooth.solvers.primal.svrg import ORACLES, SVRG, SmoothedSolver
from structsmooth.solvers.state import empty


@dataclass
class ProxLinearState(GradientState):
    """After iteration k: ``weights`` is w_k, ``step_size`` is η."""

    iteration: int = 0  # k
    objective: float = math.inf  # F(w_k)
    tolerance: float = 0.0  # ε_0
    lipschitz: float = 0.0  # L_0
    mu: float = 0.0  # μ_k
    mapping: float = 0.0  # norm of the gradient mapping ϱ_η(w_{k-1}), with the candidate ŵ_k for the exact minimum
    statistics: Tensor = field(default_factory=empty)  # of BCFW, with sizes and constants; see BlockStatistics
    sizes: Tensor = field(default_factory=lambda: torch.zeros(0, dtype=torch.int64))
    constants: Tensor = field(default_factory=empty)
    seen_gap: float = 0.0  # of model k, by the last pass of BCFW
    model_gap: float | None = None  # of model k at ŵ_k, where it has been evaluated

    def observe(self, full: FullPass, lam: float) -> None:
        """Learn F(w_k), too."""
        super().observe(full, lam)
        self.objective = _objective(full, lam)


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

    def first_state(self, problem: Problem, lam: float, start: Any, seed: int) -> ProxLinearState:
        """The given weights with their evaluation, η and L_0."""
        state = self.begin(problem, lam, self.first_weights(problem, start), self.learning_rate or 1.0)
        state.evaluation = self.evaluate(problem, lam, state)
        state.objective = _objective(state.evaluation, lam)
        state.tolerance = state.objective if self.tolerance is None else self.tolerance
        if self.learning_rate is None:
            state.step_size = first_step_length(state.evaluation)
        if not self.ascends and self.lipschitz is None and math.isfinite(state.objective):
            state.lipschitz = self._estimate_lipschitz(problem, lam, state, seed)
        return state

    def begin(self, problem: Problem, lam: float, weights: Tensor, step_size: float) -> ProxLinearState:
        """The given weights and η, and for BCFW the labels."""
        labels = vars(BlockStatistics.of_labels(weights, len(self.blocks(problem))))
        return ProxLinearState(weights, step_size, lipschitz=self.lipschitz or 0.0, mu=self._first_mu, **labels)

    def evaluate(self, problem: Problem, lam: float, state: ProxLinearState) -> FullPass:
        """The pass that gives F; for SVRG on the linearized problem, where its first epoch will start."""
        smoother = problem.surrogate(self.smoother(state))
        linear = problem if self.ascends else problem.linearize(state.weights)
        return linear.full_pass(state.weights, smoother, with_loss=True, with_statistics=not self.ascends)

    def smoother(self, state: ProxLinearState) -> Smoother:
        """Smoothing of the next model; none for BCFW."""
        mu = self._first_mu / self._level(state.iteration + 1)
        return Max() if self.ascends else self.inner_solver(mu).smooth(mu)

    def first_pass_at(self, state: ProxLinearState, lam: float) -> tuple[Tensor, Smoother]:
        """The evaluation; BCFW only needs it again where a candidate is rejected."""
        return state.weights, self.smoother(state)

    def advance(
        self, problem: Problem, lam: float, state: ProxLinearState, rng: np.random.Generator, budget: int
    ) -> ProxLinearState:
        """One iteration: lines 3 and 4, then η and L_0 for the next."""
        new = replace(state, iteration=state.iteration + 1, model_gap=None)
        passes = min(self.inner_passes or (2 if self.ascends else 5), budget)
        minimize = self._ascend if self.ascends else self._descend
        found = minimize(problem, lam, new, rng, passes)
        new.mapping = float((found.candidate - state.weights).norm()) / state.step_size
        full = self.evaluate(problem, lam, replace(new, weights=found.candidate))
        objective = _objective(full, lam)
        if self.accept == "always" or objective <= state.objective:
            new.weights, new.evaluation = found.candidate, full
        elif state.evaluation is None or state.evaluation.smoother != full.smoother:
            new.evaluation = self.evaluate(problem, lam, new)
        self._steer(new, state, found, objective, lam)
        return new

    def with_step_size(self, problem: Problem, lam: float, state: ProxLinearState, step_size: float) -> ProxLinearState:
        """Also L_0 in inverse proportion: the model, or its solver, may be what went wrong."""
        return replace(state, step_size=step_size, lipschitz=state.lipschitz * state.step_size / step_size)

    def metrics(self, state: ProxLinearState) -> dict[str, float]:
        """Gradient mapping, and level of smoothing or gaps of the model."""
        if not state.iteration:
            return {}
        own = {"estimated_model_gap": state.seen_gap} if self.ascends else {"inner_mu": state.mu}
        exact = {} if state.model_gap is None else {"model_gap": state.model_gap}
        return {"gradient_mapping": state.mapping} | own | exact

    @property
    def _first_mu(self) -> float:
        return self.mu or (1.0 if self.schedule == "adaptive" else 0.03)

    def _only_svrg(self) -> list[str]:
        """Hyperparameters that only SVRG has, and that have been set."""
        return [f.name for f in fields(self) if f.name in _SVRG and getattr(self, f.name) != f.default]

    def _level(self, iteration: int) -> int:
        """What μ is divided by and L_0 multiplied with."""
        return iteration if self.schedule == "adaptive" else 1

    def _estimate_lipschitz(self, problem: Problem, lam: float, state: ProxLinearState, seed: int) -> float:
        """L_0, on a few examples: linearized scores take long, and iterations double L_0 where it is too small."""
        few = problem.subset(torch.from_numpy(np.random.default_rng(seed).permutation(problem.n)[:_SAMPLE]))
        model = SmoothedModel(few.linearize(state.weights), lam, state.step_size, state.weights)
        tried = self.inner_solver(state.mu).try_step_sizes(model.problem, model.lam, model.start, seed)
        problem.oracle_calls += few.oracle_calls
        # The best: steps that are too long get shorter late here, once the model does not decrease at all.
        return 1 / min(tried, key=lambda step_size: tried[step_size])

    def _ascend(
        self, problem: Problem, lam: float, state: ProxLinearState, rng: np.random.Generator, passes: int
    ) -> "_Found":
        """Line 3 by BCFW; counts passes in ``state``."""
        linear = linearized(problem, state.weights)
        dual = ProximalDual(linear, lam, state.step_size, state.weights, self.blocks(problem))
        point = dual.point(BlockStatistics(state.statistics, state.sizes, state.constants))
        for _ in range(passes):
            point = dual.ascend(point, rng)
            state.passes += 1
            if self.inner_stop == "gradient":
                state.model_gap = dual.gap(point)
                if state.model_gap <= state.tolerance / state.iteration:
                    break
        state.seen_gap = float(point.gap)
        blocks = point.blocks
        state.statistics, state.sizes, state.constants = blocks.statistics, blocks.sizes, blocks.constants
        return _Found(point.weights, linear, float(point.value))

    def _descend(
        self, problem: Problem, lam: float, state: ProxLinearState, rng: np.random.Generator, passes: int
    ) -> "_Found":
        """Line 3 by SVRG; counts passes in ``state``."""
        first = state.evaluation or self.evaluate(problem, lam, replace(state, iteration=state.iteration - 1))
        level = self._level(state.iteration)
        state.mu = self._first_mu / level
        model = SmoothedModel(problem.linearize(state.weights), lam, state.step_size, state.weights)
        tolerance = state.tolerance / state.iteration if self.inner_stop == "gradient" else None
        solver, lipschitz = self.inner_solver(state.mu), level * state.lipschitz
        candidate, made = model.minimize(solver, lipschitz, first, rng, passes, tolerance)
        state.passes += made
        return _Found(candidate, model.linear)

    def _steer(
        self, new: ProxLinearState, state: ProxLinearState, found: "_Found", objective: float, lam: float
    ) -> None:
        """η and L_0 of the next iteration."""
        decrease = state.objective - objective
        if self.learning_rate is not None:
            new.lipschitz *= 1 if decrease >= 0 else 2
            return
        most = None if found.bound is None else state.objective - found.bound
        if most is not None and (change := change_by_bound(decrease, most, new.seen_gap)):
            new.step_size *= change
            return
        linearized = found.linear.loss(found.candidate) + lam / 2 * float(found.candidate.square().sum())
        gain, proximity = state.objective - linearized, new.mapping**2 * state.step_size / 2
        rounding = _ROUNDING * torch.finfo(new.weights.dtype).eps * abs(objective)
        new.step_size *= change_by_error(objective - linearized, proximity, gain, rounding)
        new.lipschitz *= 1 if gain >= proximity else 2


@dataclass
class _Found:
    """ŵ_k, the linearized problem and, from BCFW, a lower bound on model k."""

    candidate: Tensor
    linear: Problem
    bound: float | None = None


def _objective(full: FullPass, lam: float) -> float:
    """F of an evaluation."""
    assert full.loss is not None
    return full.loss + lam / 2 * float(full.weights.square().sum())


# Error of the difference of two objectives, in units in the last place.
_ROUNDING = 16
# Examples on which L_0 is estimated, at most.
_SAMPLE = 20
# Hyperparameters that BCFW has no use for.
_SVRG = ("mu", "k", "smoothing", "schedule", "lipschitz", "warm_start")
