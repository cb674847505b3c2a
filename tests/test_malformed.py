"""Bad input: always ValueError or TypeError, and the message names the argument."""

import random
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from structsmooth import (
    L2,
    Entropy,
    Hamming,
    LinearChain,
    LinearScore,
    SparseSequences,
    StructuralHinge,
    WeightedHamming,
    lengths_from_mask,
)

B, T, S = 2, 3, 4
NAN, INF = torch.nan, torch.inf


def chain(**changes: Any) -> LinearChain:
    good = {"unary": torch.zeros(B, T, S), "transition": torch.zeros(S, S), "lengths": torch.tensor([3, 2])}
    return LinearChain(**good | changes)


def filled(*shape: int, entry: float) -> Tensor:
    """Zeros with one bad entry."""
    tensor = torch.zeros(shape)
    tensor.view(-1)[-shape[-1]] = entry
    return tensor


def labels(*shape: int, label: int = 0, dtype: torch.dtype = torch.int64) -> Tensor:
    return torch.full(shape or (B, T), label, dtype=dtype)


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


CASES: dict[str, tuple[Callable[[], object], type[Exception], str]] = {
    # LinearChain: potentials
    "unary is a list": (lambda: chain(unary=[[[0.0]]]), TypeError, r"unary must be a torch\.Tensor, got list"),
    "unary is an array": (lambda: chain(unary=np.zeros((B, T, S))), TypeError, "unary must be .* got ndarray"),
    "unary holds integers": (
        lambda: chain(unary=labels(B, T, S)),
        TypeError,
        r"unary .* floating point, got torch\.int64",
    ),
    "unary is complex": (lambda: chain(unary=torch.zeros(B, T, S) * 1j), TypeError, "unary .* floating point"),
    "unary is a matrix": (lambda: chain(unary=torch.zeros(T, S)), ValueError, r"unary .* \[B, T, S\].* got \(3, 4\)"),
    "unary has four dimensions": (
        lambda: chain(unary=torch.zeros(1, B, T, S)),
        ValueError,
        r"unary .* got \(1, 2, 3, 4\)",
    ),
    "no positions": (lambda: chain(unary=torch.zeros(B, 0, S)), ValueError, r"unary .* T, S >= 1, got \(2, 0, 4\)"),
    "no states": (lambda: chain(unary=torch.zeros(B, T, 0)), ValueError, r"unary .* T, S >= 1, got \(2, 3, 0\)"),
    "unary is NaN": (
        lambda: chain(unary=filled(B, T, S, entry=NAN), lengths=None),
        ValueError,
        "unary must not contain NaN",
    ),
    "unary is +inf": (lambda: chain(unary=filled(B, T, S, entry=INF), lengths=None), ValueError, r"unary .* \+inf"),
    "transition is None": (lambda: chain(transition=None), TypeError, "transition must be .* got NoneType"),
    "transition holds booleans": (
        lambda: chain(transition=torch.ones(S, S).bool()),
        TypeError,
        "transition .* torch.bool",
    ),
    "transition is not square": (
        lambda: chain(transition=torch.zeros(S, S + 1)),
        ValueError,
        r"transition .* got \(4, 5\)",
    ),
    "transition of other states": (
        lambda: chain(transition=torch.zeros(2, 2)),
        ValueError,
        r"transition .* got \(2, 2\)",
    ),
    "transition of another batch": (
        lambda: chain(transition=torch.zeros(3, S, S)),
        ValueError,
        r"transition .* \(3, 4, 4\)",
    ),
    "one transition too many": (
        lambda: chain(transition=torch.zeros(B, T, S, S)),
        ValueError,
        r"transition .* \(2, 3, 4, 4\)",
    ),
    "transition is a vector": (lambda: chain(transition=torch.zeros(S)), ValueError, r"transition .* got \(4,\)"),
    "transition is NaN": (
        lambda: chain(transition=filled(S, S, entry=NAN)),
        ValueError,
        "transition must not contain NaN",
    ),
    "transition is +inf": (lambda: chain(transition=filled(S, S, entry=INF)), ValueError, r"transition .* \+inf"),
    "replace with too few": (lambda: chain().replace(torch.zeros(B, T, S)), ValueError, "potentials"),
    "replace with other states": (
        lambda: chain().replace(torch.zeros(B, T, 3), torch.zeros(S, S)),
        ValueError,
        "transition",
    ),
    # LinearChain: lengths and backend
    "lengths are a list": (lambda: chain(lengths=[3, 2]), TypeError, "lengths must be .* got list"),
    "lengths are floats": (lambda: chain(lengths=torch.tensor([3.0, 2.0])), TypeError, "lengths must be integers"),
    "lengths are a mask": (lambda: chain(lengths=torch.tensor([True, True])), TypeError, "lengths .* got torch.bool"),
    "lengths of another batch": (
        lambda: chain(lengths=torch.tensor([3])),
        ValueError,
        r"lengths .* \[B\] = \(2,\), got \(1,\)",
    ),
    "lengths are a matrix": (lambda: chain(lengths=torch.ones(B, 1).long()), ValueError, r"lengths .* got \(2, 1\)"),
    "length 0": (lambda: chain(lengths=torch.tensor([3, 0])), ValueError, r"lengths .* 1 to T = 3, got \[3, 0\]"),
    "negative length": (lambda: chain(lengths=torch.tensor([-1, 2])), ValueError, r"lengths .* got \[-1, 2\]"),
    "length beyond T": (lambda: chain(lengths=torch.tensor([3, 4])), ValueError, r"lengths .* got \[3, 4\]"),
    "unknown backend": (lambda: chain(backend="cuda"), ValueError, "backend must be .* got 'cuda'"),
    "transition on another device": (
        lambda: chain(transition=torch.zeros(S, S, device="meta")),
        ValueError,
        "transition must be on the device of unary, cpu, got meta",
    ),
    "lengths on another device": (lambda: chain(lengths=labels(B).to("meta")), ValueError, "lengths .* got meta"),
    "labels on another device": (lambda: chain().score(labels().to("meta")), ValueError, "y must be on .* got meta"),
    "compiled backend on another device": (
        lambda: LinearChain(*(torch.zeros(n, S, S, device="meta") for n in (B, B)), backend="compiled"),
        ValueError,
        "compiled backend runs on the CPU only, got tensors on meta",
    ),
    "backend is None": (lambda: chain(backend=None), ValueError, "backend must be .* got None"),
    # LinearChain: queries
    "k is 0": (lambda: chain().topk(0), ValueError, "k must be at least 1, got 0"),
    "k is negative": (lambda: chain().topk(-3), ValueError, "k must be at least 1, got -3"),
    "k is a float": (lambda: chain().topk(2.0), TypeError, "k must be an int, got float"),
    "k is a boolean": (lambda: chain().topk(True), TypeError, "k must be an int, got bool"),
    "k is None": (lambda: chain().topk(None), TypeError, "k must be an int, got NoneType"),
    "y is a list": (lambda: chain().score([[0] * T] * B), TypeError, "y must be .* got list"),
    "y holds floats": (
        lambda: chain().score(torch.zeros(B, T)),
        TypeError,
        "y must hold integer labels, got torch.float32",
    ),
    "y holds booleans": (lambda: chain().parts(torch.ones(B, T).bool()), TypeError, "y must hold integer labels"),
    "y is too long": (
        lambda: chain().score(labels(B, T + 1)),
        ValueError,
        r"y must have shape .* \(2, 3\), got \(2, 4\)",
    ),
    "y of one example": (lambda: chain().parts(labels(T)), ValueError, r"y must have shape .* got \(3,\)"),
    "label S": (lambda: chain().score(labels(label=S)), ValueError, "y must hold labels from 0 to 3, got .* 4"),
    "negative label": (lambda: chain().parts(labels(label=-100)), ValueError, "y must hold labels .* got -100"),
    # Costs
    "cost that does not broadcast": (
        lambda: chain().cost_augmented(labels(), torch.zeros(B, T, S + 1)),
        ValueError,
        r"cost must broadcast .* \(2, 3, 4\), got \(2, 3, 5\)",
    ),
    "cost with a dimension too many": (
        lambda: chain().cost_augmented(labels(), torch.zeros(3, B, T, S)),
        ValueError,
        r"cost must broadcast .* got \(3, 2, 3, 4\)",
    ),
    "cost that widens the potentials": (
        lambda: LinearChain(torch.zeros(1, T, S), torch.zeros(S, S)).cost_augmented(labels(1, T), torch.zeros(B, T, S)),
        ValueError,
        "cost must broadcast",
    ),
    "cost is a string": (lambda: chain().cost_augmented(labels(), "hamming"), TypeError, "cost"),
    "cost is NaN": (lambda: chain().cost_augmented(labels(), torch.full((S,), NAN)), ValueError, "cost|NaN"),
    "labels too long to cost": (
        lambda: chain().cost_augmented(labels(B, T + 1), Hamming()),
        ValueError,
        r"y must have shape",
    ),
    "list of labels to cost": (lambda: chain().cost_augmented([[0] * T] * B, Hamming()), TypeError, "y must be"),
    "labels out of range to cost": (
        lambda: chain().cost_augmented(labels(label=S), Hamming()),
        ValueError,
        "y must hold",
    ),
    "no weights": (lambda: WeightedHamming(()), ValueError, "weights must be non-negative"),
    "negative weight": (lambda: WeightedHamming((1.0, -1.0)), ValueError, r"weights .* got \(1\.0, -1\.0\)"),
    "NaN weight": (lambda: WeightedHamming((NAN,)), ValueError, "weights must be non-negative"),
    "too few weights": (lambda: WeightedHamming((1.0, 2.0))(chain(), labels()), ValueError, "weights"),
    "too many weights": (lambda: WeightedHamming((1.0,) * 5)(chain(), labels()), ValueError, "weights"),
    # Losses
    "unknown reduction": (lambda: StructuralHinge(reduction="avg"), ValueError, "reduction must be .* got 'avg'"),
    "reduction of a named loss": (
        lambda: StructuralHinge.crf(reduction=None),
        ValueError,
        "reduction must be .* got None",
    ),
    "smoother is a string": (lambda: StructuralHinge("max"), TypeError, "smoother"),
    "loss of too short labels": (lambda: StructuralHinge()(chain(), labels(B, 2)), ValueError, "y must have shape"),
    "loss of labels out of range": (
        lambda: StructuralHinge()(chain(), labels(label=9)),
        ValueError,
        "y must hold labels",
    ),
    # Smoothers
    "mu is 0": (lambda: L2(mu=0.0), ValueError, r"mu must be a positive number, got 0\.0; .* Max\(\)"),
    "mu is negative": (lambda: Entropy(-1.0), ValueError, "mu must be a positive number"),
    "mu is NaN": (lambda: Entropy(NAN), ValueError, "mu must be a positive number"),
    "mu is infinite": (lambda: L2(mu=INF), ValueError, "mu must be a positive number"),
    "mu is a string": (lambda: L2(mu="1"), TypeError, "mu must be"),
    "another mu": (lambda: L2().with_mu(0), ValueError, "mu must be a positive number"),
    "k of a smoother is 0": (lambda: L2(k=0), ValueError, "k must be at least 1"),
    "k of a smoother is a float": (lambda: L2(k=5.0), TypeError, "k must be an int"),
    "k of a loss": (lambda: StructuralHinge.sparsemap(k=0), ValueError, "k must be at least 1"),
    # Masks
    "hole": (lambda: lengths_from_mask(torch.tensor([[1, 1], [0, 1]])), ValueError, "mask .* row 1 has a hole"),
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
    "offsets are empty": (lambda: sequences(offsets=labels(0)), ValueError, "offsets must rise"),
    "empty sequence": (lambda: sequences(offsets=torch.tensor([0, 2, 2])), ValueError, "sequence 1 is empty"),
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
    "no sequences": (lambda: score(sequences().select(labels(0))), ValueError, r"\bx\b"),
}


@pytest.mark.parametrize("name", CASES)
def test_refuses(name: str) -> None:
    call, error, message = CASES[name]
    with pytest.raises(error, match=message):
        call()


def test_the_good_calls_behind_the_bad_ones_are_good() -> None:
    assert chain().score(labels()).shape == (B,)
    assert score(sequences()).unary.shape == (2, 1, S)
    assert score((dense(), torch.tensor([3, 1]))).unary.shape == (B, T, S)


def test_values_are_not_checked_on_request() -> None:
    bad = chain(unary=torch.full((B, T, S), NAN), validate_args=False)
    assert bad.replace(*bad.potentials).validate_args is False


# One defect in an otherwise good call, chosen at random.

NOT_TENSORS = [None, 3, 2.5, "scores", [[0.0]], np.zeros((B, T, S)), object()]
NOT_FLOATS = [torch.int64, torch.int32, torch.uint8, torch.bool, torch.complex64]


def defects(r: random.Random, batch: int, steps: int, states: int) -> dict[str, Callable[[], tuple[str, Any]]]:
    """Ways to spoil a call: each gives the name of an argument and its bad value."""

    def unlike(*good: tuple[int, ...]) -> tuple[int, ...]:
        while (shape := tuple(r.randint(0, 5) for _ in range(r.randint(0, 5)))) in good:
            pass
        return shape

    def spoiled(*shape: int) -> Tensor:
        tensor = torch.zeros(shape)
        tensor.view(-1)[r.randrange(tensor.numel())] = r.choice([NAN, INF])
        return tensor

    pairs = (states, states)
    forms = [pairs, (batch, *pairs), (batch, steps - 1, *pairs)]
    lengths = [r.randint(1, steps) for _ in range(batch)]
    wrong_length = r.choice([0, -1, -(2**40), steps + 1, 2**40])
    y = torch.zeros(batch, steps, dtype=torch.int64)
    return {
        "kind of unary": lambda: ("unary", r.choice(NOT_TENSORS)),
        "type of unary": lambda: ("unary", torch.zeros(batch, steps, states).to(r.choice(NOT_FLOATS))),
        "shape of unary": lambda: (
            "unary",
            torch.zeros(r.choice([(), (3,), pairs, (2, 0, 3), (2, 3, 0), (1, 2, 3, 4)])),
        ),
        "value of unary": lambda: ("unary", spoiled(batch, steps, states)),
        "kind of transition": lambda: ("transition", r.choice(NOT_TENSORS)),
        "type of transition": lambda: ("transition", torch.zeros(pairs).to(r.choice(NOT_FLOATS))),
        "shape of transition": lambda: ("transition", torch.zeros(unlike(*forms))),
        "value of transition": lambda: ("transition", spoiled(*pairs)),
        "kind of lengths": lambda: ("lengths", r.choice(NOT_TENSORS[1:])),
        "type of lengths": lambda: (
            "lengths",
            torch.ones(batch).to(r.choice([torch.float32, torch.bool, torch.complex64])),
        ),
        "shape of lengths": lambda: ("lengths", torch.ones(unlike((batch,)), dtype=torch.int64)),
        "value of lengths": lambda: ("lengths", torch.tensor([wrong_length, *lengths[1:]])),
        "backend": lambda: ("backend", r.choice(["", "Torch", "gpu", None, 1])),
        "kind of y": lambda: ("y", r.choice(NOT_TENSORS)),
        "type of y": lambda: ("y", y.to(r.choice([torch.float32, torch.bool, torch.complex64]))),
        "shape of y": lambda: ("y", y.new_zeros(unlike((batch, steps)))),
        "value of y": lambda: ("y", y + r.choice([states, states + 7, -1, -100])),
        "kind of k": lambda: ("k", r.choice([None, 2.0, True, "2", torch.tensor(2), np.float64(2)])),
        "value of k": lambda: ("k", r.choice([0, -1, -(2**70)])),
        "shape of cost": lambda: ("cost", torch.zeros(batch, steps, states + 2)),
        "value of cost": lambda: ("cost", spoiled(batch, steps, states)),
    }


@pytest.mark.parametrize("seed", range(10))
def test_a_hundred_random_defects(seed: int) -> None:
    r = random.Random(seed)
    for _ in range(100):
        batch, steps, states = r.randint(1, 4), r.randint(2, 5), r.randint(1, 4)
        kinds = defects(r, batch, steps, states)
        kind = r.choice(list(kinds))
        argument, value = kinds[kind]()
        call: dict[str, Any] = {
            "unary": torch.zeros(batch, steps, states),
            "transition": torch.zeros(states, states),
            "backend": r.choice(["auto", "compiled", "torch"]),
            "y": torch.zeros(batch, steps, dtype=torch.int64),
            "k": 2,
            "cost": Hamming(),
        }
        call[argument] = value
        y, k, cost = (call.pop(name) for name in ("y", "k", "cost"))
        with pytest.raises((TypeError, ValueError), match="cost|NaN" if argument == "cost" else argument):
            use(call, y, k, cost)


def use(call: dict[str, Any], y: Any, k: Any, cost: Any) -> None:
    bound = LinearChain(**call)
    bound.score(y)
    bound.topk(k)
    bound.cost_augmented(y, cost).max()
