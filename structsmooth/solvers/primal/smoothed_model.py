"""Convex models of the prox-linear algorithm, smoothed and minimized by stochastic gradients."""

from typing import Any

import numpy as np
from torch import Tensor

from structsmooth.problems.base import FullPass, Problem
from structsmooth.problems.shifted import ShiftedProblem
from structsmooth.smoothing import Smoother
from structsmooth.solvers.primal.svrg import SmoothedSolver


class SmoothedModel:
    """F_η(·; w_{k-1}), up to a constant, as a problem for convex solvers.

    Attributes:
        linear: the problem with linearized scores.
        problem: the same in coordinates where the proximal term is part of the regularizer.
        lam: of that regularizer, λ + 1/η.
        start: w_{k-1} there.
    """

    def __init__(self, linear: Problem, lam: float, step_size: float, center: Tensor) -> None:
        self.linear, self.lam = linear, lam + 1 / step_size
        self.problem = ShiftedProblem.proximal(linear, lam, 1 / step_size, center)
        self.start = center - self.problem.origin

    def minimize(
        self,
        solver: SmoothedSolver[Any],
        lipschitz: float,
        first: FullPass,
        rng: np.random.Generator,
        passes: int,
        tolerance: float | None,
    ) -> tuple[Tensor, int]:
        """Weights near the minimum, and the passes that they took.

        Args:
            solver: of the model, without its step size.
            lipschitz: of the gradient of the smoothed model, without its regularizer.
            first: the full pass at w_{k-1} that the solver begins with.
            rng: of the order of examples.
            passes: limit on passes.
            tolerance: stop when the smoothed model is within it of its minimum.
        """
        state = solver.begin(self.problem, self.lam, self.start, 1 / (lipschitz + self.lam))
        state.evaluation = self.problem.moved(first)
        made = 0
        while made < passes:
            state = solver.advance(self.problem, self.lam, state, rng, budget=1)
            state.evaluation = None
            made += 1
            if tolerance is not None and self.accurate(state.weights, first.smoother, tolerance):
                break
        return self.problem.origin + state.weights, made

    def accurate(self, weights: Tensor, smoother: Smoother, tolerance: float) -> bool:
        """Whether the gradient is so small that the smoothed model is within the tolerance of its minimum.

        For a model that is strongly convex with a = λ + 1/η: ‖∇‖² ≤ 2aε.
        """
        gradient = self.problem.full_pass(weights, smoother).gradient + self.lam * weights
        return float(gradient.square().sum()) <= 2 * self.lam * tolerance
