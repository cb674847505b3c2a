"""Two processes make the run of one."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import small_networks
import torch
from small_problems import collate, dense_examples, random_problem
from torch.testing import assert_close
from two_processes import asked, ended, started

from structsmooth import (
    BCFW,
    L2,
    SGD,
    CasimirSVRG,
    Entropy,
    LinearModuleProblem,
    LinearScore,
    Max,
    ProximalBCFW,
    ProxLinear,
)
from structsmooth.problems import LinearProblem, Problem, sharded
from structsmooth.problems.reductions import Shard
from structsmooth.solvers import SVRG, Adam, FrankWolfe, IncrementalProxLinear, Result

LAM = 0.1


def dense() -> LinearModuleProblem:
    sparse = random_problem()
    data = dense_examples(sparse)
    return LinearModuleProblem(LinearScore(sparse.features, 3, torch.float64), data, collate=collate, chunk_size=2)


def weighted(problem: Problem) -> Problem:
    return problem.weighted(torch.linspace(0.5, 3.0, problem.n))


# n of the deep problems is odd: the shares differ.
RUNS: dict[str, tuple[Callable[[], Problem], Any]] = {
    "deep SVRG": (small_networks.chain_problem, SVRG(learning_rate=0.1)),
    "deep prox-linear": (small_networks.chain_problem, ProxLinear(inner=BCFW())),
    "deep prox-linear by Casimir": (small_networks.chain_problem, ProxLinear()),
    "deep incremental": (small_networks.chain_problem, IncrementalProxLinear()),
    "sparse incremental": (small_networks.words_problem, IncrementalProxLinear()),
    "sparse incremental of single examples": (
        small_networks.words_problem,
        IncrementalProxLinear(batch_size=1, planes="float16", learning_rate=0.3),
    ),
    "deep Adam": (small_networks.tree_problem, Adam()),
    "smooth deep SVRG": (lambda: small_networks.chain_problem(smoother=Entropy(1.0)), SVRG()),
    "graph cuts": (small_networks.graph_problem, ProxLinear(inner=SVRG(), inner_stop="gradient")),
    "weighted deep Adam": (lambda: weighted(small_networks.tree_problem()), Adam()),
    "weighted linear module BCFW": (lambda: weighted(dense()), BCFW(refresh=2)),
    "weighted sparse chain": (lambda: weighted(random_problem()), CasimirSVRG()),
    "linear module": (dense, CasimirSVRG(mu=0.5)),
    "linear module BCFW": (dense, BCFW(steps="pairwise", refresh=2)),
    "sparse chain": (random_problem, SVRG(mu=0.5)),
    "sparse chain Casimir": (random_problem, CasimirSVRG()),
    "sparse chain SGD": (random_problem, SGD()),
    "sparse chain BCFW": (random_problem, BCFW(refresh=2)),
    "sparse chain BCFW, gap passes": (random_problem, BCFW(refresh=2, gap_passes=True)),
    "sparse chain proximal BCFW": (random_problem, ProximalBCFW(refresh=2)),
    "sparse chain Frank-Wolfe": (random_problem, FrankWolfe()),
}
PROCESS = """
import sys, torch, test_sharding
from structsmooth import processes
torch.set_num_threads(1)
with processes.joined():
    results = test_sharding.run_all(sys.argv[2:])
    torch.save(results, f"{sys.argv[1]}/{processes.rank()}.pt")
"""


def run(build: Callable[[], Problem], solver: Any) -> Result:
    result: Result = solver.solve(sharded(build()), lam=LAM, passes=4)
    return result


def run_all(names: list[str]) -> dict[str, Any]:
    results: dict[str, Any] = {name: summary(run(*RUNS[name])) for name in names}
    few = sharded(random_problem(lengths=(3,))).shard is None
    planes_of = {"dense": planes(small_networks.chain_problem), "sparse": planes(small_networks.words_problem)}
    others = {"pieces": pieces(), "steps": steps(), "planes": planes_of, "few": few, "drift": drift()}
    return results | others


def summary(result: Result) -> tuple[torch.Tensor, list[dict[str, Any]]]:
    rows = [row.as_dict() | {"seconds": 0.0} for row in result.history]
    return result.weights, [{name: value for name, value in row.items() if value is not None} for row in rows]


def pieces() -> dict[str, torch.Tensor]:
    """What solvers may ask of a problem over all examples, away from the start."""
    found: dict[str, torch.Tensor] = {}
    for name, build in {"sparse": random_problem, "dense": dense}.items():
        problem = sharded(build())
        assert isinstance(problem, LinearProblem)
        w = torch.linspace(-1, 1, problem.dim, dtype=torch.float64)
        statistics = problem.best_statistics(-w)
        numbers = [problem.loss(w), problem.loss(w, L2(0.5, 3)), problem.expected_cost(statistics)]
        for smoother in (Max(), L2(0.5, 3)):
            full = problem.full_pass(w, smoother, with_loss=True)
            assert full.loss is not None
            assert full.expected_cost is not None
            found[f"{name} gradient {smoother}"] = full.gradient
            numbers += [full.smoothed_loss, full.loss, full.expected_cost]
        found |= {
            f"{name} statistics": statistics,
            f"{name} gaps": problem.block_gaps(w, statistics),
            f"{name} margins": problem.block_margins(w, statistics),
            f"{name} dual weights": problem.dual_weights(statistics, LAM),
            f"{name} numbers": torch.tensor([*numbers, problem.oracle_calls], dtype=torch.float64),
        }
    return found


def steps() -> list[tuple[int, int]]:
    """Examples read and oracle calls counted in steps on one and on five examples."""
    problem, found = sharded(small_networks.chain_problem()), []
    read: list[Any] = []
    collate, problem.collate = problem.collate, lambda pairs: (read.extend(pairs), collate(pairs))[1]
    for size in (1, 5):
        read.clear()
        calls = problem.oracle_calls
        problem.batch_loss_and_grad(problem.start(), torch.arange(size), Max())
        found.append((len(read), problem.oracle_calls - calls))
    return found


def planes(build: Callable[[], Problem]) -> tuple[list[int], bool]:
    """Blocks whose planes are here, among one and among three; whether a run resumes from them as if unbroken."""
    rows, problem, solver = [], sharded(build()), IncrementalProxLinear(batch_size=3)
    for size in (7, 3):
        half = replace(solver, batch_size=size).solve(problem, lam=LAM, passes=2)
        rows.append(len(half.state.planes.gradients))
    resumed = solver.solve(problem, lam=LAM, passes=4, resume=(half.state, half.history))
    return rows, torch.equal(resumed.weights, solver.solve(problem, lam=LAM, passes=4).weights)


def drift() -> str:
    """The error where processes have different weights."""
    from structsmooth import processes

    problem = sharded(random_problem())
    w = problem.start() + 1 + 1e-3 * processes.rank()
    try:
        problem.loss(w)
    except RuntimeError as error:
        return str(error)
    return "none"


@pytest.fixture(scope="module")
def both(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, Any]]:
    """Results of two processes, for the runs that tests ask for."""
    folder = tmp_path_factory.mktemp("results")
    # The folder of this file, for both to import it.
    code = f"import sys; sys.path.insert(0, {str(Path(__file__).parent)!r})\n{PROCESS}"
    for status, _, errors in ended(started(code, str(folder), *asked(request, RUNS))):
        assert status == 0, errors
    return [torch.load(folder / f"{rank}.pt", weights_only=True) for rank in range(2)]


@pytest.mark.parametrize("name", RUNS)
def test_runs_are_those_of_one_process(both: list[dict[str, Any]], name: str) -> None:
    weights, rows = summary(run(*RUNS[name]))
    assert len(rows) > 1
    assert torch.equal(both[0][name][0], both[1][name][0])
    for actual, history in (results[name] for results in both):
        assert_close(actual, weights, rtol=1e-6, atol=1e-6)
        assert len(history) == len(rows)
        for row, expected in zip(history, rows, strict=True):
            assert row == pytest.approx(expected, rel=1e-6, abs=1e-6)
            assert row["oracle_calls"] == expected["oracle_calls"]


def test_passes_are_those_of_one_process(both: list[dict[str, Any]]) -> None:
    for results in both:
        assert_close(results["pieces"], pieces(), rtol=1e-9, atol=1e-12)


def test_each_process_takes_a_part_of_a_step(both: list[dict[str, Any]]) -> None:
    assert [results["steps"] for results in both] == [[(1, 1), (2, 5)], [(1, 1), (3, 5)]]


@pytest.mark.parametrize("storage", ["dense", "sparse"])
def test_each_process_has_planes_of_its_own_blocks(both: list[dict[str, Any]], storage: str) -> None:
    assert [results["planes"][storage] for results in both] == [([1, 1], True), ([1, 2], True)]


def test_more_processes_than_examples_share_nothing(both: list[dict[str, Any]]) -> None:
    assert all(results["few"] for results in both)


def test_processes_with_different_weights_are_noticed(both: list[dict[str, Any]]) -> None:
    for rank, results in enumerate(both):
        assert results["drift"].startswith("processes have different weights, of norm")
        assert f"in process {rank} " in results["drift"]


def test_one_process_shares_nothing() -> None:
    problem = random_problem()
    assert sharded(problem) is problem


@pytest.mark.parametrize("build", [small_networks.chain_problem, random_problem], ids=["deep", "linear"])
def test_the_shard_of_the_only_process_is_the_problem(build: Callable[[], Problem]) -> None:
    problem, shared = build(), build()
    shared.shard = Shard(build())
    solver = SVRG(learning_rate=0.1)
    alone, together = (solver.solve(p, lam=LAM, passes=2) for p in (problem, shared))
    assert_close(together.weights, alone.weights, rtol=0, atol=0)
    assert together.history[-1].oracle_calls == alone.history[-1].oracle_calls


def test_shares_read_examples_when_they_need_them() -> None:
    """No dataset is loaded as a whole."""

    class Lazy(list[Any]):
        reads = 0

        def __getitem__(self, index: Any) -> Any:
            self.reads += 1
            return super().__getitem__(index)

    problem = small_networks.chain_problem()
    problem.dataset = lazy = Lazy(problem.dataset)  # type: ignore[arg-type]
    part = problem.lazy_subset(torch.tensor([4, 5, 6]))
    assert lazy.reads == 0
    assert part.loss(problem.start()) == pytest.approx(problem.subset(torch.tensor([4, 5, 6])).loss(problem.start()))
    assert lazy.reads == 6
