"""A dual iterate on its way to smaller λ (Osokin et al. 2016, Algorithms 6 and 7)."""

import math
from dataclasses import replace

import numpy as np
import torch
from torch import Tensor

from structsmooth.problems.base import Problem
from structsmooth.problems.linear.base import LinearProblem
from structsmooth.settings import check_number
from structsmooth.solvers.bcfw import BCFW, BCFWState
from structsmooth.solvers.dual.path.solution import Breakpoint
from structsmooth.solvers.state import Work

# How far costs may raise the bound on λ where the path begins, relatively: they do not count at large weights.
_EXCESS = 0.01
# How much larger than necessary that bound is, so that gaps stay within the tolerance when weights are rounded.
_ROUNDING = 1e-5


class Walk:
    """The dual iterate of BCFW on its way to smaller λ, and what the way costs.

    Its methods are the parts of Algorithms 6 and 7, in the space of parts: the statistics m_i stand for w_i, ℓ_i and
    α_i, and the margins (1/n) ⟨θ_i + ℓ_i, m_i − ν(y_i)⟩ are the δ_i.

    - :meth:`begin_at_infinity` is Algorithm 6.
    - :meth:`check` and :meth:`estimate` are lines 5 to 7 of Algorithm 7: g_i and δ_i with their sums.
    - :meth:`Breakpoint.least_lam` is lines 6 to 14: the smallest λ that the same weights serve.
    - :meth:`lower` is lines 14 to 22: the same weights at that λ.
    - :meth:`reach` is lines 23 and 24: BCFW until the gap is within the tolerance κε.

    ``passes`` is the limit on passes at one λ.
    """

    lam: float
    state: BCFWState
    # As last measured; :meth:`check` rounds weights to float32, as they are stored.
    weights: Tensor
    margins: Tensor  # δ_i, [blocks]
    gap: float
    loss: float
    objective: float

    def __init__(self, problem: Problem, solver: BCFW, passes: int, seed: int) -> None:
        passes, seed = check_number("passes", passes, integer=True), check_number("seed", seed, integer=True)
        self.problem = solver.linear(problem, 1.0)
        self.solver, self.limit, self.seed = replace(solver, average=False), passes, seed
        self.passes, self.work = 0, Work()  # so far, including those of checks
        self._labels = self.problem.label_statistics()

    def begin_at_infinity(self, tolerance: float, lam_max: float | None) -> float:
        """Begin with weights for all λ from λ∞ upwards, or at a smaller ``lam_max`` (Algorithm 6).

        Above λ∞ their gap is at most λ∞/λ times that at λ∞: the loss is convex on the segment from zero weights, where
        it is their expected cost. Returns the largest λ that the weights are for.
        """
        with self.work.counted(self.problem):
            best = self.problem.best_statistics(self.problem.start())  # lines 3 to 8
            first = first_lam(self.problem, best, tolerance)  # lines 9 to 12
        if lam_max is not None and lam_max < first:
            self.begin(torch.lerp(self._labels, best, lam_max / first), lam_max)
            return lam_max
        self.begin(best, max(first, lam_max or first))  # lines 13 and 15 to 18
        # Line 14, by the choice of λ∞ within the tolerance: to be checked, not improved.
        self.state = self.state.moved(gaps=torch.zeros_like(self.state.point.gaps))
        return math.inf

    def begin(self, statistics: Tensor, lam: float) -> None:
        """Begin from some statistics, with block gaps that are not known."""
        with self.work.counted(self.problem):
            self.lam, self.state = lam, self.solver.state_at(self.problem, lam, statistics)

    def begin_at_labels(self, lam: float) -> None:
        """Begin from zero weights."""
        with self.work.counted(self.problem):
            self.lam, self.state = lam, self.solver.first_state(self.problem, lam, None, self.seed)

    def lower(self, lam: float) -> None:
        """Go to a smaller λ with the same weights, by statistics closer to the labels (Proposition 1)."""
        ratio = lam / self.lam  # ρ
        with self.work.counted(self.problem):
            point = self.state.point
            gaps = (point.gaps + (1 - ratio) * self.margins).clamp_min_(0.0)  # (12)
            statistics = torch.lerp(self._labels, self.problem.unpacked(point.statistics), ratio)
            lower = self.state.towards_labels(ratio).moved(statistics=self.problem.packed(statistics), gaps=gaps)
            self.state = replace(lower, gap=float(gaps.sum()))
        self.lam = lam

    def reach(self, tolerance: float, verified: bool = True) -> bool:
        """Make passes until the gap is within the tolerance; whether they sufficed."""
        for left in range(self.limit, -1, -1):
            if float(self.state.point.gaps.sum()) <= tolerance:
                self.check() if verified else self.estimate()
                if self.gap <= tolerance:
                    return True
            if left > 0:
                self._advance(left)
        return False

    def check(self) -> None:
        """Measure the weights as they would be stored, by an oracle call on every example."""
        with self.work.counted(self.problem):
            weights = self.state.weights.float().to(self.state.weights)
            self._measure(weights, self.problem.block_gaps(weights, self.state.point.statistics))

    def estimate(self) -> None:
        """Measure the weights as if block gaps still were as last seen."""
        with self.work.counted(self.problem):
            self._measure(self.state.weights, self.state.point.gaps)

    def breakpoint(self) -> Breakpoint:
        """The last measurement, and the costs so far."""
        costs = (self.passes, self.work.oracle_calls, self.work.seconds)
        return Breakpoint(self.lam, self.gap, self.loss, self.objective, *costs)

    def _measure(self, weights: Tensor, gaps: Tensor) -> None:
        assert self.state.dual is not None
        self.weights, self.margins = weights, self.problem.block_margins(weights, self.state.point.statistics)
        self.loss = float((gaps + self.margins).sum())
        self.objective = self.loss + self.lam / 2 * float(weights @ weights)
        self.gap = self.objective - self.state.dual
        self.state = self.state.moved(gaps=gaps.clamp_min(0.0))

    def _advance(self, budget: int) -> None:
        with self.work.counted(self.problem):
            rng = np.random.default_rng([self.seed, self.passes])
            self.state = self.solver.advance(self.problem, self.lam, self.state, rng, budget)
            self.passes += 1


def first_lam(problem: LinearProblem, best: Tensor, tolerance: float) -> float:
    """λ∞ of Algorithm 6, or a little more.

    The θ_i of line 10 are maxima of scores alone. Here they are maxima of scores at large weights with costs, which
    are no smaller. Bounds of zero cut the direction off: F(w) − D(m) at the weights w = clip(ψ)/λ is what it is without
    bounds, with clip(ψ) in place of ψ.
    """
    direction, cost = problem.within_bounds(problem.dual_weights(best, 1.0)), problem.expected_cost(best)
    square = float(direction @ direction)
    if square == 0 or cost == 0:
        raise ValueError("problem must not have zero weights as its optimum for every lam")
    scale = cost / (_EXCESS * square)
    return (1 + _ROUNDING) * (square + problem.loss(scale * direction) / scale) / tolerance
