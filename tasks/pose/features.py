"""The cells of an image with their features, here histograms of oriented gradients.

Needs OpenCV: ``pip install structsmooth[images]``.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from structsmooth.tasks.images import cv2

BINS = 9
FEATURES = BINS + 4 + 1
"""Features of a cell: orientations, contrasts to the four blocks around it, whether it is outside the image."""


@dataclass(frozen=True, eq=False)
class Cells:
    """A grid of cells over an image.

    Attributes:
        features: [H + 2 · border, W + 2 · border, F], those of the grid and of a border around it.
        shape: H and W.
        pixels: width and height of a cell in pixels of the image.
    """

    features: NDArray[Any]
    shape: tuple[int, int]
    pixels: NDArray[np.float64]

    @classmethod
    def of(
        cls, image: NDArray[np.uint8], longest: int, side: int, border: int, described: "Described | None" = None
    ) -> "Cells":
        """Cells of an image, which is made smaller first if it is too large.

        Args:
            image: BGR, uint8 [H, W, 3].
            longest: largest size of the longer side, in pixels.
            side: of a cell, in pixels of the smaller image, which is stretched to a whole number of cells.
            border: number of cells around the image.
            described: gives the features [H, W, F] of an image by the side of its cells, of which the last is 0, and 1
                in the border; :func:`oriented_gradients` if not given.
        """
        height, width = image.shape[:2]
        scale = min(1.0, longest / max(height, width))
        rows, columns = (max(2, round(scale * size / side)) for size in (height, width))
        resized = cv2.resize(image, (columns * side, rows * side), interpolation=cv2.INTER_AREA)
        inside = (described or oriented_gradients)(resized, side)
        features = np.zeros((rows + 2 * border, columns + 2 * border, inside.shape[2]), inside.dtype)
        features[..., -1] = 1
        features[border : border + rows, border : border + columns] = inside
        return cls(features, (rows, columns), np.array([width / columns, height / rows]))

    def centres(self, positions: NDArray[np.int64]) -> NDArray[np.float64]:
        """Pixels x and y of the centres of cells, which are counted row by row: [..., 2]."""
        rows, columns = np.divmod(positions, self.shape[1])
        return (np.stack([columns, rows], -1) + 0.5) * self.pixels


Described = Callable[[NDArray[np.uint8], int], NDArray[Any]]


def oriented_gradients(image: NDArray[np.uint8], side: int) -> NDArray[np.float64]:
    """Features of the cells of an image whose sides are multiples of ``side``: [H, W, FEATURES].

    A cell is part of four blocks of 2 x 2 cells, each with a histogram of its own norm. The features are the mean of
    its four histograms, the sum of each, and 0, since it is inside the image.

    Reference:
        Felzenszwalb, Girshick, McAllester and Ramanan (2010), section 6.2, with the histograms of Dalal and Triggs
        (2005).
    """
    padded = cv2.copyMakeBorder(image, side, side, side, side, cv2.BORDER_REPLICATE)
    height, width = (size // side for size in padded.shape[:2])
    cell, block = (side, side), (2 * side, 2 * side)
    descriptor = cv2.HOGDescriptor((width * side, height * side), block, cell, cell, BINS)
    # By x and y of the block, then by x and y of the cell in it.
    blocks = descriptor.compute(padded).reshape(width - 1, height - 1, 2, 2, BINS)
    around = [blocks[1 - x : width - 1 - x, 1 - y : height - 1 - y, x, y] for x in (0, 1) for y in (0, 1)]
    histograms = np.stack(around, 2).transpose(1, 0, 2, 3).astype(np.float64)
    inside = np.zeros((*histograms.shape[:2], 1))
    return np.concatenate([histograms.mean(2), histograms.sum(3) / BINS, inside], 2)
