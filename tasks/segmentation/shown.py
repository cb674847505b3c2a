"""What segmenters learned, in reports: weights of places, of colours and of borders.

Needs OpenCV: ``pip install structsmooth[images]``.
"""

from collections.abc import Iterable

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from structsmooth.markup import Block, Drawing, Markup, Matrix, Table, diverging, element, enlarged, swatch, views
from structsmooth.tasks.images import cv2
from structsmooth.tasks.segmentation.superpixels import GRID, SCALES, Vocabulary

# What histograms are of: neighbourhoods of order 0, 1 and 2.
_ORDERS = ("superpixel", "with its neighbours", "with their neighbours")
# Colours that are shown in each direction, and the width and height of the picture of a cell in pixels.
_COLOURS, _CELL = 8, 16


def unary_blocks(vocabulary: Vocabulary, weights: Tensor) -> list[Block]:
    """The colours with the largest weights, and the weights of places."""
    values = weights.detach().numpy()
    sizes = len(vocabulary.colours), len(vocabulary.textures)
    colours, _, places = np.split(values[1:].reshape(len(_ORDERS), -1), np.cumsum(sizes), 1)
    rgb = cv2.cvtColor(vocabulary.colours[None], cv2.COLOR_LAB2RGB)[0]
    rows = [
        (name, _swatches(rgb, row, +1), _swatches(rgb, row, -1)) for name, row in zip(_ORDERS, colours, strict=True)
    ]
    caption = f"Colours with the largest weights, besides the constant of {values[0]:+.3g}"
    tinted = diverging(places.reshape(-1, GRID, GRID), float(np.abs(places).max()))
    pairs = zip(_ORDERS, tinted, strict=True)
    pictures = [(name, enlarged(tints, f"weights of places, {name}", _CELL)) for name, tints in pairs]
    return [
        Table(caption, ("histogram", "for the object", "for the background"), rows),
        Drawing("Weights of places: blue speaks for the object, orange for the background", views(*pictures)),
    ]


def pairwise_matrix(weights: Tensor) -> Matrix:
    """The weights of borders: of their lengths, and of these times exp(-ηd) for distances d of histograms."""
    rows = [f"{kind}, {order}" for order in _ORDERS for kind in ("colours", "textures")]
    values = np.full((1 + len(rows), 1 + len(SCALES)), np.nan)
    values[0, 0], values[1:, 1:] = weights[0], weights[1:].detach().view(len(rows), -1)
    caption = "Weights of borders: scores of one label on both sides, by length, fading at rate η"
    columns = [f"{scale:g}" for scale in (0, *SCALES)]
    return Matrix(caption, ["length alone", *rows], columns, values, "distance of histograms", "η")


def _swatches(rgb: NDArray[np.uint8], weights: NDArray[np.float64], sign: int) -> Markup:
    """The colours whose weights have a sign, the largest first, with their weights."""
    order: Iterable[int] = np.argsort(-sign * weights)[:_COLOURS]
    chips = [swatch(rgb[i].tolist(), f"{weights[i]:+.3g}") for i in order if sign * weights[i] > 0]
    return element("span", *chips, class_="chips")
