"""Perturbed maxima: values and derivatives are the analytic ones in expectation, where these are known."""

import math
from itertools import product
from typing import Any

import numpy as np
import pytest
import torch
from enumeration import random_chains, random_matchings
from structure_members import enumerated, every
from torch import Tensor
from torch.testing import assert_close

from structsmooth import Candidates, Entropy, LinearChain, Matching, Max, StructuralHinge, Subset
from structsmooth.decisions import IMLE, Perturbed
from structsmooth.perturbation import Noise
from structsmooth.structures.checks import NoOutputError

INF = torch.inf
both_noises = pytest.mark.parametrize("noise", ["gaussian", "gumbel"])
pairs = pytest.mark.parametrize("antithetic", [False, True])


def means(values: Tensor, expected: Tensor, deviations: float = 5.0) -> None:
    """Independent estimates [n, ...] have this expectation, by their own standard error."""
    error = values.std(0) / math.sqrt(len(values))
    assert ((values.mean(0) - expected).abs() <= deviations * error + 1e-12).all()
    assert (error < 0.1 * (1 + expected.abs())).all()


def normal(x: Tensor) -> tuple[Tensor, Tensor]:
    """Density and distribution function."""
    return (-x.square() / 2).exp() / math.sqrt(2 * math.pi), (1 + (x / math.sqrt(2)).erf()) / 2


@pytest.mark.parametrize("sigma", [0.3, 1.0, 4.0])
@pairs
def test_gumbel_noise_on_candidates_is_entropy(sigma: float, antithetic: bool) -> None:
    """The value, not only its gradient: σ log Σ exp(θ/σ)."""
    scores = torch.tensor([[1.0, 0.5, -1.0]], dtype=torch.float64).expand(4000, -1).clone().requires_grad_()
    values = Perturbed(sigma, 2, "gumbel", antithetic, seed=1)(Candidates(scores))
    exact = Entropy(sigma)(Candidates(scores[:1]))
    means(values.detach(), exact.detach())
    (gradient,) = torch.autograd.grad(values.sum(), scores)
    means(gradient, torch.softmax(scores[0].detach() / sigma, 0))


@pytest.mark.parametrize("sigma", [0.3, 1.0, 4.0])
@pairs
def test_gaussian_noise_on_two_classes(sigma: float, antithetic: bool) -> None:
    """max(a, b) under noise: with the difference d = a − b of deviation s = σ√2, b + d Φ(d/s) + s φ(d/s)."""
    scores = torch.tensor([[1.0, 0.2]], dtype=torch.float64).expand(4000, -1).clone().requires_grad_()
    values = Perturbed(sigma, 2, "gaussian", antithetic, seed=2)(Candidates(scores))
    deviation = sigma * math.sqrt(2)
    density, below = normal(torch.tensor(0.8 / deviation, dtype=torch.float64))
    means(values.detach(), 0.2 + 0.8 * below + deviation * density)
    (gradient,) = torch.autograd.grad(values.sum(), scores)
    means(gradient, torch.stack([below, 1 - below]))


@both_noises
@pairs
@pytest.mark.parametrize("sigma", [0.5, 2.0])
def test_jacobians_are_unbiased(sigma: float, antithetic: bool, noise: Noise) -> None:
    """Of the perturbed statistics, in a linear function of the scores and of the statistics."""
    weights, start = torch.tensor([0.7, -0.4], dtype=torch.float64), torch.tensor([0.6, 0.1], dtype=torch.float64)
    scores = start.expand(20000, -1).clone().requires_grad_()
    layer = Perturbed(sigma, 2, noise, antithetic, seed=3)
    (found,) = layer.marginals(Candidates(scores))
    (gradient,) = torch.autograd.grad((found * weights).sum(), scores)
    if noise == "gumbel":
        p = torch.softmax(start / sigma, 0)
        jacobian = (torch.diag(p) - torch.outer(p, p)) / sigma
    else:
        deviation = sigma * math.sqrt(2)
        density, below = normal((start[0] - start[1]) / deviation)
        p = torch.stack([below, 1 - below])
        jacobian = density / deviation * torch.tensor([[1.0, -1.0], [-1.0, 1.0]], dtype=torch.float64)
    means(found.detach(), p)
    means(gradient, jacobian @ weights)


@both_noises
def test_implicit_maximum_likelihood_is_a_difference_of_perturbed_maxima(noise: Noise) -> None:
    """In expectation, of the gradients at θ and θ − λg; of the Gibbs distribution for Gumbel noise."""
    weights, start = torch.tensor([0.7, -0.4], dtype=torch.float64), torch.tensor([0.6, 0.1], dtype=torch.float64)
    scores = start.expand(20000, -1).clone().requires_grad_()
    plan = IMLE(1.5, 2, noise, seed=4, step=0.5)(Candidates(scores))
    (gradient,) = torch.autograd.grad((plan * weights).sum(), scores)

    def expected(own: Tensor) -> Tensor:
        if noise == "gumbel":
            return torch.softmax(own / 1.5, 0)
        below = normal((own[0] - own[1]) / (1.5 * math.sqrt(2)))[1]
        return torch.stack([below, 1 - below])

    means(plan.detach(), expected(start))
    means(gradient, (expected(start) - expected(start - 0.5 * weights)) / 0.5)


def test_implicit_gradients_reach_all_potentials() -> None:
    unary, transition, lengths = random_chains(3, 4, 3, lengths=[4, 3, 2])
    potentials = unary.requires_grad_(), transition.requires_grad_()
    goal = LinearChain(*random_chains(3, 4, 3, seed=1)).max()[1]
    layer = IMLE(0.5, 16, seed=0, step=5.0)
    chain = LinearChain(*potentials, lengths)
    wanted = chain.parts(goal)[0]
    loss = -(layer(chain) * wanted).sum()
    gradients = torch.autograd.grad(loss, potentials)
    moved = LinearChain(*(p.detach() - 10 * g for p, g in zip(potentials, gradients, strict=True)), lengths)
    assert -(layer(moved) * wanted).sum() < loss
    assert all(g.any() for g in gradients)


@every(lambda name, member: enumerated(name) and "in Python" not in name)
def test_every_structure_is_perturbed(member: Any) -> None:
    """Values are at least the largest score, their gradients are statistics, and forbidden outputs stay so."""
    structure = member.structure("tiny", seed=1)
    first, *others = (p.detach().requires_grad_() for p in structure.potentials)
    structure = structure.replace(first, *others)
    smoother = Perturbed(0.7, 4, antithetic=True, seed=0)
    smoothed, largest = smoother.with_max(structure)
    assert largest is not None
    assert_close(largest, structure.max()[0].detach())
    assert (smoothed >= largest - 1e-12).all()
    (gradient,) = torch.autograd.grad(smoothed.sum(), first)
    found = smoother.marginals(structure.detach())
    assert_close(gradient, found[0])
    y = structure.max()[1]
    assert (StructuralHinge(smoother, None, "none")(structure, y) >= -1e-12).all()


def test_what_is_forbidden_stays_so() -> None:
    scores = torch.tensor([[0.0, -INF, 0.0], [-INF, -INF, -INF]], dtype=torch.float64, requires_grad=True)
    for noise in ("gaussian", "gumbel"):
        smoother = Perturbed(3.0, 50, noise, seed=0)
        with pytest.raises(NoOutputError, match="example 1 of the batch must have an output"):
            smoother(Candidates(scores))
        value = smoother(Candidates(scores, validate_args=False))
        assert value[1] == -INF
        (gradient,) = torch.autograd.grad(value[:1].sum(), scores)
        assert gradient[0, 1] == 0
        assert not gradient[1].any()
        (found,) = smoother.marginals(Candidates(scores, validate_args=False))
        assert found[0, 1] == 0
        assert not found[1].any()
        assert not IMLE(3.0, 4, noise)(Candidates(scores, validate_args=False))[1].any()
        (gradient,) = torch.autograd.grad(found[0, 0], scores)
        assert gradient.isfinite().all()


def test_noise_of_a_call_is_new_or_the_same() -> None:
    matching = Matching(random_matchings([(4, 4)])[0])
    fixed = Perturbed(1.0, 4, seed=7)
    assert torch.equal(fixed(matching), fixed(matching))
    assert not torch.equal(Perturbed(1.0, 4)(matching), Perturbed(1.0, 4)(matching))
    streams = [Perturbed(1.0, 4, generator=torch.Generator().manual_seed(3)) for _ in range(2)]
    first = [own(matching) for own in streams]
    assert torch.equal(*first)
    assert not torch.equal(streams[0](matching), first[0])
    assert streams[0] == Perturbed(1.0, 4)


@both_noises
def test_antithetic_pairs_reduce_the_variance(noise: Noise) -> None:
    """Of Jacobians, whose estimate is odd in the noise; and pairs are standard noise themselves."""
    scores = torch.tensor([[0.6, 0.1, 0.4]]).expand(5000, -1).clone().requires_grad_()

    def variance(antithetic: bool) -> Tensor:
        (found,) = Perturbed(1.0, 2, noise, antithetic, seed=0).marginals(Candidates(scores))
        return torch.autograd.grad(found[:, 0].sum(), scores)[0].var(0).sum()

    assert variance(True) < variance(False)
    z = torch.stack(list(Perturbed(1.0, 20000, noise, True, seed=0).draws(torch.zeros(1, dtype=torch.float64))))
    deviation = math.pi / math.sqrt(6) if noise == "gumbel" else 1.0
    assert abs(z.mean()) < 0.02
    assert abs(z.std() - deviation) < 0.03
    a, b = z.view(-1, 2).T
    if noise == "gaussian":
        assert torch.equal(a, -b)
    else:
        euler = float(np.euler_gamma)
        assert_close((-(-a - euler).exp()).exp() + (-(-b - euler).exp()).exp(), torch.ones_like(a))


def test_the_fenchel_young_loss() -> None:
    """Its gradient is the perturbed statistics minus the parts of the labels, and it is not negative."""
    gain = torch.randn(6, 5, 2, dtype=torch.float64, generator=torch.Generator().manual_seed(0)).requires_grad_()
    y = torch.tensor([[1, 0, 0, 0, 1]]).expand(6, -1)
    loss = StructuralHinge(Perturbed(0.8, 6, seed=1), None, "none")
    losses = loss(Subset(gain, 2), y)
    assert (losses >= 0).all()
    (gradient,) = torch.autograd.grad(losses.sum(), gain)
    statistics = Perturbed(0.8, 6, seed=1).marginals(Subset(gain.detach(), 2))[0]
    assert_close(gradient, statistics - Subset(gain, 2).parts(y)[0])
    named = StructuralHinge.perturbed(0.8, 6, "gumbel", reduction="sum")
    assert named.smoother == Perturbed(0.8, 6, "gumbel")
    assert named.reduction == "sum"


def test_little_noise_is_the_max() -> None:
    chain = LinearChain(*random_chains(4, 5, 3))
    assert_close(Perturbed(1e-9, 2).with_mu(1e-9)(chain), Max()(chain))


def test_other_potentials_have_no_noise() -> None:
    unary, transition, _ = random_chains(2, 3, 2)
    with pytest.raises(NotImplementedError, match=r"noise is on unary alone.*sparse_marginals"):
        Perturbed().marginals(LinearChain(unary, transition.requires_grad_()))


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"sigma": 0.0}, "sigma must be positive and finite, got 0.0; for no noise use Max"),
        ({"n": 0}, "n must be at least 1"),
        ({"n": 3, "antithetic": True}, "n must be even, got 3"),
        ({"noise": "uniform"}, "noise must be"),
    ],
    ids=str,
)
def test_bad_settings(settings: dict[str, Any], message: str) -> None:
    for build in (Perturbed, IMLE):
        with pytest.raises(ValueError, match=message):
            build(**settings)


def test_bad_steps() -> None:
    for step in (0.0, -1.0, INF):
        with pytest.raises(ValueError, match="step must be positive and finite"):
            IMLE(step=step)


def test_half_precision() -> None:
    for dtype, noise in product((torch.float16, torch.bfloat16), ("gaussian", "gumbel")):
        scores = torch.tensor([[1.0, 0.5, -1.0]], dtype=dtype)
        smoother = Perturbed(0.5, 4, noise, seed=0)
        assert_close(smoother(Candidates(scores)), smoother(Candidates(scores.float())))
