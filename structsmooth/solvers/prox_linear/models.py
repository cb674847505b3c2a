"""How models of prox-linear iterations are minimized: in the dual by block-coordinate steps, or smoothed by SVRG."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, NamedTuple

import numpy as np
import torch
from numpy.random import Generator
from torch import Tensor

from structsmooth.problems.base import FullPass, Problem
from structsmooth.problems.derived import ShiftedProblem
from structsmooth.smoothing import Max, Smoother
from structsmooth.solvers.primal.gradient import GradientState
from structsmooth.solvers.prox_linear.proximal_dual import BlockStatistics, ProximalDual, linearized
from structsmooth.solvers.state import PassMemo
from structsmooth.solvers.svrg import SmoothedSolver


@dataclass
class ProxLinearState(GradientState):
    """After iteration k: ``weights`` is w_k, ``step_size`` is η."""

    blocks: BlockStatistics = field(kw_only=True)  # of BCFW
    iteration: int = 0  # k
    objective: float = math.inf  # F(w_k)
    tolerance: float = 0.0  # ε_0
    lipschitz: float = 0.0  # L_0
    mu: float = 0.0  # μ_k
    mapping: float = 0.0  # norm of the gradient mapping ϱ_η(w_{k-1}), with the candidate ŵ_k for the exact minimum
    seen_gap: float = 0.0  # of model k, by the last pass of BCFW
    model_gap: float | None = None  # of model k at ŵ_k, where it has been evaluated

    def observe(self, full: FullPass, lam: float) -> None:
        """Takes F(w_k) from its full pass, too."""
        super().observe(full, lam)
        self.objective = objective(full, lam)


class Limits(NamedTuple):
    """Passes on a model, and how near its minimum they may end before; one more call on each example tells."""

    passes: int
    tolerance: float | None


@dataclass
class Candidate:
    """ŵ_k, the linearized problem and, from BCFW, a lower bound on model k."""

    weights: Tensor
    linear: Problem
    bound: float | None = None


@dataclass(frozen=True)
class DualModels:
    """By block-coordinate Frank-Wolfe with steps towards outputs, from the statistics of the model before.

    Attributes:
        blocks: examples of the blocks of a problem.
        passes: of an iteration, if their number is not given.
        use_statistics: whether they begin with the statistics of all examples; here with their own.
        first_mu: level of smoothing at the start; none.
    """

    blocks: Callable[[Problem], Sequence[Tensor]]

    passes: ClassVar[int] = 2
    use_statistics: ClassVar[bool] = False
    first_mu: ClassVar[float] = 0.0

    def smoother(self, iteration: int) -> Smoother:
        """Smoothing of the full pass that an iteration begins with: none."""
        return Max()

    def minimize(
        self, problem: Problem, lam: float, state: ProxLinearState, rng: Generator, limits: Limits
    ) -> Candidate:
        """Line 3 of iteration k, until the duality gap is small enough, if there is a tolerance.

        Args:
            problem: with scores of any kind.
            lam: λ.
            state: of iteration k, with w_{k-1}; passes, and what the next model starts from, are kept there.
            rng: of the order of examples.
            limits: when to stop.
        """
        linear = linearized(problem, state.weights)
        dual = ProximalDual(linear, lam, state.step_size, state.weights, self.blocks(problem))
        point = dual.point(state.blocks)
        for _ in range(limits.passes):
            point = dual.ascend(point, rng)
            state.passes += 1
            if limits.tolerance is not None:
                state.model_gap = dual.gap(point)
                if state.model_gap <= limits.tolerance:
                    break
        state.seen_gap, state.blocks = float(point.gap), point.blocks
        return Candidate(point.weights, linear, float(point.value))

    def metrics(self, state: ProxLinearState) -> dict[str, float]:
        """The duality gaps of the last model, for the history."""
        exact = {} if state.model_gap is None else {"model_gap": state.model_gap}
        return {"estimated_model_gap": state.seen_gap} | exact

    def first_lipschitz(self, problem: Problem, lam: float, state: ProxLinearState, seed: int) -> float:
        """L_0, which is of no use here."""
        return 0.0


@dataclass(frozen=True)
class SmoothedModels:
    """By SVRG or Casimir-SVRG, from w_{k-1}, on models that are smoothed.

    Attributes:
        inner: the solver.
        adaptive: whether μ_k = μ/k and L_k = k L_0, instead of μ and L_0.
    """

    inner: SmoothedSolver[Any]
    adaptive: bool

    passes: ClassVar[int] = 5
    use_statistics: ClassVar[bool] = True

    @property
    def first_mu(self) -> float:
        """μ: that of the inner solver, or 1 for levels that fall and 0.03 for a constant one."""
        return self.inner.mu or (1.0 if self.adaptive else 0.03)

    def solver(self, mu: float) -> SmoothedSolver[Any]:
        """The inner solver at a level of smoothing."""
        return replace(self.inner, mu=mu)

    def level(self, iteration: int) -> int:
        """The number k that μ is divided by and L_0 is multiplied with."""
        return iteration if self.adaptive else 1

    def smoother(self, iteration: int) -> Smoother:
        """The smoother of the current model."""
        mu = self.first_mu / self.level(iteration)
        return self.inner.smooth(mu)

    def minimize(
        self, problem: Problem, lam: float, state: ProxLinearState, rng: Generator, limits: Limits
    ) -> Candidate:
        """Line 3 likewise, until the gradient of the smoothed model is small enough, if there is a tolerance."""
        first = state.memo.full_pass(problem, state.weights, self.smoother(state.iteration))
        level, convexity = self.level(state.iteration), lam + 1 / state.step_size
        state.mu = self.first_mu / level
        model, solver = _model(problem, lam, state), self.solver(state.mu)
        start = state.weights - model.origin
        inner = solver.begin(model, convexity, start, 1 / (level * state.lipschitz + convexity))
        inner.memo = PassMemo(model.moved(first))
        for _ in range(limits.passes):
            inner = solver.advance(model, convexity, inner, rng, budget=1)
            state.passes += 1
            if limits.tolerance is not None:
                # The model is strongly convex: within ε of its minimum if ‖∇‖² ≤ 2(λ + 1/η)ε.
                gradient = model.full_pass(inner.reached, first.smoother).gradient + convexity * inner.reached
                if float(gradient.square().sum()) <= 2 * convexity * limits.tolerance:
                    break
        return Candidate(model.origin + inner.reached, model.problem)

    def metrics(self, state: ProxLinearState) -> dict[str, float]:
        """The level of smoothing, for the history."""
        return {"inner_mu": state.mu}

    def first_lipschitz(self, problem: Problem, lam: float, state: ProxLinearState, seed: int) -> float:
        """L_0, on a few examples: linearized scores take long, and iterations double L_0 where it is too small."""
        few = problem.subset(torch.from_numpy(np.random.default_rng(seed).permutation(problem.n)[:_SAMPLE]))
        model = _model(few, lam, state)
        start, convexity = state.weights - model.origin, lam + 1 / state.step_size
        tried = self.solver(state.mu).try_step_sizes(model, convexity, start, seed)
        problem.oracle_calls += few.oracle_calls
        # The best: steps that are too long get shorter late here, once the model does not decrease at all.
        return 1 / min(tried, key=lambda step_size: tried[step_size])


def _model(problem: Problem, lam: float, state: ProxLinearState) -> ShiftedProblem:
    """F_η(·; w_{k-1}) less its quadratic terms, in coordinates where these are ((λ + 1/η)/2)‖v‖² and a constant."""
    return ShiftedProblem.proximal(problem.linearize(state.weights), lam, 1 / state.step_size, state.weights)


def objective(full: FullPass, lam: float) -> float:
    """The objective F at the weights of a full pass."""
    assert full.loss is not None
    return full.loss + lam / 2 * float(full.weights.square().sum())


# Examples on which L_0 is estimated, at most.
_SAMPLE = 20
