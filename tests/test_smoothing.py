"""Smoothers against enumeration and the bounds of the theory; the simplex projection against bisection."""

import math
from collections.abc import Callable

import numpy as np
import pytest
import torch
from enumeration import EnumeratedChain, Potentials, random_chains, small_chains
from hypothesis import given
from hypothesis import strategies as st
from scipy.optimize import minimize
from torch import Tensor
from torch.autograd.functional import vjp
from torch.testing import assert_close

from structsmooth import L2, Entropy, LinearChain, Max, Smoother, simplex_projection

INF = torch.inf
mus = st.floats(1e-3, 1e3)


def vectors(size: int = 6, count: int = 20) -> Tensor:
    """Rows of many scales."""
    generator = torch.Generator().manual_seed(size)
    return torch.randn(count, size, dtype=torch.float64, generator=generator) * torch.logspace(-2, 3, count)[:, None]


def bisected_projection(z: Tensor) -> Tensor:
    """Projection of a vector onto the simplex: max(z - τ, 0), with τ by bisection of the sum."""
    low, high = z.max() - 1, z.max()
    for _ in range(100):
        middle = (low + high) / 2
        low, high = (middle, high) if (z - middle).clamp_min(0).sum() > 1 else (low, middle)
    return (z - low).clamp_min(0)


def full_l2(potentials: Potentials, mu: float, k: int | None = None) -> tuple[Tensor, list[Tensor]]:
    """ℓ₂-smoothed max over all (or the k best) outputs by enumeration, and the weights of the outputs, sorted."""
    values, weights = [], []
    for scores in EnumeratedChain(*potentials).scores:
        z = scores.sort(descending=True).values[:k]
        u = bisected_projection(z.detach() / mu) if z[0] > -INF else torch.zeros_like(z)
        inner = (u[u > 0] * z[u > 0]).sum()
        values.append(inner - mu / 2 * (u.square().sum() - 1) if z[0] > -INF else z[0].detach())
        weights.append(u)
    return torch.stack(values), weights


def value_and_gradient(smoothed: Callable[[Potentials], Tensor], potentials: Potentials) -> tuple[Tensor, ...]:
    unary, transition, lengths = potentials
    weights = torch.arange(1.0, len(unary) + 1, dtype=torch.float64)
    value, gradient = vjp(lambda *scores: smoothed((*scores, lengths)), (unary, transition), weights)
    return value, *gradient


def apply(smoother: Smoother) -> Callable[[Potentials], Tensor]:
    return lambda potentials: smoother(LinearChain(*potentials))


# Projection.


@pytest.mark.parametrize("size", [1, 2, 6, 40])
def test_projection_matches_bisection(size: int) -> None:
    z = vectors(size)
    expected = torch.stack([bisected_projection(row) for row in z])
    assert_close(simplex_projection(z), expected, rtol=1e-9, atol=1e-10)


def test_projection_solves_the_quadratic_program() -> None:
    def solve(z: np.ndarray) -> np.ndarray:
        total = {"type": "eq", "fun": lambda u: u.sum() - 1, "jac": np.ones_like}
        start, bounds = np.full(len(z), 1 / len(z)), [(0, None)] * len(z)
        squares, slope = (lambda u: ((u - z) ** 2).sum() / 2), (lambda u: u - z)
        return minimize(squares, start, jac=slope, bounds=bounds, constraints=total, options={"ftol": 1e-14}).x

    z = vectors(5, 20)[:12]
    expected = torch.from_numpy(np.stack([solve(row) for row in z.numpy()]))
    assert_close(simplex_projection(z), expected, rtol=0, atol=1e-6)


def test_projection_gives_nothing_to_forbidden_entries() -> None:
    z = torch.tensor([[0.3, -INF, 0.1], [-INF, -INF, 5.0], [-INF, -INF, -INF]], requires_grad=True)
    u = simplex_projection(z)
    assert_close(u, torch.tensor([[0.6, 0.0, 0.4], [0.0, 0.0, 1.0], [0.0, 0.0, 0.0]]))
    (gradient,) = torch.autograd.grad((u * torch.arange(3.0)).sum(), z)
    assert_close(gradient, torch.tensor([[-1.0, 0.0, 1.0], [0.0, 0.0, 0.0], [0.0, 0.0, 0.0]]))


@pytest.mark.parametrize("bad", [torch.nan, INF])
def test_projection_hides_no_bad_numbers(bad: float) -> None:
    z = torch.tensor([[0.5, bad, 0.5], [0.5, -INF, 0.5]])
    assert_close(simplex_projection(z).isnan(), torch.tensor([[True] * 3, [False] * 3]))


@pytest.mark.parametrize("dim", [0, 1, 2, -1, -2])
def test_projection_along_any_dimension(dim: int) -> None:
    z = vectors(24, 5).view(5, 4, 6)
    u = simplex_projection(z, dim)
    assert u.shape == z.shape
    assert_close(u.movedim(dim, -1), simplex_projection(z.movedim(dim, -1)))
    assert_close(u.sum(dim), torch.ones_like(u.sum(dim)))


@pytest.mark.parametrize("dim", [0, 1])
def test_projection_gradcheck(dim: int) -> None:
    z = vectors(5, 4)[:3].requires_grad_()
    assert torch.autograd.gradcheck(lambda z: simplex_projection(z, dim), z)


@given(st.lists(st.floats(-1e6, 1e6), min_size=1, max_size=8), st.floats(-1e6, 1e6))
def test_projection_ignores_shifts_and_keeps_the_order(entries: list[float], shift: float) -> None:
    z = torch.tensor(entries, dtype=torch.float64)
    u = simplex_projection(z)
    assert_close(simplex_projection(z + shift), u, rtol=0, atol=1e-9)
    assert_close(u.sum(), torch.tensor(1.0, dtype=torch.float64))
    assert (u[z.argsort()].diff() >= 0).all()


# Smoothers.


@given(small_chains())
def test_max_is_the_largest_score(potentials: Potentials) -> None:
    expected = value_and_gradient(lambda p: EnumeratedChain(*p).max()[0], potentials)
    assert_close(value_and_gradient(apply(Max()), potentials), expected)


@given(small_chains(), mus)
def test_entropy_matches_enumeration(potentials: Potentials, mu: float) -> None:
    def enumerated(potentials: Potentials) -> Tensor:
        unary, transition, lengths = potentials
        return mu * EnumeratedChain(unary / mu, transition / mu, lengths).logsumexp()

    expected = value_and_gradient(enumerated, potentials)
    assert_close(value_and_gradient(apply(Entropy(mu)), potentials), expected, rtol=1e-8, atol=1e-8)


@given(small_chains(ties=False), mus, st.integers(1, 12))
def test_l2_matches_enumeration(potentials: Potentials, mu: float, k: int) -> None:
    expected = value_and_gradient(lambda p: full_l2(p, mu, k)[0], potentials)
    assert_close(value_and_gradient(apply(L2(mu, k)), potentials), expected, rtol=1e-8, atol=1e-8)


@given(small_chains(ties=False), st.floats(0.01, 10.0), st.integers(1, 12))
def test_l2_is_exact_where_it_says_so(potentials: Potentials, mu: float, k: int) -> None:
    value, weights = full_l2(potentials, mu)
    exact = L2(mu, k).is_exact(LinearChain(*potentials))
    assert exact.tolist() == [not bool((u[k:] > 1e-9).any()) for u in weights]
    assert_close(L2(mu, k)(LinearChain(*potentials))[exact], value[exact])
    kept = (
        potentials[0][exact],
        potentials[1] if potentials[1].dim() == 2 else potentials[1][exact],
        potentials[2][exact],
    )
    actual, expected = (value_and_gradient(apply(L2(mu, size)), kept) for size in (k, 4**5))
    assert_close(actual, expected, rtol=1e-9, atol=1e-9)


def test_l2_of_all_outputs_is_exact() -> None:
    chain = LinearChain(*random_chains(3, 3, 2, lengths=[3, 2, 1]))
    assert L2(mu=100.0, k=8).is_exact(chain).all()
    assert L2(mu=100.0, k=7).is_exact(chain).tolist() == [False, True, True]


def test_one_output_is_not_smoothed() -> None:
    chain = LinearChain(*random_chains(2, 4, 1))
    for smoother in (L2(3.0, 4), Entropy(3.0)):
        assert_close(smoother(chain), chain.max()[0])


@given(small_chains(), mus, st.integers(1, 8))
def test_smoothing_stays_within_its_bounds(potentials: Potentials, mu: float, k: int) -> None:
    """Proposition 2."""
    chain = LinearChain(*potentials)
    best = chain.max()[0]
    feasible = best > -INF
    best = best[feasible]
    slack = 1e-9 * (mu + best.abs())
    for smoother, bound in [
        (L2(mu, k), torch.full_like(best, mu / 2)),
        (Entropy(mu), mu * chain.lengths[feasible].double() * math.log(chain.unary.shape[-1])),
    ]:
        excess = smoother(chain)[feasible] - best
        assert (excess >= -slack).all()
        assert (excess <= bound + slack).all()


@given(small_chains(), mus, mus, st.integers(1, 8))
def test_more_smoothing_gives_a_larger_value(potentials: Potentials, mu: float, other: float, k: int) -> None:
    chain = LinearChain(*potentials)
    feasible = chain.max()[0] > -INF
    for smoother in (L2(k=k), Entropy()):
        low, high = (smoother.with_mu(level)(chain)[feasible] for level in sorted([mu, other]))
        assert (low <= high + 1e-9 * (max(mu, other) + high.abs())).all()


@pytest.mark.parametrize("smoother", [L2(k=3), Entropy()], ids=["l2", "entropy"])
def test_little_smoothing_is_the_max(smoother: Smoother) -> None:
    chain = LinearChain(*random_chains(4, 5, 3))
    assert_close(smoother.with_mu(1e-9)(chain), chain.max()[0])


@pytest.mark.parametrize("smoother", [Max(), L2(0.8, 4), Entropy(0.8)], ids=["max", "l2", "entropy"])
def test_gradcheck(smoother: Smoother) -> None:
    unary, transition, lengths = random_chains(3, 3, 2, lengths=[3, 2, 1])
    inputs = unary.requires_grad_(), transition.requires_grad_()
    assert torch.autograd.gradcheck(lambda *scores: smoother(LinearChain(*scores, lengths)), inputs)


@pytest.mark.parametrize("smoother", [Max(), L2(1.0, 3), Entropy()], ids=["max", "l2", "entropy"])
def test_nothing_allowed_is_minus_infinity_without_gradient(smoother: Smoother) -> None:
    unary = torch.zeros(2, 2, 2, dtype=torch.float64)
    unary[0, 1] = -INF
    value, unary_gradient, _ = value_and_gradient(apply(smoother), (unary, torch.zeros(2, 2), torch.tensor([2, 2])))
    assert value[0] == -INF
    assert not unary_gradient[0].any()
    assert_close(unary_gradient[1].sum(-1), torch.full((2,), 2.0, dtype=torch.float64))


def test_with_mu_changes_nothing_else() -> None:
    assert L2(mu=1.0, k=7).with_mu(0.5) == L2(mu=0.5, k=7)
    assert Entropy(2.0).with_mu(0.5) == Entropy(0.5)
    assert Max().with_mu(0.5) == Max()


@pytest.mark.parametrize("smoother", [Max(), L2(0.5, 3), Entropy(0.01)], ids=["max", "l2", "entropy"])
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_precision_is_smoothed_in_float32(dtype: torch.dtype, smoother: Smoother) -> None:
    unary, transition, lengths = random_chains(3, 4, 3)
    half = (unary * 1e3).to(dtype), (transition * 1e3).to(dtype)
    smoothed = smoother(LinearChain(*half, lengths))
    assert_close(smoothed, smoother(LinearChain(half[0].float(), half[1].float(), lengths)))
