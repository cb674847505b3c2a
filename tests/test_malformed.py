"""Bad settings of costs, losses and smoothers, bad masks, sequences and features: the message names the argument."""

from typing import Any

import torch
from refusals import Refusals, refusing
from torch import Tensor

from structsmooth import L2, Entropy, LinearChain, LinearScore, StructuralHinge, WeightedHamming
from structsmooth.problems import SparseChainProblem, SparseSequences
from structsmooth.structures import lengths_from_mask

B, T, S = 2, 3, 4
NAN, INF = torch.nan, torch.inf
CHAIN = LinearChain(torch.zeros(B, T, S), torch.zeros(S, S), torch.tensor([3, 2]))
Y = torch.zeros(B, T, dtype=torch.int64)


def sequences(**changes: Any) -> SparseSequences:
    good = {
        "attributes": torch.tensor([0, 1, 0], dtype=torch.int32),
        "token_offsets": torch.tensor([0, 2, 3]),
        "offsets": torch.tensor([0, 1, 2]),
    }
    return SparseSequences(**good | changes)


def score(x: Any) -> LinearChain:
    return LinearScore(2, S)(x)


def dense(*shape: int, dtype: torch.dtype = torch.float64) -> Tensor:
    return torch.zeros(shape or (B, T, 2), dtype=dtype)


CASES: Refusals = {
    "no weights": (lambda: WeightedHamming(()), ValueError, "weights must be non-negative"),
    "negative weight": (lambda: WeightedHamming((1.0, -1.0)), ValueError, r"weights .* got \(1\.0, -1\.0\)"),
    "NaN weight": (lambda: WeightedHamming((NAN,)), ValueError, "weights must be non-negative"),
    "too few weights": (lambda: WeightedHamming((1.0, 2.0))(CHAIN, Y), ValueError, "weights"),
    "too many weights": (lambda: WeightedHamming((1.0,) * 5)(CHAIN, Y), ValueError, "weights"),
    # Losses
    "unknown reduction": (lambda: StructuralHinge(reduction="avg"), ValueError, "reduction must be .* got 'avg'"),
    "reduction of a named loss": (
        lambda: StructuralHinge.crf(reduction=None),
        ValueError,
        "reduction must be .* got None",
    ),
    "smoother is a string": (lambda: StructuralHinge("max"), TypeError, "smoother"),
    "loss of too short labels": (
        lambda: StructuralHinge()(CHAIN, torch.zeros(B, 2).long()),
        ValueError,
        "y must have shape",
    ),
    "loss of labels out of range": (
        lambda: StructuralHinge()(CHAIN, Y + 9),
        ValueError,
        "y must hold labels",
    ),
    # Smoothers
    "mu is 0": (lambda: L2(mu=0.0), ValueError, r"mu must be positive and finite, got 0\.0; .* Max\(\)"),
    "mu is negative": (lambda: Entropy(-1.0), ValueError, "mu must be positive"),
    "mu is NaN": (lambda: Entropy(NAN), ValueError, "mu must be positive"),
    "mu is infinite": (lambda: L2(mu=INF), ValueError, "mu must be positive"),
    "mu is a string": (lambda: L2(mu="1"), TypeError, "mu must be"),
    "another mu": (lambda: L2().with_mu(0), ValueError, "mu must be positive"),
    "k of a smoother is 0": (lambda: L2(k=0), ValueError, "k must be at least 1"),
    "k of a smoother is a float": (lambda: L2(k=5.0), TypeError, "k must be an int"),
    "k of a loss": (lambda: StructuralHinge.top_k(k=0), ValueError, "k must be at least 1"),
    # Masks
    "hole": (
        lambda: lengths_from_mask(torch.tensor([[1, 1], [0, 1]])),
        ValueError,
        "mask .* row 1 has a hole .* takes any",
    ),
    "mask of one example": (
        lambda: lengths_from_mask(torch.ones(3)),
        ValueError,
        r"mask must have shape \[B, T\], got \(3,\)",
    ),
    "mask is a list": (lambda: lengths_from_mask([[True]]), TypeError, "mask must be"),
    "nothing but padding": (lambda: lengths_from_mask(torch.tensor([[1, 1], [0, 0]])), ValueError, "mask .* row 1"),
    # Sequences
    "attributes are a list": (lambda: sequences(attributes=[0, 1, 0]), TypeError, "attributes must be"),
    "attributes are int64": (
        lambda: sequences(attributes=torch.zeros(3).long()),
        TypeError,
        "attributes must be int32",
    ),
    "attributes are a matrix": (
        lambda: sequences(attributes=torch.zeros(3, 1, dtype=torch.int32)),
        ValueError,
        "attributes",
    ),
    "token_offsets are int32": (
        lambda: sequences(token_offsets=torch.tensor([0, 2, 3]).int()),
        TypeError,
        "token_offsets",
    ),
    "token_offsets start at 1": (
        lambda: sequences(token_offsets=torch.tensor([1, 2, 3])),
        ValueError,
        "token_offsets .* 0 to 3",
    ),
    "token_offsets decrease": (
        lambda: sequences(token_offsets=torch.tensor([0, 4, 3])),
        ValueError,
        "token_offsets must rise",
    ),
    "token_offsets end early": (
        lambda: sequences(token_offsets=torch.tensor([0, 1, 2])),
        ValueError,
        "token_offsets .* 3",
    ),
    "offsets beyond the tokens": (lambda: sequences(offsets=torch.tensor([0, 1, 3])), ValueError, "offsets .* 0 to 2"),
    "offsets are empty": (lambda: sequences(offsets=torch.zeros(0).long()), ValueError, "offsets must rise"),
    "empty sequence": (
        lambda: SparseChainProblem(sequences(offsets=torch.tensor([0, 2, 2])), torch.tensor([0, 0]), 2, S),
        ValueError,
        "sequence 1 is empty",
    ),
    "index beyond the end": (lambda: sequences().select(torch.tensor([2])), IndexError, "ind(ex|ices)"),
    "index from the end": (lambda: sequences().select(torch.tensor([-2])), IndexError, "ind(ex|ices)"),
    # Scores
    "no features": (lambda: LinearScore(0, S), ValueError, "features and states must be at least 1, got 0"),
    "no labels": (lambda: LinearScore(2, 0), ValueError, "features and states must be at least 1, got 2 and 0"),
    "integer parameters": (lambda: LinearScore(2, S, dtype=torch.int64), TypeError, "dtype"),
    "input is a list": (lambda: score([[[0.0, 0.0]]]), TypeError, "x must be"),
    "features of another type": (lambda: score(dense(dtype=torch.float32)), TypeError, "x must"),
    "too many features": (lambda: score(dense(B, T, 3)), ValueError, "x must have shape"),
    "features of one example": (lambda: score(dense(T, 2)), ValueError, "x must have shape"),
    "lengths of dense features are a list": (lambda: score((dense(), [3, 3])), TypeError, "lengths must be"),
    "lengths of dense features of another batch": (
        lambda: score((dense(), torch.tensor([3, 3, 3]))),
        ValueError,
        "lengths must have shape",
    ),
    "attribute beyond the last": (
        lambda: score(sequences(attributes=torch.tensor([0, 2, 0], dtype=torch.int32))),
        ValueError,
        "attributes",
    ),
    "no sequences": (lambda: score(sequences().select(torch.zeros(0).long())), ValueError, r"\bx\b"),
}
test_refuses = refusing(CASES)


def test_the_good_calls_behind_the_bad_ones_are_good() -> None:
    assert CHAIN.score(Y).shape == (B,)
    assert score(sequences()).unary.shape == (2, 1, S)
    assert score((dense(), torch.tensor([3, 1]))).unary.shape == (B, T, S)
