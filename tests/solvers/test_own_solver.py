"""A new solver of the dual through public contracts alone: exact coordinate steps, one block after the other."""

import math
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import Any, ClassVar

import numpy as np
import torch
from solver_cases import LAM, moments_of, small_problem, without_time
from torch import Tensor

from structsmooth import BCFW
from structsmooth.problems import LinearProblem, Problem
from structsmooth.solvers import State
from structsmooth.solvers.dual.base import DualSolver


@dataclass
class CyclicState(State):
    statistics: Tensor = field(default_factory=lambda: torch.zeros(0))


@dataclass(frozen=True)
class Cyclic(DualSolver[CyclicState]):
    state_type: ClassVar[type[State]] = CyclicState

    def first_state(self, problem: Problem, lam: float, start: Any, seed: int) -> CyclicState:
        linear = self.linear(problem, lam)
        return self.valued(linear, lam, CyclicState(linear.start(), statistics=linear.label_statistics()))

    def advance(self, problem: Problem, lam: float, state: Any, rng: np.random.Generator, budget: int) -> CyclicState:
        linear, v, statistics = self.linear(problem, lam), state.weights.clone(), []
        blocks = [linear.subset(torch.tensor([i])) for i in range(linear.n)]
        for block, m in zip(blocks, state.statistics.split([len(b.label_statistics()) for b in blocks]), strict=True):
            corner = block.best_statistics(v)
            change = (block.dual_weights(corner, lam) - block.dual_weights(m, lam)) / linear.n
            gain = float(block.block_margins(v, corner) - block.block_margins(v, m)) / linear.n
            size = min(1.0, gain / (lam * float(change @ change))) if gain > 0 else 0.0
            v, statistics = v + size * change, [*statistics, torch.lerp(m, corner, size)]
            linear.oracle_calls += block.oracle_calls
        return self.valued(linear, lam, replace(state, statistics=torch.cat(statistics), passes=state.passes + 1))

    def valued(self, problem: LinearProblem, lam: float, state: CyclicState) -> CyclicState:
        v = problem.dual_weights(state.statistics, lam)
        return replace(state, weights=v, dual=problem.expected_cost(state.statistics) - lam / 2 * float(v @ v))


def test_a_solver_of_ones_own() -> None:
    result = Cyclic(gap_tolerance=0.01).solve(problem := small_problem(), lam=LAM, passes=300)
    history, state = result.history, result.state
    assert history[-1].gap == history[-1].objective - history[-1].dual <= 0.01 * history[-1].objective
    assert abs(float(problem.block_gaps(state.weights, state.statistics).sum()) - history[-1].gap) < 1e-9
    assert all(a.dual <= b.dual + 1e-12 for a, b in pairwise(history))
    assert history.column("oracle_calls") == [problem.n * k for k in range(len(history))]
    best = BCFW().solve(small_problem(), lam=LAM, passes=300)
    radius = math.sqrt(2 * history[-1].gap / LAM) + math.sqrt(2 * best.history[-1].gap / LAM)
    assert float((result.weights - best.weights).norm()) <= radius
    *_, half, _, (_, whole) = moments_of(Cyclic(), small_problem(), 20)
    resumed = Cyclic().solve(small_problem(), lam=LAM, passes=20, resume=half)
    assert without_time(resumed.history) == without_time(whole)
