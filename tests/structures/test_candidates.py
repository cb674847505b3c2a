"""Candidates: every oracle against enumeration, and under what must not matter."""

import math
from collections.abc import Callable
from typing import Any

import pytest
import torch
from enumeration import EnumeratedCandidates, random_scores
from hypothesis import given
from hypothesis import strategies as st
from oracles import ORACLES, K, assert_same_oracles, values_and_gradients
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

every_oracle = pytest.mark.parametrize("oracle", ORACLES)


def random_candidates(
    batch: int, count: int, seed: int = 0, ties: bool = False, forbidden: float = 0.0, masked: float = 0.3
) -> tuple[Tensor, Tensor]:
    """Scores and mask."""
    generator = torch.Generator().manual_seed(seed)
    scores = random_scores(generator, ties, forbidden)(batch, count)
    return scores, torch.rand(batch, count, generator=generator) >= masked


@st.composite
def small_candidates(draw: st.DrawFn, ties: bool | None = None) -> tuple[Tensor, Tensor]:
    """At most 9 candidates; some examples have none."""
    return random_candidates(
        draw(st.integers(1, 3)),
        draw(st.integers(1, 9)),
        draw(st.integers(0, 2**32 - 1)),
        ties=draw(st.booleans()) if ties is None else ties,
        forbidden=draw(st.sampled_from([0.0, 0.2, 0.6])),
        masked=draw(st.sampled_from([0.0, 0.3, 0.8])),
    )


def some_indices(scores: Tensor) -> Tensor:
    """Indices that depend on the shape only."""
    return torch.arange(len(scores)) * 7 % 5 % scores.shape[1]


def masked_by(mask: Tensor) -> Callable[[Tensor], Candidates]:
    return lambda scores: Candidates(scores, mask)


@given(potentials=small_candidates(), k=st.integers(1, 12))
def test_oracles_match_enumeration(potentials: tuple[Tensor, Tensor], k: int) -> None:
    scores, mask = potentials
    y = torch.where(mask.any(1), mask.long().argmax(1), 0)  # of masked ones the enumeration knows no score
    scores = scores.masked_fill(~mask.any(1, keepdim=True), -torch.inf)
    assert_same_oracles(Candidates(scores, mask), EnumeratedCandidates(scores, mask), y, k)


@every_oracle
@given(potentials=small_candidates())
def test_gradients_are_the_enumerated_statistics(oracle: str, potentials: tuple[Tensor, Tensor]) -> None:
    scores, mask = potentials
    actual = values_and_gradients(oracle, masked_by(mask), scores)
    assert_close(actual, values_and_gradients(oracle, lambda s: EnumeratedCandidates(s, mask), scores))


@every_oracle
def test_an_example_without_candidates_has_no_gradient(oracle: str) -> None:
    scores, mask = random_candidates(3, 4, masked=0.0)
    mask[0], scores[1] = False, -torch.inf
    *values, gradient = values_and_gradients(oracle, masked_by(mask), scores)
    assert not any(v.isnan().any() for v in values)
    assert not gradient[:2].any()
    assert gradient[2].any()
    if oracle != "marginals":
        assert (values[0][:2] == -torch.inf).all()


@every_oracle
def test_gradcheck(oracle: str) -> None:
    scores, mask = random_candidates(3, 5)

    def finite(scores: Tensor) -> tuple[Tensor, ...]:
        return tuple(value[value > -torch.inf] for value in ORACLES[oracle](Candidates(scores, mask)))

    assert torch.autograd.gradcheck(finite, scores.requires_grad_())


@pytest.mark.parametrize("oracle", ["logsumexp", "marginals"])
@pytest.mark.parametrize("forbidden", [0.0, 0.3])
def test_second_derivatives(forbidden: float, oracle: str) -> None:
    scores, mask = random_candidates(3, 5, forbidden=forbidden)
    mask[0] = False
    allowed = scores > -torch.inf

    def run(free: Tensor) -> tuple[Tensor, ...]:
        full = torch.full_like(scores, -torch.inf).masked_scatter(allowed, free)
        values = ORACLES[oracle](Candidates(full, mask))
        return tuple(value[1:] for value in values)  # without the -inf of the first

    assert torch.autograd.gradgradcheck(run, scores[allowed].requires_grad_())


@every_oracle
@pytest.mark.parametrize("garbage", [math.nan, math.inf, -math.inf, 1e300])
def test_masked_scores_may_hold_anything(garbage: float, oracle: str) -> None:
    scores, mask = random_candidates(4, 6)
    clean = values_and_gradients(oracle, masked_by(mask), scores)
    dirty = values_and_gradients(oracle, masked_by(mask), scores.masked_fill(~mask, garbage))
    assert_close(dirty, clean, rtol=0, atol=0)
    assert not clean[-1][~mask].any()


@every_oracle
def test_masked_candidates_could_be_left_out(oracle: str) -> None:
    scores, mask = random_candidates(4, 6)
    for b in range(4):
        for whole, alone in zip(
            ORACLES[oracle](Candidates(scores, mask)),
            ORACLES[oracle](Candidates(scores[b, mask[b]][None])),
            strict=True,
        ):
            per_candidate = oracle in ("marginals", "max_marginals")
            assert_close(whole[b, mask[b]] if per_candidate else whole[b], alone[0])


@every_oracle
def test_shifts_and_permutations(oracle: str) -> None:
    scores, mask = random_candidates(4, 6)
    order = torch.tensor([4, 2, 0, 5, 3, 1])
    moved = Candidates(scores[:, order] + 2.5, mask[:, order])
    for before, after in zip(ORACLES[oracle](Candidates(scores, mask)), ORACLES[oracle](moved), strict=True):
        expected = before if oracle == "marginals" else before + 2.5
        assert_close(after, expected[:, order] if oracle in ("marginals", "max_marginals") else expected)
    assert_close(order[moved.topk(2)[1]], Candidates(scores, mask).topk(2)[1])


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
@every_oracle
def test_half_precision_is_accumulated_in_float32(dtype: torch.dtype, oracle: str) -> None:
    scores, mask = random_candidates(4, 6)
    half = scores.to(dtype)
    *values, gradient = values_and_gradients(oracle, masked_by(mask), half)
    *expected, expected_gradient = values_and_gradients(oracle, masked_by(mask), half.float())
    assert_close(values, expected, rtol=0, atol=0)
    assert_close(gradient, expected_gradient.to(dtype))


@every_oracle
def test_float32_is_close_to_float64(oracle: str) -> None:
    scores, mask = random_candidates(4, 200)
    single = (scores * 1e4).float()
    actual = values_and_gradients(oracle, masked_by(mask), single)
    expected = values_and_gradients(oracle, masked_by(mask), single.double())
    for a, e in zip(actual, expected, strict=True):
        assert a.dtype == torch.float32
        finite = e.isfinite()
        assert torch.equal(a.isfinite(), finite)
        assert (a - e)[finite].abs().max() <= 1e-6 * max(1.0, e[finite].abs().max())


@every_oracle
def test_oracles_never_look_at_values(oracle: str) -> None:
    """Tensors on the meta device have none: nothing waits for a GPU."""
    potentials = random_candidates(4, 6)
    shapes = [value.shape for value in ORACLES[oracle](Candidates(*potentials))]
    candidates = Candidates(*(tensor.to("meta") for tensor in potentials), validate_args=False)
    assert [value.shape for value in ORACLES[oracle](candidates)] == shapes


@every_oracle
def test_tensors_of_the_caller_stay_as_they_are(oracle: str) -> None:
    scores, mask = random_candidates(4, 6)
    leaf = scores.clone().requires_grad_()
    before = scores.clone(), mask.clone()
    assert not any(value.requires_grad for value in ORACLES[oracle](Candidates(scores, mask)))
    torch.cat([value[value > -torch.inf] for value in ORACLES[oracle](Candidates(leaf, mask))]).sum().backward()
    assert_close((scores, mask), before, rtol=0, atol=0)
    assert (scores._version, mask._version, leaf._version) == (0, 0, 0)


def test_an_empty_batch_gives_empty_answers() -> None:
    empty = Candidates(torch.zeros(0, 3))
    assert empty.max()[1].shape == (0,)
    assert empty.topk(5)[0].shape == (0, 5)
    assert empty.logsumexp().shape == (0,)
    assert empty.cost_augmented(torch.zeros(0, dtype=torch.int64), NormalizedHamming()).scores.shape == (0, 3)


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
    assert (StructuralHinge(smoother)(Candidates(scores, mask), (~mask).long().argmax(1)) == torch.inf).all()


@pytest.mark.parametrize(
    "loss",
    [StructuralHinge(), StructuralHinge.crf(), StructuralHinge.softmax_margin(), StructuralHinge.sparsemap(k=3)],
    ids=["hinge", "crf", "softmax_margin", "sparsemap"],
)
def test_losses_compile_without_graph_breaks(loss: StructuralHinge) -> None:
    scores, mask = random_candidates(4, 6)
    y = mask.long().argmax(1)

    def run(scores: Tensor) -> Tensor:
        return loss(Candidates(scores, mask), y)

    torch.compiler.reset()
    compiled_run = torch.compile(run, fullgraph=True, backend="aot_eager")  # raises at a graph break
    assert_close(vjp(compiled_run, scores), vjp(run, scores))


# Bad input.

B, M = 2, 3


def candidates(scores: Any = None, **changes: Any) -> Candidates:
    return Candidates(torch.zeros(B, M) if scores is None else scores, **changes)


def indices(*values: int) -> Tensor:
    return torch.tensor(values)


CASES: dict[str, tuple[Callable[[], object], type[Exception], str]] = {
    "scores are a list": (lambda: candidates([[0.0]]), TypeError, "scores must be .* got list"),
    "scores are integers": (lambda: candidates(indices(1, 2)), TypeError, "scores .* floating point"),
    "scores of one example": (lambda: candidates(torch.zeros(M)), ValueError, r"scores .* \[B, M\] .* got \(3,\)"),
    "no candidates": (lambda: candidates(torch.zeros(B, 0)), ValueError, "scores .* M >= 1"),
    "scores are NaN": (lambda: candidates(torch.full((B, M), math.nan)), ValueError, "scores must not contain NaN"),
    "scores are +inf": (lambda: candidates(torch.full((B, M), math.inf)), ValueError, r"scores must not .* \+inf"),
    "mask is a list": (lambda: candidates(mask=[[True] * M] * B), TypeError, "mask must be .* got list"),
    "mask holds integers": (lambda: candidates(mask=torch.ones(B, M).long()), TypeError, "mask must be boolean"),
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
    "no potentials": (lambda: candidates().replace(), ValueError, "replace takes one"),
    "k is 0": (lambda: candidates().topk(0), ValueError, "k must be at least 1"),
    "k is a float": (lambda: candidates().topk(2.0), TypeError, "k must be an int"),
    "y is an int": (lambda: candidates().score(1), TypeError, "y must be .* got int"),
    "y holds floats": (lambda: candidates().score(torch.zeros(B)), TypeError, "y must hold integer labels"),
    "y is a matrix": (lambda: candidates().parts(torch.zeros(B, 1).long()), ValueError, r"y must have shape \[B\]"),
    "y is M": (lambda: candidates().score(indices(0, M)), ValueError, "y must hold labels from 0 to 2, got 0 to 3"),
    "y is negative": (lambda: candidates().parts(indices(0, -1)), ValueError, "y must hold labels from 0 to 2"),
    "y elsewhere": (lambda: candidates().score(indices(0, 0).to("meta")), ValueError, "y must be on .* got meta"),
    "cost of another shape": (
        lambda: candidates().cost_augmented(indices(0, 0), torch.zeros(B, M + 1)),
        ValueError,
        "cost must broadcast",
    ),
    "costs of a bad index": (lambda: candidates().cost_augmented(indices(0, M), Hamming()), ValueError, "y must hold"),
    "weights of other classes": (
        lambda: candidates().cost_augmented(indices(0, 0), WeightedHamming((1.0, 2.0))),
        ValueError,
        "weights must be one per class",
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_refuses(name: str) -> None:
    call, error, message = CASES[name]
    with pytest.raises(error, match=message):
        call()


def test_the_good_calls_behind_the_bad_ones_are_good() -> None:
    assert candidates().topk(K)[1].shape == (B, K)
    assert candidates(torch.full((B, M), math.nan), validate_args=False).validate_args is False


# Boxes.


def random_boxes(batch: int, count: int, seed: int = 0) -> Tensor:
    """Edges on a grid, so that overlaps can be counted cell by cell; some without area."""
    generator = torch.Generator().manual_seed(seed)
    corners = torch.randint(0, 6, (batch, count, 2), generator=generator)
    return torch.cat([corners, corners + torch.randint(0, 4, corners.shape, generator=generator)], -1).float()


def cells(box: list[float]) -> set[tuple[int, int]]:
    xmin, ymin, xmax, ymax = map(int, box)
    return {(x, y) for x in range(xmin, xmax) for y in range(ymin, ymax)}


@given(potentials=small_candidates(), seed=st.integers(0, 2**32 - 1))
def test_overlaps_are_shared_cells(potentials: tuple[Tensor, Tensor], seed: int) -> None:
    scores, mask = potentials
    boxes, y = random_boxes(*scores.shape, seed), some_indices(scores)
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
    structure, plain = BoxCandidates(scores, random_boxes(3, 5), mask), Candidates(scores, mask)
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
