"""Attributes beside a block of numbers: the problem is that of the same features as rows of numbers."""

import torch
from torch import Tensor
from torch.testing import assert_close

from structsmooth import Max, ProximalBCFW
from structsmooth.problems import DenseChainProblem, SparseChainProblem
from structsmooth.sequences import MixedSequences, SparseSequences

LENGTHS = torch.tensor([3, 1, 5, 2, 4])
ATTRIBUTES, COLUMNS, STATES = 7, 4, 3


def both() -> tuple[SparseChainProblem, DenseChainProblem, Tensor]:
    generator = torch.Generator().manual_seed(0)
    tokens = int(LENGTHS.sum())
    ends = torch.cat([torch.zeros(1).long(), torch.randint(3, (tokens,), generator=generator).cumsum(0)])
    ids = torch.randint(ATTRIBUTES, (int(ends[-1]),), generator=generator)
    block = torch.randn(tokens, COLUMNS, generator=generator)
    center, scale = (torch.rand(COLUMNS, generator=generator, dtype=torch.float64) for _ in range(2))
    offsets = torch.cat([torch.zeros(1).long(), LENGTHS.cumsum(0)])
    sequences = MixedSequences(SparseSequences(ids.int(), ends, offsets), block, center, scale)
    counts = torch.zeros(tokens, ATTRIBUTES, dtype=torch.float64)
    counts.index_put_((torch.repeat_interleave(ends.diff()), ids), torch.ones(len(ids)).double(), accumulate=True)
    rows = torch.cat([counts, (block - center) * scale], 1)
    labels = torch.randint(STATES, (tokens,), generator=generator)
    mixed = SparseChainProblem(sequences, labels, ATTRIBUTES + COLUMNS, STATES)
    return mixed, DenseChainProblem(rows, labels, LENGTHS, STATES), torch.randn(mixed.dim, generator=generator).double()


def test_passes_and_parts_are_those_of_rows_of_numbers() -> None:
    mixed, dense, w = both()
    found, right = (problem.full_pass(w, Max()) for problem in (mixed, dense))
    assert_close(found.gradient, right.gradient, rtol=1e-12, atol=1e-12)
    assert_close(mixed.loss(w), dense.loss(w), rtol=1e-12, atol=1e-12)
    some = torch.tensor([1, 3])
    part, weights = mixed.restrict(some, w)
    assert_close(part.loss(weights), dense.subset(some).loss(w), rtol=1e-12, atol=1e-12)
    assert_close(mixed.structure(w, some).logsumexp(), dense.structure(w, some).logsumexp(), rtol=1e-12, atol=1e-12)


def test_the_optimum_is_that_of_rows_of_numbers() -> None:
    mixed, dense, _ = both()
    found, right = (ProximalBCFW(gap_tolerance=1e-8).solve(p, lam=0.1, passes=500) for p in (mixed, dense))
    assert_close(found.row.objective, right.row.objective, rtol=1e-7, atol=0)
