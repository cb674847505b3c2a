"""Checkpoints that another number of processes saved than goes on from them."""

from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
import torch
from linear_problems import problem_of
from small_problems import random_problem
from solver_cases import LAM, bounded_problem, small_problem
from torch.testing import assert_close
from two_processes import ended, started

from structsmooth import processes, sparse_vectors
from structsmooth.checkpoint import save_state
from structsmooth.experiments import Experiment, RunFolder
from structsmooth.experiments.shares import rearranged
from structsmooth.problems import LinearProblem, Problem, partitioned, sharded
from structsmooth.solvers import CoCoA, IncrementalProxLinear, Solver
from structsmooth.solvers.bcfw import BCFWState
from structsmooth.solvers.dual.cocoa import CoCoAState

ALONE: dict[str, tuple[LinearProblem, CoCoA]] = {
    "packed statistics": (random_problem((3, 1, 4, 2, 5, 2, 3)), CoCoA()),
    "few outputs, cache": (random_problem((3, 1, 4, 2, 5, 2, 3)), CoCoA(steps="away", capacity=2, cache=True)),
    "no outputs": (random_problem((3, 1, 4, 2)), CoCoA(steps="fw", sampling="uniform")),
    "curvatures": (random_problem((3, 1, 4, 2)), CoCoA(sampling="curvature")),
    "vectors": (bounded_problem(), CoCoA()),
    "classes": (problem_of("classes"), CoCoA()),
}


@pytest.mark.parametrize("name", ALONE)
def test_parts_are_the_whole_again(tmp_path: Path, name: str) -> None:
    """A state in three parts of unequal sizes, one of them of a single block, as three processes would save them."""
    problem, solver = ALONE[name]
    result = solver.solve(problem, lam=LAM, passes=3)
    whole = result.state
    assert isinstance(whole, CoCoAState)
    bounds, files = [0, 1, problem.blocks // 2, problem.blocks], {}
    for number, blocks in enumerate(map(range, bounds, bounds[1:])):
        tensors, numbers = solver.part(problem, whole, blocks).split()
        files[number] = tmp_path / str(number)
        rows = [row.as_dict() for row in result.history]
        save_state(files[number], tensors, {"state": numbers, "history": rows})
    sizes = [last - first for first, last in pairwise(bounds)]
    state, history = rearranged(solver, problem, files, sizes)
    assert isinstance(state, CoCoAState)
    assert history.column("objective") == result.history.column("objective")
    assert state.point.statistics.dtype == whole.point.statistics.dtype
    for tensor, expected in zip(vars(state.point).values(), vars(whole.point).values(), strict=True):
        assert torch.equal(tensor, expected)
    assert (state.hits, state.steps) == pytest.approx((whole.hits, whole.steps), abs=2)
    assert (state.cost, state.gap) == pytest.approx((whole.cost, whole.gap), rel=1e-12)
    further = (solver.solve(problem, lam=LAM, passes=5, resume=(s, result.history)).weights for s in (state, whole))
    assert_close(*further, rtol=0, atol=1e-12)
    with pytest.raises(ValueError, match=f"of {sum(sizes) - sizes[-1]} blocks, and the data have {problem.blocks}"):
        rearranged(solver, problem, files, sizes[:-1])


def test_examples_of_other_sizes_are_refused() -> None:
    solver, problem, other = CoCoA(), random_problem((3, 1, 4)), random_problem((3, 2, 3))
    tensors, numbers = solver.solve(problem, lam=LAM, passes=1).state.split()
    with pytest.raises(ValueError, match="examples of other sizes: resume with the data that it was made with"):
        solver.assembled(other, [CoCoAState.joined(tensors, numbers)])


# Processes, in turn, that go on from what those before them saved; the last ones go on to the end.
TURNS = {"cocoa": [2, 1, 3, 2], "cocoa, few weights": [1, 2, 1, 3], "incremental": [2, 3, 1]}
PROCESS = """
import sys, test_shares
from structsmooth import processes, sparse_vectors
with processes.joined():
    test_shares.go_on(*sys.argv[1:])
"""


def whole_problem(name: str) -> LinearProblem:
    """One process has vectors of a part of the weights alone, where these are few."""
    return random_problem((3, 1, 4, 2, 3), states=6, features=9) if "few" in name else small_problem()


def problem_and_solver(name: str) -> tuple[Problem, Solver[Any]]:
    problem = whole_problem(name)
    if name == "incremental":
        return sharded(problem), IncrementalProxLinear(batch_size=1, gap_tolerance=0.0)
    own = problem.subset(torch.tensor(processes.share(problem.n)))
    return partitioned(own), CoCoA(gap_tolerance=2e-7)


def go_on(name: str, folder: str, passes: str) -> None:
    """A turn; the state that it begins with, and where it comes to, stay in the folder."""
    if "few" in name:
        sparse_vectors.MANY = 1
    problem, solver = problem_and_solver(name)
    run = RunFolder(Path(folder) / "run")
    begun = run.load_checkpoint(solver, problem)
    result = Experiment(solver, LAM, int(passes)).run(problem, folder=run, resume=True)
    row = result.row.as_dict()
    assert isinstance(result.state, BCFWState) == name.startswith("cocoa")
    if "few" in name:
        assert (len(result.state.weights) < problem.dim) == (processes.count() == 1 and begun is None)
    kept = {"state": begun and begun[0].split(), "rows": begun and [row.as_dict() for row in begun[1]], "row": row}
    torch.save(kept, Path(folder) / f"{processes.count()}-{processes.rank()}.pt")


@pytest.mark.long
@pytest.mark.parametrize("name", TURNS)
def test_another_number_of_processes_goes_on(tmp_path: Path, name: str) -> None:
    code = f"import sys; sys.path.insert(0, {str(Path(__file__).parent)!r})\n{PROCESS}"
    problem, before, kept = whole_problem(name), None, []
    for turn, count in enumerate(TURNS[name]):
        passes = 3000 if turn == len(TURNS[name]) - 1 and name.startswith("cocoa") else 4 * turn + 4
        for status, _, errors in ended(started(code, name, str(tmp_path), str(passes), count=count)):
            assert status == 0, errors
        kept = [torch.load(tmp_path / f"{count}-{rank}.pt", weights_only=True) for rank in range(count)]
        if before is not None and name.startswith("cocoa"):
            states = [CoCoAState.joined(*own["state"]) for own in kept]
            statistics = torch.cat([dense(problem, rank, count, state) for rank, state in enumerate(states)])
            row, v = kept[0]["rows"][-1], states[0].point.weights
            assert (row["passes"], row["objective"]) == (4 * turn, before["objective"])
            assert_close(v, problem.dual_weights(statistics, LAM), rtol=0, atol=1e-12)
            dual = problem.expected_cost(statistics) - LAM / 2 * float(v @ v)
            assert dual == pytest.approx(row["dual"], abs=1e-12)
            assert problem.loss(v) + LAM / 2 * float(v @ v) == pytest.approx(row["objective"], abs=1e-12)
        before = kept[0]["row"]
    assert before is not None
    if name.startswith("cocoa"):
        assert 0 <= before["gap"] <= 1e-6
        alone = CoCoA(gap_tolerance=2e-7).solve(problem, lam=LAM, passes=3000)
        assert before["objective"] == pytest.approx(alone.row.objective, abs=1e-6)
    else:  # the iterates are those of one process
        alone = IncrementalProxLinear(batch_size=1, gap_tolerance=0.0).solve(problem, lam=LAM, passes=12)
        assert before["objective"] == pytest.approx(alone.row.objective, rel=1e-9)


def dense(problem: LinearProblem, rank: int, count: int, state: CoCoAState) -> torch.Tensor:
    """Statistics of a process as a vector."""
    own = problem.subset(torch.arange(rank * problem.n // count, (rank + 1) * problem.n // count))
    assert isinstance(own, LinearProblem)
    return own.unpacked(state.point.statistics)
