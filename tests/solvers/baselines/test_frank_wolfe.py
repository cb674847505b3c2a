"""Batch Frank-Wolfe: each step against statistics that are moved by hand, warm starts."""

from itertools import pairwise
from typing import Any

import pytest
import torch
from small_problems import EnumeratedProblem
from solver_cases import LAM, bounded_problem, moments_of, small_problem
from torch import Tensor
from torch.testing import assert_close

from structsmooth import Entropy, Max
from structsmooth.problems import LinearProblem
from structsmooth.problems.bounds import conjugate
from structsmooth.solvers import FrankWolfe

SOLVER = FrankWolfe(gap_tolerance=0)


def corners(problem: LinearProblem, w: Tensor) -> Tensor:
    """Statistics of the outputs of the oracle."""
    augmented = [
        tuple(p + c for p, c in zip(problem.potentials(w, i), problem.costs(i), strict=True)) for i in range(problem.n)
    ]
    outputs = [problem.oracle(a, i).statistics for i, a in enumerate(augmented)]
    return torch.cat([part.flatten() for parts in outputs for part in parts])


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("bounded", [False, True])
def test_a_pass_is_the_best_step_towards_the_outputs_of_the_oracle(bounded: bool, seed: int) -> None:
    problem = bounded_problem(seed) if bounded else small_problem(seed)
    statistics = problem.label_statistics()

    def dual(statistics: Tensor) -> float:
        v = problem.dual_weights(statistics, LAM)
        return problem.expected_cost(statistics) - LAM * conjugate(v, problem.bounds)

    moments = moments_of(SOLVER, problem, passes=40)
    for (before, _), (after, history) in pairwise(moments):
        corner = corners(problem, before.weights)
        towards = problem.dual_weights(corner, LAM) * -LAM - before.point.gradient
        size = float((after.point.gradient - before.point.gradient) @ towards / (towards @ towards))
        moved = torch.lerp(statistics, corner, size)
        for other in (0.0, size - 1e-3, size + 1e-3, 1.0):
            assert dual(torch.lerp(statistics, corner, min(max(other, 0.0), 1.0))) <= dual(moved) + 1e-12
        statistics, row = moved, history[-1]
        assert_close(problem.dual_weights(statistics, LAM), after.point.gradient / -LAM, rtol=0, atol=1e-10)
        gaps = problem.block_gaps(after.weights, statistics)
        assert row.gap == pytest.approx(float(gaps.sum()), rel=0, abs=1e-9)
        assert row.dual == pytest.approx(dual(statistics), rel=0, abs=1e-9)
        assert row.objective == pytest.approx(
            EnumeratedProblem(problem).objective(after.weights.numpy(), LAM), abs=1e-12
        )
        assert row.oracle_calls == row.passes * problem.n
        assert torch.equal(after.weights, problem.within_bounds(after.weights))


@pytest.mark.parametrize("smoother", [Max(), Entropy(0.3)], ids=str)
def test_the_full_pass_of_linear_problems_is_the_compiled_one(smoother: Any) -> None:
    problem = small_problem()
    w = torch.randn(problem.dim, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    compiled = problem.full_pass(w, smoother, with_loss=True)
    plain = LinearProblem.full_pass(problem, w, smoother, with_loss=True)
    assert plain.smoothed_loss == pytest.approx(compiled.smoothed_loss, abs=1e-12)
    assert plain.loss == pytest.approx(compiled.loss, abs=1e-12)
    assert_close(plain.gradient, compiled.gradient, rtol=0, atol=1e-12)
    if isinstance(smoother, Max):
        assert plain.expected_cost == pytest.approx(compiled.expected_cost, abs=1e-12)


@pytest.mark.parametrize("lam", [LAM, LAM / 2])
def test_warm_start_for_any_lambda(lam: float) -> None:
    problem = small_problem()
    solution = SOLVER.solve(problem, lam=LAM, passes=100)
    warm, cold = (SOLVER.solve(problem, lam=lam, passes=0, start=s).history[0] for s in (solution.state, None))
    assert warm.gap < 0.5 * cold.gap
    if lam == LAM:
        assert warm.dual == pytest.approx(solution.history[-1].dual, abs=1e-12)
