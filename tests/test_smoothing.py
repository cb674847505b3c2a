"""Smoothers against enumeration and the bounds of the theory; the simplex projection against bisection."""

from collections.abc import Callable
from typing import Any, NamedTuple

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

from structsmooth import L2, Candidates, Entropy, LinearChain, Max, SparseMAP, Subset
from structsmooth.smoothing import Smoother, simplex_projection

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


def on_chains(smoother: Smoother) -> Callable[[Potentials], Tensor]:
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


class Definition(NamedTuple):
    """A smoother of some μ and K, its value by enumeration, and a bound on its distance from the max."""

    build: Callable[[float, int], Smoother]
    enumerated: Callable[[Potentials, float, int], Tensor]
    bound: Callable[[float, Tensor], Tensor]


def entropy_by_enumeration(potentials: Potentials, mu: float, k: int) -> Tensor:
    unary, transition, lengths = potentials
    return mu * EnumeratedChain(unary / mu, transition / mu, lengths).logsumexp()


SMOOTHERS = {
    "max": Definition(
        lambda mu, k: Max(),
        lambda potentials, mu, k: EnumeratedChain(*potentials).max()[0],
        lambda mu, outputs: 0.0 * outputs,
    ),
    "l2": Definition(
        L2,
        lambda potentials, mu, k: full_l2(potentials, mu, k)[0],
        lambda mu, outputs: mu / 2 + 0.0 * outputs,
    ),
    "entropy": Definition(
        lambda mu, k: Entropy(mu),
        entropy_by_enumeration,
        lambda mu, outputs: mu * outputs.log(),
    ),
}
every_smoother = pytest.mark.parametrize("definition", SMOOTHERS.values(), ids=SMOOTHERS)


@every_smoother
@given(potentials=small_chains(ties=False), mu=mus, k=st.integers(1, 12))
def test_smoothers_match_enumeration(definition: Definition, potentials: Potentials, mu: float, k: int) -> None:
    actual = value_and_gradient(on_chains(definition.build(mu, k)), potentials)
    expected = value_and_gradient(lambda p: definition.enumerated(p, mu, k), potentials)
    assert_close(actual, expected, rtol=1e-8, atol=1e-8)


@pytest.mark.parametrize("name", ["max", "entropy"])  # among ties the choice of the top-K matters to the gradient
@given(potentials=small_chains(ties=True), mu=mus)
def test_smoothers_match_enumeration_among_ties(name: str, potentials: Potentials, mu: float) -> None:
    actual = value_and_gradient(on_chains(SMOOTHERS[name].build(mu, 1)), potentials)
    expected = value_and_gradient(lambda p: SMOOTHERS[name].enumerated(p, mu, 1), potentials)
    assert_close(actual, expected, rtol=1e-8, atol=1e-8)


@every_smoother
@given(potentials=small_chains(), mu=mus, k=st.integers(1, 8))
def test_smoothing_stays_within_its_bounds(definition: Definition, potentials: Potentials, mu: float, k: int) -> None:
    """Proposition 2."""
    chain = LinearChain(*potentials)
    best = chain.max()[0]
    outputs = chain.unary.shape[-1] ** chain.lengths.double()
    feasible = best > -INF
    excess = (definition.build(mu, k)(chain) - best)[feasible]
    slack = 1e-9 * (mu + best[feasible].abs())
    assert (excess >= -slack).all()
    assert (excess <= definition.bound(mu, outputs)[feasible] + slack).all()


@every_smoother
@given(potentials=small_chains(), mu=mus, other=mus, k=st.integers(1, 8))
def test_more_smoothing_gives_a_larger_value(
    definition: Definition, potentials: Potentials, mu: float, other: float, k: int
) -> None:
    chain, smoother = LinearChain(*potentials), definition.build(1.0, k)
    feasible = chain.max()[0] > -INF
    low, high = (smoother.with_mu(level)(chain)[feasible] for level in sorted([mu, other]))
    assert (low <= high + 1e-9 * (max(mu, other) + high.abs())).all()


@every_smoother
def test_little_smoothing_is_the_max(definition: Definition) -> None:
    chain = LinearChain(*random_chains(4, 5, 3))
    assert_close(definition.build(1.0, 3).with_mu(1e-9)(chain), chain.max()[0])


@every_smoother
def test_one_output_is_not_smoothed(definition: Definition) -> None:
    chain = LinearChain(*random_chains(2, 4, 1))
    assert_close(definition.build(3.0, 4)(chain), chain.max()[0])


@every_smoother
def test_gradcheck(definition: Definition) -> None:
    unary, transition, lengths = random_chains(3, 3, 2, lengths=[3, 2, 1])
    inputs, smoother = (unary.requires_grad_(), transition.requires_grad_()), definition.build(0.8, 4)
    assert torch.autograd.gradcheck(lambda *scores: smoother(LinearChain(*scores, lengths)), inputs)


@every_smoother
def test_nothing_allowed_is_minus_infinity_without_gradient(definition: Definition) -> None:
    unary, smoother = torch.zeros(2, 2, 2, dtype=torch.float64), definition.build(1.0, 3)
    unary[0, 1] = -INF
    potentials = unary, torch.zeros(2, 2), torch.tensor([2, 2])
    value, unary_gradient, _ = value_and_gradient(on_chains(smoother), potentials)
    assert value[0] == -INF
    assert not unary_gradient[0].any()
    assert_close(unary_gradient[1].sum(-1), torch.full((2,), 2.0, dtype=torch.float64))


@given(potentials=small_chains(), mu=mus, k=st.integers(1, 5))
def test_the_max_of_the_same_oracle_call(potentials: Potentials, mu: float, k: int) -> None:
    chain = LinearChain(*potentials)
    for smoother in (Max(), L2(mu, k), Entropy(mu)):
        smoothed, largest = smoother.with_max(chain)
        assert torch.equal(smoothed, smoother(chain))
        if isinstance(smoother, Entropy):
            assert largest is None
        else:
            assert largest is not None
            assert_close(largest, chain.max()[0], rtol=0, atol=1e-10)


@every_smoother
def test_with_mu_changes_nothing_else(definition: Definition) -> None:
    smoother = definition.build(1.0, 7)
    assert smoother.with_mu(0.5) == definition.build(0.5, 7)
    assert smoother == definition.build(1.0, 7)


@every_smoother
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_precision_is_smoothed_in_float32(dtype: torch.dtype, definition: Definition) -> None:
    unary, transition, lengths = random_chains(3, 4, 3)
    half = (unary * 1e3).to(dtype), (transition * 1e3).to(dtype)
    smoother = definition.build(0.01, 3)
    smoothed = smoother(LinearChain(*half, lengths))
    assert_close(smoothed, smoother(LinearChain(half[0].float(), half[1].float(), lengths)))


def test_levels_and_counts_may_be_numbers_of_numpy() -> None:
    smoothers = L2(np.float32(0.5), np.int64(3)), Entropy(np.float64(2.0)), L2(0.5, 3).with_mu(np.float32(4.0))
    assert smoothers == (L2(0.5, 3), Entropy(2.0), L2(4.0, 3))
    assert [type(smoother.mu) for smoother in smoothers] == [float] * 3
    assert type(smoothers[0].k) is int


# Where the top-K strategy is exact.


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
    actual, expected = (value_and_gradient(on_chains(L2(mu, size)), kept) for size in (k, 4**5))
    assert_close(actual, expected, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("k", [1, 2, 4])
@pytest.mark.parametrize("mu", [0.25, 4.0])
@pytest.mark.parametrize(("share", "exact"), [(0.92, False), (0.99, False), (1.0, True), (1.01, True)])
def test_l2_is_exact_from_the_threshold_on(share: float, exact: bool, mu: float, k: int) -> None:
    """The gaps between K equal scores and the next one add up to a share of μ (Proposition 4)."""
    scores = torch.zeros(1, k + 1, dtype=torch.float64)
    scores[0, :k] = share * mu / k
    candidates = Candidates(scores)
    assert L2(mu, k).is_exact(candidates).tolist() == [exact]
    full = L2(mu, k + 1)(candidates)
    assert torch.isclose(L2(mu, k)(candidates), full, rtol=0, atol=1e-12).tolist() == [exact]


def test_l2_of_all_outputs_is_exact() -> None:
    chain = LinearChain(*random_chains(3, 3, 2, lengths=[3, 2, 1]))
    assert L2(mu=100.0, k=8).is_exact(chain).all()
    assert L2(mu=100.0, k=7).is_exact(chain).tolist() == [False, True, True]


# Smoothing in the space of parts; its solutions are tested in structures/test_sparse_marginals.py.


@given(potentials=small_chains(), mu=st.floats(0.01, 10.0), parts=st.sampled_from(["all", "first"]))
def test_sparsemap_lies_between_the_max_without_its_norm_and_the_max(
    potentials: Potentials, mu: float, parts: Any
) -> None:
    chain, smoother = LinearChain(*potentials), SparseMAP(mu, parts)
    best, y = chain.max()
    feasible = best > -INF
    smoothed, largest = smoother.with_max(chain)
    assert largest is not None
    assert_close(largest, best, rtol=0, atol=1e-10)
    slack = 1e-9 * (mu + best.abs())
    assert (smoothed <= best + slack)[feasible].all()
    assert (smoothed >= best - smoother.penalty(chain, y) - slack)[feasible].all()
    assert (smoothed == -INF)[~feasible].all()
    counted = chain.lengths * 2.0 - 1 if parts == "all" else chain.lengths.double()
    assert_close(smoother.penalty(chain, y), mu / 2 * counted.double())


def test_sparsemap_of_candidates_is_l2() -> None:
    """Up to the constant μ/2, as each output has one part."""
    candidates = Candidates(vectors(6))
    assert_close(SparseMAP(2.0)(candidates) + 1.0, L2(2.0, 6)(candidates))


def test_levels_of_sparsemap() -> None:
    smoother = SparseMAP(np.float32(0.5), "first")
    assert smoother == SparseMAP(0.5, "first")
    assert smoother.with_mu(2.0) == SparseMAP(2.0, "first")
    with pytest.raises(ValueError, match="mu must be positive and finite, got 0"):
        SparseMAP(0.0)
    with pytest.raises(ValueError, match="parts must be"):
        SparseMAP(1.0, "pairs")  # type: ignore[arg-type]


def test_sparsemap_starts_from_outputs() -> None:
    subset = Subset(vectors(8, 4).view(4, 4, 2), 2)
    before = SparseMAP(3.0).solve(subset)
    assert_close(SparseMAP(3.0).solve(subset, start=before.y).value, before.value)
