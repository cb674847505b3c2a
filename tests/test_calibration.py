"""Reliability against its definition, and temperatures against a search on a grid."""

import math

import numpy as np
import pytest
import torch

from structsmooth import Candidates, LinearChain
from structsmooth.calibration import Reliability, fitted_temperature, tempered


def test_reliability_is_what_its_definition_says():
    generator = np.random.default_rng(0)
    p = generator.uniform(size=500)
    right = generator.uniform(size=500) < p**2
    found = Reliability.of(p.tolist(), right.tolist(), bins=7)
    bins = np.minimum((p * 7).astype(int), 6)
    error = 0.0
    for b in range(7):
        inside = bins == b
        assert found.counts[b] == inside.sum()
        assert found.confidence[b].item() == pytest.approx(p[inside].mean())
        assert found.accuracy[b].item() == pytest.approx(right[inside].mean())
        error += inside.mean() * abs(p[inside].mean() - right[inside].mean())
    assert found.error == pytest.approx(error)
    assert Reliability.of([1.0, 0.0], [True, False]).error == 0
    assert Reliability.of([], []).error == 0


def test_wrong_probabilities_are_refused():
    with pytest.raises(ValueError, match="from 0 to 1"):
        Reliability.of([1.5], [True])
    with pytest.raises(ValueError, match="right must be known of 1 predictions, got 2"):
        Reliability.of([0.5], [True, False])


@pytest.mark.parametrize("scale", [0.2, 5.0])
def test_the_temperature_is_the_most_likely_one(scale):
    generator = torch.Generator().manual_seed(0)
    unary = torch.randn(60, 4, 3, generator=generator)
    transition = torch.tensor([[0.0, 0.3, -torch.inf], [0.1, 0.0, 0.2], [0.5, -0.5, 0.0]])
    lengths = torch.randint(1, 5, (60,), generator=generator)
    y = LinearChain(unary, transition, lengths).sample(1, generator)[:, 0]
    chains = LinearChain(scale * unary, scale * transition, lengths)
    y[0, :2] = torch.tensor([0, 2])  # which is forbidden, and so left out
    fitted = fitted_temperature([(chains[:30], y[:30]), (chains[30:], y[30:])])
    assert scale / 1.5 < fitted < scale * 1.5

    def likelihood(temperature):
        log_probs = tempered(chains, temperature).log_prob(y)
        return float(log_probs[log_probs > -torch.inf].sum())

    assert all(likelihood(fitted) >= likelihood(fitted * factor) for factor in (0.99, 1.01))


def test_ends_of_the_range():
    sure = Candidates(torch.tensor([[1.0, 0.0]]))
    for y, limit, said in ((0, 1e-3, "as the best outputs.* is 0.001"), (1, 1e3, "no higher than other.* is 1000")):
        with pytest.warns(UserWarning, match=said):
            assert fitted_temperature([(sure, torch.tensor([y]))]) == pytest.approx(limit, rel=1e-3)
    with pytest.raises(ValueError, match="labels the model can predict"):
        fitted_temperature([(Candidates(torch.tensor([[1.0, -torch.inf]])), torch.tensor([1]))])
    assert math.isclose(tempered(sure, 2.0).score(torch.tensor([0])).item(), 0.5)
