"""What pose estimators learned, in reports: the springs between joints, and their filters as pictures."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from structsmooth.markup import Drawing, Table, diverging, enlarged, views
from structsmooth.tasks.pose.features import BINS, FEATURES
from structsmooth.tasks.pose.skeleton import Skeleton

# Width and height in pixels of the picture of a cell.
_CELL = 15


def spring_table(skeleton: Skeleton, springs: Tensor) -> Table:
    """The weights [N − 1, 4] of the displacements of each joint from the one that it hangs on."""
    rows = [
        (*limb, *(f"{weight:+.3g}" for weight in weights))
        for limb, weights in zip(skeleton.limbs, springs.tolist(), strict=True)
    ]
    caption = "Springs: what displacements from the mean cost, in standard deviations"
    return Table(caption, ("joint", "hangs on", "dx", "dx²", "dy", "dy²"), rows)


def filter_pictures(names: Sequence[str], filters: Tensor, window: int) -> Drawing:
    """The weights of edges in each cell under the filters [N, FEATURES · window²]: a stroke along each orientation.

    Where strokes cross, the one of the largest weight shows.
    """
    weights = filters.detach().numpy().reshape(-1, FEATURES, window, window)[:, :BINS]
    strokes = weights[..., None, None] * _strokes()[:, None, None]  # [N, BINS, window, window, _CELL, _CELL]
    shown = np.take_along_axis(strokes, np.abs(strokes).argmax(1, keepdims=True), 1)[:, 0]
    side = window * _CELL
    colours = diverging(shown.swapaxes(2, 3).reshape(-1, side, side), float(np.abs(weights).max()))
    figures = [(name, enlarged(tints, f"filter of {name}", 2)) for name, tints in zip(names, colours, strict=True)]
    caption = "Filters of joints: edges in blue speak for the joint, those in orange against it"
    return Drawing(caption, views(*figures, kind="letters"))


def _strokes() -> NDArray[np.float64]:
    """Lines across a cell, at right angles to the gradients of each orientation: [BINS, _CELL, _CELL]."""
    angles = np.pi * (np.arange(BINS) + 0.5) / BINS
    y, x = np.indices((_CELL, _CELL)) - _CELL // 2
    distances = np.abs(np.multiply.outer(np.cos(angles), x) + np.multiply.outer(np.sin(angles), y))
    return np.asarray(np.clip(1.5 - distances, 0, 1) * (np.hypot(x, y) <= _CELL // 2))
