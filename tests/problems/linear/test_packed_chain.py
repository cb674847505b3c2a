"""Packed statistics of chains: the same values in less memory, through passes, runs and files."""

from dataclasses import replace
from pathlib import Path

import pytest
import torch
from linear_problems import problem_of
from refusals import refusing
from small_problems import random_problem, random_weights
from solver_cases import BLOCKWISE, LAM, PROXIMAL, bounded_problem, moments_of, small_problem
from torch import Tensor

from structsmooth import BCFW, ProximalBCFW, processes
from structsmooth.checkpoint import load_state, save_state
from structsmooth.compiled.threads import sharing_passes
from structsmooth.problems import SparseChainProblem
from structsmooth.problems.reductions import Shard
from structsmooth.solvers import DualIterate
from structsmooth.solvers.bcfw import BCFWState
from structsmooth.solvers.bcfw.steps import epoch

every_variant = pytest.mark.parametrize("solver", (BLOCKWISE | PROXIMAL).values(), ids=(BLOCKWISE | PROXIMAL).keys())


def mixed_statistics(problem: SparseChainProblem) -> Tensor:
    """Most rows are those of labels; others are mixtures, single numbers that are not 1, or empty."""
    best = problem.best_statistics(random_weights(problem))
    statistics = torch.lerp(problem.label_statistics(), best, 0.3)
    statistics[::7] *= 1e-300
    return statistics


def point_of(problem: SparseChainProblem, statistics: Tensor) -> DualIterate:
    gaps = torch.rand(problem.n, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    return DualIterate(problem.dual_weights(statistics, LAM), statistics, gaps, *problem.label_sets(4))


@pytest.mark.parametrize("lengths", [(3, 1, 4, 2, 3), (1,), (9, 1, 1, 1)], ids=str)
@pytest.mark.parametrize("states", [1, 3, 40])
def test_values_are_kept(lengths: tuple[int, ...], states: int) -> None:
    problem = random_problem(lengths, states)
    for statistics in (problem.label_statistics(), mixed_statistics(problem)):
        packed = problem.packed(statistics)
        assert packed.dtype == torch.int64
        assert torch.equal(problem.unpacked(packed), statistics)
        assert problem.packed(packed) is packed or torch.equal(problem.packed(packed), packed)
        assert problem.unpacked(statistics) is statistics
    assert torch.equal(problem.packed_labels(), problem.packed(problem.label_statistics()))


def test_rows_of_labels_take_two_bytes() -> None:
    problem = random_problem((10,) * 300, states=12)
    packed, statistics = problem.packed_labels(), problem.label_statistics()
    nodes, edges = 3000, 300 * 12
    most = 2 * (nodes + edges) + (8 + 2) * 300 * 9 + 8 * 300 + 100  # repeated transitions are numbers, at most all are
    assert packed.nbytes <= most < 0.2 * statistics.nbytes


@pytest.mark.parametrize("count", [1, 3])
def test_passes_take_packed_statistics(count: int) -> None:
    problem = random_problem()
    statistics, w = mixed_statistics(problem), random_weights(problem)
    packed = problem.packed(statistics)
    with sharing_passes(count):
        assert problem.expected_cost(packed) == problem.expected_cost(statistics)
        assert torch.equal(problem.dual_weights(packed, LAM), problem.dual_weights(statistics, LAM))
        assert torch.equal(problem.block_gaps(w, packed), problem.block_gaps(w, statistics))
        assert torch.equal(problem.block_margins(w, packed), problem.block_margins(w, statistics))


@pytest.mark.parametrize("count", [1, 2])
@pytest.mark.parametrize("steps", ["fw", "pairwise", "away"])
def test_an_epoch_answers_in_the_form_of_its_start_and_leaves_it(steps: str, count: int) -> None:
    """Every example is drawn often: what its rows need outgrows the room that they got at first."""
    problem = random_problem(states=5)
    start = point_of(problem, problem.label_statistics())
    packed = replace(start, statistics=problem.packed(start.statistics))
    before = [tensor.clone() for tensor in vars(packed).values()]
    draws = torch.rand(200, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    orders = [draws] if count == 1 else list(torch.randint(problem.n, (100, 1)))  # one step at a time does not race
    dense, small = start, packed
    for order in orders:
        dense, _ = epoch(problem, dense, order, lam=1e-3, steps=steps, threads=count)
        small, _ = epoch(problem, small, order, lam=1e-3, steps=steps, threads=count)
    assert dense.statistics.is_floating_point()
    assert not torch.equal(dense.statistics, start.statistics)
    assert torch.equal(problem.unpacked(small.statistics), dense.statistics)
    assert torch.equal(small.statistics, problem.packed(dense.statistics))
    assert torch.equal(small.weights, dense.weights)
    assert all(map(torch.equal, before, vars(packed).values()))


def tensors_of(state: BCFWState) -> dict[str, Tensor]:
    return state.split()[0]


@every_variant
def test_a_run_leaves_the_states_that_others_keep(solver: BCFW) -> None:
    """Those of its callbacks, and that which it starts or goes on from."""
    problem = small_problem()
    first = solver.solve(problem, lam=LAM, passes=3)
    copies = {name: tensor.clone() for name, tensor in tensors_of(first.state).items()}
    kept, copied = [], []

    def keep(progress: object) -> None:
        kept.append(progress.state)
        copied.append({name: tensor.clone() for name, tensor in tensors_of(progress.state).items()})

    solver.solve(problem, lam=LAM, passes=8, resume=(first.state, first.history), callbacks=[keep])
    solver.solve(problem, lam=2 * LAM, passes=3, start=first.state, callbacks=[keep])
    assert len(kept) == 9
    for state, expected in [(first.state, copies), *zip(kept, copied, strict=True)]:
        own = tensors_of(state)
        assert all(torch.equal(own[name], expected[name]) for name in expected)


def test_states_in_files(tmp_path: Path) -> None:
    problem, solver = small_problem(), ProximalBCFW(gap_tolerance=0)
    moments = moments_of(solver, problem, passes=6)
    state, history = moments[3]
    tensors, numbers = state.split()
    save_state(tmp_path / "state", tensors, numbers)
    loaded = solver.state_type.joined(*load_state(tmp_path / "state"))
    result = solver.solve(problem, lam=LAM, passes=6, resume=(loaded, history))
    assert torch.equal(result.state.point.statistics, moments[6][0].point.statistics)
    assert torch.equal(result.state.weights, moments[6][0].weights)


def test_stamps_are_those_of_a_cache() -> None:
    problem = small_problem()
    without = BCFW(gap_tolerance=0).solve(problem, lam=LAM, passes=4).state
    assert without.point.stamps.numel() == 0
    cached = BCFW(cache=True, gap_tolerance=0)
    start = cached.first_state(problem, LAM, without, 0)
    assert torch.equal(start.point.stamps > 0, without.point.alphas > 0)
    stamps = cached.solve(problem, lam=LAM, passes=4, start=without).state.point.stamps
    assert stamps.shape == without.point.alphas.shape


def test_bounds_and_processes_keep_vectors() -> None:
    shared = small_problem()
    shared.shard = Shard(shared)
    packed = small_problem().packed_labels()
    for problem in (bounded_problem(), shared):
        for statistics in (problem.packed_labels(), problem.packed(packed)):
            assert torch.equal(statistics, problem.label_statistics())
    assert processes.count() == 1


def packed_of(lengths: tuple[int, ...], states: int = 3) -> Tensor:
    return random_problem(lengths, states).packed_labels()


OTHERS = "statistics must be of 2 sequences with 4 tokens and 3 labels, got packed ones of others"
test_refuses = refusing(
    {
        "other lengths": (
            lambda: random_problem((1, 3)).expected_cost(packed_of((2, 2))),
            ValueError,
            OTHERS,
        ),
        "other labels": (lambda: random_problem((1, 3)).expected_cost(packed_of((1, 3), 4)), ValueError, OTHERS),
        "a part": (lambda: random_problem((1, 3)).unpacked(packed_of((1, 3))[:-1]), ValueError, OTHERS),
        "nothing": (
            lambda: random_problem((1, 3)).unpacked(torch.zeros(0, dtype=torch.int64)),
            ValueError,
            OTHERS,
        ),
        "a problem that packs nothing": (
            lambda: problem_of("classes").packed(packed_of((1, 3))),
            TypeError,
            "statistics must be floating point for a LinearModuleProblem, got torch.int64: packed ones of another",
        ),
    }
)
