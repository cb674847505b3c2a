"""A random defect in an otherwise good call of any structure: always a clear ValueError or TypeError."""

import random
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from structsmooth import BinaryGraph, Candidates, Hamming, LinearChain, Matching, Structure, Subwindows, Tree

B, N, S = 2, 4, 3
TRANSITIONS = [(S, S), (B, S, S), (B, N - 1, S, S)]
NOT_TENSORS = [3, 2.5, "scores", [[0.0]], np.zeros((B, N, S)), object()]
# Arguments of good calls of the constructor, and labels y.
GOOD: dict[type[Structure], dict[str, Any]] = {
    LinearChain: {
        "unary": torch.zeros(B, N, S),
        "transition": torch.zeros(S, S),
        "lengths": torch.tensor([4, 2]),
        "backend": "auto",
        "y": torch.zeros(B, N, dtype=torch.int64),
    },
    Tree: {
        "unary": torch.zeros(B, N, S),
        "pairwise": torch.zeros(B, N, S, S),
        "parents": torch.tensor([[1, -1, 0, 1], [1, 2, -1, -1]]),
        "mask": torch.tensor([[True] * 4, [True, True, True, False]]),
        "y": torch.zeros(B, N, dtype=torch.int64),
    },
    BinaryGraph: {
        "unary": torch.zeros(B, N, 2),
        "edges": torch.tensor([[0, 1], [1, 2], [3, 1]]),
        "pairwise": torch.eye(2).expand(B, 3, 2, 2).clone(),
        "y": torch.zeros(B, N, dtype=torch.int64),
    },
    Matching: {
        "weights": torch.zeros(B, 3, N),
        "sizes": torch.tensor([[3, 4], [2, 2]]),
        "y": torch.tensor([[0, 1, 2], [1, 0, 0]]),
    },
    Candidates: {
        "scores": torch.zeros(B, N),
        "mask": torch.tensor([[True] * 4, [True, False, True, False]]),
        "y": torch.zeros(B, dtype=torch.int64),
    },
    Subwindows: {"scores": torch.zeros(B, N, S), "y": torch.tensor([[0, 0, 1, 2], [1, 1, 3, 4]])},
}


def use(structure: type[Structure], call: dict[str, Any]) -> None:
    arguments = dict(call)
    y, k, cost = (arguments.pop(name) for name in ("y", "k", "cost"))
    bound = structure(**arguments)
    bound.score(y)
    bound.parts(y)
    bound.topk(k)
    bound.cost_augmented(y, cost).max()


def defects(r: random.Random, structure: type[Structure], name: str, good: Any) -> list[Callable[[], Any]]:
    """Ways to spoil one argument."""
    if name == "k":
        return [lambda: r.choice([None, 2.0, True, "2", torch.tensor(2), np.float64(2), 0, -1, -(2**70)])]
    if name == "cost":
        bad = [
            3,
            "hamming",
            torch.zeros(7, 7, 7, 7),
            torch.zeros(B, N + 3),
            torch.tensor(torch.nan),
            torch.tensor(torch.inf),
        ]
        return [lambda: r.choice(bad)]
    if name == "backend":
        return [lambda: r.choice(["", "Torch", "gpu", None, 1])]
    ways = [
        lambda: r.choice(NOT_TENSORS),
        lambda: good.to(r.choice(wrong_dtypes(good.dtype))),
        lambda: torch.zeros(unlike(r, tuple(good.shape))).to(good.dtype),
    ]
    if name != "scores" or len(GOOD[structure]) > 2:  # else all are on that device
        ways.append(lambda: good.to("meta"))
    if good.dtype != torch.bool:
        ways.append(lambda: spoiled(r, good))
    return ways


def wrong_dtypes(dtype: torch.dtype) -> list[torch.dtype]:
    if dtype == torch.bool:
        return [torch.float32, torch.complex64]
    if dtype == torch.int64:
        return [torch.float32, torch.bool, torch.complex64]
    return [torch.int64, torch.int32, torch.uint8, torch.bool, torch.complex64]


def unlike(r: random.Random, good: tuple[int, ...]) -> tuple[int, ...]:
    """A shape of the wrong number of dimensions: a single one, elsewhere, could be of another good call."""
    while len(shape := tuple(r.randint(0, 5) for _ in range(r.randint(0, 6)))) == len(good) or shape in TRANSITIONS:
        pass
    return shape


def spoiled(r: random.Random, good: Tensor) -> Tensor:
    """One value that cannot be."""
    tensor = good.clone()
    # Entry 0 is in use whatever mask, lengths and sizes say.
    tensor.view(-1)[0] = r.choice([torch.nan, torch.inf]) if tensor.is_floating_point() else r.choice([-7, 99, 2**40])
    return tensor


@pytest.mark.parametrize("structure", GOOD, ids=lambda structure: structure.__name__)
def test_a_thousand_random_defects(structure: type[Structure]) -> None:
    good = GOOD[structure] | {"k": 2, "cost": torch.zeros(B, N, S) if structure is Subwindows else Hamming()}
    use(structure, good)
    r = random.Random(0)
    for _ in range(1000):
        name = r.choice(list(good))
        value = r.choice(defects(r, structure, name, good[name]))()
        # A defect in the device shows where the tensors meet.
        named = r"unary|scores|weights" if isinstance(value, Tensor) and value.is_meta else name
        if name == "cost" and isinstance(value, Tensor) and value.dim() == 0:
            named = "NaN"  # among the scores that it is added to
        with pytest.raises((TypeError, ValueError), match=rf"\b({name}|{named})\b"):
            use(structure, good | {name: value})
