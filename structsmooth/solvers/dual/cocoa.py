"""CoCoA+: processes make steps of block-coordinate Frank-Wolfe on their own examples, and then add their changes."""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Annotated, Any, ClassVar

import numpy as np
import torch
from torch import Tensor

from structsmooth import processes
from structsmooth.problems.base import Problem
from structsmooth.problems.bounds import conjugate
from structsmooth.problems.linear.base import LinearProblem
from structsmooth.problems.partition import PartitionedProblem
from structsmooth.settings import Interval
from structsmooth.solvers.bcfw import BCFW, BCFWState, fell
from structsmooth.solvers.state import State, empty

# σ′ in units of the last ratio. Where it is smaller, the dual rises faster, but weights are farther from its optimum.
_MARGIN = 1.6
# What a point has a row of for each block.
_OF_BLOCKS = ("gaps", "alphas", "stamps")


@dataclass
class CoCoAState(BCFWState):
    """Weights, those of the point, dual, passes, oracle calls and what stands here are the same in all processes.

    All else is of the process's own blocks: statistics, gaps, active sets, their cost, and numbers of steps.
    """

    partitioned: ClassVar[bool] = True

    means: dict[str, float] = field(default_factory=dict)  # metrics of the last round, over all examples
    sigma: float = 1.0  # σ′ of the next round, if none is given
    # How many numbers the statistics of each block have, and its outputs, [2, blocks]: by them others find theirs.
    sizes: Tensor = field(default_factory=empty)

    @property
    def own_blocks(self) -> int:
        """Number of blocks of the process."""
        return len(self.point.gaps)


@dataclass(frozen=True)
class CoCoA(BCFW):
    """CoCoA+ over processes, each of which holds only its own examples: :func:`~structsmooth.problems.partitioned`.

    A round is a pass over all examples. Process p makes the steps of :class:`~structsmooth.BCFW` on its own blocks,
    with λ/σ′ in place of λ: from the weights v of the last round it comes to v + σ′u_p, where u_p is what the change of
    its statistics changes the weights by. Then all go on with v + Σ u_p, by one sum of dim numbers. So weights are
    those of the statistics of all processes, up to rounding, and the dual, objective and gap are of all examples.

    For σ′ of at least the number K of processes the dual never decreases: h* is convex, hence
    h*(v + Σ u_p) ≤ (1 − K/σ′) h*(v) + (1/σ′) Σ h*(v + σ′u_p), and each process maximizes its part of that bound, within
    bounds of the weights, too. That is for the worst case, in which all processes change the weights alike. Without
    bounds, ‖Σ u_p‖² ≤ σ′ Σ ‖u_p‖² is enough. So σ′ follows the ratio of the two sums, as the last round had it. Should
    the dual have fallen in a round, the round is made again with σ′ = K.

    In one process it is ``BCFW``. More processes share the time of a pass, but need more passes, since none sees the
    steps that the others make in the same round. Runs are reproducible for the same number of processes with the same
    examples. A state holds the process's own statistics, so each process must resume, or start, from its own state;
    :meth:`part` and :meth:`assembled` give other numbers of processes states to go on from.

    Args:
        sigma: σ′ of all rounds, at least 1. If not given, K in the first round, and then 1.6 times the ratio of the
            last round, between 1 and K.

    Reference:
        Ma et al. (2015), "Adding vs. averaging in distributed primal-dual optimization"; Lee and Roth (2015),
        "Distributed box-constrained quadratic optimization for dual linear SVM".
    """

    sigma: Annotated[float, Interval(1)] | None = None

    state_type: ClassVar[type[BCFWState]] = CoCoAState
    needs_partitions: ClassVar[bool] = True

    def check(self, problem: Problem, lam: float) -> None:
        """Refuse problems without a dual, and in several processes all that are not partitioned."""
        if processes.count() > 1 and not isinstance(problem, PartitionedProblem):
            raise TypeError(
                f"in several processes CoCoA needs partitioned(problem), with the process's own examples, "
                f"got {type(problem).__name__}"
            )
        local = problem.local if isinstance(problem, PartitionedProblem) else problem
        self.linear(local, lam).check_threads(self.threads)

    def first_state(self, problem: Problem, lam: float, start: Any, seed: int) -> BCFWState:
        """The labels, or the dual iterate of ``start``, with unknown gaps."""
        whole = _partitioned(problem)
        state = super().first_state(whole.local, lam / whole.part, start, seed)
        assert isinstance(state, CoCoAState)
        v = processes.summed(state.point.weights)
        state = replace(state.moved(weights=v), weights=whole.within_bounds(v), sigma=float(processes.count()))
        state.sizes = self.linear(whole.local, lam).block_sizes
        return self._of_all(state, whole, lam)

    def advance(
        self, problem: Problem, lam: float, state: BCFWState, rng: np.random.Generator, budget: int
    ) -> BCFWState:
        """One round: as many steps as all processes have blocks."""
        assert isinstance(state, CoCoAState)
        whole, safe = _partitioned(problem), float(processes.count())
        sigma = self.sigma or state.sigma
        new = self._round(whole, lam, state, rng, sigma)
        assert state.dual is not None
        assert new.dual is not None
        if sigma < safe and fell(state.dual, new.dual):
            new = self._round(whole, lam, state, rng, safe)
        return new

    def _round(
        self, whole: PartitionedProblem, lam: float, state: CoCoAState, rng: np.random.Generator, sigma: float
    ) -> CoCoAState:
        local = self.linear(whole.local, lam)
        with whole.counted(state.point.weights):
            # The losses of a process are a mean over its own examples: λ is relative to that.
            new = self.step_through(local, lam / (sigma * whole.part), state, rng)
        # v + Σ u_p, with u_p = (reached - v)/σ′.
        before, reached, rest = local.grown(state.point.weights), new.point.weights, 1 - processes.count() / sigma
        v = processes.summed(reached) / sigma + rest * before
        new = replace(new.moved(weights=v), sigma=_next_sigma((reached - before) / sigma, v - before))
        if self.average:
            new.weights = processes.summed(new.weights) / processes.count()
        else:
            new.weights = whole.within_bounds(v)
        return self._of_all(new, whole, lam)

    def _of_all(self, state: CoCoAState, whole: PartitionedProblem, lam: float) -> CoCoAState:
        """``state`` with the dual and the metrics of all processes."""
        local = {"cost": state.cost} | super().metrics(state)
        values = processes.summed(torch.tensor(list(local.values()), dtype=torch.float64) * whole.part)
        means = dict(zip(local, values.tolist(), strict=True))
        dual = means.pop("cost") - lam * conjugate(state.point.weights, whole.bounds)
        return replace(state, dual=dual, means=means)

    def blocks_of(self, problem: Problem) -> int:
        """Number of blocks of the process's own examples."""
        return _own(problem).blocks

    def part(self, problem: Problem, state: CoCoAState, blocks: range) -> CoCoAState:
        """A state with neighbouring blocks alone: statistics, gaps, outputs, and an even part of what steps count."""
        numbers, atoms = state.sizes
        point, own, share = state.point, slice(blocks.start, blocks.stop), len(blocks) / state.own_blocks
        held = point.alphas.shape[1] * atoms
        cut = replace(
            point,
            statistics=_own(problem).statistics_of(point.statistics, numbers, blocks),
            outputs=point.outputs[int(held[: own.start].sum()) : int(held[: own.stop].sum())],
            **{name: getattr(point, name)[own] for name in _OF_BLOCKS},
        )
        totals: dict[str, Any] = {
            "hits": round(share * state.hits),
            "steps": round(share * state.steps),
            "gap": share * state.gap,
        }
        curvatures = state.curvatures[own]
        return replace(state, point=cut, sizes=state.sizes[:, own], curvatures=curvatures, **totals)

    def assembled(self, problem: Problem, parts: Sequence[CoCoAState]) -> CoCoAState:
        """The state of this process from the parts that its blocks are in; σ′ begins anew.

        Raises:
            ValueError: the parts are of other blocks.
        """
        own, first = _own(problem), parts[0]
        sizes = torch.cat([part.sizes for part in parts], 1)
        if not torch.equal(sizes, own.block_sizes):
            raise ValueError("the checkpoint is of examples of other sizes: resume with the data that it was made with")
        together = {name: torch.cat([getattr(part.point, name) for part in parts]) for name in ("outputs", *_OF_BLOCKS)}
        statistics = own.statistics_from([part.point.statistics for part in parts])
        # One process may have held few of all weights.
        wide: dict[str, Any] = {
            name: _all_weights(vector, first.support, own.dim) for name, vector in _vectors(first).items()
        }
        totals: dict[str, Any] = {name: sum(getattr(part, name) for part in parts) for name in ("hits", "steps", "gap")}
        point = replace(first.point, weights=wide.pop("point"), statistics=statistics, **together)
        return replace(
            first,
            **wide,
            point=point,
            support=empty(),
            cost=own.expected_cost(statistics),
            curvatures=torch.cat([part.curvatures for part in parts]),
            sizes=sizes,
            sigma=float(processes.count()),
            **totals,
        )

    def metrics(self, state: State) -> dict[str, float]:
        """The metrics of BCFW, over the blocks of all processes."""
        assert isinstance(state, CoCoAState)
        return state.means


def _next_sigma(local_change: Tensor, change: Tensor) -> float:
    """σ′ after a round: this process changed the weights by u_p, ``local_change``, all by Σ u_p, ``change``."""
    squares = float(processes.summed(local_change @ local_change))
    ratio = float(change @ change) / squares if squares > 0 else 1.0
    return min(max(_MARGIN * ratio, 1.0), float(processes.count()))


def _vectors(state: CoCoAState) -> dict[str, Tensor]:
    """What of a state has a number for each weight."""
    return {"weights": state.weights, "best": state.best, "point": state.point.weights}


def _all_weights(vector: Tensor, support: Tensor, dim: int) -> Tensor:
    """A vector [dim] from one of the weights of a support; others stay as they are."""
    return vector.new_zeros(dim).index_copy_(0, support, vector) if len(vector) and len(support) else vector


def _own(problem: Problem) -> LinearProblem:
    """The problem over the examples of this process."""
    own = _partitioned(problem).local
    assert isinstance(own, LinearProblem)
    return own


def _partitioned(problem: Problem) -> PartitionedProblem:
    return problem if isinstance(problem, PartitionedProblem) else PartitionedProblem(problem)
