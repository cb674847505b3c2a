"""Planes of incremental prox-linear steps: dense or sparse, the same iterates, and their memory."""

from typing import Any

import pytest
import torch
from small_networks import chain_problem, words_problem
from solver_cases import LAM, moments_of
from torch import Tensor

from structsmooth import Entropy
from structsmooth.problems import Problem
from structsmooth.solvers import IncrementalProxLinear, Result
from structsmooth.solvers.primal import incremental
from structsmooth.solvers.primal.planes import Gradients, Planes


def stored(monkeypatch: pytest.MonkeyPatch, sparse: bool, solver: IncrementalProxLinear, problem: Problem) -> Result:
    """A run whose planes are sparse, or dense."""
    monkeypatch.setattr(incremental, "_SPARSE", torch.inf if sparse else 0.0)
    result: Result = solver.solve(problem, lam=0.01, passes=10)
    assert is_sparse(result.state) == sparse
    return result


def is_sparse(state: Any) -> bool:
    sparse: bool = state.planes.gradients.is_sparse
    return sparse


@pytest.mark.parametrize("planes", ["weights", "float16"])
@pytest.mark.parametrize("eta", [None, 0.3])
@pytest.mark.parametrize("build", [words_problem, chain_problem], ids=["embeddings", "no embeddings"])
def test_sparse_planes_give_the_iterates_of_dense_ones(
    monkeypatch: pytest.MonkeyPatch, planes: Any, eta: float | None, build: Any
) -> None:
    solver = IncrementalProxLinear(learning_rate=eta, planes=planes)
    dense, sparse = (stored(monkeypatch, kind, solver, build(smoother=Entropy(1.0))) for kind in (False, True))
    assert sparse.history.column("objective") == pytest.approx(dense.history.column("objective"), rel=1e-10)
    assert sparse.history.column("step_size") == pytest.approx(dense.history.column("step_size"), rel=1e-10)
    assert sparse.state.planes.gradients.dtype == dense.state.planes.gradients.dtype
    torch.testing.assert_close(sparse.state.iterate, dense.state.iterate, rtol=0, atol=1e-8)
    for mine, others in zip(sparse.state.planes.mean(), dense.state.planes.mean(), strict=True):
        torch.testing.assert_close(mine, others, rtol=0, atol=1e-10)


@pytest.mark.parametrize("eta", [None, 0.3])
def test_planes_are_sparse_if_gradients_are(eta: float | None) -> None:
    for build, sparse in ((words_problem, True), (chain_problem, False)):
        for state, _ in moments_of(IncrementalProxLinear(learning_rate=eta), build(), passes=2):
            assert is_sparse(state) == sparse


def test_gradients_of_zero_do_not_tell_that_planes_are_sparse() -> None:
    for zeros in (0, 3):
        assert not IncrementalProxLinear().stores_sparse(chain_problem(), torch.zeros(50), [0] * zeros)


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
def test_supports_follow_the_gradients(dtype: torch.dtype) -> None:
    """Those of a block grow with its gradients, and shrink where it has become zero; all else is as for dense ones."""
    generator = torch.Generator().manual_seed(0)
    weights, shares = torch.zeros(60).double(), torch.tensor([0.5, 0.3, 0.2]).double()
    kinds = [Gradients.zeros(3, weights, dtype, sparse=sparse) for sparse in (False, True)]
    dense, sparse = (Planes(kind, torch.zeros(3).double(), shares) for kind in kinds)
    supports = [set[int]() for _ in range(3)]
    for step in range(12):
        i, size = step % 3, 1.0 if step > 8 else 0.5
        gradient = torch.randn(60, generator=generator).double() * (torch.rand(60, generator=generator) < 0.1)
        for planes in (dense, sparse):
            where, own = planes.part(i, gradient)
            moved = torch.lerp(own, gradient[where], size).to(dtype).double()
            planes.move(i, where, moved, torch.tensor(float(step)).double())
        support = set(gradient.nonzero().flatten().tolist())
        supports[i] = support if size == 1 else supports[i] | support
        mine = sparse.gradients
        assert mine.is_sparse
        assert [sorted(own) for own in supports] == [sorted(columns.tolist()) for columns in mine.columns]
        for at in range(3):
            assert torch.equal(mine.vector(at, dtype), dense.gradients.vector(at, dtype))
        assert {values.dtype for values in mine.values} == {dtype}
        torch.testing.assert_close(sparse.mean(), dense.mean(), rtol=1e-12, atol=1e-15)
        torch.testing.assert_close(sparse.mean_square(), dense.mean_square(), rtol=1e-12, atol=1e-15)
    assert max(len(own) for own in supports) > 0


def test_copies_of_planes_may_change() -> None:
    gradient = torch.tensor([0.0, 2.0, 0.0, 1.0])
    for sparse in (False, True):
        gradients = Gradients.zeros(2, torch.zeros(4), torch.float32, sparse=sparse)
        planes = Planes(gradients, torch.zeros(2), torch.ones(2) / 2)
        changed = planes.copy()
        where, _ = changed.part(1, gradient)
        changed.move(1, where, gradient[where], torch.tensor(3.0))
        assert planes.mean()[0].tolist() == [0.0] * 4
        assert planes.constants.tolist() == [0.0, 0.0]
        assert changed.mean()[0].tolist() == [0.0, 1.0, 0.0, 0.5]


def test_means_of_many_sparse_planes() -> None:
    generator = torch.Generator().manual_seed(0)
    rows = torch.randn(150, 20, generator=generator).double() * (torch.rand(150, 20, generator=generator) < 0.2)
    rows[70] = 0
    shares = torch.rand(150, generator=generator).double()
    gradients = Gradients([row[row != 0] for row in rows], [row.nonzero()[:, 0].int() for row in rows], 20)
    planes = Planes(gradients, torch.zeros(150).double(), shares)
    torch.testing.assert_close(planes.mean()[0], shares @ rows, rtol=1e-12, atol=1e-12)
    torch.testing.assert_close(planes.mean_square(), shares @ rows.square(), rtol=1e-12, atol=1e-12)


def nonzeros_of(problem: Problem) -> list[int]:
    """How many weights each block of one example has a gradient for, at the start."""
    gradients = (problem.batch_loss_and_grad(problem.start(), torch.tensor([i]), problem.smoother)[1] for i in range(7))
    return [int(gradient.count_nonzero()) for gradient in gradients]


def test_the_memory_of_sparse_planes_is_that_of_their_nonzeros() -> None:
    problem = words_problem(batch_size=1, smoother=Entropy(1.0))  # whose supports stay as they are
    gibibytes = 2 * sum(nonzeros_of(problem)) * (8 + 4) / 2**30
    assert gibibytes < 2 * 7 * problem.dim * 8 / 2**30 / 3
    result = IncrementalProxLinear(memory=gibibytes * 1.01).solve(problem, lam=LAM, passes=1)
    gradients = result.state.planes.gradients
    taken = sum(tensor.nbytes for tensor in [*gradients.values, *gradients.columns])
    assert 2 * taken / 2**30 == pytest.approx(gibibytes)
    passes: list[Tensor] = []
    for solver in (IncrementalProxLinear(), IncrementalProxLinear(learning_rate=0.1)):
        small = IncrementalProxLinear(memory=gibibytes * 0.99, learning_rate=solver.learning_rate)
        match = r"planes of 7 blocks of \d+ weights, of which \d+ are not zero, take .* memory is .*larger batch_size"
        with pytest.raises(ValueError, match=match):
            small.solve(problem, lam=LAM, callbacks=[lambda progress: passes.append(progress.state.weights)])
    assert not passes
    half = IncrementalProxLinear(memory=gibibytes * 0.99, planes="float16")
    half.solve(problem, lam=LAM, passes=1)
