"""Block-coordinate Frank-Wolfe on the dual (Osokin et al. 2016), which is kept in the space of parts."""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, Literal, get_args

import numpy as np
import torch
from torch import Tensor

from structsmooth.problems.base import FullPass, Problem
from structsmooth.problems.bounds import conjugate
from structsmooth.problems.linear import DualIterate, LinearProblem
from structsmooth.problems.linear.active_set import Cache, Steps
from structsmooth.smoothing import Max, Smoother
from structsmooth.solvers.base import Solver, State, check_number
from structsmooth.solvers.dual.frank_wolfe import checked_hinges
from structsmooth.solvers.primal.sgd import averaging_shares


@dataclass
class BCFWState(State):
    """Adds the dual iterate.

    Attributes:
        iterate: v of the dual iterate, [dim]; ``weights`` are these within the bounds, or the average.
        statistics: m of the dual iterate, see :meth:`~structsmooth.problems.LinearProblem.label_statistics`.
        gaps: block gaps as last seen, [n].
        outputs: active sets and caches, see :meth:`~structsmooth.problems.LinearProblem.label_sets`; empty for neither.
        alphas: weights of the active sets, [n, capacity].
        stamps: marks of the caches, [n, capacity].
        gap: sum of the block gaps as of the last refresh, or of the first pass.
        hits: steps towards an output of the cache so far; all others called the oracle.
        cost: (1/n) Σ ⟨ℓ_i, m_i⟩.
        conjugate: h*(v), see :class:`~structsmooth.problems.LinearProblem`.
        steps: steps so far.
    """

    iterate: Tensor = field(default_factory=lambda: torch.zeros(0))
    statistics: Tensor = field(default_factory=lambda: torch.zeros(0))
    gaps: Tensor = field(default_factory=lambda: torch.zeros(0))
    outputs: Tensor = field(default_factory=lambda: torch.zeros(0, dtype=torch.int32))
    alphas: Tensor = field(default_factory=lambda: torch.zeros(0, 0, dtype=torch.float64))
    stamps: Tensor = field(default_factory=lambda: torch.zeros(0, 0, dtype=torch.int32))
    gap: float = 0.0
    hits: int = 0
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
            output of its active set (Algorithm 3), which closes the gap soonest for chains of letters and of words, and
            by far the soonest in the end; ``"away"`` towards the one or away from the other (Algorithm 4).
        cache: step towards an output that the oracle gave before, and call it only if none has a gap of
            ``cache_factor`` times the block gap as last seen, and ``cache_nu`` times their mean (Algorithm 5).
        cache_factor: F of the cache.
        cache_nu: ν of the cache.
        capacity: outputs that an example holds, in active set and cache. What the active set has lost counts as one
            output, the rest; the cache loses what was of no use for longest.
        refresh: passes between oracle calls on all examples that bring the block gaps up to date, with ``"gap"`` or a
            cache.
        average: take the average of the iterates, weighted by their number; the last one if not.
    """

    sampling: Literal["uniform", "gap"] = "gap"
    steps: Steps = "pairwise"
    cache: bool = False
    cache_factor: float = 0.25
    cache_nu: float = 0.01
    capacity: int = 16
    refresh: int = 10
    average: bool = False

    state_type: ClassVar[type[State]] = BCFWState
    keeps_bounds: ClassVar[bool] = True

    def __post_init__(self) -> None:
        super().__post_init__()
        for name in ("capacity", "refresh"):
            check_number(name, getattr(self, name), integer=True, positive=True)
        for name in ("cache_factor", "cache_nu"):
            check_number(name, getattr(self, name))
        if self.steps not in get_args(Steps):
            raise ValueError(f"steps must be one of {', '.join(get_args(Steps))}, got {self.steps!r}")
        if self.sampling not in ("uniform", "gap"):
            raise ValueError(f'sampling must be "uniform" or "gap", got {self.sampling!r}')

    def check(self, problem: Problem, lam: float) -> None:
        """Whether the problem has a dual: linear scores, hinges, λ > 0."""
        checked_hinges("BCFW", problem, lam)

    def first_state(self, problem: Problem, lam: float, start: Any, seed: int) -> BCFWState:
        """The labels, or the dual iterate of ``start``, with unknown gaps."""
        linear = checked_hinges("BCFW", problem, lam)
        if start is not None and not isinstance(start, BCFWState):
            raise TypeError(
                f"start must be a BCFWState, got {type(start).__name__}: a dual has no point for all weights"
            )
        statistics = linear.label_statistics() if start is None else start.statistics
        v = linear.dual_weights(statistics, lam)
        state = BCFWState(linear.within_bounds(v), iterate=v, statistics=statistics, gaps=v.new_zeros(linear.n))
        state.cost, state.conjugate = linear.expected_cost(statistics), conjugate(v, linear.bounds)
        if self.steps != "fw" or self.cache:
            state.outputs, state.alphas, state.stamps = self._sets(linear, start)
        return state

    def advance(self, problem: Problem, lam: float, state: BCFWState, rng: np.random.Generator) -> BCFWState:
        """One pass: n steps."""
        linear = checked_hinges("BCFW", problem, lam)
        state = self._refreshed(linear, state)
        new = replace(state, passes=state.passes + 1, steps=state.steps + linear.n)
        shares, old_share = None, 0.0
        if self.average:
            t = torch.arange(state.steps + 1, new.steps + 1, dtype=torch.float64)
            shares, old_share = averaging_shares(t, degree=1)
        sets = (state.outputs, state.alphas, state.stamps)
        start = DualIterate(state.iterate, state.statistics, state.gaps, *sets)
        order, calls = self.order(linear, state, rng), linear.oracle_calls
        point, total = linear.frank_wolfe_epoch(
            start, order, lam=lam, steps=self.steps, shares=shares, cache=self.criterion(linear, state)
        )
        new.iterate, new.statistics, new.gaps = point.weights, point.statistics, point.gaps
        new.outputs, new.alphas, new.stamps = point.outputs, point.alphas, point.stamps
        new.weights = linear.within_bounds(new.iterate if total is None else old_share * state.weights + total)
        new.cost, new.conjugate = linear.expected_cost(new.statistics), conjugate(new.iterate, linear.bounds)
        new.hits += linear.n - (linear.oracle_calls - calls)
        if state.passes == 0:
            new.gap = float(new.gaps.sum())
        return new

    def order(self, problem: Problem, state: BCFWState, rng: np.random.Generator) -> Tensor:
        """Examples of the steps of one pass, or draws that choose them; see ``frank_wolfe_epoch``.

        Gaps that are not known yet are infinite in Algorithm 2: its first n steps also are a random permutation.
        """
        if self.sampling == "gap" and state.passes > 0:
            return torch.from_numpy(rng.random(problem.n))
        return torch.from_numpy(rng.permutation(problem.n))

    def criterion(self, problem: Problem, state: BCFWState) -> Cache | None:
        """When an output of the cache will do; never in the first pass, which has to see all gaps."""
        if not self.cache:
            return None
        return Cache(self.cache_factor, self.cache_nu / problem.n * state.gap if state.passes > 0 else math.inf)

    def _refreshed(self, problem: LinearProblem, state: BCFWState) -> BCFWState:
        """With the block gaps of all examples up to date, if it is time for that."""
        if not (self.sampling == "gap" or self.cache) or state.passes == 0 or state.passes % self.refresh > 0:
            return state
        gaps = problem.block_gaps(problem.within_bounds(state.iterate), state.statistics).clamp_min(0.0)
        return replace(state, gaps=gaps, gap=float(gaps.sum()))

    def _sets(self, problem: LinearProblem, start: BCFWState | None) -> tuple[Tensor, Tensor, Tensor]:
        """Active sets and caches of the labels, or of another run; without any of this size all is the rest."""
        outputs, alphas, stamps = problem.label_sets(self.capacity)
        if start is not None and start.alphas.shape[1] == self.capacity:
            outputs, alphas = start.outputs, start.alphas
            stamps = torch.maximum(start.stamps, (alphas > 0).int())
        elif start is not None:
            alphas = torch.zeros_like(alphas)
        # Steps without active sets would leave these weights behind.
        alphas = torch.zeros_like(alphas) if self.steps == "fw" else alphas
        return outputs, alphas, stamps if self.cache else torch.zeros_like(stamps)

    def smoother(self, state: BCFWState) -> Smoother:
        """None."""
        return Max()
