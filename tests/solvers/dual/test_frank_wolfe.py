"""Batch Frank-Wolfe: each step against statistics that are moved by hand, bounds, the optimum of other solvers."""

import math
from collections.abc import Callable
from dataclasses import replace
from itertools import combinations, pairwise, product
from pathlib import Path
from typing import Any

import pytest
import torch
from small_problems import EnumeratedProblem, random_problem
from torch import Tensor
from torch.testing import assert_close

from structsmooth import (
    BCFW,
    SGD,
    SVRG,
    CasimirSVRG,
    Entropy,
    FrankWolfe,
    History,
    LinearProblem,
    Max,
    NormalizedHamming,
    Problem,
    SparseChainProblem,
    Status,
)
from structsmooth.checkpoint import load_state, save_state
from structsmooth.problems.bounds import Bounds, conjugate
from structsmooth.solvers import Progress, Solver
from structsmooth.solvers.dual.frank_wolfe import FrankWolfeState

LAM = 0.2
SOLVER = FrankWolfe(gap_tolerance=0)


def box(problem: SparseChainProblem) -> Bounds:
    """Non-negative transitions, one weight fixed, some bounded above or on both sides."""
    lower, upper = torch.full((2, problem.dim), torch.inf, dtype=torch.float64)
    lower = -lower
    lower[-(problem.states + 2) * problem.states :] = 0.0
    upper[::4] = 0.05
    lower[1::5] = -0.03
    lower[2] = upper[2] = 0.04
    return lower, torch.maximum(lower, upper)


def small_problem(bounded: bool = False, seed: int = 1) -> SparseChainProblem:
    free = random_problem((3, 1, 2, 3, 2), 3, 4, seed=seed)
    return random_problem((3, 1, 2, 3, 2), 3, 4, seed=seed, bounds=box(free)) if bounded else free


def moments_of(solver: Solver[Any], problem: Problem, passes: int) -> list[tuple[Any, History]]:
    moments: list[tuple[Any, History]] = []

    def record(progress: Progress[Any]) -> None:
        moments.append((replace(progress.state), History(progress.history)))

    solver.solve(problem, lam=LAM, passes=passes, callbacks=[record])
    return moments


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
    problem = small_problem(bounded, seed)
    statistics = problem.label_statistics()

    def dual(statistics: Tensor) -> float:
        v = problem.dual_weights(statistics, LAM)
        return problem.expected_cost(statistics) - LAM * conjugate(v, problem.bounds)

    moments = moments_of(SOLVER, problem, passes=40)
    for (before, _), (after, history) in pairwise(moments):
        corner = corners(problem, before.weights)
        towards = problem.dual_weights(corner, LAM) * -LAM - before.dual_gradient
        size = float((after.dual_gradient - before.dual_gradient) @ towards / (towards @ towards))
        moved = torch.lerp(statistics, corner, size)
        for other in (0.0, size - 1e-3, size + 1e-3, 1.0):
            assert dual(torch.lerp(statistics, corner, min(max(other, 0.0), 1.0))) <= dual(moved) + 1e-12
        statistics, row = moved, history[-1]
        assert_close(problem.dual_weights(statistics, LAM), after.dual_gradient / -LAM, rtol=0, atol=1e-10)
        gaps = problem.block_gaps(after.weights, statistics)
        assert row.gap == pytest.approx(float(gaps.sum()), rel=0, abs=1e-9)
        assert row.dual == pytest.approx(dual(statistics), rel=0, abs=1e-9)
        assert row.objective == pytest.approx(
            EnumeratedProblem(problem).objective(after.weights.numpy(), LAM), abs=1e-12
        )
        assert row.oracle_calls == row.passes * problem.n
        assert torch.equal(after.weights, problem.within_bounds(after.weights))


@pytest.mark.parametrize("bounded", [False, True])
def test_the_dual_never_decreases_and_bounds_the_optimum(bounded: bool) -> None:
    problem = small_problem(bounded)
    optimum = EnumeratedProblem(problem).optimum(LAM)
    rows = SOLVER.solve(problem, lam=LAM, passes=1000).history
    assert all(a.dual <= b.dual + 1e-12 for a, b in pairwise(rows))
    assert all(row.dual <= optimum + 1e-9 <= row.objective + 2e-9 for row in rows)
    assert all(row.gap == row.objective - row.dual >= -1e-12 for row in rows)
    assert rows[-1].gap < 0.02 * optimum


EIGHT = {
    f"{sampling}, {steps}, {'cache' if cache else 'no cache'}": BCFW(sampling=sampling, steps=steps, cache=cache)
    for sampling, steps, cache in product(("uniform", "gap"), ("fw", "pairwise"), (False, True))
}


@pytest.mark.parametrize("lam", [0.1, 0.01, 0.001])
def test_all_solvers_agree(lam: float) -> None:
    """To the gaps that they reach: 1e-3 by pairwise steps; the others are slow in the end for small λ."""
    problem = random_problem(tuple(1 + i % 4 for i in range(20)), 3, 60, NormalizedHamming(), seed=1)
    solvers = EIGHT | {"batch": FrankWolfe(), "Casimir": CasimirSVRG()}
    results = {}
    for name, solver in solvers.items():
        results[name] = solver.solve(problem, lam=lam, passes=1000, callbacks=[stop_at(1e-3)])
        assert "pairwise" not in name or results[name].history[-1].gap <= 1e-3, name
    highest = max(result.history[-1].dual for result in results.values())
    assert all(highest - 1e-9 <= result.history[-1].objective for result in results.values())
    for a, b in combinations(results.values(), 2):
        # F is λ-strongly convex: ‖w − w*‖² ≤ 2 gap/λ.
        radius = sum(math.sqrt(2 * r.history[-1].gap / lam) for r in (a, b))
        assert float((a.weights - b.weights).norm()) <= radius


def stop_at(gap: float) -> Callable[[Progress[Any]], None]:
    def callback(progress: Progress[Any]) -> None:
        if progress.row.gap is not None and progress.row.gap <= gap:
            raise KeyboardInterrupt

    return callback


@pytest.mark.parametrize("solver", [SGD(), SVRG(), CasimirSVRG()], ids=lambda solver: type(solver).__name__)
def test_primal_solvers_refuse_bounds(solver: Solver[Any]) -> None:
    with pytest.raises(ValueError, match="does not keep the bounds of the problem; take BCFW or FrankWolfe"):
        solver.solve(small_problem(bounded=True), lam=LAM, passes=1)


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


def test_resumes_as_if_unbroken(tmp_path: Path) -> None:
    moments = moments_of(SOLVER, small_problem(), passes=12)
    whole, _ = moments[-1]
    for state, history in moments:
        save_state(tmp_path / "state", *state.split())
        tensors, values = load_state(tmp_path / "state")
        resumed = (FrankWolfeState.joined(tensors, values), history)
        assert torch.equal(SOLVER.solve(small_problem(), lam=LAM, passes=12, resume=resumed).weights, whole.weights)


def test_converged_means_a_small_gap() -> None:
    result = FrankWolfe(gap_tolerance=0.05).solve(small_problem(), lam=LAM, passes=1000)
    *before, last = (row.gap / row.objective for row in result.history)
    assert result.status is Status.CONVERGED
    assert last <= 0.05 < min(before)


def crf() -> Problem:
    hinge = small_problem()
    return SparseChainProblem(hinge.sequences, hinge.labels, hinge.features, hinge.states, None, Entropy(1.0))


BAD: list[tuple[Callable[[], object], type[Exception], str]] = [
    (lambda: FrankWolfe().solve(small_problem(), lam=0), ValueError, "FrankWolfe needs lam > 0"),
    (
        lambda: FrankWolfe().solve(crf(), lam=1),
        ValueError,
        "FrankWolfe needs a problem of hinges, got one with Entropy",
    ),
    (
        lambda: FrankWolfe().solve(small_problem(), lam=1, start=small_problem().start()),
        TypeError,
        "start must be a FrankWolfeState, got Tensor",
    ),
    (
        lambda: FrankWolfe().solve(
            random_problem(), lam=1, start=FrankWolfe().solve(small_problem(), lam=1, passes=1).state
        ),
        ValueError,
        "start must be of 30 weights, got one of 27",
    ),
]


@pytest.mark.parametrize(("make", "error", "message"), BAD, ids=[message for _, _, message in BAD])
def test_refuses(make: Callable[[], object], error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        make()
