"""Hidden Markov models: emissions beside torch's distributions, and expectation maximization."""

import math
from itertools import pairwise

import pytest
import torch
from torch import Tensor
from torch.distributions import Categorical, MixtureSameFamily, MultivariateNormal, Normal, Poisson
from torch.testing import assert_close

from structsmooth.models import (
    HMM,
    CategoricalEmissions,
    GaussianEmissions,
    GaussianMixtureEmissions,
    PoissonEmissions,
)
from structsmooth.models.emissions import Emissions


def generator(seed: int) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def data(kind: str, seed: int) -> tuple[Emissions, Tensor, Tensor]:
    """Emissions with random parameters, and observations, some of which are missing, of two sequences."""
    torch.manual_seed(seed)
    lengths = torch.tensor([30, 17])
    if kind == "categorical":
        symbols = torch.randint(-1, 4, (2, 30), generator=generator(seed))
        return CategoricalEmissions(3, 4), symbols, lengths
    x = torch.randn(2, 30, 2, generator=generator(seed), dtype=torch.float64)
    x[:, ::3] += 3
    if kind == "poisson":
        x = x.square().floor()
    x[0, 5, slice(None) if kind == "full" else 1] = math.nan
    if kind == "poisson":
        return PoissonEmissions(3, 2), x, lengths
    if kind == "mixture":
        return GaussianMixtureEmissions(3, 2, 2, least=0.01), x, lengths
    return GaussianEmissions(3, 2, kind, least=0.01), x, lengths  # type: ignore[arg-type]


KINDS = ["categorical", "poisson", "diag", "full", "mixture"]


def test_symbols_beyond_the_last_are_no_missing_ones() -> None:
    with pytest.raises((IndexError, RuntimeError), match="out of"):
        CategoricalEmissions(2, 3).sums(torch.tensor([[0, 3]]), torch.ones(1, 2, 2))


@pytest.mark.parametrize("viterbi", [False, True])
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("seed", range(40))
def test_a_step_never_lowers_the_likelihood(seed: int, kind: str, viterbi: bool) -> None:
    emissions, x, lengths = data(kind, seed)
    model = HMM(emissions)
    values = [model.em_step([(x, lengths)], viterbi=viterbi) for _ in range(12)]
    for before, after in pairwise(values):
        assert after >= before - 1e-9 * abs(before)
    assert values[-1] > values[0]


@pytest.mark.parametrize("kind", ["categorical", "poisson", "full", "mixture"])
def test_steps_lead_to_where_the_gradient_is_zero(kind: str) -> None:
    emissions, x, lengths = data(kind, 1)
    model, largest = HMM(emissions), []
    for steps in (1, 400):
        for _ in range(steps):
            model.em_step([(x, lengths)])
        value = model((x, lengths)).logsumexp().sum()
        gradients = list(torch.autograd.grad(value, list(model.parameters())))
        if isinstance(emissions, GaussianMixtureEmissions):  # at the least variance, the gradient need not be zero
            scale = [name for name, _ in model.named_parameters()].index("emissions.scale")
            gradients[scale] = gradients[scale][emissions.covariances > emissions.least * (1 + 1e-6)]
        largest.append(max(float(gradient.abs().max()) for gradient in gradients))
    assert largest[1] < 0.02 * largest[0]


@pytest.mark.parametrize("kind", KINDS)
def test_batches_add_up(kind: str) -> None:
    models = []
    for parts in ([slice(0, 2)], [slice(0, 1), slice(1, 2)]):
        emissions, x, lengths = data(kind, 2)
        models.append(HMM(emissions))
        value = [models[-1].em_step([(x[part], lengths[part]) for part in parts]) for _ in range(3)]
    for one, other in zip(*(model.parameters() for model in models), strict=True):
        assert_close(one, other, rtol=1e-9, atol=1e-9)
    assert math.isfinite(value[-1])


@pytest.mark.parametrize("kind", KINDS)
def test_parameters_without_gradients_stay_and_a_step_never_lowers_the_likelihood(kind: str) -> None:
    for name, _ in HMM(data(kind, 0)[0]).named_parameters():
        emissions, x, lengths = data(kind, 3)
        model = HMM(emissions)
        kept = model.get_parameter(name).requires_grad_(False).clone()
        values = [model.em_step([(x, lengths)]) for _ in range(4)]
        assert model.get_parameter(name).equal(kept)
        assert all(after >= before - 1e-9 * abs(before) for before, after in pairwise(values))
        assert values[-1] > values[0]


@pytest.mark.parametrize("kind", ["diag", "full", "mixture"])
def test_variances_of_states_far_apart_are_those_of_their_observations(kind: str) -> None:
    away = 2.0**26
    x = torch.randn(2, 40, 2, generator=generator(6), dtype=torch.float64)
    x[:, 20:] += away
    if kind == "mixture":
        emissions: GaussianEmissions = GaussianMixtureEmissions(1, 2, 2)
    else:
        emissions = GaussianEmissions(2, 2, kind)  # type: ignore[arg-type]
    with torch.no_grad():
        emissions.means.copy_(torch.tensor([[1e3, 1e3], [away + 1e3, away + 1e3]]).view_as(emissions.means))
    model = HMM(emissions)
    model.em_step([(x[:1], torch.tensor([40])), (x[1:], torch.tensor([40]))])
    halves = x[:, :20], x[:, 20:] - away
    expected = torch.stack([torch.cov(half.flatten(0, 1).T, correction=0) for half in halves])
    expected = expected if kind == "full" else expected.diagonal(dim1=1, dim2=2)
    assert_close(emissions.covariances, expected.view_as(emissions.covariances), rtol=1e-9, atol=1e-9)


def test_densities_are_those_of_torch() -> None:
    x = torch.randn(2, 5, 3, generator=generator(0), dtype=torch.float64)
    torch.manual_seed(0)
    diagonal, full = GaussianEmissions(4, 3), GaussianEmissions(4, 3, "full")
    diagonal.set_covariances(torch.rand(4, 3, dtype=torch.float64) + 0.1)
    roots = torch.randn(4, 3, 3, generator=generator(1), dtype=torch.float64)
    full.set_covariances(roots @ roots.mT + 0.1 * torch.eye(3))
    assert_close(full.covariances, roots @ roots.mT + 0.1 * torch.eye(3))
    logs = Normal(diagonal.means, diagonal.covariances.sqrt()).log_prob(x.unsqueeze(2))
    assert_close(diagonal(x), logs.sum(3))
    assert_close(full(x), MultivariateNormal(full.means, full.covariances).log_prob(x.unsqueeze(2)))
    x[0, 0, 1], x[1, 2] = math.nan, math.nan
    assert_close(diagonal(x)[0, 0], logs[0, 0, :, 0] + logs[0, 0, :, 2])
    assert not diagonal(x)[1, 2].any()
    with pytest.raises(ValueError, match="x must be missing as a whole vector"):
        full(x)


def test_densities_of_counts_and_mixtures_are_those_of_torch() -> None:
    torch.manual_seed(0)
    counts, mixture = PoissonEmissions(3, 2), GaussianMixtureEmissions(3, 4, 2, "full")
    roots = torch.randn(3, 4, 2, 2, generator=generator(1), dtype=torch.float64)
    mixture.set_covariances(roots @ roots.mT + 0.1 * torch.eye(2))
    with torch.no_grad():
        counts.logs[0, 0], mixture.logits[0, 1] = -math.inf, -math.inf
    x = torch.randint(4, (2, 5, 2), generator=generator(2)).double()
    x[0, 0], x[0, 1, 0] = 0.0, 1.0
    logs = Poisson(counts.logs.exp()).log_prob(x.unsqueeze(2)).sum(3)
    assert_close(counts(x), torch.where((x[..., :1] > 0) & (torch.arange(3) == 0), -math.inf, logs))
    normal = MultivariateNormal(mixture.means, mixture.covariances)
    assert_close(mixture(x), MixtureSameFamily(Categorical(logits=mixture.logits), normal).log_prob(x.unsqueeze(2)))
    for emissions in (counts, mixture):
        (emissions(x[1:]).exp().sum()).backward()
        assert all(bool(parameter.grad.isfinite().all()) for parameter in emissions.parameters())  # type: ignore[union-attr]


@pytest.mark.parametrize("kind", KINDS)
def test_samples_are_of_the_distributions(kind: str) -> None:
    emissions, _, _ = data(kind, 5)
    x = emissions.sample(torch.arange(3).repeat_interleave(20_000), generator(0))
    again = emissions.sample(torch.arange(3).repeat_interleave(20_000), generator(0))
    assert x.equal(again)
    drawn = torch.nn.functional.one_hot(x, 4).double() if kind == "categorical" else x
    error = drawn.view(3, 20_000, -1).std(1) / math.sqrt(20_000)
    expected = emissions.expected()
    assert bool(((drawn.view(3, 20_000, -1).mean(1) - expected).abs() < 5 * error + 1e-12).all())


@pytest.mark.parametrize("kind", ["diag", "full"])
def test_with_one_state_estimates_are_those_of_a_sample(kind: str) -> None:
    x = torch.randn(1, 50, 2, generator=generator(3), dtype=torch.float64)
    model = HMM(GaussianEmissions(1, 2, kind))  # type: ignore[arg-type]
    model.em_step([(x, torch.tensor([50]))])
    expected = torch.cov(x[0].T, correction=0)
    assert_close(model.emissions.means[0], x[0].mean(0))
    assert_close(model.emissions.covariances[0], expected.diagonal() if kind == "diag" else expected)


def test_what_cannot_be_is_named() -> None:
    emissions = CategoricalEmissions(2, 2)
    with torch.no_grad():
        emissions.logits[:, 1] = -math.inf
    with pytest.raises(ValueError, match="example 0"):
        HMM(emissions).em_step([(torch.tensor([[0, 1]]), torch.tensor([2]))])
    with pytest.raises(ValueError, match="batches must not be empty"):
        HMM(emissions).em_step([])
    with pytest.raises(ValueError, match='covariance must be "diag" or "full", got \'tied\''):
        GaussianEmissions(2, 2, "tied")  # type: ignore[arg-type]
    for kind, wrong in (("diag", torch.zeros(2, 2)), ("full", -torch.eye(2).expand(2, 2, 2))):
        with pytest.raises(ValueError, match="covariances must be positive"):
            GaussianEmissions(2, 2, kind).set_covariances(wrong)  # type: ignore[arg-type]
