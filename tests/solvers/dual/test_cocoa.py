"""CoCoA over two processes beside BCFW in one."""

from collections.abc import Callable, Iterable
from dataclasses import asdict
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
import torch
from linear_problems import problem_of
from refusals import refusing
from small_problems import random_problem
from solver_cases import BLOCKWISE, LAM, bounded_problem, moments_of, small_problem, without_time
from torch.testing import assert_close
from two_processes import asked, ended, started

from structsmooth import BCFW, Max, certify, processes
from structsmooth.problems import LinearProblem, PartitionedProblem, SparseChainProblem, partitioned
from structsmooth.problems.bounds import conjugate
from structsmooth.solvers import CoCoA, FrankWolfe
from structsmooth.solvers.dual.cocoa import CoCoAState

# The numbers of examples are odd: shares differ.
RUNS: dict[str, tuple[Callable[[], LinearProblem], CoCoA, int]] = {
    "pairwise": (small_problem, CoCoA(gap_tolerance=0), 20),
    "uniform": (small_problem, CoCoA(sampling="uniform", steps="fw", gap_tolerance=0), 12),
    "away, few outputs, cache": (small_problem, CoCoA(steps="away", capacity=2, cache=True, gap_tolerance=0), 12),
    "average": (small_problem, CoCoA(average=True, gap_tolerance=0), 12),
    "bounds": (bounded_problem, CoCoA(gap_tolerance=0), 20),
    "threads": (small_problem, CoCoA(threads=2, gap_tolerance=0), 12),
    "larger steps": (small_problem, CoCoA(sigma=1.2, gap_tolerance=0), 12),
    "the largest steps": (lambda: alike(), CoCoA(sigma=1, sampling="uniform", steps="fw", gap_tolerance=0), 12),
    "smaller steps": (small_problem, CoCoA(sigma=5, gap_tolerance=0), 12),
    "classes": (lambda: problem_of("classes"), CoCoA(gap_tolerance=0), 10),
    "to the optimum": (small_problem, CoCoA(gap_tolerance=2e-7), 3000),
}
BROKEN = 4  # passes before a run is resumed
PROCESS = """
import sys, torch, test_cocoa
from structsmooth import processes
torch.set_num_threads(1)
with processes.joined():
    torch.save(test_cocoa.run_all(sys.argv[2:]), f"{sys.argv[1]}/{processes.rank()}.pt")
"""


def alike() -> SparseChainProblem:
    """Both processes get the same examples: together they go too far."""
    half = random_problem((3, 1, 2), seed=4)
    return half.subset(torch.tensor([0, 1, 2, 0, 1, 2]))


def own_part(problem: LinearProblem) -> LinearProblem:
    part = problem.subset(torch.tensor(processes.share(problem.n)))
    assert isinstance(part, LinearProblem)
    return part


def run_all(names: list[str]) -> dict[str, Any]:
    results: dict[str, Any] = {}
    for name, (build, solver, passes) in ((name, RUNS[name]) for name in names):
        own = own_part(build())
        problem = partitioned(own)
        moments = moments_of(solver, problem, passes)
        state, history = moments[-1]
        state = state.moved(statistics=own.unpacked(state.point.statistics))
        results[name] = {"state": state.split(), "rows": without_time(history)}
        if len(moments) > BROKEN and not solver.threads > 1:
            resumed = solver.solve(problem, lam=LAM, passes=2 * BROKEN, resume=moments[BROKEN])
            results[name] |= {"resumed": resumed.state.weights, "unbroken": moments[2 * BROKEN][0].weights}
    return results | {"errors": errors()}


def errors() -> list[str]:
    """What several processes refuse."""
    own = own_part(small_problem())
    wide = random_problem(features=4 + processes.rank())
    w = own.start() + 1e-3 * processes.rank() + 1
    calls: list[Callable[[], object]] = [
        lambda: CoCoA().solve(own, lam=LAM),
        lambda: partitioned(wide),
        lambda: partitioned(own).loss(w),
        lambda: FrankWolfe().solve(partitioned(own), lam=LAM),
        lambda: certify(partitioned(own), own.start(), LAM),
        lambda: partitioned(own).subset(torch.tensor([0])),
        lambda: partitioned(own).batch_loss_and_grad(own.start(), torch.tensor([0]), Max()),
    ]
    return [message(call) for call in calls]


def message(call: Callable[[], object]) -> str:
    """The error that a call raises."""
    try:
        call()
    except (TypeError, ValueError, RuntimeError) as error:
        return f"{type(error).__name__}: {error}"
    return "none"


@pytest.fixture(scope="module")
def both(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, Any]]:
    """Results of two processes, for the runs that tests ask for."""
    folder = tmp_path_factory.mktemp("results")
    # The folder of this file, for both to import it.
    code = f"import sys; sys.path.insert(0, {str(Path(__file__).parent)!r})\n{PROCESS}"
    for status, _, messages in ended(started(code, str(folder), *asked(request, RUNS))):
        assert status == 0, messages
    return [torch.load(folder / f"{rank}.pt", weights_only=True) for rank in range(2)]


def state_of(result: dict[str, Any]) -> CoCoAState:
    return CoCoAState.joined(*result["state"])


# Those whose results other tests look at, too, and one of each way to choose steps.
_OFTEN = ("pairwise", "uniform", "bounds", "the largest steps", "to the optimum")


def of_runs(names: Iterable[str]) -> pytest.MarkDecorator:
    marks = {name: [] if name in _OFTEN else [pytest.mark.long] for name in names}
    return pytest.mark.parametrize("name", [pytest.param(name, marks=some) for name, some in marks.items()])


every_run = of_runs(RUNS)


@every_run
def test_processes_agree(both: list[dict[str, Any]], name: str) -> None:
    first, second = (results[name] for results in both)
    assert first["rows"] == second["rows"]
    assert torch.equal(state_of(first).weights, state_of(second).weights)
    assert torch.equal(state_of(first).point.weights, state_of(second).point.weights)


@every_run
def test_the_dual_never_decreases(both: list[dict[str, Any]], name: str) -> None:
    duals = [row["dual"] for row in both[0][name]["rows"]]
    assert all(after >= before - 1e-12 for before, after in pairwise(duals))
    assert duals[-1] > duals[0]


def test_rounds_that_go_too_far_are_made_again(both: list[dict[str, Any]]) -> None:
    calls = [row["oracle_calls"] for row in both[0]["the largest steps"]["rows"]]
    n = alike().n
    assert {after - before for before, after in pairwise(calls)} == {n, 2 * n}


@every_run
def test_weights_and_certificate_are_those_of_all_statistics(both: list[dict[str, Any]], name: str) -> None:
    build, solver, _ = RUNS[name]
    problem, states = build(), [state_of(results[name]) for results in both]
    statistics, last = torch.cat([state.point.statistics for state in states]), both[0][name]["rows"][-1]
    iterate = states[0].point.weights
    assert_close(iterate, problem.dual_weights(statistics, LAM), rtol=0, atol=1e-12)
    dual = problem.expected_cost(statistics) - LAM * conjugate(iterate, problem.bounds)
    assert last["dual"] == pytest.approx(dual, abs=1e-12)
    w = states[0].weights
    assert last["objective"] == pytest.approx(problem.loss(w) + LAM / 2 * float(w @ w), abs=1e-12)
    if not solver.average:
        assert_close(w, problem.within_bounds(iterate), rtol=0, atol=0)
        gaps = float(problem.block_gaps(w, statistics).sum())
        assert last["gap"] == pytest.approx(gaps, abs=1e-12)


@every_run
def test_memory_is_that_of_own_examples(both: list[dict[str, Any]], name: str) -> None:
    problem = RUNS[name][0]()
    sizes = [len(state_of(results[name]).point.statistics) for results in both]
    assert sum(sizes) == len(problem.label_statistics())
    assert all(sizes)
    assert [len(state_of(results[name]).point.gaps) for results in both] == [problem.n // 2, -(-problem.n // 2)]


def test_calls_of_all_processes_count(both: list[dict[str, Any]]) -> None:
    problem = small_problem()
    for results in both:
        assert [row["oracle_calls"] for row in results["uniform"]["rows"]] == [problem.n * t for t in range(13)]


@of_runs(name for name, (_, solver, _) in RUNS.items() if solver.threads == 1)
def test_resumed_runs_are_unbroken(both: list[dict[str, Any]], name: str) -> None:
    for results in both:
        assert torch.equal(results[name]["resumed"], results[name]["unbroken"])


def test_processes_reach_the_optimum_of_one(both: list[dict[str, Any]]) -> None:
    last = both[0]["to the optimum"]["rows"][-1]
    alone = BCFW(gap_tolerance=2e-7).solve(small_problem(), lam=LAM, passes=3000).row
    assert alone.gap is not None
    assert 0 <= last["gap"] <= 1e-6
    assert abs(last["objective"] - alone.objective) <= last["gap"] + alone.gap


def test_several_processes_refuse(both: list[dict[str, Any]]) -> None:
    starts = [
        "TypeError: in several processes CoCoA needs partitioned(problem), with the process's own examples, got Sparse",
        "ValueError: problems of all processes must have the same dim and smoother, got 27 with Max(), 30 with Max()",
        "RuntimeError: processes have different weights",
        "TypeError: FrankWolfe needs all examples in each process, got a PartitionedProblem; take CoCoA",
        "TypeError: certify needs all examples in each process, got a PartitionedProblem; take CoCoA",
        "NotImplementedError: the examples of a PartitionedProblem are in their processes: CoCoA trains on them there",
        "NotImplementedError: the examples of a PartitionedProblem are in their processes: CoCoA trains on them there",
    ]
    for results in both:
        assert len(results["errors"]) == len(starts)
        for error, start in zip(results["errors"], starts, strict=True):
            assert error.startswith(start)


@pytest.mark.parametrize("name", BLOCKWISE)
def test_one_process_makes_the_run_of_bcfw(name: str) -> None:
    solvers = (CoCoA(**asdict(BLOCKWISE[name])), BLOCKWISE[name])
    own, plain = (solver.solve(small_problem(), lam=LAM, passes=12) for solver in solvers)
    assert without_time(own.history) == without_time(plain.history)
    assert torch.equal(own.weights, plain.weights)


def test_a_partition_of_one_process_is_the_problem() -> None:
    problem = small_problem()
    assert partitioned(problem) is problem
    whole = PartitionedProblem(problem)
    w = torch.linspace(-1, 1, problem.dim, dtype=torch.float64)
    assert (whole.n, whole.part, whole.loss(w)) == (problem.n, 1.0, problem.loss(w))
    assert whole.oracle_calls == problem.n


test_refuses = refusing(
    {
        "steps that must go too far": (
            lambda: CoCoA(sigma=0.5),
            ValueError,
            "sigma must be at least 1 and finite, got 0.5",
        ),
        "no number": (lambda: CoCoA(sigma="2"), TypeError, "sigma must be a number"),  # type: ignore[arg-type]
    }
)
