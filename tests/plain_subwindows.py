"""Subwindows by the readable search in Python, with the bounds of Lampert, Blaschko and Hofmann (2008)."""

from functools import cached_property
from typing import Any, NamedTuple

import torch

from structsmooth import Subwindows
from structsmooth.structures import SearchSpace

Box = tuple[int, ...]  # x1, y1, x2, y2


class Boxes(NamedTuple):
    """The boxes in an image each of whose coordinates x1, y1, x2, y2 lies between a least and a largest value."""

    image: int
    least: Box
    largest: Box


class PlainSubwindows(Subwindows, SearchSpace[Boxes]):
    """Boxes in images, found by splitting sets of them."""

    topk = SearchSpace.topk

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
