"""Compact vectors of chains of many labels: the iterates of dense ones, through callbacks, files and warm starts."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from small_problems import random_problem
from solver_cases import BLOCKWISE, PROXIMAL
from torch import Tensor

from structsmooth import BCFW, ProximalBCFW, sparse_vectors
from structsmooth.experiments import Experiment, RunFolder
from structsmooth.problems import SparseChainProblem
from structsmooth.problems.linear.chain import CompactChainProblem
from structsmooth.solvers import CoCoA, Progress, Solver

SOLVERS = BLOCKWISE | PROXIMAL | {"cocoa": CoCoA()}
LENGTHS = (3, 1, 4, 2, 3)


def problem() -> SparseChainProblem:
    return random_problem(LENGTHS, states=6, features=9)


def run_of(solver: Solver[Any], passes: int = 5, **options: Any) -> tuple[Any, list[Tensor]]:
    """A result with the weights that a callback saw after each pass."""
    seen: list[Tensor] = []

    def note(progress: Progress[Any]) -> None:
        assert progress.state.weights.shape == (progress.problem.dim,)
        seen.append(progress.state.weights.clone())

    return Experiment(solver, 0.05, passes, seed=1).run(problem(), measure=[note], **options), seen


@pytest.fixture
def compact(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sparse_vectors, "MANY", 1)


@pytest.mark.parametrize("solver", SOLVERS.values(), ids=SOLVERS.keys())
def test_iterates_are_those_of_dense_vectors(solver: BCFW, monkeypatch: pytest.MonkeyPatch) -> None:
    solver = replace(solver, gap_tolerance=0.0)
    expected, iterates = run_of(solver)
    monkeypatch.setattr(sparse_vectors, "MANY", 1)
    result, seen = run_of(solver)
    assert all(map(torch.allclose, seen, iterates, [0.0] * 6, [1e-12] * 6))
    assert torch.allclose(result.weights, expected.weights, rtol=0, atol=1e-12)
    for name in ("objective", "dual"):
        assert result.history.column(name) == pytest.approx(expected.history.column(name), rel=1e-12)
    if solver.threads == 1:
        state = result.state
        assert len(state.weights) == len(state.support) == len(state.support.unique()) < problem().dim
        whole = torch.zeros_like(result.weights)
        whole[state.support] = state.weights
        assert torch.equal(whole, seen[-1])


def test_full_passes_are_those_of_dense_vectors() -> None:
    dense = problem()
    compact = CompactChainProblem(dense)
    statistics = dense.best_statistics(torch.zeros(dense.dim).double())
    v = compact.dual_weights(statistics, 0.5)
    w = compact.expanded(v)
    torch.testing.assert_close(w, dense.dual_weights(statistics, 0.5))
    assert compact.loss(v) == pytest.approx(dense.loss(w), rel=1e-12)
    torch.testing.assert_close(compact.block_gaps(v, statistics), dense.block_gaps(w, statistics))
    full = compact.full_pass(v, dense.smoother)
    torch.testing.assert_close(compact.expanded(full.gradient), dense.full_pass(w, dense.smoother).gradient)
    assert torch.equal(compact.grown(v)[: len(v)], v)
    assert not compact.grown(v)[len(v) :].any()


@pytest.mark.parametrize("solver", [BCFW(gap_tolerance=0.0), ProximalBCFW(gap_tolerance=0.0)], ids=["bcfw", "proximal"])
def test_an_interrupted_run_goes_on_as_if_unbroken(solver: BCFW, compact: None, tmp_path: Path) -> None:
    whole, _ = run_of(solver)
    folder = RunFolder(tmp_path, {})
    run_of(solver, 2, folder=folder)
    resumed, _ = run_of(solver, folder=folder, resume=True)
    assert torch.equal(resumed.weights, whole.weights)
    assert resumed.history.column("objective") == whole.history.column("objective")


def test_warm_starts_between_both_kinds_of_vectors(monkeypatch: pytest.MonkeyPatch) -> None:
    solver = ProximalBCFW(gap_tolerance=0.0)
    dense = run_of(solver)[0].state
    from_dense = run_of(solver, start=dense)[0]
    monkeypatch.setattr(sparse_vectors, "MANY", 1)
    few = run_of(solver)[0].state
    assert len(few.weights) < len(dense.weights)
    for start in (dense, few):
        warm = run_of(solver, start=start)[0]
        assert warm.history.column("dual") == pytest.approx(from_dense.history.column("dual"), rel=1e-12)
    # Several threads take dense vectors, whose bound begins anew.
    result = run_of(replace(solver, threads=2), start=few)[0]
    assert len(result.state.weights) == problem().dim
    assert result.row.gap >= 0


@pytest.mark.parametrize("spoiled", ["repeated", "beyond", "negative", "table", "fewer features"])
def test_supports_of_other_problems_are_refused(spoiled: str) -> None:
    support = CompactChainProblem(problem()).support
    other = {
        "repeated": torch.cat([support, torch.tensor([1, 1])]),
        "beyond": torch.cat([support, torch.tensor([problem().dim])]),
        "negative": torch.cat([support, torch.tensor([-1])]),
        "table": support[:, None],
        "fewer features": support - problem().states,
    }[spoiled]
    with pytest.raises(ValueError, match="support must h"):
        CompactChainProblem(problem(), other)


def test_small_problems_keep_dense_vectors() -> None:
    result = run_of(BCFW())[0]
    assert len(result.state.weights) == problem().dim
    assert not len(result.state.support)
