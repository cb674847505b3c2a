"""Several threads make the steps of a pass: what holds in whatever order they make them."""

import copy
from dataclasses import replace
from itertools import pairwise

import pytest
import torch
from linear_problems import problem_of
from refusals import refusing
from small_problems import random_problem
from solver_cases import BLOCKWISE, LAM, PROXIMAL, bounded_problem, moments_of, optimum, small_problem, without_time
from torch import Tensor
from torch.testing import assert_close

from structsmooth import BCFW, ProximalBCFW, certify
from structsmooth.cli.flags import parse_solvers
from structsmooth.compiled import threads
from structsmooth.problems import SparseChainProblem
from structsmooth.problems.reductions import Shard
from structsmooth.solvers import Cache, DualIterate, Progress, Status
from structsmooth.solvers.bcfw.active_set import Steps
from structsmooth.solvers.bcfw.steps import epoch

# Steps that may take one block twice in an epoch are refused.
EVERY = {name: solver for name, solver in (BLOCKWISE | PROXIMAL).items() if solver.sampling != "curvature"}
every_variant = pytest.mark.parametrize("solver", EVERY.values(), ids=EVERY.keys())


def larger_problem(states: int = 3) -> SparseChainProblem:
    """Large enough that threads work at the same time."""
    return random_problem(tuple(1 + i % 8 for i in range(2000)), states, 40)


def first_iterate(problem: SparseChainProblem, lam: float) -> DualIterate:
    """The labels."""
    statistics, gaps = problem.label_statistics(), torch.zeros(problem.n, dtype=torch.float64)
    return DualIterate(problem.dual_weights(statistics, lam), statistics, gaps, *problem.label_sets(4))


@pytest.mark.parametrize("cache", [None, Cache(0.25, 0.0)], ids=str)
@pytest.mark.parametrize("steps", ["fw", "pairwise", "away"])
def test_single_steps_are_those_of_one_thread(steps: Steps, cache: Cache | None) -> None:
    problem = small_problem()
    point, shares = first_iterate(problem, LAM), torch.tensor([0.3], dtype=torch.float64)
    for i in torch.arange(3 * problem.n) % problem.n:
        settings = {"lam": LAM, "steps": steps, "cache": cache, "averaging_weights": shares}
        alone, own_total = epoch(problem, point, i[None], **settings)
        point, total = epoch(problem, point, i[None], threads=2, **settings)
        for name, tensor in vars(alone).items():
            assert_close(getattr(point, name), tensor, rtol=0, atol=1e-12)
        assert_close(total, own_total, rtol=0, atol=1e-12)


@pytest.mark.parametrize("count", [2, 5])
def test_no_thread_loses_what_another_adds(count: int) -> None:
    """With λ so large that weights stay near zero, every step is a full one, to the most costly output."""
    problem, lam = larger_problem(states=2), 1e9
    generator = torch.Generator().manual_seed(0)
    order = torch.randperm(problem.n, generator=generator)
    shares = torch.rand(problem.n, generator=generator, dtype=torch.float64)
    start = first_iterate(problem, lam)
    alone, own_total = epoch(problem, start, order, lam=lam, averaging_weights=shares)
    calls = problem.oracle_calls
    shared, total = epoch(problem, start, order, lam=lam, averaging_weights=shares, threads=count)
    assert problem.oracle_calls == 2 * calls
    assert torch.equal(shared.statistics, alone.statistics)
    assert own_total is not None
    assert_close(lam * shared.weights, lam * alone.weights, rtol=0, atol=1e-10)
    assert_close(lam * total, lam * own_total, rtol=0, atol=1e-7)
    assert float(lam * alone.weights.abs().max()) > 0.01


def dual_at(problem: SparseChainProblem, statistics: Tensor) -> float:
    return problem.expected_cost(statistics) - LAM / 2 * float(problem.dual_weights(statistics, LAM).square().sum())


@every_variant
def test_passes_are_certified(solver: BCFW) -> None:
    problem, best = small_problem(), optimum()
    moments = moments_of(replace(solver, threads=3), problem, passes=25)
    for (before, _), (state, history) in pairwise(moments):
        row = history[-1]
        assert_close(problem.dual_weights(state.point.statistics, LAM), state.point.weights, rtol=0, atol=1e-9)
        assert row.dual is not None
        assert before.dual - 1e-9 <= row.dual <= best + 1e-9 <= row.objective + 2e-9
        assert (state.point.gaps >= 0).all()
        assert (state.point.alphas.sum(1) <= 1 + 1e-9).all()
        if not isinstance(solver, ProximalBCFW):
            assert row.dual == pytest.approx(dual_at(problem, state.point.statistics), rel=0, abs=1e-9)
    assert row.gap is not None
    assert row.gap < 0.5 * best


@pytest.mark.parametrize("solver", [BCFW(), BCFW(sampling="uniform"), BCFW(cache=True), ProximalBCFW()], ids=str)
@pytest.mark.parametrize("count", [2, 8])
def test_the_gap_closes(solver: BCFW, count: int) -> None:
    problem = larger_problem()
    lam = 10 / problem.n
    result = replace(solver, threads=count, gap_tolerance=0.01).solve(problem, lam=lam, passes=300)
    assert result.status is Status.CONVERGED
    duals = [row.dual for row in result.history]
    assert all(after >= before - 1e-9 for before, after in pairwise(duals))
    state = result.state
    assert_close(problem.dual_weights(state.point.statistics, lam), state.point.weights, rtol=0, atol=1e-9)
    if not solver.cache and not isinstance(solver, ProximalBCFW):
        assert result.history[-1].oracle_calls >= state.passes * problem.n
    alone = replace(solver, gap_tolerance=1e-3).solve(problem, lam=lam, passes=1000).row
    assert max(duals) <= alone.objective + 1e-12
    assert alone.dual <= result.row.objective + 1e-12


def test_a_pass_that_lowers_the_dual_is_made_again_by_one_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    """Here several threads do nothing but go back to the labels."""

    def spoiled(problem: SparseChainProblem, point: DualIterate, order: Tensor, **settings: int) -> object:
        if settings["threads"] == 1:
            return epoch(problem, point, order, **settings)
        labels = problem.label_statistics()
        return replace(point, statistics=labels, weights=problem.dual_weights(labels, LAM)), None

    for solver in (BCFW(gap_tolerance=0), BCFW(cache=True, gap_tolerance=0)):
        alone, first = (solver.solve(small_problem(), lam=LAM, passes=passes) for passes in (9, 1))
        with monkeypatch.context() as patch:
            patch.setattr("structsmooth.solvers.bcfw.epoch", spoiled)
            several, resume = replace(solver, threads=2), (first.state, first.history)
            again = several.solve(small_problem(), lam=LAM, passes=9, resume=resume)
        for own, other in zip(alone.history, again.history, strict=True):
            assert (own.objective, own.dual) == pytest.approx((other.objective, other.dual), rel=1e-9)
            assert own.oracle_calls == other.oracle_calls
        assert alone.state.hits == again.state.hits


@pytest.mark.parametrize("solver", [BCFW(gap_tolerance=0), ProximalBCFW(cache=True, gap_tolerance=0)], ids=str)
def test_resumes(solver: BCFW) -> None:
    problem, several = small_problem(), replace(solver, threads=2)
    first = several.solve(problem, lam=LAM, passes=4)
    result = several.solve(problem, lam=LAM, passes=40, resume=(first.state, first.history))
    assert [row.passes for row in result.history] == list(range(41))
    assert without_time(result.history[:5]) == without_time(first.history)
    assert result.row.gap < first.history[-1].gap
    point = result.state.point
    assert_close(problem.dual_weights(point.statistics, LAM), point.weights, rtol=0, atol=1e-9)


@pytest.mark.parametrize("count", [2, 3, 9])
@pytest.mark.parametrize("lengths", [(3, 1, 2, 3, 2), (4,), (1, 9, 1)])
def test_full_passes_that_threads_share_are_those_of_one(lengths: tuple[int, ...], count: int) -> None:
    problem = random_problem(lengths)
    w = torch.randn(problem.dim, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    statistics = torch.lerp(problem.label_statistics(), problem.best_statistics(w), 0.3)

    def results() -> list[object]:
        calls = problem.oracle_calls
        full = problem.full_pass(w, problem.smoother)
        values = [full.loss, full.expected_cost, full.gradient, full.node, full.edge]
        values += [problem.block_gaps(w, statistics), problem.block_margins(w, statistics)]
        return [*values, problem.dual_weights(statistics, LAM), problem.oracle_calls - calls]

    alone = results()
    with threads.sharing_passes(count):
        shared = results()
        assert all(map(torch.equal, *([torch.as_tensor(v) for v in values] for values in (shared, results()))))
    for own, other in zip(alone, shared, strict=True):
        assert_close(torch.as_tensor(own), torch.as_tensor(other), rtol=0, atol=1e-13)


def test_a_run_shares_its_full_passes() -> None:
    seen = []

    def watch(progress: Progress[object]) -> None:
        seen.append(threads.of_passes())

    for solver in (BCFW(threads=3), BCFW()):
        solver.solve(small_problem(), lam=LAM, passes=1, callbacks=[watch])
    assert seen == [3, 3, 1, 1]
    assert threads.of_passes() == 1


def test_a_certificate_is_valid() -> None:
    problem = small_problem()
    w = BCFW().solve(problem, lam=LAM, passes=5).weights
    certificate = certify(problem, w, LAM, solver=BCFW(threads=2))
    assert certificate.dual <= optimum() + 1e-9 <= certificate.objective + 2e-9


def test_is_a_flag() -> None:
    solvers = parse_solvers(["bcfw:threads=2", "proximal-bcfw:threads=3,cache=true"])
    assert [solver.threads for solver in solvers.values()] == [2, 3]


def in_processes() -> SparseChainProblem:
    problem = copy.copy(small_problem())
    problem.shard = Shard(problem)
    return problem


def twice() -> object:
    problem = small_problem()
    return epoch(problem, first_iterate(problem, LAM), torch.tensor([1, 2, 1]), lam=LAM, threads=2)


SEVERAL = BCFW(threads=2)
test_refuses = refusing(
    {
        "no threads": (lambda: BCFW(threads=0), ValueError, "threads must be at least 1, got 0"),
        "half a thread": (lambda: ProximalBCFW(threads=1.5), TypeError, "threads must be an int, got float"),
        "steps in plain torch": (
            lambda: SEVERAL.solve(problem_of("classes"), lam=LAM),
            ValueError,
            "threads must be 1 for a LinearModuleProblem, got 2: only the steps of a SparseChainProblem",
        ),
        "bounds": (
            lambda: SEVERAL.solve(bounded_problem(), lam=LAM),
            ValueError,
            "threads must be 1 for a problem with bounds, got 2",
        ),
        "processes": (
            lambda: SEVERAL.check(in_processes(), LAM),
            ValueError,
            "threads must be 1 in several processes, got 2: .*take one process with more threads",
        ),
        "an example twice": (twice, ValueError, "order must not hold an example twice"),
    }
)
