"""Heads over features: shapes, padding, what they learn, and that solvers take them."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.testing import assert_close

from structsmooth import BCFW, L2, LinearModuleProblem, ModuleProblem, ProxLinear, ScoreModule, StructuralHinge
from structsmooth.models import BiaffineParser, MatchingHead, SegmentHead, SpanHead, TaggingHead

D, N = 6, 5
LENGTHS = torch.tensor([N, 3])
HEADS: dict[str, Callable[[], ScoreModule]] = {
    "tagging": lambda: TaggingHead(D, 3),
    "projective": lambda: BiaffineParser(D, hidden=8, projective=True),
    "labelled projective": lambda: BiaffineParser(D, 2, hidden=8, projective=True),
    "crossing": lambda: BiaffineParser(D, hidden=8),
    "labelled crossing": lambda: BiaffineParser(D, 2, hidden=8, single_root=False),
    "spans": lambda: SpanHead(D, 2, hidden=8),
    "binary spans": lambda: SpanHead(D, 2, hidden=8, binary=True),
    "segments": lambda: SegmentHead(D, 2, 3, hidden=8),
    "linear segments": lambda: SegmentHead(D, 2, 3, hidden=0),
    "matching": lambda: MatchingHead(D, 4, hidden=8),
    "partial matching": lambda: MatchingHead(D, 4, hidden=8, unmatched=True),
}
every_head = pytest.mark.parametrize("name", HEADS)


def inputs(name: str, seed: int = 0) -> Any:
    generator = torch.Generator().manual_seed(seed)
    features = torch.randn(2, N, D, generator=generator)
    if "matching" in name:
        return features, torch.randn(2, N + 1, 4, generator=generator), torch.stack([LENGTHS, LENGTHS + 1], 1)
    return features, LENGTHS


def head(name: str) -> ScoreModule:
    torch.manual_seed(0)
    module = HEADS[name]()
    for parameter in module.parameters():
        torch.nn.init.normal_(parameter, std=0.3)
    return module


@every_head
def test_padding_changes_nothing(name: str) -> None:
    module, (features, *rest) = head(name), inputs(name)
    features[1, 3:] = torch.nan
    value, y = module((features, *rest)).max()
    alone = (features[1:, :3], rest[0][1:, :4]) if "matching" in name else features[1:, :3]
    single, own = module(alone).max()
    assert_close(value[1:], single)
    assert_close(y[(slice(1, 2), *(slice(0, size) for size in own.shape[1:]))], own)


@every_head
def test_every_parameter_is_trained(name: str) -> None:
    module, x = head(name), inputs(name)
    y = module(inputs(name, seed=1)).max()[1]
    StructuralHinge(L2(1.0, 3))(module(x), y).backward()
    for parameter in module.parameters():
        assert parameter.grad is not None
        assert bool(parameter.grad.abs().sum() > 0)


@every_head
def test_outputs_are_learned(name: str) -> None:
    """From fresh weights, the labels of another head of the same kind."""
    teacher, x = head(name), inputs(name)
    y = teacher(x).max()[1]
    torch.manual_seed(1)
    student = HEADS[name]()
    optimizer = torch.optim.Adam(student.parameters(), lr=0.05)
    losses = []
    for _ in range(40):
        optimizer.zero_grad()
        loss = StructuralHinge()(student(x), y)
        loss.backward()
        losses.append(loss.item())
        optimizer.step()
    assert losses[-1] < 0.2 * losses[0]


@every_head
def test_solvers_take_them(name: str) -> None:
    module, x = head(name), inputs(name)
    y = module(x).max()[1]
    examples = [(tuple(part[i] for part in x), y[i]) for i in range(2)]
    if module.affine:
        problem = LinearModuleProblem(module.double(), [_double(example) for example in examples])
        result = BCFW().solve(problem, lam=0.1, passes=20)
        assert result.row.dual is not None
    else:
        result = ProxLinear(inner=BCFW()).solve(ModuleProblem(module, examples), lam=0.1, passes=4)
    assert result.row.objective < result.history[0].objective


def _double(example: tuple[tuple[Tensor, ...], Tensor]) -> tuple[tuple[Tensor, ...], Tensor]:
    x, y = example
    return tuple(part.double() if part.is_floating_point() else part for part in x), y


@pytest.mark.parametrize(
    ("x", "message"),
    [
        (torch.zeros(2, N), r"features must have shape \[B, T, D\] with D = 6, got \(2, 5\)"),
        (torch.zeros(2, N, 3), r"with D = 6, got \(2, 5, 3\)"),
        ((torch.zeros(2, N, D), torch.ones(3)), r"lengths must have shape \[B\] = \(2,\), got \(3,\)"),
    ],
)
def test_wrong_features_are_refused(x: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        TaggingHead(D, 3)(x)
