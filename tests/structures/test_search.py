"""Branch and bound: bounds that are loose or wrong; subwindows of larger maps against brute force."""

import math
from collections.abc import Callable
from itertools import islice
from typing import Any

import numpy as np
import pytest
import torch
from enumeration import EnumeratedBoxes, EnumeratedLabels, random_scores, small_maps
from hypothesis import given
from hypothesis import strategies as st
from plain_subwindows import PlainSubwindows
from refusals import Refusals, refusing
from structure_members import Bits, Prefix
from torch import Tensor
from torch.autograd.functional import vjp
from torch.testing import assert_close

from structsmooth import Hamming, StructuralHinge, Subwindows


def random_bits(batch: int, count: int, seed: int, ties: bool = False, forbidden: float = 0.0) -> Tensor:
    return random_scores(torch.Generator().manual_seed(seed), ties, forbidden)(batch, count, 2)


@given(
    st.integers(1, 3),
    st.integers(1, 5),
    st.integers(0, 2**32 - 1),
    st.booleans(),
    st.sampled_from([0.0, 0.3]),
    st.sampled_from([0.0, 0.5, 10.0]),
    st.integers(1, 40),
)
def test_search_matches_enumeration(
    batch: int, count: int, seed: int, ties: bool, forbidden: float, slack: float, k: int
) -> None:
    unary = random_bits(batch, count, seed, ties, forbidden)
    space, twin = Bits(unary, slack), EnumeratedLabels(unary)
    assert_close(space.topk(k), twin.topk(k))
    assert_close(space.max(), twin.max())


def test_tighter_bounds_visit_fewer_sets() -> None:
    unary = random_bits(1, 8, 0)
    tight, loose = Bits(unary), Bits(unary, slack=0.5)
    assert_close(tight.max(), loose.max())
    assert tight.bounds == 1 + 2 * 8  # straight to the best
    assert loose.bounds > tight.bounds


def test_the_search_goes_on_where_it_stopped() -> None:
    space = Bits(random_bits(1, 4, 0))
    values, y = space.topk(16)
    rest = space.best_first(0)
    assert [labels for _, labels in islice(rest, 5)] == [tuple(labels) for labels in y[0, :5].tolist()]
    assert_close(torch.tensor([value for value, _ in rest]), values[0, 5:].float())


# The conditions of Proposition 15.


class Wrong(Bits):
    """Bounds that are wrong in one place."""

    wrong: Callable[[tuple[int, ...], float], float]

    def upper_bound(self, subset: Prefix) -> float:
        return type(self).wrong(subset[1], super().upper_bound(subset))


def wrong(rule: Callable[[tuple[int, ...], float], float]) -> type[Bits]:
    return type("Wrong", (Wrong,), {"wrong": staticmethod(rule)})


@pytest.mark.parametrize(
    ("rule", "message"),
    [
        (lambda labels, bound: math.nan if len(labels) == 2 else bound, "must be finite or -inf, got nan"),
        (lambda labels, bound: math.inf, "must be finite or -inf, got inf"),
        (lambda labels, bound: bound + len(labels), "of a part must not exceed that of the whole"),
        (lambda labels, bound: bound - (len(labels) == 3), "of a single output must be its score"),
    ],
    ids=["nan", "inf", "part", "singleton"],
)
def test_wrong_bounds_are_refused(rule: Callable[[tuple[int, ...], float], float], message: str) -> None:
    space = wrong(rule)(random_bits(2, 3, 0))
    with pytest.raises(ValueError, match=f"upper_bound {message}"):
        space.topk(3)


def test_wrong_bounds_are_not_looked_for_on_request() -> None:
    unary = random_bits(2, 3, 0)
    space = wrong(lambda labels, bound: bound + len(labels))(unary, validate_args=False)
    assert_close(space.topk(8)[0], EnumeratedLabels(unary).topk(8)[0])


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_rounding_is_not_a_wrong_bound(dtype: torch.dtype) -> None:
    """Sums in another order than that of the score."""
    unary = (random_bits(2, 9, 0) * 1e4 + 0.1).to(dtype)
    assert_close(Bits(unary).max()[0], unary.amax(2).sum(1))


def test_the_number_of_waiting_sets_is_limited() -> None:
    unary = random_bits(2, 6, 0)
    assert_close(Bits(unary, slack=5.0, max_sets=64).max(), EnumeratedLabels(unary).max())
    with pytest.raises(MemoryError, match="example 0 would hold more than max_sets = 20 sets"):
        Bits(unary, slack=5.0, max_sets=20).max()


# Subwindows.


@given(small_maps(ties=True))
def test_all_boxes_are_found_when_k_is_large(maps: tuple[Tensor]) -> None:
    (scores,) = maps
    assert_close(Subwindows(scores).topk(230), EnumeratedBoxes(scores).topk(230))


def largest_sum(scores: np.ndarray) -> float:
    """Over all pairs of rows, the best choice of columns."""
    rows = np.vstack([np.zeros(scores.shape[1]), scores.cumsum(0)])
    best = -math.inf
    for top in range(len(scores)):
        for bottom in range(top + 1, len(rows)):
            sums = np.concatenate([[0.0], (rows[bottom] - rows[top]).cumsum()])
            best = max(best, float((sums[1:] - np.minimum.accumulate(sums)[:-1]).max()))
    return best


def points(height: int, width: int, count: int, seed: int) -> Tensor:
    """A map [1, H, W] of points with scores of both signs, denser and better around one place."""
    rng = np.random.default_rng(seed)
    inside = np.array([height, width]) * (0.5 + 0.1 * rng.normal(size=(count // 2, 2)))
    places = np.vstack([inside.clip(0, [height - 1, width - 1]), rng.random((count // 2, 2)) * [height, width]])
    scores = np.concatenate([rng.normal(0.3, 1, count // 2), rng.normal(-0.3, 1, count // 2)])
    y, x = torch.from_numpy(places.astype(np.int64)).unbind(1)
    return torch.zeros(1, height, width, dtype=torch.float64).index_put(
        (torch.zeros_like(y), y, x), torch.from_numpy(scores), accumulate=True
    )


@pytest.mark.parametrize(
    "scores",
    [
        points(60, 80, 500, seed=0),
        points(80, 60, 3000, seed=1),
        random_scores(torch.Generator().manual_seed(2), False, 0.0)(1, 70, 50),  # noise: thousands of sets
        -torch.rand(1, 50, 70, generator=torch.Generator().manual_seed(3), dtype=torch.float64),
        torch.rand(1, 50, 70, generator=torch.Generator().manual_seed(4), dtype=torch.float64),
    ],
    ids=["few points", "many points", "noise", "negative", "positive"],
)
def test_the_best_box_of_larger_maps(scores: Tensor) -> None:
    space = Subwindows(scores)
    values, y = space.topk(50)
    assert_close(values[0, 0].item(), largest_sum(scores[0].numpy()), rtol=1e-10, atol=1e-10)
    assert (values.diff() <= 0).all()
    assert len(y[0].unique(dim=0)) == 50
    assert_close(torch.stack([space.score(y[:, j]) for j in range(50)], 1), values)
    for k in (1, 10):
        assert_close(space.topk(k), (values[:, :k], y[:, :k]), rtol=0, atol=0)


@pytest.mark.parametrize("k", [1, 20])
def test_larger_maps_by_the_reference(k: int) -> None:
    scores = points(24, 32, 100, seed=3).round()
    assert_close(Subwindows(scores).topk(k), PlainSubwindows(scores).topk(k))


def test_all_boxes_tied_come_in_their_order() -> None:
    values, y = Subwindows(torch.zeros(1, 40, 50)).topk(3)
    assert not values.any()
    assert y.tolist() == [[[0, 0, 1, 1], [0, 0, 1, 2], [0, 0, 1, 3]]]


def test_flips_and_transposes() -> None:
    scores = points(20, 30, 200, seed=4)
    (value,), (y,) = Subwindows(scores).max()
    x1, y1, x2, y2 = y.tolist()
    for moved, box in [
        (scores.transpose(1, 2), [y1, x1, y2, x2]),
        (scores.flip(1), [x1, 20 - y2, x2, 20 - y1]),
        (scores.flip(2), [30 - x2, y1, 30 - x1, y2]),
    ]:
        assert_close(Subwindows(moved).max()[0][0], value)
        assert_close(Subwindows(moved).score(torch.tensor([box]))[0], value)


def test_padding_with_forbidden_pixels_changes_nothing() -> None:
    scores = random_scores(torch.Generator().manual_seed(5), False, 0.0)(2, 6, 7).requires_grad_()
    padded = torch.nn.functional.pad(scores, (0, 3, 0, 2), value=-torch.inf)
    assert_close(Subwindows(padded).topk(9), Subwindows(scores).topk(9), rtol=0, atol=0)
    expected = vjp(lambda s: Subwindows(s).topk(9)[0].sum(), scores)
    whole = padded.detach()
    _, gradient = vjp(lambda s: Subwindows(s).topk(9)[0].sum(), whole)
    assert_close(gradient[:, :6, :7], expected[1])
    assert not gradient[whole == -torch.inf].any()


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32])
def test_sums_are_accumulated_in_float64(dtype: torch.dtype) -> None:
    scores = points(20, 30, 200, seed=6).to(dtype)
    values, y = Subwindows(scores).topk(5)
    expected, other = Subwindows(scores.double()).topk(5)
    assert_close(values, expected.float(), rtol=0, atol=0)
    assert torch.equal(y, other)
    gradient = vjp(lambda s: Subwindows(s).max()[0].sum(), scores)[1]
    assert_close(gradient, Subwindows(scores).parts(y[:, 0])[0].to(dtype))


def test_forbidden_pixels_leave_no_trace_in_sums() -> None:
    """As a large negative number in their place would."""
    scores = points(8, 6, 60, seed=0) * 1e4
    scores[0, ::3, ::2] = -torch.inf
    assert_close(Subwindows(scores).topk(99), EnumeratedBoxes(scores).topk(99), rtol=1e-12, atol=1e-8)


def test_gradients_reach_the_scores_of_points() -> None:
    y, x = torch.tensor([2, 2, 0]), torch.tensor([1, 1, 3])
    words = torch.tensor([1.0, 2.0, -5.0], requires_grad=True)
    scores = torch.zeros(1, 4, 5).index_put((torch.zeros(3, dtype=torch.int64), y, x), words, accumulate=True)
    value, box = Subwindows(scores).max()
    assert (value.item(), box.tolist()) == (3.0, [[0, 0, 2, 3]])
    value.sum().backward()
    assert words.grad.tolist() == [1.0, 1.0, 0.0]


def test_the_number_of_waiting_sets_of_boxes_is_limited() -> None:
    scores = random_scores(torch.Generator().manual_seed(8), False, 0.0)(3, 20, 20)
    scores[0] = 1.0
    for space in (Subwindows, PlainSubwindows):
        with pytest.raises(MemoryError, match="example 1 would hold more than max_sets = 25 sets"):
            space(scores, max_sets=25).max()
    assert_close(Subwindows(scores, max_sets=210).max()[0], Subwindows(scores).max()[0])  # one for each pair of rows


# Bad input.

B, H, W = 2, 3, 4


def windows(scores: Any = None, **changes: Any) -> Subwindows:
    return Subwindows(torch.zeros(B, H, W) if scores is None else scores, **changes)


def boxes(*box: int) -> Tensor:
    return torch.tensor([box] * B)


CASES: Refusals = {
    "no rows": (lambda: windows(torch.zeros(B, 0, W)), ValueError, "scores .* H, W >= 1"),
    "no columns": (lambda: windows(torch.zeros(B, H, 0)), ValueError, "scores .* H, W >= 1"),
    "max_sets is 0": (lambda: windows(max_sets=0), ValueError, "max_sets must be at least 1, got 0"),
    "max_sets is a float": (lambda: windows(max_sets=1e6), TypeError, "max_sets must be an int, got float"),
    "y is empty": (lambda: windows().score(boxes(1, 1, 1, 2)), ValueError, r"y must hold boxes .* got \[1, 1, 1, 2\]"),
    "y is upside down": (lambda: windows().score(boxes(0, 2, 1, 1)), ValueError, "y must hold boxes"),
    "y leaves the image": (lambda: windows().score(boxes(0, 0, W + 1, 1)), ValueError, "y must hold boxes .* x2 <= 4"),
    "y leaves it below": (lambda: windows().score(boxes(0, 0, W, H + 1)), ValueError, "y must hold boxes .* y2 <= 3"),
    "y is negative": (lambda: windows().score(boxes(-1, 0, 1, 1)), ValueError, "y must hold boxes"),
    "cost of labels": (lambda: StructuralHinge()(windows(), boxes(0, 0, 1, 1)), TypeError, "cost must be .* boxes"),
    "cost of labels of four rows": (
        lambda: windows(torch.zeros(B, 4, 4)).cost_augmented(boxes(0, 0, 1, 1), Hamming()),
        TypeError,
        "cost must be a tensor of costs of pixels",
    ),
    "empty batch of a search in Python": (
        lambda: Bits(torch.zeros(0, 2, 2)).topk(1),
        ValueError,
        "at least one example",
    ),
    "k of a search in Python": (lambda: Bits(torch.zeros(1, 2, 2)).topk(0), ValueError, "k must be at least 1"),
}
test_refuses = refusing(CASES)


def test_the_good_calls_behind_the_bad_ones_are_good() -> None:
    assert windows().score(boxes(0, 0, W, H)).shape == (B,)
