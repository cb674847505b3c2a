"""Block-coordinate Frank-Wolfe on the dual (Osokin et al. 2016), which is kept in the space of parts."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, Literal, get_args

import numpy as np
import torch
from torch import Tensor

from structsmooth.problems.base import FullPass, Problem
from structsmooth.problems.boxes import conjugate
from structsmooth.problems.linear import DualIterate, LinearProblem, Steps
from structsmooth.smoothing import Max, Smoother
from structsmooth.solvers.base import Solver, State, check_number
from structsmooth.solvers.sgd import averaging_shares


@dataclass
class BCFWState(State):
    """Adds the dual iterate.

    Attributes:
        iterate: v of the dual iterate, [dim]; ``weights`` are these within the bounds, or the average.
        statistics: m of the dual iterate, see :meth:`~structsmooth.problems.LinearProblem.label_statistics`.
        gaps: block gaps as last seen, [n].
        outputs: active sets, see :meth:`~structsmooth.problems.LinearProblem.label_sets`; empty for ``steps="fw"``.
        alphas: their weights, [n, capacity].
        cost: (1/n) Σ ⟨ℓ_i, m_i⟩.
        conjugate: h*(v), see :class:`~structsmooth.problems.LinearProblem`.
        steps: steps so far.
    """

    iterate: Tensor = field(default_factory=lambda: torch.zeros(0))
    statistics: Tensor = field(default_factory=lambda: torch.zeros(0))
    gaps: Tensor = field(default_factory=lambda: torch.zeros(0))
    outputs: Tensor = field(default_factory=lambda: torch.zeros(0, dtype=torch.int32))
    alphas: Tensor = field(default_factory=lambda: torch.zeros(0, 0, dtype=torch.float64))
    cost: float = 0.0
    conjugate: float = 0.0
    steps: int = 0

    def improve_dual(self, full: FullPass, lam: float) -> None:
        """Nothing: steps do that."""

    def dual(self, lam: float) -> float:
        """D(m) of the dual iterate."""
        return self.cost - lam * self.conjugate


@dataclass(frozen=True)
class BCFW(Solver[BCFWState]):
    """Block-coordinate Frank-Wolfe: every step is an exact line search towards an output of the max oracle.

    There is no step size and no smoothing, and the dual never decreases. Needs a linear problem of hinges and λ > 0;
    keeps the weights within its bounds (Algorithm 9). A run starts from the labels, v = 0; or from the state of another
    one on the same problem, whose λ may be another.

    Args:
        sampling: ``"uniform"`` for all examples in random order in every pass; ``"gap"`` for examples drawn in
            proportion to their block gaps as last seen (Algorithm 2), after a first pass over all.
        steps: ``"fw"`` from the statistics of the example towards those of the output; ``"pairwise"`` from the worst
            output of its active set (Algorithm 3); ``"away"`` towards the one or away from the other (Algorithm 4).
        capacity: outputs in an active set. What is in none any more counts as one output, the rest.
        refresh: passes between oracle calls on all examples that bring the block gaps up to date, with ``"gap"``.
        average: take the average of the iterates, weighted by their number; the last one if not.
    """

    sampling: Literal["uniform", "gap"] = "gap"
    steps: Steps = "fw"
    capacity: int = 16
    refresh: int = 10
    average: bool = False

    state_type: ClassVar[type[State]] = BCFWState
    keeps_bounds: ClassVar[bool] = True

    def __post_init__(self) -> None:
        super().__post_init__()
        for name in ("capacity", "refresh"):
            check_number(name, getattr(self, name), integer=True, positive=True)
        if self.steps not in get_args(Steps):
            raise ValueError(f"steps must be one of {', '.join(get_args(Steps))}, got {self.steps!r}")
        if self.sampling not in ("uniform", "gap"):
            raise ValueError(f'sampling must be "uniform" or "gap", got {self.sampling!r}')

    def first_state(self, problem: Problem, lam: float, start: Any, seed: int) -> BCFWState:
        """The labels, or the dual iterate of ``start``, with unknown gaps."""
        linear = _checked(problem, lam)
        if start is None:
            statistics, sets = linear.label_statistics(), linear.label_sets(self.capacity)
        elif isinstance(start, BCFWState):
            statistics, sets = start.statistics, self._sets(linear, start)
        else:
            raise TypeError(
                f"start must be a BCFWState, got {type(start).__name__}: a dual has no point for all weights"
            )
        v = linear.dual_weights(statistics, lam)
        state = BCFWState(linear.within_bounds(v), iterate=v, statistics=statistics, gaps=v.new_zeros(linear.n))
        state.cost, state.conjugate = linear.expected_cost(statistics), conjugate(v, linear.bounds)
        return state if self.steps == "fw" else replace(state, outputs=sets[0], alphas=sets[1])

    def advance(self, problem: Problem, lam: float, state: BCFWState, rng: np.random.Generator) -> BCFWState:
        """One pass: n steps."""
        linear = _checked(problem, lam)
        new = replace(state, passes=state.passes + 1, steps=state.steps + linear.n)
        gaps = state.gaps
        if self.sampling == "gap" and state.passes > 0 and state.passes % self.refresh == 0:
            gaps = linear.block_gaps(linear.within_bounds(state.iterate), state.statistics).clamp_min(0.0)
        shares, old_share = None, 0.0
        if self.average:
            t = torch.arange(state.steps + 1, new.steps + 1, dtype=torch.float64)
            shares, old_share = averaging_shares(t, degree=1)
        start = DualIterate(state.iterate, state.statistics, gaps, state.outputs, state.alphas)
        order = self.order(linear, state, rng)
        point, total = linear.frank_wolfe_epoch(start, order, lam=lam, steps=self.steps, shares=shares)
        new.iterate, new.statistics, new.gaps = point.weights, point.statistics, point.gaps
        new.outputs, new.alphas = point.outputs, point.alphas
        new.weights = linear.within_bounds(new.iterate if total is None else old_share * state.weights + total)
        new.cost, new.conjugate = linear.expected_cost(new.statistics), conjugate(new.iterate, linear.bounds)
        return new

    def order(self, problem: Problem, state: BCFWState, rng: np.random.Generator) -> Tensor:
        """Examples of the steps of one pass, or draws that choose them; see ``frank_wolfe_epoch``.

        Gaps that are not known yet are infinite in Algorithm 2: its first n steps also are a random permutation.
        """
        if self.sampling == "gap" and state.passes > 0:
            return torch.from_numpy(rng.random(problem.n))
        return torch.from_numpy(rng.permutation(problem.n))

    def _sets(self, problem: LinearProblem, start: BCFWState) -> tuple[Tensor, Tensor]:
        """The active sets of another run; without any of this size all is the rest."""
        if start.alphas.shape[1] == self.capacity:
            return start.outputs, start.alphas
        outputs, alphas = problem.label_sets(self.capacity)
        return outputs, torch.zeros_like(alphas)

    def smoother(self, state: BCFWState) -> Smoother:
        """None."""
        return Max()


def _checked(problem: Problem, lam: float) -> LinearProblem:
    """The problem, if it has the dual that this solver needs."""
    if not isinstance(problem, LinearProblem):
        raise TypeError(f"BCFW needs a LinearProblem, got {type(problem).__name__}; take CasimirSVRG")
    if not isinstance(problem.smoother, Max):
        raise ValueError(f"BCFW needs a problem of hinges, got one with {problem.smoother}; take CasimirSVRG")
    if lam == 0:
        raise ValueError("BCFW needs lam > 0")
    return problem
