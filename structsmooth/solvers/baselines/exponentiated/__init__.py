"""Exponentiated gradient on the dual, one example at a time, with acceleration (Collins et al. 2008)."""

import math
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from structsmooth.problems.base import Problem
from structsmooth.problems.bounds import conjugate
from structsmooth.problems.linear.base import LinearProblem
from structsmooth.problems.reductions import agreed
from structsmooth.settings import Positive
from structsmooth.solvers.baselines.exponentiated import chain_loop  # noqa: F401 - it registers its loop
from structsmooth.solvers.baselines.exponentiated.steps import GibbsIterate, epoch, near_labels
from structsmooth.solvers.dual.base import DualSolver, checked_hinges_or_likelihood, entropy_level
from structsmooth.solvers.state import State

# What a success takes off a constant, at first.
_SHRINK = 0.05
# Blocks that the first constants are estimated on, about, and their part of the squared norms there. Constants that are
# too small soon double; those too large would take passes to fall.
_SAMPLE = 30
_FIRST = 1 / 256


@dataclass
class ExponentiatedGradientState(State):
    """Adds the two points of the dual; ``weights`` are those of x, and ``dual`` is the best value of both so far."""

    point: GibbsIterate = field(kw_only=True)
    tau: float = 1.0  # of the next step
    falls: int = 0  # passes after which the dual of x was smaller


@dataclass(frozen=True)
class ExponentiatedGradient(DualSolver[ExponentiatedGradientState]):
    """Exponentiated gradient steps on the dual of one example at a time, accelerated, by the exp oracle.

    The dual is over a distribution for each example. A step multiplies that of one example by the exponential of its
    gradient, so it stays a Gibbs distribution and is stored as log-potentials and statistics. Its length follows from a
    constant G_i² for each example, which is tried out: a step that is too long for it is made again with twice the
    constant, and each success lowers it by a twentieth. Acceleration is that of coordinate descent (Fercoq and
    Richtárik 2015) with relative entropy in place of squared distances, and for the likelihood of a conditional random
    field with the strong concavity that its entropy gives the dual.

    It needs a linear problem of hinges, or one with the smoother ``Entropy(h)``, an exp oracle and λ > 0, and keeps
    the weights within the bounds of the problem. The dual of both points is known after every pass, and the best value
    so far is the lower bound. Should that of x fall in a pass, constants are lowered half as fast from then on, so that
    they would stay as they are in the end.

    A run starts near the labels and from no other weights.

    Args:
        accelerated: ``False`` for the steps of Collins et al., after which the dual never falls.
        center: log-odds of the labels at the start, in every variable.

    Reference:
        Collins, Globerson, Koo, Carreras and Bartlett (2008), "Exponentiated gradient algorithms for conditional random
        fields and max-margin Markov networks"; Fercoq and Richtárik (2015), Algorithm 2.

    Example:
        >>> from structsmooth import LinearChain, LinearModuleProblem, LinearScore
        >>> data = [(x, x.argmax(1)) for x in torch.randn(20, 5, 3, dtype=torch.float64)]
        >>> problem = LinearModuleProblem(LinearScore(3, 3, torch.float64), data)
        >>> last = ExponentiatedGradient().solve(problem, lam=0.1, passes=60).row
        >>> last.gap < 0.01 * last.objective
        True
    """

    accelerated: bool = True
    center: Positive = 8.0

    state_type = ExponentiatedGradientState

    @property
    def oracle(self) -> str:
        """The exp oracle."""
        return "exp"

    def linear(self, problem: Problem, lam: float) -> LinearProblem:
        """The problem, known to have a dual with distributions."""
        return checked_hinges_or_likelihood(type(self).__name__, problem, lam)

    def first_state(self, problem: Problem, lam: float, start: Any, seed: int) -> ExponentiatedGradientState:
        """State before the first pass: Gibbs distributions near the labels."""
        linear = self.linear(problem, lam)
        if start is not None:
            raise TypeError(f"start must be None, got {type(start).__name__}: runs start near the labels")
        logs, statistics, log_partitions = agreed(linear, near_labels(linear, self.center))
        entropy = float(log_partitions.sum() - logs @ statistics)
        value = linear.expected_cost(statistics) + entropy_level(linear) * entropy / linear.n
        weights = linear.dual_weights(statistics, lam)
        point = GibbsIterate(
            weights,
            torch.zeros_like(weights),
            logs,
            statistics,
            log_partitions,
            torch.full_like(log_partitions, _first_curvature(linear)),
            weights.new_tensor([value, 0.0]),
        )
        # Losses are not negative, so zero is a bound.
        return _at(ExponentiatedGradientState(weights, dual=0.0, point=point), point, linear, lam)

    def advance(
        self, problem: Problem, lam: float, state: ExponentiatedGradientState, rng: np.random.Generator, budget: int
    ) -> ExponentiatedGradientState:
        """One pass: a step on every block, in random order."""
        linear = self.linear(problem, lam)
        order = torch.from_numpy(rng.permutation(linear.blocks))
        taus, tau = self._taus(linear, lam, state)
        shrink = 1 - math.ldexp(_SHRINK, -state.falls)
        point = agreed(linear, epoch(linear, state.point, order, taus, lam=lam, shrink=shrink))
        new = _at(replace(state, passes=state.passes + 1, tau=tau), point, linear, lam)
        new.falls += _dual_ahead(new.point, linear, lam) < _dual_ahead(state.point, linear, lam)
        return new

    def _taus(self, problem: LinearProblem, lam: float, state: ExponentiatedGradientState) -> tuple[Tensor, float]:
        """τ of the steps of a pass, and of the step after it.

        With κ = hλn / max G_i², which is strong concavity over smoothness, and N blocks,
        τ'(τ' + (1 − 1/N)κ) = (1 − τ'/N) τ(τ + κ). So τ falls as 1/t towards the solution of τ² + κτ = κ.
        """
        if not self.accelerated:
            return torch.ones(problem.blocks, dtype=torch.float64), 1.0
        kappa = entropy_level(problem) * lam / float((problem.block_weights * state.point.curvatures.cpu()).max())
        taus = [state.tau]
        for _ in range(problem.blocks):
            product = taus[-1] * (taus[-1] + kappa)
            half = ((1 - 1 / problem.blocks) * kappa + product / problem.blocks) / 2
            taus.append(math.sqrt(half * half + product) - half)
        return torch.tensor(taus[:-1], dtype=torch.float64), taus[-1]


def _at(
    state: ExponentiatedGradientState, point: GibbsIterate, problem: LinearProblem, lam: float
) -> ExponentiatedGradientState:
    """``state`` at other points, with the best bound so far."""
    weights = problem.within_bounds(point.weights + point.lead)
    value = float(point.values[0]) - lam * conjugate(point.weights, problem.bounds)
    assert state.dual is not None
    return replace(state, weights=weights, point=point, dual=max(state.dual, value, _dual_ahead(point, problem, lam)))


def _dual_ahead(point: GibbsIterate, problem: LinearProblem, lam: float) -> float:
    """The dual of x, or a lower bound of it if the problem has an entropy of its own."""
    return float(point.values.sum()) - lam * conjugate(point.weights + point.lead, problem.bounds)


def _first_curvature(problem: LinearProblem) -> float:
    """A constant for all blocks, from the features of the labels of a few."""
    blocks = range(0, problem.blocks, -(-problem.blocks // _SAMPLE))
    squares = [problem.feature_map.squared_norm(problem.label_parts(block), block) for block in blocks]
    return _FIRST * sum(map(float, squares)) / len(squares) or 1.0
