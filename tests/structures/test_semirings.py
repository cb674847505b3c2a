"""Semirings: sums with -inf and ties, their values and their gradients."""

import math

import pytest
import torch
from torch import Tensor
from torch.testing import assert_close

from structsmooth.structures.semirings import Log, Semiring, TopK, logsumexp

INF = torch.inf


@pytest.fixture
def values() -> Tensor:
    """[4, 3, 2], with one slice of -inf over each dimension."""
    values = torch.randn(4, 3, 2, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    values[:, 0, 1] = values[1, :, 0] = values[2, 2] = -INF
    return values


@pytest.mark.parametrize("dim", [0, 1, 2])
def test_logsumexp_is_that_of_torch(values: Tensor, dim: int) -> None:
    assert_close(logsumexp(values, dim), values.logsumexp(dim))


@pytest.mark.parametrize("dim", [0, 1, 2])
def test_gradient_of_logsumexp_is_softmax_or_zero(values: Tensor, dim: int) -> None:
    result = logsumexp(values.requires_grad_(), dim)
    assert (result == -INF).any()
    (gradient,) = torch.autograd.grad(result.sum(), values)
    assert_close(gradient, values.softmax(dim).nan_to_num(0.0))


def test_second_derivatives_of_logsumexp_have_no_nan(values: Tensor) -> None:
    (gradient,) = torch.autograd.grad(logsumexp(values.requires_grad_(), 1).sum(), values, create_graph=True)
    (second,) = torch.autograd.grad(gradient.square().sum(), values)
    assert second.isfinite().all()
    finite = torch.randn(3, 4, dtype=torch.float64, generator=torch.Generator().manual_seed(0)).requires_grad_()
    assert torch.autograd.gradgradcheck(lambda z: logsumexp(z, 0), finite)


@pytest.mark.parametrize("shift", [-1e300, -1e4, 1e4, 1e300])
def test_logsumexp_neither_over_nor_underflows(shift: float) -> None:
    values = torch.full((2, 3), shift, dtype=torch.float64)
    assert_close(logsumexp(values, 1), values[:, 0] + math.log(3), rtol=1e-15, atol=0)


def test_topk_embeds_a_score_as_its_own_best() -> None:
    assert_close(TopK(3).embed(torch.tensor([5.0, -INF])), torch.tensor([[5.0, -INF, -INF], [-INF] * 3]))


@pytest.mark.parametrize(
    ("slots", "best", "origins"),
    [
        ([[1.0, 1.0], [1.0, 0.0]], [1.0, 1.0], [(0, 0), (0, 1)]),
        ([[1.0, 0.0], [1.0, 1.0]], [1.0, 1.0], [(0, 0), (1, 0)]),
        ([[0.0, -INF], [2.0, 0.0]], [2.0, 0.0], [(1, 0), (0, 0)]),
        ([[-INF, -INF], [3.0, -INF]], [3.0, -INF], [(1, 0)]),
    ],
)
def test_topk_breaks_ties_by_the_lowest_index(
    slots: list[list[float]], best: list[float], origins: list[tuple[int, int]]
) -> None:
    values = torch.tensor(slots, requires_grad=True)
    result = TopK(2).sum(values, 0)
    assert_close(result, torch.tensor(best))
    for j, origin in enumerate(origins):
        (gradient,) = torch.autograd.grad(result[j], values, retain_graph=True)
        assert gradient.nonzero().tolist() == [list(origin)]


def test_product_of_logs_is_the_sum(values: Tensor) -> None:
    assert_close(Log().product(values[..., :1], values[..., 1:]), (values.sum(-1, keepdim=True)))


def test_product_of_lists_keeps_the_best_sums() -> None:
    """Of the tied sums 5 + 0 and 4 + 1, that with the first entry of the left list."""
    left = torch.tensor([5.0, 4.0, -INF], requires_grad=True)
    result = TopK(3).product(left, torch.tensor([1.0, 0.0, 0.0]))
    assert_close(result, torch.tensor([6.0, 5.0, 5.0]))
    for slot in range(3):
        (gradient,) = torch.autograd.grad(result[slot], left, retain_graph=True)
        assert gradient.tolist() == [1.0, 0.0, 0.0]


@pytest.mark.parametrize("semiring", [Log(), TopK(1), TopK(5)], ids=["log", "top-1", "top-5"])
def test_order_of_summation_does_not_matter(values: Tensor, semiring: Semiring) -> None:
    embedded = semiring.embed(values)
    first = semiring.sum(semiring.sum(semiring.sum(embedded, 0), 0), 0)
    last = semiring.sum(semiring.sum(semiring.sum(embedded, 2), 1), 0)
    assert_close(first, last)
    assert first.shape == embedded.shape[-1:]
