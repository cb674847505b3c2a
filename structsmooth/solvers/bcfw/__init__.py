"""Block-coordinate Frank-Wolfe on the dual (Osokin et al. 2016), which is kept in the space of parts."""

import math
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, Literal, TypeVar

import numpy as np
import torch
from torch import Tensor

from structsmooth.problems.base import FullPass, Problem
from structsmooth.problems.linear.base import LinearProblem
from structsmooth.problems.reductions import agreed
from structsmooth.settings import PositiveInt
from structsmooth.solvers.averaging import weights_of_iterates
from structsmooth.solvers.bcfw import loops  # noqa: F401 - it registers them
from structsmooth.solvers.bcfw.active_set import Cache, DualIterate, Steps
from structsmooth.solvers.bcfw.steps import epoch
from structsmooth.solvers.dual.base import DualSolver
from structsmooth.solvers.state import State, empty


@dataclass
class BCFWState(State):
    """Adds the dual iterate, whose gaps are infinite as long as they are not known.

    ``weights`` are those of the point within the bounds, or the average. Some problems pack the statistics;
    ``problem.unpacked(state.point.statistics)`` is the vector.
    """

    point: DualIterate = field(kw_only=True)
    gap: float = 0.0  # sum of the block gaps that the last pass over all blocks found
    refreshes: int = 0  # passes over all blocks, after the first, that brought the gaps up to date
    hits: int = 0  # steps towards an output of the cache so far; all others called the oracle
    cost: float = 0.0  # (1/n) Σ ⟨ℓ_i, m_i⟩
    steps: int = 0  # so far
    curvatures: Tensor = field(default_factory=empty)  # that blocks are drawn by, [blocks]
    support: Tensor = field(default_factory=empty)  # which of all weights vectors hold; empty for all

    def moved(self: "B", **tensors: Tensor) -> "B":
        """The state with other tensors in its point."""
        return replace(self, point=replace(self.point, **tensors))

    def towards_labels(self: "B", ratio: float) -> "B":
        """The state for λ times a ratio below 1 with the same weights, but for statistics and gaps.

        Its statistics are closer to those of the labels by this ratio (Proposition 1).
        """
        assert self.dual is not None
        # The weight they lack, now that of the labels, is in the rest.
        moved = self.moved(alphas=ratio * self.point.alphas)
        return replace(moved, cost=ratio * self.cost, dual=ratio * self.dual)


B = TypeVar("B", bound=BCFWState)


@dataclass(frozen=True)
class BCFW(DualSolver[BCFWState]):
    """Block-coordinate Frank-Wolfe: every step is an exact line search towards an output of the max oracle.

    It has no step size and no smoothing, and the dual never decreases. It needs a linear problem of hinges and λ > 0,
    and keeps the weights within its bounds (Algorithm 9). A run starts from the labels, v = 0, or from the state of
    another run on the same problem, for this λ or another.

    Args:
        sampling: order of the steps: ``"uniform"`` for all blocks in random order in every pass; ``"gap"`` for blocks
            drawn in proportion to their last known gaps (Algorithm 2). Some passes go over all blocks in random order
            instead, and so refresh all gaps: the first pass, and a pass whenever the sum of the last known gaps has
            changed by a factor of two since the last refresh. ``"curvature"`` for blocks drawn, after a first pass over
            all, in proportion to a constant, as appendix C compares with: the square of the norm of the features of
            the labels, by which the curvature of the dual is estimated. If not given, by gaps; on the batches of
            :class:`~structsmooth.ProxLinear`, which know no other order, uniform.
        steps: kind of steps: ``"fw"`` from the statistics of the block towards the output; ``"pairwise"`` from the
            worst output of its active set towards it (Algorithm 3), which closes the gap fastest on chains of letters
            and of words, especially at small gaps; ``"away"`` towards it or away from the worst (Algorithm 4);
            ``"best"`` whichever of these three raises the dual most, for the time of three more norms. If not given,
            pairwise; on the batches of :class:`~structsmooth.ProxLinear`, whose outputs are not kept, ``"fw"``.
        cache: step towards an output that the oracle gave before, and call the oracle only if no such output has a gap
            of at least ``cache_factor`` times the last known block gap and ``cache_nu`` times the mean of all gaps
            (Algorithm 5).
        cache_factor: factor F of the cache.
        cache_nu: factor ν of the cache.
        capacity: number of outputs that a block keeps in its active set and in its cache. Outputs dropped from the
            active set are merged into a single one; the cache evicts the least recently useful output.
        refresh: with ``"gap"`` or a cache, every pass whose number is a multiple of this one, from 0, refreshes all
            gaps: it calls the oracle on every block, and takes a step with every answer. ``"never"`` for no refresh
            after the first pass.
        gap_passes: refresh gaps as Algorithms 2 and 5 have it printed: after every ``refresh`` passes, and at no other
            time, a gap pass calls the oracle on every block and makes no steps. It costs as much as a pass of steps.
        average: return the average of the iterates, weighted by their number, instead of the last one.
        threads: number of threads that share the steps of a pass, for a
            :class:`~structsmooth.problems.SparseChainProblem` without bounds; they also share full passes. A step does
            not see the unfinished steps of other threads, so two runs with the same seed differ. If the dual falls in a
            pass, a single thread repeats it. One thread gives the same iterates in every run.
    """

    sampling: Literal["uniform", "gap", "curvature"] | None = None
    steps: Steps | None = None
    cache: bool = False
    cache_factor: float = 0.25
    cache_nu: float = 0.01
    capacity: PositiveInt = 16
    refresh: PositiveInt | Literal["never"] = 10
    gap_passes: bool = False
    average: bool = False
    threads: PositiveInt = 1

    state_type: ClassVar[type[BCFWState]] = BCFWState

    @property
    def samples_gaps(self) -> bool:
        """Whether blocks are drawn in proportion to their gaps, here where nothing else was asked for."""
        return self.sampling in (None, "gap")

    @property
    def step_kind(self) -> Steps:
        """The kind of steps, here pairwise where nothing else was asked for."""
        return self.steps or "pairwise"

    @property
    def refresh_period(self) -> float:
        """Passes from one refresh to the next; infinite for none."""
        return math.inf if self.refresh == "never" else self.refresh

    def check(self, problem: Problem, lam: float) -> None:
        """Refuse a problem without a dual, and several threads where steps are not compiled for them."""
        self.linear(problem, lam).check_threads(self.threads)
        if self.threads > 1 and self.sampling == "curvature":
            raise ValueError(f'threads must be 1 for sampling="curvature", got {self.threads}: draws repeat blocks')

    def compact(self, problem: Problem, state: State | None = None) -> Problem:
        """The problem with vectors of the weights that are not zero, unless several threads change them."""
        if not isinstance(problem, LinearProblem) or self.threads > 1:
            return problem
        if not isinstance(state, BCFWState):
            return problem.compact()
        return problem.compact(state.support) if len(state.support) else problem

    def first_state(self, problem: Problem, lam: float, start: Any, seed: int) -> BCFWState:
        """The labels, or the dual iterate of ``start``, with unknown gaps."""
        linear = self.linear(problem, lam)
        if start is None:
            none = torch.zeros_like(linear.start())
            return self.begin(linear, lam, linear.packed_labels(), linear.label_sets(self.capacity), none)
        if not isinstance(start, BCFWState):
            raise TypeError(
                f"start must be a BCFWState, got {type(start).__name__}: a dual has no point for all weights"
            )
        point = start.point
        if point.alphas.shape[1] != self.capacity:
            return self.state_at(linear, lam, point.statistics)
        stamps = (point.alphas > 0).int()
        if len(point.stamps):
            stamps = torch.maximum(point.stamps, stamps)
        return self.begin(linear, lam, point.statistics, (point.outputs, point.alphas, stamps))

    def state_at(self, problem: LinearProblem, lam: float, statistics: Tensor) -> BCFWState:
        """State before the first pass from any statistics: outputs that they are made of, and gaps, are not known."""
        outputs, alphas, stamps = problem.label_sets(self.capacity)
        return self.begin(problem, lam, statistics, (outputs, torch.zeros_like(alphas), stamps))

    def advance(
        self, problem: Problem, lam: float, state: BCFWState, rng: np.random.Generator, budget: int
    ) -> BCFWState:
        """One pass: as many steps as there are blocks."""
        linear = self.linear(problem, lam)
        return valued(self.step_through(linear, lam, state, rng), linear, lam)

    def step_through(self, linear: LinearProblem, lam: float, state: B, rng: np.random.Generator) -> B:
        """The steps of one pass; the dual of the new state is not computed yet."""
        order = self.order(linear, state, rng)
        new = self._steps(linear, lam, state, order, self.threads)
        if self.threads > 1 and fell(_value(state, linear, lam), _value(new, linear, lam)):
            new = self._steps(linear, lam, state, order, threads=1)
        return new

    def _steps(self, linear: LinearProblem, lam: float, state: B, order: Tensor, threads: int) -> B:
        new = replace(state, passes=state.passes + 1, steps=state.steps + linear.blocks)
        averaging_weights, old_weight = self.averaging(state.steps, new.steps)
        calls, cache = linear.oracle_calls, self.criterion(linear, state)
        settings: dict[str, Any] = {"steps": self.step_kind, "cache": cache, "threads": threads}
        new.point, total = agreed(
            linear, epoch(linear, state.point, order, lam=lam, averaging_weights=averaging_weights, **settings)
        )
        new.hits += linear.blocks - (linear.oracle_calls - calls)
        new.cost, v, new.support = linear.expected_cost(new.point.statistics), new.point.weights, linear.support
        new.weights = linear.within_bounds(
            v if total is None else (old_weight * linear.grown(state.weights)).add_(linear.grown(total))
        )
        if self._sees_all(state):
            new.gap = float(new.point.gaps.sum())
            new.refreshes += state.passes > 0 and self._is_adaptive
        return self._after_gap_pass(linear, new) if self.gap_passes else new

    def _after_gap_pass(self, linear: LinearProblem, state: B) -> B:
        """The state with the gaps that its iterate has now, if it is time to look."""
        if not self._is_adaptive or state.passes % self.refresh_period:
            return state
        w = linear.within_bounds(state.point.weights)
        gaps = linear.block_gaps(w, state.point.statistics).clamp_min_(0.0)
        return replace(state.moved(gaps=gaps), gap=float(gaps.sum()), refreshes=state.refreshes + 1)

    def averaging(self, begin: int, end: int) -> tuple[Tensor | None, float]:
        """Shares of the iterates after step ``begin`` in the average after step ``end``, and of the average before."""
        if not self.average:
            return None, 0.0
        return weights_of_iterates(torch.arange(begin + 1, end + 1, dtype=torch.float64), degree=1)

    def evaluate(self, problem: Problem, lam: float, state: BCFWState) -> FullPass:
        """The loss alone: the dual iterate needs no gradient."""
        loss = problem.loss(state.weights)
        return FullPass(state.weights, self.smoother(state), loss, empty(), loss)

    def metrics(self, state: BCFWState) -> dict[str, float]:
        """The sum of the block gaps as last seen, the share of steps without an oracle call, and refreshes so far."""
        if state.passes == 0:
            return {}
        estimate, hit_rate = float(state.point.gaps.sum()), state.hits / state.steps
        return {"estimated_gap": estimate, "cache_hit_rate": hit_rate, "refreshes": state.refreshes}

    def order(self, problem: LinearProblem, state: BCFWState, rng: np.random.Generator) -> Tensor:
        """Blocks of the steps of one pass, or draws that choose them; see ``steps.epoch``.

        Gaps that are not known yet are infinite in Algorithm 2: its first steps also are a random permutation.
        """
        if self.samples_gaps and not self._sees_all(state):
            return torch.from_numpy(rng.random(problem.blocks))
        if self.sampling == "curvature" and not self._sees_all(state):
            probabilities = (state.curvatures / state.curvatures.sum()).tolist()
            return torch.from_numpy(rng.choice(problem.blocks, problem.blocks, p=probabilities))
        return torch.from_numpy(rng.permutation(problem.blocks))

    def criterion(self, problem: LinearProblem, state: BCFWState) -> Cache | None:
        """When an output of the cache will do; never in a pass that has to see all gaps."""
        if not self.cache:
            return None
        return Cache(
            self.cache_factor, math.inf if self._sees_all(state) else self.cache_nu / problem.blocks * state.gap
        )

    def _sees_all(self, state: BCFWState) -> bool:
        """Whether the next pass calls the oracle on all blocks."""
        if state.passes == 0 or not self._is_adaptive:
            return state.passes == 0 or self.sampling != "curvature"
        return not self.gap_passes and self._is_stale(state)

    @property
    def _is_adaptive(self) -> bool:
        """Whether steps depend on gaps as last seen."""
        return self.samples_gaps or self.cache

    def _is_stale(self, state: BCFWState) -> bool:
        """Whether steps must bring the gaps as last seen up to date.

        Steps shrink the gaps of the blocks that are drawn, and move the weights, on which all other gaps depend. So the
        gaps are trusted only as long as their sum is of the order of the last one that was found.
        """
        if self.refresh == "never":
            return False
        estimate = float(state.point.gaps.sum())
        return state.passes % self.refresh == 0 or not state.gap / 2 < estimate < 2 * state.gap

    def begin(
        self,
        problem: LinearProblem,
        lam: float,
        statistics: Tensor,
        sets: tuple[Tensor, Tensor, Tensor],
        weights: Tensor | None = None,
    ) -> BCFWState:
        """State before the first pass, with those of the active sets and caches that the steps need.

        Weights that are not given are computed from the statistics.
        """
        statistics = problem.packed(statistics)
        v = problem.dual_weights(statistics, lam) if weights is None else weights
        gaps = torch.full((problem.blocks,), math.inf).to(v)
        cost = problem.expected_cost(statistics)
        point = DualIterate(v, statistics, gaps)
        if self.step_kind != "fw" or self.cache:
            outputs, alphas, stamps = sets
            # Steps without active sets would leave these weights behind.
            alphas = torch.zeros_like(alphas) if self.step_kind == "fw" else alphas
            point = replace(point, outputs=outputs, alphas=alphas, stamps=stamps if self.cache else point.stamps)
        state = self.state_type(problem.within_bounds(v), point=point, cost=cost, support=problem.support)
        if self.sampling == "curvature":
            state.curvatures = _curvatures(problem)
        return valued(state, problem, lam)


def _curvatures(problem: LinearProblem) -> Tensor:
    """Estimates of the curvature of the dual, up to a factor: (v_i ‖B_iᵀν(y_i)‖)², [blocks]; ones if all are zero."""
    squares = [float(problem.feature_map.squared_norm(problem.label_parts(i), i)) for i in range(problem.blocks)]
    found = problem.block_weights.cpu().square() * torch.tensor(squares, dtype=torch.float64)
    return found if found.any() else torch.ones_like(found)


def fell(before: float, after: float) -> bool:
    """Whether the dual is smaller, by more than rounding."""
    return after < before - 1e-12 * abs(before)


def _value(state: BCFWState, problem: LinearProblem, lam: float) -> float:
    """The dual for a λ to which the iterate belongs."""
    return state.cost - lam * problem.conjugate(state.point.weights)


def valued(state: B, problem: LinearProblem, lam: float) -> B:
    """``state`` with the value of its dual iterate."""
    return replace(state, dual=_value(state, problem, lam))
