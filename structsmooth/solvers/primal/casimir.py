"""Casimir-SVRG: accelerated proximal points of smoothed objectives (Pillutla et al. 2019, Algorithm 4)."""

import math
from dataclasses import dataclass, field, replace
from typing import Literal, NamedTuple

import numpy as np
from torch import Tensor

from structsmooth.problems.base import FullPass, Problem
from structsmooth.problems.reductions import agreed
from structsmooth.settings import Positive, PositiveInt
from structsmooth.smoothing import Smoother
from structsmooth.solvers.state import empty
from structsmooth.solvers.svrg import SmoothedSolver, SmoothedState
from structsmooth.solvers.svrg.steps import epoch as svrg_epoch


class Level(NamedTuple):
    """Parameters of iteration k: strength κ_k of the proximal term, relative accuracy δ_k of its minimum."""

    kappa: float
    delta: float


def next_alpha(alpha: float, kappa: float, next_kappa: float, lam: float) -> float:
    """α_k from α_{k-1}: the root of (27), α_k²(κ_{k+1} + λ) = (1 − α_k) α_{k-1}²(κ_k + λ) + α_k λ."""
    a, c = next_kappa + lam, alpha**2 * (kappa + lam)
    b = c - lam
    return (math.sqrt(b * b + 4 * a * c) - b) / (2 * a)


def extrapolation(alpha: float, next_alpha: float, kappa: float, next_kappa: float, lam: float) -> float:
    """β_k of (29) from α_{k-1} and α_k."""
    scaled = alpha * (1 - alpha) * (kappa + lam)
    return scaled / (alpha**2 * (kappa + lam) + next_alpha * (next_kappa + lam))


def accurate(snapshot: FullPass, level: Level, lam: float, center: Tensor) -> bool:
    """Whether the gradient is so small that (26) holds: ‖∇‖² ≤ (λ + κ) δ κ ‖w − z‖²."""
    offset = snapshot.weights - center
    gradient = snapshot.gradient + lam * snapshot.weights + level.kappa * offset
    bound = (lam + level.kappa) * level.delta * level.kappa * float(offset.square().sum())
    return float(gradient.square().sum()) <= bound


@dataclass
class CasimirState(SmoothedState):
    """After outer iteration k: ``weights`` are where inner problem k + 1 starts, by default z_k."""

    iterate: Tensor = field(default_factory=empty)  # w_k
    iteration: int = 0  # k
    alpha: float = 1.0  # α_k
    mu: float = 0.0  # μ_{k+1}
    kappa: float = 0.0  # κ, which κ_k does not exceed for λ > 0
    lipschitz: float = 0.0  # the Lipschitz constant that κ follows from
    least_mu: float = 0.0  # bound that μ_k does not fall below yet
    center: Tensor = field(default_factory=empty)  # prox-center z_k
    previous_center: Tensor = field(default_factory=empty)  # z_{k-1}

    @property
    def reached(self) -> Tensor:
        """The iterate w_k, [dim]."""
        return self.iterate


@dataclass(frozen=True)
class CasimirSVRG(SmoothedSolver[CasimirState]):
    """Casimir-SVRG: accelerated proximal points of a smoothed objective, by SVRG (Algorithm 4).

    Iteration k roughly minimizes F_{μ_k}(w) + (κ_k/2)‖w − z_{k-1}‖² by one epoch or more of SVRG, then extrapolates to
    z_k. Schedules (Table 3), with q = λ/(λ + κ):

    =========  =====================================  ===================
    schedule   λ > 0                                  λ = 0
    =========  =====================================  ===================
    adaptive   μ_k = μ(1 − √q/2)^{k/2}, κ_k = κ        μ_k = μ/k, κ_k = κk
    constant   μ_k = μ, κ_k = κ                       μ_k = μ, κ_k = κ
    =========  =====================================  ===================

    Where κ is not given, that of the adaptive schedule for λ > 0 grows: κ_k = min(κ, 1.2^{k−1} λ), and μ_k follows it,
    μ_k = μ_{k−1} √(1 − √q_k/2).

    An inner problem starts with a full pass, which also is the evaluation of the iteration before: objectives of the
    history, and the weights that a run returns, are those of the start of the next inner problem, z_k by default.

    The adaptive level for λ > 0 falls below μ/10 only in proportion to the step size, and never below 1e-5 μ. When the
    step size is halved, the Lipschitz constant that κ follows from is doubled.

    Args:
        mu: level of smoothing μ at the start. If not given, 2 for the adaptive and 0.03 for the constant schedule.
        kappa: strength κ of the proximal term. If not given, it follows from the Lipschitz constant that the first
            step size implies, as in Propositions 29 and 31; the adaptive schedule with λ > 0 goes from λ to the
            geometric mean of that and λ, since strong acceleration is slow at first, and weak acceleration in the end.
            ``"lam"`` is κ = λ > 0, which the paper takes in its experiments on convex problems (section 7.3.1).
        schedule: of smoothing and κ: ``"adaptive"`` (Corollaries 18 and 20), which needs no accuracy in
            advance, or ``"constant"`` (Corollaries 17 and 19).
        warm_start: where an inner problem starts: ``"prox-center"`` z_{k-1}, ``"extrapolation"``
            w_{k-1} + κ/(κ + λ)(z_{k-1} − z_{k-2}), or ``"prev-iterate"`` w_{k-1}.
        inner_stop: ``"budget"`` for one SVRG epoch, ``"gradient"`` for epochs, at least one, until the norm of the
            gradient implies criterion (26) or the run has made all its passes.
        max_inner: limit on the epochs of an inner problem under ``"gradient"``.
        lipschitz: estimate of the Lipschitz constant L of the smoothed gradient, for the first step size
            1/(L + λ + κ); an alternative to ``learning_rate``. If neither is given, the step size is estimated.
    """

    kappa: Positive | Literal["lam"] | None = None
    schedule: Literal["adaptive", "constant"] = "adaptive"
    warm_start: Literal["prox-center", "extrapolation", "prev-iterate"] = "prox-center"
    inner_stop: Literal["budget", "gradient"] = "budget"
    max_inner: PositiveInt = 10
    lipschitz: Positive | None = None

    state_type = CasimirState
    least_step = 0.2  # shorter than that of SVRG, since inner problems are more strongly convex than the whole

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.lipschitz is not None and self.learning_rate is not None:
            raise ValueError("give lipschitz or learning_rate, not both")

    def check(self, problem: Problem, lam: float) -> None:
        """Refuse bounds, and κ = λ = 0."""
        super().check(problem, lam)
        if self.kappa == "lam" and lam == 0:
            raise ValueError("kappa='lam' needs lam > 0")

    def estimate_step_size(self, problem: Problem, lam: float, weights: Tensor, seed: int) -> float:
        """The first step size: by the Lipschitz constant if it is given, else as for every gradient solver."""
        if self.lipschitz is None:
            return super().estimate_step_size(problem, lam, weights, seed)
        return 1 / (self.lipschitz + lam + self._kappa(problem, lam, self.lipschitz))

    def begin(self, problem: Problem, lam: float, weights: Tensor, step_size: float) -> CasimirState:
        """State before the first pass: z_0 = w_0, α_0 and κ."""
        lipschitz = self.lipschitz or 1 / step_size
        kappa = self._kappa(problem, lam, lipschitz)
        first = self.level(1, kappa, lam).kappa
        state = CasimirState(
            weights,
            min(step_size, 0.5 / (lam + kappa)),
            iterate=weights,
            alpha=math.sqrt(lam / (lam + first)) if lam > 0 else (math.sqrt(5) - 1) / 2,
            mu=self._first_mu,
            kappa=kappa,
            lipschitz=lipschitz,
            least_mu=_AHEAD * self._first_mu,
            center=weights,
            previous_center=weights,
        )
        return replace(state, mu=self.next_mu(state, lam))

    def advance(
        self, problem: Problem, lam: float, state: CasimirState, rng: np.random.Generator, budget: int
    ) -> CasimirState:
        """One outer iteration: the inner problem, then (27) to (29), where these extrapolate."""
        k = state.iteration + 1
        level, after = self.level(k, state.kappa, lam), self.level(k + 1, state.kappa, lam)
        new = replace(state, iteration=k, previous_center=state.center)
        snapshot = state.memo.full_pass(problem, state.weights, self.smoother(state))
        new.iterate = self._solve_inner(problem, lam, new, snapshot, rng, budget)
        new.alpha = next_alpha(state.alpha, level.kappa, after.kappa, lam)
        beta = extrapolation(state.alpha, new.alpha, level.kappa, after.kappa, lam)
        new.center = new.iterate + beta * (new.iterate - state.iterate)
        new.weights, new.mu = self._warm_start(new, after.kappa, lam), self.next_mu(new, lam)
        return new

    def with_step_size(self, problem: Problem, lam: float, state: CasimirState, step_size: float) -> CasimirState:
        """``state`` with a step size, a Lipschitz constant in inverse proportion and its κ; α²(κ + λ) is kept."""
        change, k = step_size / state.step_size, state.iteration + 1
        new = replace(state, step_size=step_size, lipschitz=state.lipschitz / change)
        new.kappa = self._kappa(problem, lam, new.lipschitz)
        kappa, next_kappa = self.level(k, state.kappa, lam).kappa, self.level(k, new.kappa, lam).kappa
        new.alpha = state.alpha * math.sqrt((kappa + lam) / (next_kappa + lam))
        new.least_mu = max(state.least_mu * change, _LEAST_DECAY * self._first_mu)
        return new

    def restarted(self, state: CasimirState) -> CasimirState:
        """``state`` with iterate and prox-center where the inner problem starts."""
        return replace(state, iterate=state.weights, center=state.weights, previous_center=state.weights)

    def smoother(self, state: CasimirState) -> Smoother:
        """Smoothing by the level of the inner problem that starts at the weights."""
        return self.smooth(state.mu)

    def epoch_objective(self, state: CasimirState, w: Tensor, full: FullPass, lam: float) -> float:
        """The inner problem F_μ(w) + (κ_k/2)‖w − z_{k-1}‖² at ``w``, by the tangent of the smoothed loss."""
        kappa = self.level(state.iteration, state.kappa, lam).kappa
        proximity = float((w - state.previous_center).square_().sum())
        return super().epoch_objective(state, w, full, lam) + kappa / 2 * proximity

    def level(self, k: int, kappa: float, lam: float) -> Level:
        """κ_k and δ_k of Corollaries 17 to 20; κ_k grows to ``kappa`` where none was given."""
        if lam == 0:
            return Level(kappa * k if self.schedule == "adaptive" else kappa, 1 / (k + 1) ** 2)
        if self.kappa is None and self.schedule == "adaptive":
            kappa = min(kappa, lam * _GROWTH ** min(k - 1, _GROWN))
        root = math.sqrt(lam / (lam + kappa))
        return Level(kappa, root / (2 - root))

    def next_mu(self, state: CasimirState, lam: float) -> float:
        """μ_{k+1} of Corollaries 17 to 20, for ``state`` after iteration k with μ_k."""
        if self.schedule == "constant":
            return self._first_mu
        if lam == 0:
            return self._first_mu / (state.iteration + 1)
        kappa = self.level(state.iteration + 1, state.kappa, lam).kappa
        return max(state.mu * math.sqrt(1 - math.sqrt(lam / (lam + kappa)) / 2), state.least_mu)

    @property
    def _first_mu(self) -> float:
        return self.mu or (2.0 if self.schedule == "adaptive" else 0.03)

    def _solve_inner(
        self,
        problem: Problem,
        lam: float,
        state: CasimirState,
        snapshot: FullPass,
        rng: np.random.Generator,
        budget: int,
    ) -> Tensor:
        """SVRG from ``snapshot`` on F_{μ_k}(w) + (κ_k/2)‖w − z_{k-1}‖²; counts passes in ``state``."""
        level, center = self.level(state.iteration, state.kappa, lam), state.previous_center
        weights = snapshot.weights
        # Longer steps would diverge on the quadratic terms alone, which grow with k where the schedule says so.
        step_size = min(state.step_size, 0.5 / (lam + level.kappa))
        for epoch in range(1 if self.inner_stop == "budget" else min(self.max_inner, budget)):
            if epoch > 0:
                snapshot = problem.full_pass(weights, snapshot.smoother)
                state.observe(snapshot, lam)
            # Every iteration makes a pass: one that starts at the minimum would otherwise repeat for ever.
            if epoch > 0 and accurate(snapshot, level, lam, center):
                state.epoch_start = math.inf  # there was nothing left to decrease
                break
            state.epoch_start = self.epoch_objective(state, weights, snapshot, lam)
            order = self.order(problem, rng)
            result = svrg_epoch(
                problem, snapshot, order, step_size=step_size, lam=lam, kappa=level.kappa, center=center
            )
            _, weights = agreed(problem, result)
            state.passes += 1
        return weights

    def _warm_start(self, state: CasimirState, kappa: float, lam: float) -> Tensor:
        if self.warm_start == "prox-center":
            return state.center
        if self.warm_start == "prev-iterate":
            return state.iterate
        return state.iterate + kappa / (kappa + lam) * (state.center - state.previous_center)

    def _kappa(self, problem: Problem, lam: float, lipschitz: float) -> float:
        if self.kappa == "lam":
            return lam
        if self.kappa is not None:
            return self.kappa
        if lam == 0:
            return lipschitz / (problem.n + 1)
        balanced = lipschitz / problem.n - lam if lipschitz > 4 * lam * problem.n else lam
        return math.sqrt(lam * balanced) if self.schedule == "adaptive" else balanced


# κ = λ makes the most of the first passes, and a larger one of later passes. A growth of 1.5 or 2 differed little.
_GROWTH = 1.2
_GROWN = 1000  # powers of the growth beyond this one would overflow, and exceed any κ
# Smoothing falls at most this far below its start before the step size falls too: a smaller μ asks for shorter steps,
# and is useless with steps that are too long.
_AHEAD = 0.1
# Scores divided by a much smaller level of smoothing would lose the digits that marginals depend on.
_LEAST_DECAY = 1e-5
