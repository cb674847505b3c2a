"""Superpixels of an image on two levels, and their features.

Needs OpenCV with its contributed modules: ``pip install structsmooth[images]``.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from heapq import heapify, heappop, heappush

import numpy as np
from numpy.typing import NDArray

from structsmooth.tasks.images import cv2
from structsmooth.tasks.segmentation.superpixels import Image, Superpixels, Vocabulary, normalized, summed

Floats = NDArray[np.float64]

# Fine superpixels that make up a coarse one, on average.
_MERGED = 4
# Places along the height, and from the middle of the width to its ends.
_ROWS, _COLUMNS = 6, 4
# Deviations of colours are smaller than means.
_SPREAD = 4


@dataclass(frozen=True)
class Regions:
    """Superpixels on two levels: each fine one is a part of one coarse superpixel.

    Attributes:
        fine: the fine superpixels and their borders, N of them.
        parents: the coarse superpixel of each, from 0 to M - 1: int64 [N].
        contrasts: squared difference between the mean colours of the two sides of every border of fine ones, [E].
    """

    fine: Superpixels
    parents: NDArray[np.int64]
    contrasts: Floats

    @classmethod
    def of(cls, image: Image, side: int) -> "Regions":
        """Fine superpixels about ``side`` pixels wide, and coarse ones of four of them on average."""
        fine = Superpixels.of(image, side)
        colours = _moments(image, fine)[:, :3] / fine.sizes[:, None]
        a, b = fine.edges.T
        parents = merge(fine, colours, -(-len(fine.sizes) // _MERGED))
        return cls(fine, parents, ((colours[a] - colours[b]) ** 2).sum(1))

    @cached_property
    def coarse(self) -> Superpixels:
        """The coarse superpixels and their borders."""
        return Superpixels.from_labels(self.parents[self.fine.labels])


def merge(parts: Superpixels, means: Floats, count: int) -> NDArray[np.int64]:
    """The groups [N], ``count`` of them, that superpixels with these features [N, F] are merged into.

    The two neighbours are merged whose union adds the least to the squared distances from the means (Ward 1963), so
    that groups are connected.
    """
    sizes, means, groups = parts.sizes.astype(np.float64), means.copy(), np.arange(len(parts.sizes))
    neighbours: list[set[int]] = [set() for _ in groups]
    changes = [0] * len(groups)

    def union(a: int, b: int) -> tuple[float, int, int, int, int]:
        """What the union of two groups adds, and how often they had changed."""
        added = ((means[a] - means[b]) ** 2).sum() * sizes[a] * sizes[b] / (sizes[a] + sizes[b])
        return added, a, b, changes[a], changes[b]

    for a, b in parts.edges.tolist():
        neighbours[a].add(b)
        neighbours[b].add(a)
    heap = [union(a, b) for a, b in parts.edges.tolist()]
    heapify(heap)
    merges = 0
    while merges < len(groups) - count:
        _, a, b, *then = heappop(heap)
        if then != [changes[a], changes[b]]:
            continue
        merges += 1
        means[a] = (sizes[a] * means[a] + sizes[b] * means[b]) / (sizes[a] + sizes[b])
        sizes[a] += sizes[b]
        groups[groups == b] = a
        changes[a], changes[b] = changes[a] + 1, -1
        neighbours[a] = (neighbours[a] | neighbours[b]) - {a, b}
        for other in neighbours[b] - {a}:
            neighbours[other] = neighbours[other] - {b} | {a}
        for other in neighbours[a]:
            heappush(heap, union(min(a, other), max(a, other)))
    return np.asarray(np.unique(groups, return_inverse=True)[1])


def describe(image: Image, regions: Regions, vocabulary: Vocabulary) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
    """Features of fine superpixels [N, F], and of coarse ones [M, F'].

    Square roots of normalized histograms of colours and textures: on the superpixel, with its neighbours, on its coarse
    superpixel if it is fine, and on the image. Then means and deviations of the colour, and the place: by rows, and by
    the distance from the middle of a row.
    """
    fine, coarse = regions.fine, regions.coarse
    histograms, moments = vocabulary.histograms(image, fine), _moments(image, fine)
    parts = np.stack([regions.parents, np.arange(len(fine.sizes))], 1)
    parts = parts[np.argsort(regions.parents, kind="stable")]
    (_, beside, _), (_, beside_coarse, _) = fine.neighbourhoods(), coarse.neighbourhoods()
    merged = [summed(parts, counts) for counts in histograms]
    around = [
        *histograms,
        *(summed(beside, counts) for counts in histograms),
        *(counts[regions.parents] for counts in merged),
    ]
    around_coarse = [*merged, *(summed(beside_coarse, counts) for counts in merged)]
    image_counts = [counts.sum(0, keepdims=True) for counts in histograms]
    return (
        _features([*around, *image_counts], moments / fine.sizes[:, None]),
        _features([*around_coarse, *image_counts], summed(parts, moments) / coarse.sizes[:, None]),
    )


def _moments(image: Image, parts: Superpixels) -> Floats:
    """Sums over the pixels of each superpixel, of colours, their squares, and places: [N, 8]."""
    height, width = parts.labels.shape
    lab = cv2.cvtColor(image, cv2.COLOR_BGR2LAB).reshape(-1, 3) / 255.0
    rows, columns = np.indices((height, width)).reshape(2, -1, 1)
    return _sums(parts, np.concatenate([lab, lab**2, rows / height, columns / width], 1))


def _sums(parts: Superpixels, pixels: Floats) -> Floats:
    """Sums of values [H * W, K] over the pixels of each superpixel: [N, K]."""
    flat, count = parts.labels.ravel(), len(parts.sizes)
    return np.stack([np.bincount(flat, values, count) for values in pixels.T], 1)


def _features(histograms: Sequence[Floats], moments: Floats) -> NDArray[np.float32]:
    """Features of superpixels with these counts, [N, K] or the same [1, K] for all, and mean moments [N, 8]."""
    columns = [np.broadcast_to(np.sqrt(normalized(counts)), (len(moments), counts.shape[1])) for counts in histograms]
    mean, square, (row, column) = moments[:, :3], moments[:, 3:6], moments[:, 6:].T
    deviation = np.sqrt(np.maximum(square - mean**2, 0))
    columns += [mean, _SPREAD * deviation, _places(row, _ROWS), _places(np.abs(2 * column - 1), _COLUMNS)]
    return np.concatenate(columns, 1).astype(np.float32)


def _places(x: Floats, count: int) -> Floats:
    """Positions from 0 to 1 as weights of the nearest two of so many places: [N, count]."""
    return np.asarray(np.maximum(1 - np.abs(x[:, None] * (count - 1) - np.arange(count)), 0))
