"""Matchings: every oracle against enumeration, scipy's assignment, and under what must not matter."""

from collections.abc import Callable
from fractions import Fraction
from itertools import permutations, product
from typing import Any

import numpy as np
import pytest
import torch
from enumeration import EnumeratedMatching, Weights, assert_lists, random_matchings, small_matchings
from hypothesis import given
from hypothesis import strategies as st
from oracles import assert_best_at_any_scale
from scipy.optimize import linear_sum_assignment
from torch import Tensor
from torch.autograd.functional import vjp
from torch.testing import assert_close

from structsmooth import L2, Hamming, Matching, NormalizedHamming, StructuralHinge
from structsmooth.structures.matching import operators as compiled

K = 3
NAN, INF = torch.nan, torch.inf
VALUES: dict[str, Callable[..., Tensor]] = {
    "max": lambda matching: matching.max()[0],
    "topk": lambda matching: matching.topk(K)[0],
    "max_marginals": lambda matching: matching.max_marginals(),
    "score": lambda matching: matching.score(some_labels(*matching.potentials)),
}

every_value = pytest.mark.parametrize("value", VALUES)


class Twin(EnumeratedMatching):
    """The enumeration, with the potentials where a matching has them."""

    @property
    def potentials(self) -> tuple[Tensor, ...]:
        return self.tables


def some_labels(weights: Tensor) -> Tensor:
    """The diagonal, which all sizes have."""
    batch, rows, _ = weights.shape
    return torch.arange(rows, device=weights.device).expand(batch, rows)


def values_and_gradients(
    value: str, weights: Weights, structure: Callable[..., Matching | Twin] = Matching
) -> tuple[Tensor, Tensor]:
    """Values of an oracle, then the gradient of a weighted sum of them."""
    scores, sizes = weights

    def run(scores: Tensor) -> Tensor:
        return VALUES[value](structure(scores, sizes))

    out = run(scores)
    shares = torch.arange(1.0, out.numel() + 1).cos().to(out).view_as(out)
    values, gradient = vjp(run, scores, shares)
    return values, gradient


def medium(**options: Any) -> Weights:
    """Square, wide and narrow examples."""
    return random_matchings([(12, 12), (9, 15), (12, 15), (1, 7)], seed=1, **options)


@given(weights=small_matchings(), k=st.integers(1, 12))
def test_oracles_match_enumeration(weights: Weights, k: int) -> None:
    matching, twin = Matching(*weights), Twin(*weights)
    for actual, expected in [
        (matching.max()[0], twin.max()[0]),
        (matching.topk(k)[0], twin.topk(k)[0]),
        (matching.max_marginals(), twin.max_marginals()),
    ]:
        assert_close(actual, expected, rtol=1e-12, atol=1e-12)


@given(weights=small_matchings(ties=False))
def test_outputs_without_ties_match_enumeration(weights: Weights) -> None:
    matching, twin = Matching(*weights), Twin(*weights)
    assert torch.equal(matching.max()[1], twin.max()[1])
    assert torch.equal(matching.topk(5)[1], twin.topk(5)[1])


@given(weights=small_matchings(), k=st.integers(1, 800))
def test_topk_lists_distinct_outputs_by_score(weights: Weights, k: int) -> None:
    matching = Matching(*weights)
    values, y = matching.topk(k)
    assert not (y * ~matching.mask[:, None]).any()
    assert_lists(matching, (values, y), EnumeratedMatching(*weights).topk(k)[0])


@given(weights=small_matchings())
def test_scores_and_parts(weights: Weights) -> None:
    matching, twin = Matching(*weights), EnumeratedMatching(*weights)
    for index in range(3):
        y = torch.stack([outputs[index % len(outputs)] for outputs in twin.outputs])
        assert_close(matching.score(y), twin.score(y))
        assert_close(matching.parts(y), twin.parts(y))
        anything = torch.where(matching.mask, y, 99)
        assert_close(matching.score(anything), twin.score(y))
        assert_close(matching.parts(anything), twin.parts(y))


@pytest.mark.parametrize("value", ["max", "topk", "max_marginals"])
@given(weights=small_matchings(ties=False))  # among ties, any maximizer is a subgradient
def test_gradients_are_the_enumerated_statistics(value: str, weights: Weights) -> None:
    assert_close(values_and_gradients(value, weights), values_and_gradients(value, weights, Twin))


@given(weights=small_matchings(ties=True))
def test_gradients_among_ties_are_parts_of_best_matchings(weights: Weights) -> None:
    """A subgradient of each max-marginal: parts of a matching with that pair and that score."""
    scores, sizes = weights
    finite = scores.masked_fill(scores == -torch.inf, -100.0).requires_grad_()
    marginals = Matching(finite, sizes).max_marginals()
    for b, (rows, columns) in enumerate(sizes.tolist()):
        for v, j in product(range(rows), range(columns)):
            (gradient,) = torch.autograd.grad(marginals[b, v, j], finite, retain_graph=True)
            own = gradient[b, :rows, :columns]
            assert own[v, j] == 1
            assert set(own.unique().tolist()) <= {0.0, 1.0}
            assert (own.sum(1) == 1).all()
            assert (own.sum(0) <= 1).all()
            assert gradient.sum() == rows
            assert_close((gradient * finite).sum(), marginals[b, v, j])


@pytest.mark.parametrize("value", VALUES)
@pytest.mark.parametrize("sizes", [[(4, 4), (3, 3)], [(3, 5), (2, 5)]])
def test_gradcheck(sizes: list[tuple[int, int]], value: str) -> None:
    weights, shape = random_matchings(sizes, seed=2)

    def run(weights: Tensor) -> Tensor:
        values = VALUES[value](Matching(weights, shape))
        return torch.where(values > -torch.inf, values, 0.0)

    assert torch.autograd.gradcheck(run, weights.requires_grad_())


@every_value
@pytest.mark.parametrize("where", ["row", "columns"])
def test_an_example_without_outputs_has_no_gradient(where: str, value: str) -> None:
    weights, sizes = random_matchings([(4, 5), (3, 4)])
    if where == "row":
        weights[0, 1] = -torch.inf
    else:  # three rows that want the same two columns
        weights[0, :3, 2:] = -torch.inf
    values, gradient = values_and_gradients(value, (weights, sizes))
    assert not values.isnan().any()
    assert (values[0] == -torch.inf).all()
    assert (values[1] > -torch.inf).any()
    if value != "score":
        assert not gradient[0].any()
    assert gradient[1].any()


# Larger matchings, against scipy.


def assigned(weights: Tensor) -> float:
    """Largest weight of a matching, -inf if there is none."""
    try:
        rows, columns = linear_sum_assignment(weights.numpy(), maximize=True)
    except ValueError:
        return -INF
    return float(weights[rows, columns].sum())


@pytest.mark.parametrize("forbidden", [0.0, 0.5, 0.9])
@pytest.mark.parametrize(("rows", "columns"), [(1, 50), (40, 40), (40, 41), (30, 70)])
def test_max_matches_scipy(rows: int, columns: int, forbidden: float) -> None:
    weights, _ = random_matchings([(rows, columns)] * 4, forbidden=forbidden)
    values, y = Matching(weights).max()
    expected = torch.tensor([assigned(own) for own in weights], dtype=torch.float64)
    assert_close(values, expected, rtol=1e-13, atol=0)
    for own, partners in zip(expected, y, strict=True):
        assert own == -torch.inf or len(partners.unique()) == rows


@pytest.mark.parametrize("ties", [False, True])
@pytest.mark.parametrize(("rows", "columns"), [(14, 14), (12, 18)])
def test_max_marginals_match_scipy(rows: int, columns: int, ties: bool) -> None:
    weights, _ = random_matchings([(rows, columns)], ties=ties, forbidden=0.4)
    marginals = Matching(weights).max_marginals()[0]
    assert (marginals > -torch.inf).any()
    for v, j in product(range(rows), range(columns)):
        forced = weights[0].clone()
        forced[v] = -torch.inf
        forced[v, j] = weights[0, v, j]
        assert_close(marginals[v, j].item(), assigned(forced), rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("ties", [False, True])
def test_the_second_best_of_a_large_matching(ties: bool) -> None:
    """It lacks some pair of the best."""
    weights, _ = random_matchings([(25, 25), (20, 30)], seed=7, ties=ties)
    for own in (weights[:1, :25, :25], weights[1:, :20, :30]):
        values, y = Matching(own).topk(2)
        rest = []
        for v, j in enumerate(y[0, 0].tolist()):
            without = own[0].clone()
            without[v, j] = -torch.inf
            rest.append(assigned(without))
        assert_close(values[0, 1].item(), max(rest))
        assert not torch.equal(y[0, 0], y[0, 1])


@pytest.mark.parametrize("size", [(4, 5), (5, 5), (5, 7)])
def test_long_lists_where_all_want_the_same_columns(size: tuple[int, int]) -> None:
    """Many forbidden pairs leave several rows to be assigned again, some of them to columns that were free."""
    weights, sizes = random_matchings([size] * 100)
    appeal = 3 * torch.randn(100, 1, size[1], generator=torch.Generator().manual_seed(8), dtype=torch.float64)
    values, _ = Matching(weights + appeal).topk(300)
    assert_close(values, EnumeratedMatching(weights + appeal, sizes).topk(300)[0], rtol=1e-12, atol=1e-12)


# Scale: weights from 1e-8 to 1e8 side by side.


@given(weights=small_matchings(), seed=st.integers(0, 2**32 - 1), by=st.sampled_from(["pair", "row", "column"]))
def test_adversarial_scales(by: str, weights: Weights, seed: int) -> None:
    scores, sizes = weights
    batch, rows, columns = scores.shape
    shape = {"pair": scores.shape, "row": (batch, rows, 1), "column": (batch, 1, columns)}[by]
    exponents = torch.rand(shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    wide = scores * 10 ** (16 * exponents - 8), sizes
    assert_best_at_any_scale(Matching(*wide), Twin(*wide), wide[0])


@given(weights=small_matchings(ties=False), seed=st.integers(0, 2**32 - 1))
def test_the_output_is_best_in_exact_arithmetic(weights: Weights, seed: int) -> None:
    scores, sizes = weights
    exponents = torch.rand(scores.shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    scores = scores * 10 ** (16 * exponents - 8)
    values, y = Matching(scores, sizes).max()
    for own, value, partners, (rows, columns) in zip(scores.tolist(), values, y.tolist(), sizes.tolist(), strict=True):
        if value == -torch.inf:
            continue
        exact = {
            p: sum(Fraction(own[v][j]) for v, j in enumerate(p))
            for p in permutations(range(columns), rows)
            if all(own[v][j] > -INF for v, j in enumerate(p))
        }
        largest = max(abs(w) for row in own[:rows] for w in row[:columns] if w > -INF)
        assert max(exact.values()) - exact[tuple(partners[:rows])] <= Fraction(largest) / 2**50


@pytest.mark.parametrize("penalty", [1e9, 1e30, torch.finfo(torch.float32).max, 1e300])
def test_a_huge_penalty_is_as_good_as_a_ban(penalty: float) -> None:
    weights, sizes = medium(forbidden=0.3)
    banned, penalized = Matching(weights, sizes).max(), Matching(weights.clamp_min(-penalty), sizes).max()
    assert (banned[0] > -torch.inf).all()
    assert_close(penalized, banned)


# What must not matter.


@every_value
def test_weights_added_to_a_row_add_to_every_output(value: str) -> None:
    weights, sizes = medium()
    shift = torch.randn(weights.shape[:2], dtype=torch.float64, generator=torch.Generator().manual_seed(2))
    matching, moved = Matching(weights, sizes), Matching(weights + shift[..., None], sizes)
    before, after = VALUES[value](matching), VALUES[value](moved)
    added = (shift * matching.mask).sum(1).view(-1, *[1] * (before.dim() - 1))
    inside = matching.mask.unsqueeze(-1) if value == "max_marginals" else torch.tensor(True)
    assert_close(after, torch.where(inside, before + added, before))
    assert torch.equal(matching.topk(K)[1], moved.topk(K)[1])


def test_weights_added_to_a_column_of_a_square_add_to_every_output() -> None:
    weights, _ = random_matchings([(10, 10)] * 3)
    shift = torch.randn(3, 1, 10, dtype=torch.float64, generator=torch.Generator().manual_seed(3))
    matching, moved = Matching(weights), Matching(weights + shift)
    assert_close(moved.max_marginals(), matching.max_marginals() + shift.sum(2, keepdim=True))
    assert_close(moved.topk(K), (matching.topk(K)[0] + shift.sum(2), matching.topk(K)[1]))


def test_renaming_rows_and_columns_renames_the_answers() -> None:
    weights, _ = random_matchings([(8, 11)] * 3)
    generator = torch.Generator().manual_seed(4)
    rows, columns = torch.randperm(8, generator=generator), torch.randperm(11, generator=generator)
    matching, renamed = Matching(weights), Matching(weights[:, rows][:, :, columns])
    values, y = renamed.topk(K)
    assert_close(values, matching.topk(K)[0])
    assert torch.equal(columns[y], matching.topk(K)[1][:, :, rows])
    assert_close(renamed.max_marginals(), matching.max_marginals()[:, rows][:, :, columns])


def test_a_square_matching_may_be_transposed() -> None:
    weights, _ = random_matchings([(9, 9)] * 2)
    matching, transposed = Matching(weights), Matching(weights.transpose(1, 2))
    values, y = transposed.topk(K)
    assert_close(values, matching.topk(K)[0])
    assert torch.equal(y.argsort(dim=2), matching.topk(K)[1])
    assert_close(transposed.max_marginals(), matching.max_marginals().transpose(1, 2))


def test_a_worthless_row_fills_a_rectangle_to_a_square() -> None:
    weights, _ = random_matchings([(5, 6)] * 3)
    square = torch.cat([weights, torch.zeros(3, 1, 6, dtype=torch.float64)], 1)
    matching, filled = Matching(weights), Matching(square)
    values, y = filled.topk(K)
    assert_close((values, y[..., :5]), matching.topk(K))
    assert_close(filled.max_marginals()[:, :5], matching.max_marginals())


@every_value
@pytest.mark.parametrize("garbage", [NAN, INF, -INF, 1e300])
def test_padding_may_hold_anything(garbage: float, value: str) -> None:
    weights, sizes = medium()
    rows, columns = torch.arange(12) < sizes[:, :1], torch.arange(15) < sizes[:, 1:]
    inside = rows[:, :, None] & columns[:, None]
    clean = values_and_gradients(value, (weights, sizes))
    dirty = values_and_gradients(value, (weights.masked_fill(~inside, garbage), sizes))
    assert_close(dirty, clean, rtol=0, atol=0)
    assert not clean[1][~inside].any()


def test_every_entry_of_a_batch_stands_alone() -> None:
    weights, sizes = medium(forbidden=0.1)
    matching = Matching(weights, sizes)
    values, y = matching.topk(K)
    for b, (rows, columns) in enumerate(sizes.tolist()):
        alone = Matching(weights[b : b + 1, :rows, :columns])
        assert_close(alone.topk(K), (values[b : b + 1], y[b : b + 1, :, :rows]))
        assert_close(alone.max_marginals(), matching.max_marginals()[b : b + 1, :rows, :columns])


def test_lengths_and_mask_count_the_rows() -> None:
    matching = Matching(*medium())
    assert matching.lengths.tolist() == matching.mask.sum(1).tolist() == [12, 9, 12, 1]
    assert Matching(torch.zeros(2, 3, 5)).sizes.tolist() == [[3, 5], [3, 5]]


def test_rows_with_the_same_partner_are_no_matching() -> None:
    weights, sizes = torch.zeros(3, 3, 4, requires_grad=True), torch.tensor([[3, 4], [3, 4], [2, 3]])
    y = torch.tensor([[0, 1, 2], [3, 1, 3], [1, 2, 1]])
    score = Matching(weights, sizes).score(y)
    assert score.tolist() == [0.0, -torch.inf, 0.0]
    (gradient,) = torch.autograd.grad(score.sum(), weights)
    assert gradient.sum((1, 2)).tolist() == [3.0, 0.0, 2.0]
    assert StructuralHinge(reduction="none")(Matching(weights, sizes), y).tolist()[1] == torch.inf


# Precision.


@every_value
@pytest.mark.parametrize("scale", [1.0, 1e4])
def test_float32_is_close_to_float64(scale: float, value: str) -> None:
    weights, sizes = random_matchings([(30, 30), (30, 40)], seed=3)
    single = (weights * scale).float(), sizes
    pairs = zip(
        values_and_gradients(value, single), values_and_gradients(value, (single[0].double(), sizes)), strict=True
    )
    for actual, expected in pairs:
        assert actual.dtype == torch.float32
        finite = expected > -torch.inf
        assert torch.equal(actual > -torch.inf, finite)
        largest = expected[finite].abs().max()
        assert ((actual - expected)[finite]).abs().max() <= 1e-6 * max(1.0, largest)


# Losses and compilation.


def test_losses_are_consistent() -> None:
    weights, sizes = random_matchings([(6, 6), (4, 6), (2, 5)])
    matching = Matching(weights, sizes)
    y = torch.arange(6).expand(3, 6)
    wrong = torch.tensor([[1, 2, 3, 4, 5, 0], [1, 0, 2, 3, 9, 9], [0, 4, 9, 9, 9, 9]])
    for cost, expected in ((Hamming(), [6.0, 2.0, 1.0]), (NormalizedHamming(), [1.0, 0.5, 0.5])):
        augmented = matching.cost_augmented(y, cost)
        assert_close(augmented.score(wrong) - matching.score(wrong), torch.tensor(expected, dtype=torch.float64))
        assert_close(augmented.score(y), matching.score(y))
        hinge = StructuralHinge(cost=cost, reduction="none")(matching, y)
        assert_close(hinge, augmented.max()[0] - matching.score(y))
        assert (hinge >= 0).all()
    distance = L2(mu=0.5, k=5)(matching) - matching.max()[0]
    assert ((distance >= 0) & (distance <= 0.25)).all()


@pytest.mark.parametrize("with_sizes", [False, True])
@pytest.mark.parametrize("loss", [StructuralHinge(), StructuralHinge.sparsemap(k=3)], ids=["hinge", "sparsemap"])
def test_losses_compile_without_graph_breaks(loss: StructuralHinge, with_sizes: bool) -> None:
    weights, sizes = random_matchings([(6, 6), (4, 6), (2, 5)])
    y = torch.arange(6).expand(3, 6)

    def run(weights: Tensor) -> Tensor:
        matching = Matching(weights, sizes if with_sizes else None)
        marginals = matching.max_marginals()
        return loss(matching, y) + torch.where(marginals > -torch.inf, marginals, 0.0).sum()

    torch.compiler.reset()
    compiled_run = torch.compile(run, fullgraph=True, backend="aot_eager")  # raises at a graph break
    assert_close(vjp(compiled_run, weights), vjp(run, weights))


@pytest.mark.filterwarnings("ignore:The .grad attribute of a Tensor that is not a leaf:UserWarning")  # by opcheck
def test_operators_are_registered_correctly() -> None:
    weights, sizes = random_matchings([(3, 4), (3, 3)])
    torch.library.opcheck(compiled.top_k, (weights.requires_grad_(), sizes, 3))
    torch.library.opcheck(compiled.max_marginals, (weights, sizes))
    torch.library.opcheck(compiled._max_marginals_gradient, (weights.detach(), sizes, torch.ones(2, 3, 4)))


# Bad input.

B, N, M = 2, 3, 4


def matching(**changes: Any) -> Matching:
    return Matching(**{"weights": torch.zeros(B, N, M), "sizes": torch.tensor([[3, 4], [2, 2]])} | changes)


def labels(*rows: list[int]) -> Tensor:
    return torch.tensor(rows or [[0, 1, 2], [1, 0, 0]])


def filled(entry: float, *at: int) -> Tensor:
    weights = torch.zeros(B, N, M)
    weights[at] = entry
    return weights


CASES: dict[str, tuple[Callable[[], object], type[Exception], str]] = {
    "weights are a list": (
        lambda: matching(weights=[[[0.0]]]),
        TypeError,
        r"weights must be a torch\.Tensor, got list",
    ),
    "weights are an array": (lambda: matching(weights=np.zeros((B, N, M))), TypeError, "weights .* got ndarray"),
    "weights are integers": (lambda: matching(weights=torch.zeros(B, N, M).long()), TypeError, "weights .* floating"),
    "weights are a matrix": (lambda: Matching(torch.zeros(N, M)), ValueError, r"weights .* \[B, N, M\].* got \(3, 4\)"),
    "more rows than columns": (
        lambda: Matching(torch.zeros(B, 5, 4)),
        ValueError,
        r"weights .* N <= M, got \(2, 5, 4\)",
    ),
    "no rows": (lambda: Matching(torch.zeros(B, 0, 4)), ValueError, r"weights .* 1 <= N <= M, got \(2, 0, 4\)"),
    "weights are NaN": (lambda: matching(weights=filled(NAN, 1, 1, 1)), ValueError, "weights must not contain NaN"),
    "weights are +inf": (lambda: matching(weights=filled(INF, 0, 2, 3)), ValueError, r"weights .* \+inf"),
    "sizes are a list": (lambda: matching(sizes=[[3, 4], [2, 2]]), TypeError, "sizes must be .* got list"),
    "sizes are floats": (lambda: matching(sizes=torch.ones(B, 2)), TypeError, "sizes must be integers"),
    "sizes are lengths": (
        lambda: matching(sizes=torch.tensor([3, 2])),
        ValueError,
        r"sizes .* \[B, 2\] = .* got \(2,\)",
    ),
    "sizes of another batch": (lambda: matching(sizes=torch.tensor([[3, 4]])), ValueError, r"sizes .* got \(1, 2\)"),
    "more rows than columns of an example": (
        lambda: matching(sizes=torch.tensor([[3, 4], [3, 2]])),
        ValueError,
        r"sizes must be rows and columns, 1 <= rows <= columns, at most N, M = 3, 4, got \[3, 2\] at example 1",
    ),
    "no rows of an example": (lambda: matching(sizes=torch.tensor([[0, 4], [2, 2]])), ValueError, r"sizes .* \[0, 4\]"),
    "too many rows": (lambda: matching(sizes=torch.tensor([[4, 4], [2, 2]])), ValueError, r"sizes .* got \[4, 4\]"),
    "too many columns": (lambda: matching(sizes=torch.tensor([[3, 5], [2, 2]])), ValueError, r"sizes .* got \[3, 5\]"),
    "sizes on another device": (
        lambda: matching(sizes=torch.ones(B, 2, device="meta").long()),
        ValueError,
        "sizes must be on the device of weights, cpu, got meta",
    ),
    "unchecked sizes": (
        lambda: matching(sizes=torch.tensor([[30, 40], [2, 2]]), validate_args=False).max(),
        ValueError,
        r"sizes .* got \[30, 40\] at example 0",
    ),
    "unchecked sizes of max-marginals": (
        lambda: matching(sizes=torch.tensor([[3, 4], [-1, 2]]), validate_args=False).max_marginals(),
        ValueError,
        r"sizes .* got \[-1, 2\] at example 1",
    ),
    "replace with too many": (
        lambda: matching().replace(torch.zeros(B, N, M), torch.zeros(B)),
        ValueError,
        "replace takes one tensor of potentials, weights, got 2",
    ),
    "replace with another shape": (
        lambda: matching().replace(torch.zeros(B, N, 5)),
        ValueError,
        r"weights must have shape \(2, 3, 4\) as before, got \(2, 3, 5\)",
    ),
    "replace with NaN": (lambda: matching().replace(filled(NAN, 0, 0, 0)), ValueError, "weights must not contain NaN"),
    "replace on another device": (
        lambda: matching().replace(torch.zeros(B, N, M, device="meta")),
        ValueError,
        "device",
    ),
    "k is 0": (lambda: matching().topk(0), ValueError, "k must be at least 1"),
    "k is a boolean": (lambda: matching().topk(True), TypeError, "k must be an int, got bool"),
    "y is a list": (lambda: matching().score([[0, 1, 2]] * B), TypeError, "y must be .* got list"),
    "y holds floats": (lambda: matching().score(torch.zeros(B, N)), TypeError, "y must hold integer labels"),
    "y is too long": (lambda: matching().parts(torch.zeros(B, 4).long()), ValueError, r"y .* \[B, N\] = \(2, 3\), got"),
    "label M": (lambda: matching().score(labels([0, 1, 4], [0, 1, 0])), ValueError, "y must hold labels from 0"),
    "label behind the columns of an example": (
        lambda: matching().score(labels([0, 1, 2], [0, 2, 0])),
        ValueError,
        r"y must hold labels from 0 to 1 at example 1, got \[0, 2, 0\]",
    ),
    "negative label": (lambda: matching().parts(labels([0, -1, 2], [0, 1, 0])), ValueError, "y must hold labels"),
    "y on another device": (lambda: matching().score(labels().to("meta")), ValueError, "y must be on"),
    "labels out of range to cost": (
        lambda: matching().cost_augmented(labels([0, 1, 9], [0, 1, 0]), Hamming()),
        ValueError,
        "y must hold labels",
    ),
    "cost that does not broadcast": (
        lambda: matching().cost_augmented(labels(), torch.zeros(B, N, 3)),
        ValueError,
        "cost must broadcast",
    ),
    "cost is NaN": (lambda: matching().cost_augmented(labels(), torch.full((M,), NAN)), ValueError, "NaN"),
}


@pytest.mark.parametrize("name", CASES)
def test_refuses(name: str) -> None:
    call, error, message = CASES[name]
    with pytest.raises(error, match=message):
        call()


def test_values_are_not_checked_on_request() -> None:
    bad = matching(weights=filled(NAN, 0, 0, 0), validate_args=False)
    assert bad.replace(*bad.potentials).validate_args is False
    assert matching(weights=filled(NAN, 1, 2, 3)).max()[0].tolist() == [0.0, 0.0]  # at padding
