"""Cutting planes on the mean of all losses: the 1-slack algorithm of SVM-struct, or BMRM."""

from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from structsmooth.lazy import LazyModule
from structsmooth.problems.base import Problem
from structsmooth.settings import PositiveInt
from structsmooth.smoothing import Max
from structsmooth.solvers.base import Solver
from structsmooth.solvers.dual.base import DualSolver
from structsmooth.solvers.state import State, empty

compiled_simplex = LazyModule("structsmooth.solvers.baselines.compiled_simplex")


@dataclass
class CuttingPlaneState(State):
    """Adds the planes b_t + ⟨a_t, w⟩ below the mean of the losses, and the dual point, a mixture of them."""

    planes: Tensor = field(default_factory=empty)  # a_t, [T, dim]
    costs: Tensor = field(default_factory=empty)  # b_t, [T]
    products: Tensor = field(default_factory=empty)  # ⟨a_s, a_t⟩, [T, T]
    mixture: Tensor = field(default_factory=empty)  # weights of the planes, [T]
    idle: Tensor = field(default_factory=empty)  # passes since each had a weight, [T]


@dataclass(frozen=True)
class CuttingPlane(DualSolver[CuttingPlaneState]):
    """Cutting planes: a pass adds the plane that touches the mean of all losses, then weights minimize the model.

    The model is the maximum of all planes, plus the regularizer. Its optimum is the lower bound, which never decreases;
    the objective may. It has no step size and no smoothing, and needs a linear problem of hinges and λ > 0. This is
    the best-known algorithm for structured hinges, and a baseline: it needs O(1/(λε)) passes, and
    :class:`~structsmooth.ProximalBCFW` far fewer. Memory is a vector of weights for each plane. The optimum of a model
    is found to a thousandth of what the newest plane adds, so objectives on the way to the solution differ by about as
    much where sums are rounded in another order, as on a GPU.

    Args:
        idle: planes without weight in the optimum of the model are dropped after so many passes.

    Reference:
        Joachims, Finley and Yu (2009), Algorithm 3 (1-slack, margin rescaling); Teo et al. (2010).

    Example:
        >>> from structsmooth import LinearChain, LinearModuleProblem, LinearScore
        >>> data = [(x, x.argmax(1)) for x in torch.randn(20, 5, 3, dtype=torch.float64)]
        >>> problem = LinearModuleProblem(LinearScore(3, 3, torch.float64), data)
        >>> CuttingPlane().solve(problem, lam=0.1, passes=100).status.value
        'converged'
    """

    idle: PositiveInt = 20

    state_type = CuttingPlaneState
    reuses_evaluations = True

    def check(self, problem: Problem, lam: float) -> None:
        """Refuse a problem with bounds, or without a dual."""
        Solver.check(self, problem, lam)
        super().check(problem, lam)

    def first_state(self, problem: Problem, lam: float, start: Any, seed: int) -> CuttingPlaneState:
        """The plane of the labels, which is zero; or the planes of ``start``, which may be of another λ."""
        zero = torch.zeros_like(self.linear(problem, lam).start())
        if start is None:
            one = zero.new_ones(1)
            return CuttingPlaneState(
                zero, dual=0.0, planes=zero[None], costs=0 * one, products=0 * one[None], mixture=one, idle=0 * one
            )
        if not isinstance(start, CuttingPlaneState):
            raise TypeError(f"start must be a CuttingPlaneState, got {type(start).__name__}")
        if start.weights.shape != zero.shape:
            raise ValueError(f"start must be of {len(zero)} weights, got one of {len(start.weights)}")
        return _at(replace(start, dual=None, passes=0, oracle_calls=0, seconds=0.0), start.mixture, lam)

    def advance(
        self, problem: Problem, lam: float, state: CuttingPlaneState, rng: np.random.Generator, budget: int
    ) -> CuttingPlaneState:
        """One pass: a plane, and the optimum of the model."""
        full = state.memo.full_pass(problem, state.weights, Max())
        assert full.expected_cost is not None
        used = state.idle < self.idle
        planes = torch.cat([state.planes[used], full.gradient[None]])
        row = planes @ full.gradient
        products = torch.cat([torch.cat([state.products[used][:, used], row[:-1, None]], 1), row[None]])
        new = replace(
            state,
            passes=state.passes + 1,
            planes=planes,
            costs=torch.cat([state.costs[used], row.new_tensor([full.expected_cost])]),
            products=products,
            mixture=torch.cat([state.mixture[used], row.new_zeros(1)]),
            idle=torch.cat([state.idle[used], row.new_zeros(1)]),
        )
        new = _at(new, _optimal_mixture(new, lam), lam)
        return replace(new, idle=torch.where(new.mixture > 0, 0, new.idle + 1))


def _optimal_mixture(state: CuttingPlaneState, lam: float) -> Tensor:
    """The weights of the planes in the dual optimum of the model: [planes]."""
    mixture = state.mixture.double().cpu().numpy().copy()
    products, costs = (values.double().cpu().numpy() for values in (state.products, state.costs))
    compiled_simplex.minimize(np.ascontiguousarray(products / lam), costs, mixture, _PART, _STEPS)
    return torch.from_numpy(mixture).to(state.mixture)


def _at(state: CuttingPlaneState, mixture: Tensor, lam: float) -> CuttingPlaneState:
    """The state with a mixture of its planes, the weights of that dual point, and its value."""
    mean = mixture @ state.planes
    dual = float(mixture @ state.costs) - float(mean @ mean) / (2 * lam)
    best = dual if state.dual is None else max(dual, state.dual)
    return replace(state, mixture=mixture, weights=mean / -lam, dual=best)


# The optimum of a model is exact to this part of what the newest plane adds, in at most this many steps.
_PART = 1e-3
_STEPS = 100_000
