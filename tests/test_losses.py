"""Losses against enumeration; their sign, convexity, reduction and gradients."""

from collections.abc import Callable
from typing import Any, Literal

import pytest
import torch
from enumeration import EnumeratedChain, Potentials, random_chains, small_chains
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor
from torch.autograd.functional import vjp
from torch.testing import assert_close

from structsmooth import (
    L2,
    Entropy,
    Hamming,
    LinearChain,
    Max,
    SlackRescaledHinge,
    SparseMAP,
    StructuralHinge,
    Structure,
)
from structsmooth.costs import Cost, NormalizedHamming
from structsmooth.smoothing import simplex_projection
from structsmooth.structures import sparse_map

INF = torch.inf


def top_3(scores: Tensor) -> Tensor:
    z = scores.topk(min(3, len(scores))).values
    u = simplex_projection(z.detach() / 0.7)
    return (u * z).sum() - 0.35 * (u.square().sum() - 1)


# Loss, then the same from the scores of all outputs (with or without their costs).
LOSSES: dict[str, tuple[StructuralHinge, Callable[[Tensor], Tensor], bool]] = {
    "hinge": (StructuralHinge(), torch.amax, True),
    "smooth_hinge": (StructuralHinge(L2(0.7, 3)), top_3, True),
    "perceptron": (StructuralHinge.perceptron(), torch.amax, False),
    "crf": (StructuralHinge.crf(), lambda z: z.logsumexp(0), False),
    "softmax_margin": (StructuralHinge.softmax_margin(), lambda z: z.logsumexp(0), True),
    "top_k": (StructuralHinge.top_k(mu=0.7, k=3), top_3, False),
}
every_loss = pytest.mark.parametrize("name", LOSSES)


def labels(potentials: Potentials, seed: int = 0) -> Tensor:
    unary = potentials[0]
    generator = torch.Generator().manual_seed(seed)
    return torch.randint(unary.shape[2], unary.shape[:2], generator=generator)


def each(name: str, potentials: Potentials, y: Tensor, **settings: Any) -> Tensor:
    """A loss without reduction."""
    loss = LOSSES[name][0]
    return StructuralHinge(loss.smoother, loss.cost, reduction="none")(LinearChain(*potentials, **settings), y)


def enumerated(name: str, potentials: Potentials, y: Tensor) -> Tensor:
    _, smoothed_max, with_cost = LOSSES[name]
    chain = EnumeratedChain(*potentials)
    rows = []
    for b, (outputs, scores) in enumerate(zip(chain.outputs, chain.scores, strict=True)):
        mistakes = (outputs != y[b])[:, : chain.lengths[b]].sum(1)
        rows.append(smoothed_max(scores + mistakes if with_cost else scores))
    return torch.stack(rows) - chain.score(y)


def with_gradients(
    loss: Callable[[str, Potentials, Tensor], Tensor], name: str, potentials: Potentials, y: Tensor
) -> tuple[Tensor, ...]:
    unary, transition, lengths = potentials
    weights = torch.arange(1.0, len(y) + 1, dtype=torch.float64)
    value, gradients = vjp(lambda *scores: loss(name, (*scores, lengths), y), (unary, transition), weights)
    return value, *gradients


@every_loss
@given(potentials=small_chains(ties=False, forbidden=0.0), seed=st.integers(0, 10**6))
def test_losses_match_enumeration(name: str, potentials: Potentials, seed: int) -> None:
    y = labels(potentials, seed)
    expected = with_gradients(enumerated, name, potentials, y)
    assert_close(with_gradients(each, name, potentials, y), expected, rtol=1e-9, atol=1e-9)


@every_loss
@given(potentials=small_chains(), seed=st.integers(0, 10**6))
def test_losses_are_not_negative_nor_nan(name: str, potentials: Potentials, seed: int) -> None:
    """Without checks they are +inf where the labels are forbidden, even if everything else is; with them, an error."""
    y = labels(potentials, seed)
    losses, forbidden = each(name, potentials, y, validate_args=False), LinearChain(*potentials).score(y) == -INF
    assert (losses >= -1e-12).all()
    assert torch.equal(losses == INF, forbidden)
    if forbidden.any():
        examples = ", ".join(map(str, forbidden.nonzero()[:5, 0].tolist()))
        with pytest.raises(ValueError, match=f"labels of examples? {examples} of the batch are forbidden"):
            each(name, potentials, y)


@every_loss
@given(small_chains(forbidden=0.0), st.integers(0, 10**6), st.floats(0, 1))
def test_losses_are_convex(name: str, potentials: Potentials, seed: int, share: float) -> None:
    unary, transition, lengths = potentials
    generator = torch.Generator().manual_seed(seed)
    y = labels(potentials, seed)
    other = [
        scores + torch.randn(scores.shape, generator=generator, dtype=scores.dtype) for scores in (unary, transition)
    ]
    between = [share * a + (1 - share) * b for a, b in zip((unary, transition), other, strict=True)]
    first, last, middle = (each(name, (*scores, lengths), y) for scores in ((unary, transition), other, between))
    assert (middle <= share * first + (1 - share) * last + 1e-9).all()


@every_loss
def test_gradcheck(name: str) -> None:
    potentials = random_chains(3, 3, 2, lengths=[3, 2, 1])
    unary, transition, lengths = potentials
    inputs = unary.requires_grad_(), transition.requires_grad_()
    y = labels(potentials)
    assert torch.autograd.gradcheck(lambda *scores: each(name, (*scores, lengths), y), inputs)


@every_loss
def test_reductions(name: str) -> None:
    potentials = random_chains(4, 5, 3)
    y = labels(potentials)
    loss = LOSSES[name][0]
    losses = each(name, potentials, y)
    assert losses.shape == (4,)
    for reduction, expected in [("mean", losses.mean()), ("sum", losses.sum())]:
        reduced = StructuralHinge(loss.smoother, loss.cost, reduction=reduction)
        assert_close(reduced(LinearChain(*potentials), y), expected)
    assert_close(loss(LinearChain(*potentials), y), losses.mean())


@pytest.mark.parametrize("name", ["crf", "perceptron", "softmax_margin", "sparsemap", "top_k"])
def test_named_losses_take_a_reduction(name: str) -> None:
    assert getattr(StructuralHinge, name)(reduction="sum").reduction == "sum"


@given(small_chains(), st.integers(0, 10**6))
def test_gradient_of_the_likelihood_is_marginals_minus_parts(potentials: Potentials, seed: int) -> None:
    unary, transition, lengths = potentials
    y = labels(potentials, seed)
    chain = LinearChain(*potentials)
    allowed = chain.score(y) > -INF
    per_edge = (
        transition[None, None] if transition.dim() == 2 else transition.view(len(unary), -1, *transition.shape[-2:])
    )
    edges = per_edge.expand(len(unary), unary.shape[1] - 1, *transition.shape[-2:])
    loss = StructuralHinge.crf(reduction="none")
    _, gradients = vjp(
        lambda *scores: loss(LinearChain(*scores, lengths, validate_args=False), y), (unary, edges), allowed.double()
    )
    for gradient, marginals, parts in zip(gradients, chain.marginals(), chain.parts(y), strict=True):
        assert_close(gradient[allowed], (marginals - parts)[allowed])


def test_hinge_is_zero_where_the_margin_is_met() -> None:
    y = torch.tensor([[1, 0, 1]])
    unary = (10.0 * torch.nn.functional.one_hot(y, 2)).requires_grad_()
    loss = StructuralHinge()(LinearChain(unary, torch.zeros(2, 2)), y)
    loss.backward()
    assert loss == 0
    assert not unary.grad.any()


@every_loss
def test_labels_at_padding_do_not_matter(name: str) -> None:
    potentials = random_chains(3, 4, 3, lengths=[2, 3, 1])
    y = labels(potentials)
    other = torch.where(LinearChain(*potentials).mask, y, -100)
    assert torch.equal(each(name, potentials, y), each(name, potentials, other))


def test_cost_tensor_is_the_cost_it_spells_out() -> None:
    potentials = random_chains(3, 4, 3)
    y, chain = labels(potentials), LinearChain(*potentials)
    for cost in (Hamming(), NormalizedHamming()):
        for smoother in (None, L2(), Entropy()):
            expected = StructuralHinge(smoother, cost)(chain, y)
            assert_close(StructuralHinge(smoother, cost(chain, y))(chain, y), expected)


def test_loss_of_half_precision_scores_is_that_of_the_same_scores_in_float32() -> None:
    unary, transition, lengths = random_chains(3, 4, 3)
    half = (100 * unary).bfloat16(), (100 * transition).bfloat16()
    y = labels((unary, transition, lengths))
    for name in LOSSES:
        actual = each(name, (*half, lengths), y)
        assert_close(actual, each(name, (half[0].float(), half[1].float(), lengths), y))


class Choice(Structure):
    """One of S values for each of B variables: what the base class asks of a structure, and no more."""

    labels_are_classes = True

    def __init__(self, scores: Tensor) -> None:
        self.scores = scores

    @property
    def potentials(self) -> tuple[Tensor]:
        return (self.scores,)

    def replace(self, *potentials: Tensor) -> "Choice":
        return Choice(*potentials)

    def score(self, y: Tensor) -> Tensor:
        return self.scores.gather(-1, y.unsqueeze(-1)).sum((1, 2))

    def parts(self, y: Tensor) -> tuple[Tensor]:
        return (torch.nn.functional.one_hot(y, self.scores.shape[-1]),)

    def topk(self, k: int) -> tuple[Tensor, Tensor]:
        values, y = self.scores.squeeze(1).topk(k)
        return values, y.unsqueeze(-1)


@pytest.mark.parametrize("cost", [Hamming(), NormalizedHamming()])
def test_hinge_of_a_choice_is_the_multiclass_hinge(cost: Cost) -> None:
    scores = torch.randn(6, 4, generator=torch.Generator().manual_seed(0))
    y = torch.arange(6) % 4
    margins = scores + 1 - torch.nn.functional.one_hot(y, 4) - scores[range(6), y].unsqueeze(-1)
    loss = StructuralHinge(cost=cost)(Choice(scores.unsqueeze(1)), y.unsqueeze(1))
    assert_close(loss, margins.amax(-1).mean())


@pytest.mark.parametrize("oracle", ["logsumexp", "marginals", "max_marginals"])
def test_a_missing_oracle_is_named(oracle: str) -> None:
    with pytest.raises(NotImplementedError, match=rf"Choice has no exact {oracle} oracle; use .* L2"):
        getattr(Choice(torch.zeros(1, 1, 2)), oracle)()


@pytest.mark.parametrize("cost", [None, Hamming()], ids=["none", "hamming"])
@pytest.mark.parametrize("parts", ["all", "first"])
def test_sparsemap_losses(parts: Literal["all", "first"], cost: Hamming | None) -> None:
    """Non-negative, minus statistics as gradient, and the loss of partial labels of which all are known."""
    potentials = random_chains(4, 4, 3, lengths=[4, 3, 2, 1])
    y, chain = labels(potentials), LinearChain(*potentials)
    loss = StructuralHinge(SparseMAP(0.6, parts), cost, "none")
    losses, hinges = loss.with_hinge(chain, y)
    assert (losses >= 0).all()
    assert_close(hinges, StructuralHinge(Max(), cost, "none")(chain, y))
    assert_close(losses, loss(chain, y, allowed=torch.ones_like(y, dtype=torch.bool)))
    certain = chain.replace(chain.unary + 100 * torch.nn.functional.one_hot(y, 3), chain.transition)
    assert_close(loss(certain, y), torch.zeros(4, dtype=torch.float64), rtol=0, atol=1e-8)
    unary = potentials[0].requires_grad_()
    (gradient,) = torch.autograd.grad(loss(LinearChain(unary, *potentials[1:]), y).sum(), unary)
    augmented = chain if cost is None else chain.cost_augmented(y, cost)
    assert_close(gradient, sparse_map(augmented, 0.6, parts).statistics[0].detach() - chain.parts(y)[0])


def test_the_former_name_of_the_top_k_loss() -> None:
    assert repr(StructuralHinge.sparsemap(0.5, 3, "sum")) == repr(StructuralHinge.top_k(0.5, 3, "sum"))
    assert StructuralHinge.sparsemap(0.5).smoother == SparseMAP(0.5)


@pytest.mark.parametrize("loss", [StructuralHinge(), StructuralHinge.crf(), SlackRescaledHinge()], ids=repr)
def test_arguments_of_other_kinds_are_refused(loss: StructuralHinge) -> None:
    scores, y = torch.zeros(1, 3, 2), torch.zeros(1, 3, dtype=torch.int64)
    chain = LinearChain(scores, torch.zeros(2, 2))
    with pytest.raises(TypeError, match=r"^the arguments are swapped: the LinearChain comes first, as in loss\(struct"):
        loss(y, chain)
    with pytest.raises(TypeError, match=r"first argument .* got a tensor of shape \(1, 3, 2\): wrap scores .* LinearC"):
        loss(scores, y)
    with pytest.raises(TypeError, match=r"^labels must be a tensor of integers, got list: torch.as_tensor makes one$"):
        loss(chain, [[0, 1, 1]])  # type: ignore[arg-type]


def test_settings_are_printed() -> None:
    expected = "StructuralHinge(smoother=L2(mu=1.0, k=5), cost=None, reduction='mean')"
    assert repr(StructuralHinge.top_k()) == expected


@pytest.mark.parametrize("loss", [StructuralHinge, SlackRescaledHinge])
def test_the_cost_by_its_name(loss: type[StructuralHinge]) -> None:
    assert repr(loss(cost="hamming")) == repr(loss(cost=Hamming())) == repr(loss())
    with pytest.raises(TypeError, match="cost must be a cost, part costs, \"hamming\" or None, got 'haming'"):
        loss(cost="haming")
