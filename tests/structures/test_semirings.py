"""Semirings: sums with -inf and ties, their values and their gradients."""

import itertools
import math

import pytest
import torch
from torch import Tensor
from torch.nn.functional import one_hot, pad
from torch.testing import assert_close

from structsmooth.structures import semirings
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


B, T, S, CHANGES = 3, 4, 3, 2
Potentials = tuple[Tensor, Tensor, Tensor]


def few_changes(semiring: Semiring, first: Tensor, unary: Tensor, change: Tensor) -> Tensor:
    """Labelings of T positions that change at most twice, by label and changes so far: a table [B, S, 3, R]."""
    table = semiring.embed(torch.stack([first + unary[:, 0], *[torch.full_like(first, -INF)] * CHANGES], 2))
    to_another = torch.where(torch.eye(S, dtype=torch.bool), -INF, 0.0).to(unary)[None, :, :, None, None]
    for t in range(1, T):
        moved = semiring.sum(table.unsqueeze(2) + to_another, 1) + change[:, t - 1, None, None, None]
        both = torch.stack([table, pad(moved, (0, 0, 1, -1), value=-INF)], 1)
        table = semiring.sum(both, 1) + unary[:, t, :, None, None]
    return semiring.sum(semiring.sum(table, 1), 1)


def all_parts() -> Potentials:
    """The indicators of all outputs: [M, S], [M, T, S] and [M, T - 1]."""
    y = torch.tensor([y for y in itertools.product(range(S), repeat=T) if sum(map(int.__ne__, y, y[1:])) <= CHANGES])
    return one_hot(y[:, 0], S).double(), one_hot(y, S).double(), (y[:, 1:] != y[:, :-1]).double()


def all_scores(potentials: tuple[Tensor, ...]) -> Tensor:
    """The scores of all outputs: [B, M]."""
    pairs = zip(potentials, all_parts(), strict=True)
    return sum(((own.unsqueeze(1) * parts).nan_to_num(0.0, neginf=-INF).flatten(2).sum(2) for own, parts in pairs), 0.0)


@pytest.fixture
def potentials() -> Potentials:
    """Random ones, with a forbidden label in the second row and no output in the third."""
    generator = torch.Generator().manual_seed(0)
    first, unary, change = (torch.randn(shape, generator=generator).double() for shape in ((B, S), (B, T, S), (B, 3)))
    unary[1, 2, 0] = -INF
    unary[2, 3] = -INF
    return first, unary, change


def test_log_partition_is_that_of_all_outputs(potentials: Potentials) -> None:
    found = semirings.log_partition(few_changes, *potentials)
    assert found.shape == (B,)
    assert_close(found, all_scores(potentials).logsumexp(1))


def test_marginals_are_those_of_all_outputs(potentials: Potentials) -> None:
    found = semirings.marginals(few_changes, *potentials)
    probabilities = all_scores(potentials).softmax(1).nan_to_num(0.0)
    for own, potential, parts in zip(found, potentials, all_parts(), strict=True):
        assert own.shape == potential.shape
        assert_close(own, torch.tensordot(probabilities, parts, 1))


def test_marginals_are_differentiable(potentials: Potentials) -> None:
    rows = [potential[:1].requires_grad_() for potential in potentials]
    assert torch.autograd.gradcheck(lambda *own: semirings.marginals(few_changes, *own), rows)
    with torch.inference_mode():
        assert semirings.marginals(few_changes, *rows)[1].sum() == pytest.approx(T)


@pytest.mark.parametrize("k", [1, 3, 100])
def test_top_k_are_the_best_of_all_outputs(potentials: Potentials, k: int) -> None:
    scores = all_scores(potentials)
    kept = min(k, scores.shape[1])
    best, index = scores.sort(dim=1, descending=True)
    values, found = semirings.top_k(few_changes, k, *(own.requires_grad_() for own in potentials))
    assert values.shape == (B, k)
    assert_close(values[:, :kept], best[:, :kept])
    assert (values[:, kept:] == -INF).all()
    for own, potential, parts in zip(found, potentials, all_parts(), strict=True):
        assert own.shape == (B, k, *potential.shape[1:])
        expected = parts[index[:, :kept]]
        expected[best[:, :kept] == -INF] = 0.0
        assert_close(own[:, :kept], expected)
    gradients = torch.autograd.grad(values[0, 0], potentials)
    assert all(g[0].equal(own[0, 0]) for g, own in zip(gradients, found, strict=True))


@pytest.mark.parametrize("mode", [torch.enable_grad, torch.no_grad, torch.inference_mode])
def test_samples_have_the_probabilities_of_all_outputs(potentials: Potentials, mode: type) -> None:
    n = 1000
    with mode():
        first, unary, change = semirings.sample(few_changes, n, *potentials, generator=torch.Generator().manual_seed(0))
    assert unary.shape == (B, n, T, S)
    assert not any(own[2].any() for own in (first, unary, change)), "there is no output"
    y = unary[:2].argmax(-1)
    assert unary[:2].equal(one_hot(y, S).double())
    assert first[:2].equal(unary[:2, :, 0])
    assert change[:2].equal((y[..., 1:] != y[..., :-1]).double())
    probabilities = all_scores(potentials).softmax(1)
    matches = (unary[:2].unsqueeze(2) == all_parts()[1]).flatten(3).all(3)  # [2, n, M]
    assert matches.any(2).all()
    frequencies = matches.double().mean(1)
    error = (probabilities[:2] * (1 - probabilities[:2]) / n).sqrt()
    assert ((frequencies - probabilities[:2]).abs() <= 5 * error).all()


def test_samples_of_a_generator_are_the_same(potentials: Potentials) -> None:
    draws = [
        semirings.sample(few_changes, 5, *potentials, generator=torch.Generator().manual_seed(seed))[1]
        for seed in (1, 1, 2)
    ]
    assert draws[0].equal(draws[1])
    assert not draws[0].equal(draws[2])
