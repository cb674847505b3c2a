"""Subwindows: all boxes in an image, bound to a map of scores that is summed over a box."""

from functools import cached_property
from typing import Any, NamedTuple

import torch
from torch import Tensor

from structsmooth.structures import checks
from structsmooth.structures.base import check_k, widened
from structsmooth.structures.search import SearchSpace
from structsmooth.structures.subwindows import operators

Box = tuple[int, ...]  # x1, y1, x2, y2


class Boxes(NamedTuple):
    """The boxes in an image each of whose coordinates x1, y1, x2, y2 lies between a least and a largest value."""

    image: int
    least: Box
    largest: Box


class Subwindows(SearchSpace[Boxes]):
    """All boxes in images, bound to maps of scores; the score of a box is the sum over the pixels it covers.

    score(y) = Σ scores[b, y1:y2, x1:x2]. An output is an int64 tensor [B, 4] of x1, y1, x2, y2 as in torchvision, with
    0 <= x1 < x2 <= W and 0 <= y1 < y2 <= H: x2 and y2 are one past the last column and row, and no box is empty. Scores
    of points, such as visual words, can be added up in the map at their pixels. A cost is a tensor of costs of pixels.

    The max and top-K oracles search best first (efficient subwindow search), compiled and in float64, on every core
    that torch may use. Scores on other devices are copied to the CPU; results and gradients are copied back. Bounds are
    exact along columns: until the first box is found, at most H² bounds of O(W) each are computed, and usually a small
    fraction of them. The methods of :class:`SearchSpace` are the readable reference, with the bounds of Lampert et al.
    There is no exp oracle.

    Sums are exact to about 1e-12 (float64), or 1e-6 (float32) relative to the sum of the magnitudes in the map.
    Ties go to the lowest x1, then y1, x2, y2. A forbidden pixel (-inf) forbids every box that covers it; use -inf to
    pad images to one size. Values are differentiable, and their gradient is the indicator of the box. An image without
    any allowed box has value -inf and zero gradient.

    Args:
        scores: [B, H, W], floating point; -inf forbids a pixel.
        validate_args: whether to check values too: NaN, +inf, coordinates of boxes. Costs a reduction, and a
            synchronization on a GPU. Default: ``Structure.validate_args_default``.
        max_sets: largest number of sets of boxes, of 40 bytes each, that the search may hold at a time.

    Raises:
        TypeError: a tensor of the wrong dtype.
        ValueError: wrong shapes or values, or tensors on different devices.
        MemoryError: the search would hold more than ``max_sets`` sets.

    Reference:
        Lampert, Blaschko and Hofmann (2008); the scan along one axis is that of An, Peursum, Liu and Venkatesh (2009).
        Pillutla et al. (2019), Algorithm 13.

    Example:
        >>> scores = torch.full((1, 4, 6), -1.0)
        >>> scores[0, 1:3, 2:5] = 2.0
        >>> Subwindows(scores).max()
        (tensor([12.]), tensor([[2, 1, 5, 3]]))
    """

    potential_names = ("scores",)

    def __init__(self, scores: Tensor, *, validate_args: bool | None = None, max_sets: int = 10_000_000) -> None:
        self.scores = scores
        self.check_shapes()
        super().__init__(validate_args=validate_args, max_sets=max_sets)

    def check_shapes(self) -> None:
        """Raise unless scores are [B, H, W]."""
        checks.require_scores("scores", self.scores)
        if self.scores.dim() != 3 or 0 in self.scores.shape[1:]:
            raise ValueError(f"scores must have shape [B, H, W] with H, W >= 1, got {tuple(self.scores.shape)}")

    def batched(self) -> "Subwindows":
        """The structure itself."""
        return self

    def score(self, y: Tensor) -> Tensor:
        """Score of the boxes ``y`` [B, 4]: [B], differentiable."""
        return torch.where(self._covered(y), widened(self.scores), 0.0).sum((1, 2))

    def parts(self, y: Tensor) -> tuple[Tensor]:
        """Indicators of the pixels that boxes cover: [B, H, W]."""
        return (self._covered(y).to(widened(self.scores).dtype),)

    def topk(self, k: int) -> tuple[Tensor, Tensor]:
        """Top-K oracle: values [B, k] in descending order and distinct boxes [B, k, 4] (Algorithm 13).

        Values are -inf, and boxes 0, where fewer than k boxes have a finite score.
        """
        return self.with_gradients(*operators.top_k(widened(self.scores), check_k(k), self.max_sets))

    def initial(self, example: int) -> Boxes:
        """All boxes in an image."""
        _, height, width = self.scores.shape
        return Boxes(example, (0, 0, 1, 1), (width - 1, height - 1, width, height))

    def split(self, subset: Boxes) -> tuple[Boxes, Boxes]:
        """The set, split at the middle of the coordinate that has the most possible values."""
        widths = [largest - least for least, largest in zip(subset.least, subset.largest, strict=True)]
        i = widths.index(max(widths))
        middle = (subset.least[i] + subset.largest[i]) // 2
        lower = (*subset.largest[:i], middle, *subset.largest[i + 1 :])
        upper = (*subset.least[:i], middle + 1, *subset.least[i + 1 :])
        return _without_empty(subset._replace(largest=lower)), _without_empty(subset._replace(least=upper))

    def upper_bound(self, subset: Boxes) -> float:
        """The positive scores of the largest box in the set plus the negative scores of the smallest one."""
        positive, negative, forbidden = (table[subset.image] for table in self._integral_images)
        largest, smallest = (*subset.least[:2], *subset.largest[2:]), (*subset.largest[:2], *subset.least[2:])
        if smallest[0] >= smallest[2] or smallest[1] >= smallest[3]:
            return _sum(positive, largest)
        if _sum(forbidden, smallest) > 0:
            return -torch.inf
        return _sum(positive, largest) + _sum(negative, smallest)

    def is_singleton(self, subset: Boxes) -> bool:
        """Whether least and largest coordinates are equal."""
        return subset.least == subset.largest

    def lowest(self, subset: Boxes) -> Box:
        """The least coordinates: every set contains that box."""
        return subset.least

    @cached_property
    def _integral_images(self) -> tuple[Any, ...]:
        """Sums of positive and of negative scores, and numbers of forbidden pixels, above and left of each pixel."""
        scores = self.scores.detach().to("cpu", torch.float64)
        forbidden = scores == -torch.inf
        tables = scores.clamp_min(0), torch.where(forbidden, 0.0, scores.clamp_max(0)), forbidden.double()
        return tuple(torch.nn.functional.pad(table.cumsum(1).cumsum(2), (1, 0, 1, 0)).numpy() for table in tables)

    def as_classes(self, y: Tensor) -> tuple[Tensor, int]:
        """Raise ``TypeError``: boxes are no labels."""
        raise TypeError("cost must be a tensor of costs of pixels, [B, H, W]: outputs are boxes, not labels")

    def checked_labels(self, y: Tensor) -> Tensor:
        """Coordinates as int64."""
        checks.require_integers("y", y, "hold integer coordinates")
        batch, height, width = self.scores.shape
        checks.require_shape("y", y, "[B, 4]", (batch, 4))
        checks.require_device("y", y, "scores", self.scores)
        if self.validate_args:
            _check_boxes(y, height, width)
        return y.to(torch.int64)

    def _covered(self, y: Tensor) -> Tensor:
        """Which pixels the boxes cover: [B, H, W]."""
        rows, columns = operators.covered(self.checked_labels(y), *self.scores.shape[1:])
        return rows.unsqueeze(2) & columns.unsqueeze(1)


def _without_empty(subset: Boxes) -> Boxes:
    """The same boxes, without the coordinates that no box has."""
    least, largest = subset.least, subset.largest
    return Boxes(
        subset.image,
        (*least[:2], *(max(end, start + 1) for start, end in zip(least[:2], least[2:], strict=True))),
        (*(min(start, end - 1) for start, end in zip(largest[:2], largest[2:], strict=True)), *largest[2:]),
    )


def _sum(table: Any, box: Box) -> float:
    x1, y1, x2, y2 = box
    return float(table[y2, x2] - table[y1, x2] - table[y2, x1] + table[y1, x1])


def _check_boxes(y: Tensor, height: int, width: int) -> None:
    x1, y1, x2, y2 = y.unbind(1)
    wrong = (x1 < 0) | (x1 >= x2) | (x2 > width) | (y1 < 0) | (y1 >= y2) | (y2 > height)
    if bool(wrong.any()):
        raise ValueError(
            f"y must hold boxes 0 <= x1 < x2 <= {width}, 0 <= y1 < y2 <= {height}, got {y[wrong][0].tolist()}"
        )
