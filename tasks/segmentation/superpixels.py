"""Superpixels of images, and features of superpixels and of their borders.

Needs OpenCV with its contributed modules: ``pip install structsmooth[images]``.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from structsmooth.tasks.images import cv2

Image = NDArray[np.uint8]
"""The pixels of an image, BGR: uint8 [H, W, 3]."""

# Side of a superpixel in pixels, compactness and smallest size of SLIC, and its iterations.
_SIDE, _RULER, _LEAST_PERCENT, _ITERATIONS = 12, 20.0, 25, 10
# Dense descriptors: every _STRIDE pixels, of squares of 4 x 4 cells, with 8 directions of the gradient.
_STRIDE, _CELL, _CELLS, _DIRECTIONS = 4, 4, 4, 8
_TILE = 1 << 18  # points whose nearest centres are found together
GRID = 6
"""Places are the cells of a grid of so many rows and columns over the image."""
# For k-means: number of descriptors and colours taken from an image, and of iterations.
_SAMPLE, _KMEANS_ITERATIONS = 400, 20
SCALES = 2.0 ** np.arange(-1, 6)
"""Rates at which pairwise features fade with the distance of histograms."""


@dataclass(frozen=True)
class Superpixels:
    """The parts that an image is divided into, and which of them touch.

    Attributes:
        labels: superpixel of every pixel, from 0 to N - 1: int64 [H, W].
        sizes: number of pixels of each: int64 [N].
        edges: pairs of superpixels that touch, the lower number first: int64 [E, 2].
        borders: number of pairs of pixels that touch at each edge: int64 [E].
    """

    labels: NDArray[np.int64]
    sizes: NDArray[np.int64]
    edges: NDArray[np.int64]
    borders: NDArray[np.int64]

    @classmethod
    def of(cls, image: Image, side: int = _SIDE) -> "Superpixels":
        """SLIC (Achanta et al. 2012): about ``side`` pixels wide and high; every superpixel is connected."""
        side = min(side, 2 * min(image.shape[:2]))  # OpenCV reads outside its arrays where no superpixel fits
        lab = cv2.cvtColor(cv2.GaussianBlur(image, (3, 3), 0), cv2.COLOR_BGR2LAB)
        slic = cv2.ximgproc.createSuperpixelSLIC(lab, cv2.ximgproc.SLIC, side, _RULER)
        slic.iterate(_ITERATIONS)
        slic.enforceLabelConnectivity(_LEAST_PERCENT)
        found = slic.getLabels()
        numbers = np.cumsum(np.bincount(found.ravel()) > 0) - 1  # of the labels that some pixel has
        return cls.from_labels(numbers[found].reshape(image.shape[:2]))

    @classmethod
    def from_labels(cls, labels: NDArray[np.int64]) -> "Superpixels":
        """Sizes and borders of given superpixels."""
        neighbours = (labels[:, :-1], labels[:, 1:]), (labels[:-1], labels[1:])
        differing = [np.stack([a[a != b], b[a != b]], 1) for a, b in neighbours]
        edges, borders = np.unique(np.sort(np.concatenate(differing), axis=1), axis=0, return_counts=True)
        return cls(labels, np.bincount(labels.ravel()), edges, borders)

    def counts(self, mask: NDArray[np.bool_]) -> NDArray[np.int64]:
        """Number of pixels of each superpixel in a mask [H, W]: [N]."""
        return np.bincount(self.labels[mask], minlength=len(self.sizes))

    def histograms(self, labels: NDArray[np.int64], words: NDArray[np.int64], size: int) -> NDArray[np.float64]:
        """Counts of each of ``size`` words in each superpixel, given those at pixels with some labels: [N, size]."""
        cells = (labels * size + words).ravel()
        return np.bincount(cells, minlength=len(self.sizes) * size).reshape(-1, size).astype(np.float64)

    def neighbourhoods(self) -> list[NDArray[np.int64]]:
        """Pairs of superpixels, sorted, of which the second is in the neighbourhood of order 0, 1 and 2 of the first.

        Returns:
            Pairs [M, 2] for each order. Large images have too many superpixels for matrices.
        """
        count = len(self.sizes)
        nearest = np.arange(count).repeat(2).reshape(-1, 2)
        first = _sorted_pairs(np.concatenate([nearest, self.edges, self.edges[:, ::-1]]), count)
        begins = np.searchsorted(first[:, 0], np.arange(count + 1))
        # Each pair (a, b) meets all pairs (b, c).
        several = np.diff(begins)[first[:, 1]]
        starts = begins[first[:, 1]] - np.cumsum(several) + several
        ends = first[np.arange(several.sum()) + starts.repeat(several), 1]
        second = _sorted_pairs(np.stack([first[:, 0].repeat(several), ends], 1), count)
        return [nearest, first, second]


class Features(NamedTuple):
    """Features of the superpixels of an image.

    Attributes:
        unary: float32 [N, F].
        edges: int64 [E, 2].
        pairwise: non-negative, float32 [E, P].
        sizes: number of pixels of each superpixel, int64 [N].
    """

    unary: NDArray[np.float32]
    edges: NDArray[np.int64]
    pairwise: NDArray[np.float32]
    sizes: NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class Vocabulary:
    """Typical colours and textures, which histograms count.

    Attributes:
        colours: in Lab, uint8 [C, 3].
        textures: descriptors, uint8 [D, 128].
    """

    colours: Image
    textures: Image

    def __post_init__(self) -> None:
        for name, size in (("colours", 3), ("textures", _DIRECTIONS * _CELLS**2)):
            if (shape := getattr(self, name).shape)[1:] != (size,) or not shape[0]:
                raise ValueError(f"{name} must be rows of {size} numbers, got shape {shape}")

    @classmethod
    def fit(cls, images: Sequence[Image], colours: int, textures: int) -> "Vocabulary":
        """The centres of k-means on a sample of pixels and descriptors of the images, the same in every run.

        There are fewer centres than asked for if the images have fewer different pixels or descriptors.
        """
        rng = np.random.default_rng(0)
        pixels, descriptors = [], []
        for image in images:
            pixels.append(rng.permutation(_lab(image).reshape(-1, 3))[:_SAMPLE])
            descriptors.append(rng.permutation(gradient_histograms(image)[2])[:_SAMPLE])
        return cls(_centres(np.concatenate(pixels), colours), _centres(np.concatenate(descriptors), textures))

    @property
    def unary_size(self) -> int:
        """Number F of unary features."""
        return 1 + 3 * (len(self.colours) + len(self.textures) + GRID**2)

    @property
    def pairwise_size(self) -> int:
        """Number P of pairwise features."""
        return 1 + 6 * len(SCALES)

    def histograms(self, image: Image, parts: Superpixels) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Counts of the colours [N, C] of all pixels, and of textures [N, D], in each superpixel."""
        colours = _nearest(_lab(image).reshape(-1, 3), self.colours)
        colour = parts.histograms(parts.labels.ravel(), colours, len(self.colours))
        rows, columns, descriptors = gradient_histograms(image)
        textures = _nearest(descriptors, self.textures)
        return colour, parts.histograms(parts.labels[rows, columns], textures, len(self.textures))

    def features(self, image: Image, parts: Superpixels) -> Features:
        """Features of the superpixels of an image.

        Unary features are 1, and the square roots of normalized histograms of colours, textures and places: on the
        superpixel, on its neighbourhood of order 1, and on its neighbourhood of order 2. Pairwise features are 1, and
        exp(-ηd) for several η and the χ² distances d of the histograms of colours and textures. Unary features are
        multiplied by the relative size of the superpixel, pairwise features by the length of the border.
        """
        height, width = parts.labels.shape
        colour, texture = self.histograms(image, parts)
        cells = (np.arange(height) * GRID // height * GRID)[:, None] + np.arange(width) * GRID // width
        place = parts.histograms(parts.labels, cells, GRID**2)
        unary, similar = [np.ones((len(parts.sizes), 1))], [np.ones((len(parts.edges), 1))]
        a, b = parts.edges.T
        for members in parts.neighbourhoods():
            for counts, compared in ((colour, True), (texture, True), (place, False)):
                histogram = normalized(summed(members, counts))
                unary.append(np.sqrt(histogram))
                if compared:
                    similar.append(np.exp(-SCALES * _chi_square(histogram[a], histogram[b])[:, None]))
        size = (parts.sizes / parts.sizes.mean())[:, None]
        length = (parts.borders / np.sqrt(parts.sizes.mean()))[:, None]
        return Features(
            (np.concatenate(unary, 1) * size).astype(np.float32),
            parts.edges,
            (np.concatenate(similar, 1) * length).astype(np.float32),
            parts.sizes,
        )


def _sorted_pairs(pairs: NDArray[np.int64], count: int) -> NDArray[np.int64]:
    """The distinct pairs of numbers below ``count``."""
    return np.stack(divmod(np.unique(pairs[:, 0] * count + pairs[:, 1]), count), 1)


def _lab(image: Image) -> Image:
    lab: Image = cv2.cvtColor(image, cv2.COLOR_BGR2LAB)
    return lab


def gradient_histograms(image: Image) -> tuple[NDArray[np.int64], NDArray[np.int64], Image]:
    """Rows and columns of the centres, and histograms of gradients around them, in the manner of dense SIFT."""
    side = _CELL * _CELLS
    # The last square must end with the image.
    height, width = (side + -(-n // _STRIDE) * _STRIDE for n in image.shape[:2])
    low = side // 2
    margins = (low, height - low - image.shape[0], low, width - low - image.shape[1])
    padded = cv2.copyMakeBorder(cv2.cvtColor(image, cv2.COLOR_BGR2GRAY), *margins, cv2.BORDER_REPLICATE)
    sizes = ((width, height), (side, side), (_STRIDE, _STRIDE), (_CELL, _CELL))
    hog = cv2.HOGDescriptor(*sizes, _DIRECTIONS, 1, -1, 0, 0.2, False, 1, True)
    rows, columns = (np.arange(0, n - side + 1, _STRIDE) for n in (height, width))
    values = hog.compute(padded).reshape(len(columns), len(rows), -1).transpose(1, 0, 2)
    # Row y of the squares has its centre at row y of the image.
    inside = (rows < image.shape[0])[:, None] & (columns < image.shape[1])
    grid = np.meshgrid(rows, columns, indexing="ij")
    np.clip(np.multiply(values, 512, out=values), 0, 255, out=values)
    return grid[0][inside], grid[1][inside], values.astype(np.uint8)[inside]


def _centres(points: Image, count: int) -> Image:
    if len(points) == 1:  # which OpenCV takes for many points of one number
        return points
    distinct = len(np.unique(points, axis=0))
    cv2.setRNGSeed(0)
    criteria = (cv2.TERM_CRITERIA_MAX_ITER, _KMEANS_ITERATIONS, 0.0)
    flags = cv2.KMEANS_PP_CENTERS
    _, _, centres = cv2.kmeans(points.astype(np.float32), min(count, distinct), None, criteria, 1, flags)
    return np.asarray(np.rint(centres), np.uint8)


def _nearest(points: Image, centres: Image) -> NDArray[np.int64]:
    """The nearest centre of each point."""
    c, found = centres.astype(np.float32), np.empty(len(points), np.int64)
    for begin in range(0, len(points), _TILE):
        tile = slice(begin, begin + _TILE)
        found[tile] = (points[tile].astype(np.float32) @ (-2 * c.T) + (c * c).sum(1)).argmin(1)
    return found


def summed(members: NDArray[np.int64], values: NDArray[np.float64]) -> NDArray[np.float64]:
    """Sums of values [N, K] over the second numbers of sorted pairs [M, 2] with the same first one."""
    begins = np.flatnonzero(np.diff(members[:, 0], prepend=-1))
    return np.asarray(np.add.reduceat(values[members[:, 1]], begins))


def normalized(counts: NDArray[np.float64]) -> NDArray[np.float64]:
    """Rows that sum to one, or stay zero."""
    return np.asarray(counts / np.maximum(counts.sum(1, keepdims=True), 1))


def _chi_square(p: NDArray[np.float64], q: NDArray[np.float64]) -> NDArray[np.float64]:
    """χ² distance of the rows, from 0 to 1."""
    return np.asarray(((p - q) ** 2 / np.maximum(p + q, 1e-12)).sum(1) / 2)
