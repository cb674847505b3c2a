"""Candidates: classes and boxes, their losses and costs."""

import math
from typing import Any

import pytest
import torch
from enumeration import random_candidates, small_candidates
from hypothesis import given
from hypothesis import strategies as st
from oracles import ORACLES, K, assert_same_oracles, values_and_gradients
from refusals import Refusals, refusing
from structure_members import boxes_on_a_grid, some_indices
from torch import Tensor
from torch.autograd.functional import vjp
from torch.nn.functional import cross_entropy, multi_margin_loss
from torch.testing import assert_close

from structsmooth import (
    L2,
    BoxCandidates,
    Candidates,
    Entropy,
    Hamming,
    NormalizedHamming,
    OneMinusIoU,
    StructuralHinge,
    WeightedHamming,
)

every_oracle = pytest.mark.parametrize("oracle", ["max", "topk", "logsumexp", "marginals", "max_marginals"])


@every_oracle
def test_an_example_without_candidates_has_no_gradient(oracle: str) -> None:
    scores, mask = random_candidates(3, 4, masked=0.0)
    mask[0] = False
    *values, gradient = values_and_gradients(oracle, lambda s: Candidates(s, mask), scores)
    assert not any(v.isnan().any() for v in values)
    assert not gradient[0].any()
    assert gradient[1:].any()
    assert not values[0][0].any() if oracle == "marginals" else (values[0][0] == -torch.inf).all()


@every_oracle
def test_the_order_does_not_matter(oracle: str) -> None:
    scores, mask = random_candidates(4, 6)
    order = torch.tensor([4, 2, 0, 5, 3, 1])
    moved = Candidates(scores[:, order], mask[:, order])
    for before, after in zip(ORACLES[oracle](Candidates(scores, mask)), ORACLES[oracle](moved), strict=True):
        assert_close(after, before[:, order] if oracle in ("marginals", "max_marginals") else before)
    assert_close(order[moved.topk(2)[1]], Candidates(scores, mask).topk(2)[1])


# Losses and costs.


def test_hinge_on_classes_is_the_multiclass_margin_loss_of_crammer_and_singer() -> None:
    scores, _ = random_candidates(7, 5)
    y = some_indices(scores)
    others = scores.scatter(1, y[:, None], -torch.inf).max(1).values
    expected = (1 + others - scores.gather(1, y[:, None]).squeeze(1)).clamp_min(0)
    assert_close(StructuralHinge(reduction="none")(Candidates(scores), y), expected)
    two = scores[:, :2]  # torch's loss sums over the wrong classes and divides by their number plus one
    assert_close(StructuralHinge()(Candidates(two), y % 2), 2 * multi_margin_loss(two, y % 2))


def test_likelihood_of_classes_is_the_cross_entropy() -> None:
    scores, _ = random_candidates(7, 5)
    y = some_indices(scores)
    loss = StructuralHinge.crf()
    actual = vjp(lambda s: loss(Candidates(s), y), scores)
    assert_close(actual, vjp(lambda s: cross_entropy(s, y), scores))


@pytest.mark.parametrize("cost", [Hamming(), NormalizedHamming()])
def test_a_wrong_candidate_costs_one(cost: Any) -> None:
    scores, mask = random_candidates(6, 4)
    y = some_indices(scores)
    augmented = Candidates(scores, mask).cost_augmented(y, cost)
    assert_close(augmented.scores - scores, 1 - Candidates(scores).parts(y)[0])
    assert torch.equal(augmented.mask, mask)


def test_a_wrong_candidate_costs_the_weight_of_the_right_one() -> None:
    weights = (0.5, 2.0, 0.0)
    y = torch.tensor([0, 1, 2])
    augmented = Candidates(torch.zeros(3, 3)).cost_augmented(y, WeightedHamming(weights))
    assert_close(augmented.scores, torch.tensor(weights)[:, None] * (1 - torch.eye(3)))


@pytest.mark.parametrize("smoother", [L2(0.5, 3), Entropy(0.5)], ids=["l2", "entropy"])
def test_hinge_with_a_cost_of_each_candidate(smoother: Any) -> None:
    """As with 1 - IoU of proposal boxes."""
    scores, mask = random_candidates(6, 8, masked=0.2)
    y = mask.long().argmax(1)
    costs = torch.rand(6, 8, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    costs = costs.scatter(1, y[:, None], 0.0)
    loss = StructuralHinge(smoother, costs, reduction="none")
    expected = smoother(Candidates(scores + costs, mask)) - scores.gather(1, y[:, None]).squeeze(1)
    assert_close(loss(Candidates(scores, mask), y), expected)
    assert (expected >= 0).all()
    forbidden = (~mask).long().argmax(1)
    with pytest.raises(ValueError, match=r"labels of examples 0, 1, 2, 3, 4, \.\.\. of the batch are forbidden"):
        loss(Candidates(scores, mask), forbidden)
    assert (loss(Candidates(scores, mask, validate_args=False), forbidden) == torch.inf).all()


# Bad input.

B, M = 2, 3


def candidates(scores: Any = None, **changes: Any) -> Candidates:
    return Candidates(torch.zeros(B, M) if scores is None else scores, **changes)


CASES: Refusals = {
    "no candidates": (lambda: candidates(torch.zeros(B, 0)), ValueError, "scores .* M >= 1"),
    "mask is a list": (lambda: candidates(mask=[[True] * M] * B), TypeError, "mask must be .* got list"),
    "mask holds integers": (lambda: candidates(mask=torch.ones(B, M)), TypeError, "mask must be boolean"),
    "mask of another shape": (
        lambda: candidates(mask=torch.ones(B, 2).bool()),
        ValueError,
        r"mask must have shape \[B, M\] = \(2, 3\), got \(2, 2\)",
    ),
    "mask elsewhere": (
        lambda: candidates(mask=torch.ones(B, M, device="meta").bool()),
        ValueError,
        "mask must be on the device of scores, cpu, got meta",
    ),
    "weights of other classes": (
        lambda: candidates().cost_augmented(torch.tensor([0, 0]), WeightedHamming((1.0, 2.0))),
        ValueError,
        "weights must be one per class",
    ),
}
test_refuses = refusing(CASES)


def test_the_good_calls_behind_the_bad_ones_are_good() -> None:
    assert candidates().topk(K)[1].shape == (B, K)
    assert candidates(torch.full((B, M), math.nan), validate_args=False).validate_args is False


# Boxes.


def cells(box: list[float]) -> set[tuple[int, int]]:
    xmin, ymin, xmax, ymax = map(int, box)
    return {(x, y) for x in range(xmin, xmax) for y in range(ymin, ymax)}


@given(potentials=small_candidates(), seed=st.integers(0, 2**32 - 1))
def test_overlaps_are_shared_cells(potentials: tuple[Tensor, Tensor], seed: int) -> None:
    scores, mask = potentials
    boxes, y = boxes_on_a_grid(*scores.shape, seed), some_indices(scores)
    structure = BoxCandidates(scores, boxes, mask)
    overlaps, cost = structure.overlaps(y), OneMinusIoU()(structure, y)
    assert cost.dtype == scores.dtype
    assert_close(cost, (1 - overlaps).to(scores.dtype), rtol=0, atol=0)
    for b, own in enumerate(boxes.tolist()):
        for m, box in enumerate(own):
            union = cells(box) | cells(own[y[b]])
            expected = len(cells(box) & cells(own[y[b]])) / len(union) if union and mask[b, m] else 0.0
            assert overlaps[b, m].item() == pytest.approx(expected)


def test_boxes_are_candidates() -> None:
    scores, mask = random_candidates(3, 5)
    structure, plain = BoxCandidates(scores, boxes_on_a_grid(3, 5), mask), Candidates(scores, mask)
    assert_same_oracles(structure, plain, structure.max()[1], 4)
    moved = structure.replace(scores + 1)
    assert isinstance(moved, BoxCandidates)
    assert torch.equal(moved.boxes, structure.boxes)
    assert torch.equal(moved.mask, mask)


def test_hinge_of_boxes() -> None:
    boxes = torch.tensor([[[0.0, 0, 2, 1], [1, 0, 3, 1], [5, 5, 6, 6]]])
    scores = torch.tensor([[1.0, 0.5, -0.5]], requires_grad=True)
    loss = StructuralHinge(cost=OneMinusIoU())(BoxCandidates(scores, boxes), torch.tensor([0]))
    loss.backward()
    assert loss.item() == pytest.approx(0.5 + (1 - 1 / 3) - 1)
    assert scores.grad is not None
    assert scores.grad.tolist() == [[-1.0, 1.0, 0.0]]


def test_malformed_boxes() -> None:
    scores = torch.zeros(2, 3)
    with pytest.raises(ValueError, match=r"boxes must have shape \[B, M, 4\] = \(2, 3, 4\), got \(2, 3\)"):
        BoxCandidates(scores, torch.zeros(2, 3))
    with pytest.raises(TypeError, match="boxes must"):
        BoxCandidates(scores, torch.zeros(2, 3, 4, dtype=torch.int64))
    wrong = torch.tensor([1.0, 0, 0, 1]).expand(2, 3, 4)
    with pytest.raises(ValueError, match="xmin <= xmax"):
        BoxCandidates(scores, wrong)
    BoxCandidates(scores, wrong, torch.zeros(2, 3, dtype=torch.bool))
    BoxCandidates(scores, wrong, validate_args=False)
    with pytest.raises(TypeError, match="OneMinusIoU is a cost of BoxCandidates, got Candidates"):
        OneMinusIoU()(Candidates(scores), torch.tensor([0, 0]))
