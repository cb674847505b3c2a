"""Chains with transitions of low rank beside those with dense ones."""

import pytest
import torch
from torch import Tensor
from torch.testing import assert_close

from structsmooth.structures import LowRankChain


def chain(forbidden: float = 0.0, own: bool = False, scale: float = 1.0) -> LowRankChain:
    generator = torch.Generator().manual_seed(0)
    shapes = (4, 7, 6), (*[4] * own, 6, 2), (*[4] * own, 2, 6)
    scores = [scale * torch.randn(shape, generator=generator, dtype=torch.float64) for shape in shapes]
    scores = [s.masked_fill(torch.rand(s.shape, generator=generator) < forbidden, -torch.inf) for s in scores]
    return LowRankChain(*(s.requires_grad_() for s in scores), torch.tensor([7, 5, 1, 0]))


@pytest.mark.parametrize("own", [False, True])
@pytest.mark.parametrize(("forbidden", "scale"), [(0.0, 1.0), (0.0, 400.0), (0.1, 1.0)])
def test_sums_and_their_gradients_are_those_of_the_dense_chain(forbidden: float, scale: float, own: bool) -> None:
    low = chain(forbidden, own, scale)
    dense = low.dense()
    assert_close(low.logsumexp(), dense.logsumexp(), rtol=1e-12, atol=1e-12)
    gradients = [
        torch.autograd.grad(s.logsumexp().cos().sum(), low.potentials, retain_graph=True) for s in (low, dense)
    ]
    assert_close(*gradients, rtol=1e-8, atol=1e-10)
    assert_close(low.class_marginals(), dense.marginals()[0], rtol=1e-8, atol=1e-10)
    y = dense.max()[1]
    assert_close(low.score_of_labels(y), dense.score(y))
    assert_close(low.marginals()[1].sum((1, 2)), (low.lengths - 1).clamp_min(0).double())


def test_samples_have_labels_of_the_dense_chain() -> None:
    low = chain()
    labels, _ = low.as_classes(low.sample(4000, torch.Generator().manual_seed(0)).flatten(0, 1))
    found = torch.nn.functional.one_hot(labels, 6).double().unflatten(0, (4, -1)).mean(1)
    assert_close(found * low.mask.unsqueeze(2), low.dense().marginals()[0], rtol=0, atol=0.03)


def test_second_derivatives_of_products_of_matrices() -> None:
    low = chain()

    def total(*scores: Tensor) -> Tensor:
        return low.replace(*scores).logsumexp()

    assert torch.autograd.gradgradcheck(total, low.potentials, fast_mode=True)


def test_without_observations_labels_have_the_stationary_distribution() -> None:
    left, right = torch.rand(5, 2).double().log_softmax(1), torch.rand(2, 5).double().log_softmax(1)
    transition = left.exp() @ right.exp()
    unary = torch.zeros(1, 60, 5, dtype=torch.float64)
    low = LowRankChain(unary, left, right)
    assert_close(low.logsumexp(), torch.tensor([5.0]).double().log())  # five first labels, each of weight one
    stationary = torch.linalg.matrix_power(transition, 200)[0]
    assert_close(low.class_marginals()[0, -1], stationary, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize(
    ("shapes", "message"),
    [
        (((2, 3), (3, 2), (2, 3)), r"unary must have shape \[B, T, S\]"),
        (((1, 2, 3), (2, 2), (2, 3)), r"left must have shape \(3, 2\) or \(1, 3, 2\), got \(2, 2\)"),
        (((1, 2, 3), (3, 2), (3, 2)), r"right must have shape \(2, 3\) or \(1, 2, 3\), got \(3, 2\)"),
    ],
)
def test_wrong_shapes_are_named(shapes: tuple[tuple[int, ...], ...], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        LowRankChain(*map(torch.zeros, shapes))


def test_dense_transitions_of_factors_by_example() -> None:
    unary, left, right = (torch.randn(shape, dtype=torch.float64) for shape in ((2, 4, 2), (2, 2), (2, 2, 2)))
    left[0, 0] = -torch.inf
    low = LowRankChain(unary, left, right)
    assert_close(low.dense().transition, torch.logsumexp(left[:, :, None] + right[:, None], 2))
    assert_close(low.dense().logsumexp(), low.logsumexp())
