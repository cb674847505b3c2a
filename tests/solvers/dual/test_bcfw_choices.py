"""Block-coordinate Frank-Wolfe: the best of three steps, and blocks drawn by their curvature."""

from itertools import pairwise

import numpy as np
import pytest
import torch
from small_parsers import row_problem
from small_problems import random_problem
from solver_cases import LAM, bounded_problem, minimizer, moments_of, objective, small_problem
from torch.testing import assert_close

from structsmooth import BCFW, LinearProblem
from structsmooth.solvers.bcfw.steps import epoch, plain


def dual(problem: LinearProblem, statistics: torch.Tensor) -> float:
    return problem.expected_cost(statistics) - LAM * problem.conjugate(problem.dual_weights(statistics, LAM))


@pytest.mark.parametrize("make", [small_problem, row_problem, bounded_problem], ids=["chains", "programs", "bounds"])
def test_the_best_step_raises_the_dual_as_much_as_any_of_the_three(make: type[LinearProblem]) -> None:
    """And no kind of step is the best one everywhere."""
    problem, chosen = make(), set()
    for passes in (2, 5, 9):
        state = BCFW(gap_tolerance=0, sampling="uniform").solve(problem, lam=LAM, passes=passes).state
        before = dual(problem, state.point.statistics)
        for block in range(problem.blocks):
            points = {
                steps: loop(problem, state.point, torch.tensor([block]), lam=LAM, steps=steps)[0]
                for steps, loop in (("fw", plain), ("pairwise", plain), ("away", plain), ("best", epoch))
            }
            rises = {steps: dual(problem, point.statistics) - before for steps, point in points.items()}
            others = {steps: rise for steps, rise in rises.items() if steps != "best"}
            # "away" takes the step of the larger gap, which may be the Frank-Wolfe step.
            assert rises["best"] >= max(others.values()) - 1e-12
            if rises["best"] > 1e-9:
                chosen.add(max(others, key=lambda steps: others[steps]))
    assert {"fw", "pairwise"} <= chosen


def test_best_steps_reach_the_optimum() -> None:
    result = BCFW(steps="best", gap_tolerance=1e-10).solve(small_problem(), lam=LAM, passes=1000)
    assert -1e-12 <= result.row.gap <= 1e-9
    assert result.row.objective == pytest.approx(objective(small_problem(), minimizer()), abs=1e-8)
    assert all(a <= b + 1e-13 for a, b in pairwise(result.history.column("dual")))


def test_blocks_are_drawn_by_the_features_of_their_labels() -> None:
    problem, solver = random_problem((1, 3, 9, 2)), BCFW(sampling="curvature", gap_tolerance=0)
    state = moments_of(solver, problem, 1)[-1][0]
    squares = [float(problem.adjoint(problem.label_parts(i), i).square().sum()) for i in range(problem.n)]
    shares = torch.tensor(squares, dtype=torch.float64) / sum(squares)
    assert_close(state.curvatures / state.curvatures.sum(), shares, rtol=0, atol=1e-12)
    rng = torch.Generator().manual_seed(0)
    orders = [solver.order(problem, state, generator(rng)) for _ in range(2000)]
    frequencies = torch.bincount(torch.cat(orders), minlength=problem.n) / (2000 * problem.n)
    assert_close(frequencies.double(), shares, rtol=0, atol=0.02)
    first = solver.order(problem, moments_of(solver, problem, 0)[0][0], generator(rng))
    assert sorted(first.tolist()) == [0, 1, 2, 3]


def test_weights_of_examples_count_as_often_as_curvature_does() -> None:
    problem = random_problem((2, 2, 2)).weighted(torch.tensor([1.0, 2.0, 4.0]))
    state = BCFW(sampling="curvature").solve(problem, lam=LAM, passes=0).state
    plain_state = BCFW(sampling="curvature").solve(random_problem((2, 2, 2)), lam=LAM, passes=0).state
    ratios = state.curvatures / plain_state.curvatures
    assert_close(ratios / ratios[0], torch.tensor([1.0, 4.0, 16.0]).double())


def test_examples_without_features_are_drawn_alike() -> None:
    problem = random_problem((2, 2))
    problem.label_parts = lambda block: tuple(map(torch.zeros_like, problem.parts(problem.label_atom(block), block)))  # type: ignore[method-assign]
    assert BCFW(sampling="curvature").solve(problem, lam=LAM, passes=0).state.curvatures.tolist() == [1.0, 1.0]


def test_several_threads_are_refused() -> None:
    with pytest.raises(ValueError, match='threads must be 1 for sampling="curvature", got 2: draws repeat blocks'):
        BCFW(sampling="curvature", threads=2).solve(small_problem(), lam=LAM)


def generator(rng: torch.Generator) -> np.random.Generator:
    return np.random.default_rng(int(torch.randint(2**31, (1,), generator=rng)))
