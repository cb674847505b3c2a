"""Cutting planes below the loss of each example: the n-slack algorithm of SVM-struct."""

import math
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from torch.nn.functional import pad

from structsmooth.problems.base import Problem
from structsmooth.problems.linear.base import LinearProblem
from structsmooth.problems.reductions import agreed
from structsmooth.settings import PositiveInt
from structsmooth.solvers.bcfw import BCFW, BCFWState, valued
from structsmooth.solvers.bcfw.active_set import ActiveSet, Cache
from structsmooth.solvers.bcfw.steps import epoch
from structsmooth.solvers.dual.base import DualSolver

# A plane of an example is an output of it, with the plane ℓ_i(y) + ⟨w, φ(x_i, y) − φ(x_i, y_i)⟩ below its loss. So the
# working set of an example is what BCFW holds for it, active set and cache, and the dual optimum of the model is found
# by pairwise steps that take no other outputs.
_NEW = Cache(factor=1.0, least=math.inf)
_HELD = Cache(factor=-math.inf, least=-math.inf)


@dataclass
class NSlackCuttingPlaneState(BCFWState):
    """The dual iterate of BCFW. Between passes, the stamp of a plane is the last pass in which it was of use."""


@dataclass(frozen=True)
class NSlackCuttingPlane(DualSolver[NSlackCuttingPlaneState]):
    """Cutting planes with a slack for each example: a working set of planes below every loss, not below their mean.

    A pass calls the oracle on each example in random order, adds the plane of its output to the working set, and makes
    one exact step towards it. After the last example, weights minimize the model, in which the loss of an example is
    the maximum of its planes: pairs of planes exchange weight, example by example, until a sweep over all of them adds
    less than a hundredth of what the pass has added to the dual. SVM-struct solves the quadratic program anew after
    every hundredth plane. The value of the model is the lower bound, which never decreases; the objective may.

    It has no step size and no smoothing, needs a linear problem of hinges and λ > 0, and keeps the weights within its
    bounds. It needs few passes, far fewer than :class:`~structsmooth.solvers.CuttingPlane` with its single slack, and
    much time between them, most of all where steps are not compiled: it pays where the oracle is expensive. Steps that
    call no oracle are those of :class:`~structsmooth.BCFW` with a cache, which mixes both kinds in a pass. Memory is
    the statistics of each example, and an output for each plane: T integers for a chain.

    Args:
        idle: number of passes after which a plane is dropped that has no weight in the optimum of the model.

    Reference:
        Joachims, Finley and Yu (2009), Algorithm 1 (n-slack, margin rescaling); Tsochantaridis et al. (2005).

    Example:
        >>> from structsmooth.problems import SparseChainProblem, SparseSequences
        >>> sequences = SparseSequences(
        ...     torch.tensor([0, 2, 1, 2], dtype=torch.int32), torch.tensor([0, 2, 3, 4]), torch.tensor([0, 2, 3])
        ... )
        >>> problem = SparseChainProblem(sequences, torch.tensor([0, 1, 1]), features=3, states=2)
        >>> NSlackCuttingPlane().solve(problem, lam=0.1, passes=50).status.value
        'converged'
    """

    idle: PositiveInt = 20

    state_type = NSlackCuttingPlaneState

    def first_state(self, problem: Problem, lam: float, start: Any, seed: int) -> NSlackCuttingPlaneState:
        """The planes of the labels, which are zero; or the planes of ``start``, which may be of another λ."""
        if start is not None and not isinstance(start, NSlackCuttingPlaneState):
            raise TypeError(f"start must be a NSlackCuttingPlaneState, got {type(start).__name__}")
        slots = _FIRST_SLOTS if start is None else start.point.alphas.shape[1]
        state = BCFW(steps="pairwise", cache=True, capacity=slots).first_state(problem, lam, start, seed)
        return NSlackCuttingPlaneState(**vars(state.moved(stamps=state.point.stamps.clamp(max=1))))

    def advance(
        self, problem: Problem, lam: float, state: NSlackCuttingPlaneState, rng: np.random.Generator, budget: int
    ) -> NSlackCuttingPlaneState:
        """One pass: a plane for each example, and the optimum of the model."""
        linear = self.linear(problem, lam)
        new = _stepped(linear, lam, _with_free_slot(linear, state), rng, _NEW)
        new.passes, new.gap = state.passes + 1, float(new.point.gaps.sum())
        for _ in range(_SWEEPS):
            before, new = new, _stepped(linear, lam, new, rng, _HELD)
            if _rise(before, new) <= _PART * _rise(state, new):
                break
        return self._dated(new)

    def metrics(self, state: NSlackCuttingPlaneState) -> dict[str, float]:
        """The mean number of planes of an example."""
        stamps = state.point.stamps
        return {"planes": float((stamps > 0).sum()) / len(stamps)}

    def _dated(self, state: NSlackCuttingPlaneState) -> NSlackCuttingPlaneState:
        """``state`` after a pass, without the planes that have been idle for long."""
        point = state.point
        used = torch.where(point.alphas > 0, state.passes, point.stamps.clamp(max=state.passes))
        return state.moved(stamps=torch.where(used > state.passes - self.idle, used, 0).int())


def _stepped(
    problem: LinearProblem, lam: float, state: NSlackCuttingPlaneState, rng: np.random.Generator, planes: Cache
) -> NSlackCuttingPlaneState:
    """A pairwise step on every example, towards new planes or those that are held."""
    order = torch.from_numpy(rng.permutation(problem.blocks))
    # Gaps of one: the criterion of the cache is a multiple of them.
    point = replace(state.point, gaps=torch.ones_like(state.point.gaps))
    point, _ = agreed(problem, epoch(problem, point, order, lam=lam, steps="pairwise", cache=planes))
    weights, cost = problem.within_bounds(point.weights), problem.expected_cost(point.statistics)
    point = point if planes is _NEW else replace(point, gaps=state.point.gaps)
    return valued(replace(state, weights=weights, point=point, cost=cost), problem, lam)


def _with_free_slot(problem: LinearProblem, state: NSlackCuttingPlaneState) -> NSlackCuttingPlaneState:
    """``state`` with a free slot for another plane of every example."""
    old = state.point
    slots = old.alphas.shape[1]
    if bool(((old.alphas == 0) & (old.stamps == 0)).any(1).all()):
        return state
    outputs, _, _ = problem.label_sets(2 * slots)
    alphas, stamps = (pad(tensor, (0, slots)) for tensor in (old.alphas, old.stamps))
    wider = state.moved(outputs=outputs, alphas=alphas, stamps=stamps)
    for block in range(problem.blocks):
        ActiveSet.of(problem, wider.point, block).atoms[:slots] = ActiveSet.of(problem, old, block).atoms
    return wider


def _rise(before: NSlackCuttingPlaneState, after: NSlackCuttingPlaneState) -> float:
    """How much the dual rose from one state to another."""
    assert before.dual is not None
    assert after.dual is not None
    return after.dual - before.dual


# Slots for the planes of an example at first; their number doubles when they are full.
_FIRST_SLOTS = 4
# The optimum of a model is exact to this part of what the pass adds, in at most this many sweeps.
_PART = 1e-2
_SWEEPS = 100
