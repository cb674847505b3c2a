"""Matchings: against scipy's assignment, at any scale, and under what must not matter to assignments."""

from fractions import Fraction
from itertools import permutations, product
from typing import Any

import pytest
import torch
from enumeration import (
    Capacities,
    EnumeratedCapacities,
    EnumeratedMatching,
    EnumeratedUnmatched,
    Unmatched,
    Weights,
    random_matchings,
    random_unmatched,
    small_capacities,
    small_matchings,
    small_unmatched,
)
from hypothesis import given
from hypothesis import strategies as st
from oracles import K, assert_best_at_any_scale, assert_lists, values_and_gradients
from refusals import Refusals, refusing
from scipy.optimize import linear_sum_assignment as scipy_assignment
from torch import Tensor
from torch.testing import assert_close

from structsmooth import Hamming, Matching, StructuralHinge, WeightedHamming
from structsmooth.decisions import linear_sum_assignment
from structsmooth.structures import operators

NAN, INF = torch.nan, torch.inf


def medium(**options: Any) -> Weights:
    """Square, wide and narrow examples."""
    return random_matchings([(12, 12), (9, 15), (12, 15), (1, 7)], seed=1, **options)


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


@pytest.mark.parametrize("oracle", ["max", "topk", "max_marginals"])
def test_rows_that_want_too_few_columns_have_no_output(oracle: str) -> None:
    """Three rows that want the same two."""
    weights, sizes = random_matchings([(4, 5), (3, 4)])
    weights[0, :3, 2:] = -torch.inf
    values, gradient = values_and_gradients(oracle, lambda w: Matching(w, sizes), weights)
    assert (values[0] == -torch.inf).all()
    assert (values[1] > -torch.inf).any()
    assert not gradient[0].any()
    assert gradient[1].any()


# Larger matchings, against scipy.


def assigned(weights: Tensor) -> float:
    """Largest weight of a matching, -inf if there is none."""
    try:
        rows, columns = scipy_assignment(weights.numpy(), maximize=True)
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
    assert_best_at_any_scale(Matching(*wide), EnumeratedMatching(*wide), wide[0])


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


# Rows and columns that stay alone.


@given(instance=small_unmatched())
def test_rows_alone_may_be_unmatched(instance: Unmatched) -> None:
    weights, sizes, rows, _ = instance
    matching, twin = Matching(weights, sizes, unmatched_rows=rows), EnumeratedUnmatched(weights, sizes, rows, None)
    assert_lists(matching, matching.topk(9), twin.topk(9)[0], torch.full_like(rows, -1, dtype=torch.int64))
    assert_close(matching.max_marginals(), twin.max_marginals(), rtol=1e-12, atol=1e-12)


@given(weights=small_matchings(), seed=st.integers(0, 2**32 - 1), forbidden=st.sampled_from([0.0, 0.3]))
def test_columns_alone_may_have_scores(weights: Weights, seed: int, forbidden: float) -> None:
    scores, sizes = weights
    shape = [scores.shape[1:]] * len(scores)
    *_, columns = random_unmatched([tuple(own) for own in shape], seed, forbidden=forbidden)
    matching = Matching(scores, sizes, unmatched_columns=columns)
    twin = EnumeratedUnmatched(scores, sizes, None, columns)
    assert_close(matching.topk(9)[0], twin.topk(9)[0], rtol=1e-12, atol=1e-12)
    assert_close(matching.max_marginals(), twin.max_marginals(), rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("scale", [1e-200, 1e-8, 1.0, 1e8, 1e200])
def test_columns_that_must_be_taken_are_so_at_any_scale(scale: float) -> None:
    weights, sizes, rows, columns = random_unmatched([(6, 5), (5, 6), (9, 9)], seed=2)
    columns[:, :3] = -torch.inf
    _, y = Matching(weights, sizes, unmatched_rows=rows, unmatched_columns=columns).max()
    scaled = [scores * scale for scores in (weights, rows, columns)]
    value, own = Matching(scaled[0], sizes, unmatched_rows=scaled[1], unmatched_columns=scaled[2]).max()
    assert torch.equal(own, y)
    assert (value > -torch.inf).all()
    assert all({0, 1, 2} <= set(partners) for partners in y.tolist())


def test_more_columns_that_must_be_taken_than_rows_leave_no_output() -> None:
    columns = torch.tensor([[-INF, -INF, -INF], [-INF, -INF, 0.0]])
    value, y = Matching(torch.zeros(2, 2, 3), unmatched_rows=torch.zeros(2, 2), unmatched_columns=columns).max()
    assert value.tolist() == [-INF, 0.0]
    assert y[0].tolist() == [0, 0]
    assert set(y[1].tolist()) == {0, 1}


def test_unmatched_rows_that_are_forbidden_are_those_of_a_full_matching() -> None:
    weights, sizes = medium()
    forbidden = torch.full(weights.shape[:2], -torch.inf)
    assert_close(Matching(weights, sizes, unmatched_rows=forbidden).topk(5), Matching(weights, sizes).topk(5))


def test_no_partner_is_one_more_class_of_a_cost() -> None:
    weights, y = torch.zeros(1, 3, 2), torch.tensor([[1, -1, -1]])
    matching = Matching(weights, unmatched_rows=torch.zeros(1, 3), unmatched_columns=torch.zeros(1, 2))
    for cost, expected in ((Hamming(), [0, 1, 2, 3]), (WeightedHamming((1.0, 5.0, 2.0)), [0, 2, 7, 9])):
        augmented = matching.cost_augmented(y, cost)
        others = ([1, -1, -1], [1, 0, -1], [-1, 0, -1], [-1, 0, 1])
        assert [augmented.score(torch.tensor([other])).item() for other in others] == expected
    with pytest.raises(ValueError, match="one per class, 3, got 2"):
        matching.cost_augmented(y, WeightedHamming((1.0, 5.0)))


# Capacities.


@given(instance=small_capacities(), forced=st.booleans())
def test_rows_with_all_their_partners_and_columns_that_are_full(instance: Capacities, forced: bool) -> None:
    """Without scores of rows alone, and with places of columns that have scores: by enumeration of all pairs."""
    weights, sizes, _, rows, columns = instance
    left = weights.sum(1).nan_to_num(neginf=-0.5)
    left[:, 0] = -torch.inf if forced else 0.5
    options = {"row_capacities": rows, "column_capacities": columns}
    values, _ = Matching(weights, sizes, unmatched_columns=left, **options).topk(5)
    every = EnumeratedCapacities(weights, sizes, torch.zeros(rows.shape), rows, columns)
    for b, (n, m) in enumerate(sizes.tolist()):
        outputs = every.outputs[b]
        full = (outputs.sum(2)[:, :n] == rows[b, :n]).all(1)
        free = columns[b, :m] - outputs.sum(1)[:, :m]
        extra = torch.where(free > 0, free * left[b, :m], 0.0).sum(1)
        scores = torch.where(full, every.scores[b] + extra, -torch.inf).sort(descending=True).values[:5]
        assert_close(values[b], torch.nn.functional.pad(scores, (0, 5 - len(scores)), value=-torch.inf))


def test_columns_alone_with_capacities_have_partners_as_outputs() -> None:
    weights = torch.randn(2, 4, 2, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    values, y = Matching(weights, column_capacities=torch.tensor([3, 2])).topk(4)
    for b in range(2):
        outputs = [own for own in product(range(2), repeat=4) if 2 <= own.count(0) <= 3]
        scores = torch.tensor([sum(float(weights[b, v, j]) for v, j in enumerate(own)) for own in outputs])
        order = scores.argsort(descending=True)[:4]
        assert_close(values[b], scores[order].double(), rtol=1e-6, atol=1e-6)
        assert torch.equal(y[b], torch.tensor(outputs)[order])


def test_one_place_each_is_a_matching() -> None:
    weights, sizes = medium()
    ones = {"row_capacities": 1, "column_capacities": torch.ones(weights.shape[2], dtype=torch.int64)}
    values, y = Matching(weights, sizes, **ones).topk(5)
    expected, partners = Matching(weights, sizes).topk(5)
    assert_close(values, expected)
    assert torch.equal(y.argmax(3), partners)
    assert_close(Matching(weights, sizes, **ones).max_marginals(), Matching(weights, sizes).max_marginals())


def test_hamming_counts_pairs_that_differ() -> None:
    weights = torch.zeros(1, 2, 3)
    for options in ({}, {"unmatched_rows": torch.zeros(1, 2)}):
        matching = Matching(weights, row_capacities=torch.tensor([2, 1]), column_capacities=2, **options)
        y = torch.tensor([[[1, 1, 0], [0, 0, 1]]])
        for cost, per_pair in ((Hamming(), (1, 1)), (WeightedHamming((3.0, 5.0)), (3, 5))):
            augmented = matching.cost_augmented(y, cost)
            others = [[[1, 1, 0], [0, 0, 1]], [[1, 0, 1], [0, 1, 0]], [[0, 1, 1], [0, 0, 1]]]
            for other in [*others, [[0, 0, 0], [0, 0, 0]]][: 3 + len(options)]:
                found = torch.tensor([other])
                expected = per_pair[0] * ((found > y).sum()) + per_pair[1] * ((found < y).sum())
                assert augmented.score(found).item() == expected


def test_rows_that_want_more_than_there_is_have_no_output() -> None:
    value, _ = Matching(
        torch.zeros(2, 2, 2), row_capacities=torch.tensor([[2, 1], [2, 2]]), column_capacities=[2, 1]
    ).max()
    assert value.tolist() == [0.0, -INF]


# What must not matter.


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
    unchecked = Matching(weights, sizes, validate_args=False)
    assert StructuralHinge(reduction="none")(unchecked, y).tolist()[1] == torch.inf


# Bad input.

B, N, M = 2, 3, 4


def matching(**changes: Any) -> Matching:
    return Matching(**{"weights": torch.zeros(B, N, M), "sizes": torch.tensor([[3, 4], [2, 2]])} | changes)


def labels(*rows: list[int]) -> Tensor:
    return torch.tensor(rows or [[0, 1, 2], [1, 0, 0]])


CASES: Refusals = {
    "more rows than columns": (
        lambda: Matching(torch.zeros(B, 5, 4)),
        ValueError,
        r"weights .* N <= M, got \(2, 5, 4\)",
    ),
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
        r"sizes must be rows and columns, 0 <= rows <= columns, at most N, M = 3, 4, got \[3, 2\] at example 1",
    ),
    "a negative number of rows": (
        lambda: matching(sizes=torch.tensor([[-1, 4], [2, 2]])),
        ValueError,
        r"sizes .* \[-1, 4\]",
    ),
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
    "unmatched rows of another shape": (
        lambda: matching(unmatched_rows=torch.zeros(B, M)),
        ValueError,
        r"unmatched_rows must have shape \[B, N\] = \(2, 3\), got \(2, 4\)",
    ),
    "unmatched columns are integers": (
        lambda: matching(unmatched_columns=torch.zeros(B, M, dtype=torch.int64)),
        TypeError,
        "unmatched_columns must be floating point",
    ),
    "rows that outnumber columns": (
        lambda: Matching(torch.zeros(1, 3, 2)),
        ValueError,
        r"with N <= M, got \(1, 3, 2\): where rows outnumber columns, give unmatched_rows, the scores \[B, N\]",
    ),
    "unmatched columns on another device": (
        lambda: matching(unmatched_columns=torch.zeros(B, M, device="meta")),
        ValueError,
        "unmatched_columns must be on the device of weights",
    ),
    "unmatched rows are NaN": (
        lambda: matching(unmatched_rows=torch.full((B, N), NAN)),
        ValueError,
        "unmatched_rows must not contain NaN",
    ),
    "less than no columns of an example, though rows may be unmatched": (
        lambda: matching(sizes=torch.tensor([[3, 4], [2, -1]]), unmatched_rows=torch.zeros(B, N)),
        ValueError,
        r"sizes must be rows and columns, at least 0, .* got \[2, -1\] at example 1",
    ),
    "capacities of another shape": (
        lambda: matching(row_capacities=torch.ones(4).long()),
        ValueError,
        r"row_capacities must have shape \[B, N\] = \(2, 3\), \[N\] or one for all, got \(4,\)",
    ),
    "capacities that are floats": (
        lambda: matching(column_capacities=torch.ones(4)),
        TypeError,
        "column_capacities must be integers",
    ),
    "capacities below zero": (
        lambda: matching(column_capacities=[1, -2, 1, 1]),
        ValueError,
        "column_capacities must be at least 0, got -2",
    ),
    "labels that are no pairs": (
        lambda: matching(row_capacities=1).score(labels()),
        ValueError,
        r"y must have shape \[B, N, M\] = \(2, 3, 4\)",
    ),
    "partner -1 where rows must have one": (
        lambda: matching().score(labels([0, -1, 2], [0, 1, 0])),
        ValueError,
        "y must hold labels from 0",
    ),
    "partner -2": (
        lambda: matching(unmatched_rows=torch.zeros(B, N)).score(labels([0, -2, 2], [0, 1, 0])),
        ValueError,
        r"y must hold labels from -1 to 3 at example 0",
    ),
    "label M": (lambda: matching().score(labels([0, 1, 4], [0, 1, 0])), ValueError, "y must hold labels from 0"),
    "label behind the columns of an example": (
        lambda: matching().score(labels([0, 1, 2], [0, 2, 0])),
        ValueError,
        r"y must hold labels from 0 to 1 at example 1, got \[0, 2, 0\]",
    ),
}
test_refuses = refusing(CASES)


def test_weights_behind_the_sizes_are_not_checked() -> None:
    weights = torch.zeros(B, N, M)
    weights[1, 2, 3] = NAN
    assert matching(weights=weights).max()[0].tolist() == [0.0, 0.0]


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16])
def test_assignments_are_those_of_scipy(dtype: torch.dtype) -> None:
    costs = torch.randn(5, 9, 6, generator=torch.Generator().manual_seed(0)).to(dtype)
    sizes = torch.tensor([6, 0, 3, 1, 5])
    found = linear_sum_assignment(costs, sizes)
    for own, cost, size in zip(found, costs.double(), sizes.tolist(), strict=True):
        assert (own[size:] == -1).all()
        queries, objects = scipy_assignment(cost[:, :size].numpy())
        assert_close(cost[own[:size], torch.arange(size)].sum(), cost[queries, objects].sum())
        assert len(own[:size].unique()) == size
    assert torch.equal(linear_sum_assignment(costs, sizes.tolist()), found)
    assert torch.equal(linear_sum_assignment(costs), linear_sum_assignment(costs, [6] * 5))


def test_assignments_take_one_copy(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of costs and sizes together."""
    copies, to_cpu = [], Tensor.cpu

    def counting(tensor: Tensor) -> Tensor:
        copies.append(tensor.shape)
        return to_cpu(tensor)

    monkeypatch.setattr(Tensor, "cpu", counting)
    monkeypatch.setattr(operators, "is_on_cpu", lambda tensor: False)
    linear_sum_assignment(torch.rand(3, 5, 4), torch.tensor([4, 2, 0]))
    assert copies[0] == (3 * 5 * 4 * 4 + 3 * 8,)  # bytes


test_assignments_refuse = refusing(
    {
        "integers": (lambda: linear_sum_assignment(torch.ones(1, 2, 2).long()), TypeError, "costs must be floating"),
        "more objects": (lambda: linear_sum_assignment(torch.rand(1, 2, 3)), ValueError, r"Q >= M, got \(1, 2, 3\)"),
        "sizes": (lambda: linear_sum_assignment(torch.rand(1, 2, 2), [3]), ValueError, r"from 0 to M = 2, got \[3\]"),
        "a batch of sizes": (lambda: linear_sum_assignment(torch.rand(1, 2, 2), [1, 1]), ValueError, r"sizes .* \[B\]"),
        "NaN": (lambda: linear_sum_assignment(torch.full((1, 2, 2), torch.nan)), ValueError, "NaN or -inf"),
        "forbidden": (lambda: linear_sum_assignment(torch.full((1, 2, 2), torch.inf)), ValueError, "example 0 forbid"),
    }
)


@pytest.mark.parametrize(
    ("shape", "scores", "value"),
    [
        ((2, 0, 3), {}, 0.0),
        ((2, 0, 0), {}, 0.0),
        ((2, 0, 3), {"unmatched_columns": torch.ones(2, 3)}, 3.0),
        ((2, 3, 0), {"unmatched_rows": torch.ones(2, 3)}, 3.0),
        ((2, 3, 0), {"unmatched_rows": torch.ones(2, 3), "row_capacities": 2}, 6.0),
        ((2, 3, 0), {"column_capacities": 2}, -INF),  # each row needs a column
    ],
)
def test_without_rows_or_columns_there_is_at_most_one_matching(
    shape: tuple[int, ...], scores: dict[str, Any], value: float
) -> None:
    matching = Matching(torch.zeros(shape, requires_grad=True), **scores)
    values, y = matching.topk(2)
    assert values.tolist() == [[value, -INF]] * 2
    assert matching.max_marginals().shape == shape
    values[:, 0].sum().backward()
    if value > -INF:
        assert matching.score(y[:, 0]).tolist() == [value] * 2
        assert StructuralHinge()(matching, y[:, 0]) == 0
        assert [part.shape[0] for part in matching.sparse_marginals()] == [2] * len(matching.potentials)
