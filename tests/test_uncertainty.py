"""Uncertainties against sums over all outputs, and examples that are kept apart."""

from itertools import product

import pytest
import torch
from enumeration import random_chains
from hypothesis import given, settings
from hypothesis import strategies as st

from structsmooth import LinearChain, LinearScore, Matching
from structsmooth.estimators import StructuredEstimator
from structsmooth.uncertainty import joined, spread, uncertainty


@settings(max_examples=15)
@given(seed=st.integers(0, 999), lengths=st.lists(st.integers(1, 3), min_size=1, max_size=2))
def test_pieces_are_together_what_their_outputs_are_together(seed, lengths):
    chains = [LinearChain(*random_chains(1, n, 2, seed=seed + i, lengths=[n])) for i, n in enumerate(lengths)]
    every = torch.tensor([float(sum(pair)) for pair in product(*(log_of(chain) for chain in chains))]).double()
    best = every.sort(descending=True).values
    entropy = -(every.exp() * every).sum()
    expected = {"entropy": entropy, "length-normalized": entropy / sum(lengths), "margin": best[1] - best[0]}
    for by, value in expected.items():
        pieces = [([0], uncertainty(chain, by)) for chain in chains]
        torch.testing.assert_close(joined(pieces, torch.tensor([float(sum(lengths))]), by)[0], value, rtol=0, atol=1e-5)


def log_of(chain):
    """The log-probabilities of all outputs of a single chain."""
    steps, states = chain.unary.shape[1:]
    return [float(chain.log_prob(torch.tensor([y]))) for y in product(range(states), repeat=steps)]


def test_what_has_no_piece_is_sure():
    assert joined([], torch.zeros(2), "length-normalized").tolist() == [0, 0]
    assert joined([], torch.ones(1), "margin").tolist() == [-torch.inf]


def test_structures_without_probabilities_have_margins():
    matching = Matching(torch.tensor([[[2.0, 0.5], [0.0, 1.0]]]))
    assert uncertainty(matching, "margin").tolist() == [-2.5]
    with pytest.raises(NotImplementedError, match="Matching"):
        uncertainty(matching, "entropy")
    with pytest.raises(ValueError, match="by must be one of margin, entropy, length-normalized, got 'size'"):
        uncertainty(matching, "size")


@given(words=st.lists(st.frozensets(st.sampled_from("abcd"), max_size=4), max_size=8), count=st.integers(0, 8))
def test_chosen_examples_are_apart(words, count):
    chosen = spread(range(len(words)), words, count)

    def alike(a, b):
        return 2 * len(words[a] & words[b]) > len(words[a] | words[b])

    assert len(chosen) <= count
    assert not any(alike(a, b) for a in chosen for b in chosen if a != b)
    passed = range(chosen[-1] if len(chosen) == count and chosen else len(words) if count else 0)
    assert all(number in chosen or any(alike(number, one) for one in chosen if one < number) for number in passed)


def test_estimators_divide_by_lengths():
    X = torch.randn(3, 4, 2, generator=torch.Generator().manual_seed(0))
    estimator = StructuredEstimator(LinearScore(2, 2), max_iter=300).fit(X, (X[..., 0] > 0).long())
    whole, shares = estimator.uncertainty(X, "entropy"), estimator.uncertainty(X, "length-normalized")
    assert whole == pytest.approx(4 * shares)
    ranked = estimator.predict_top_k(X, 2)
    assert estimator.uncertainty(X) == pytest.approx([second - best for (best, _), (second, _) in ranked], abs=1e-6)
