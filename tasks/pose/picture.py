"""Pictures of poses, and of what pose estimators learned: springs between joints, and filters.

Needs OpenCV: ``pip install structsmooth[images]``.
"""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from structsmooth.markup import Drawing, Markup, Table, alternatives, diverging, enlarged, joined, views
from structsmooth.tasks.images import cv2, embedded
from structsmooth.tasks.pose.data import Joints, Person
from structsmooth.tasks.pose.features import BINS, FEATURES
from structsmooth.tasks.pose.skeleton import Skeleton

# BGR; pictures are made larger until their longer side has so many pixels.
_TRUE, _FOUND, _LONGER_SIDE = (0, 0, 255), (0, 220, 0), 480


def drawn_pose(person: Person, pose: Joints, limbs: Sequence[tuple[str, str]]) -> NDArray[np.uint8]:
    """The image with the limbs that were found in green and, below them, those that are known in red: BGR."""
    height, width = person.image.shape[:2]
    scale = max(1.0, _LONGER_SIDE / max(height, width))
    canvas = cv2.resize(person.image, (round(scale * width), round(scale * height)), interpolation=cv2.INTER_LINEAR)
    for joints, colour in ((person.joints, _TRUE), (pose, _FOUND)):
        places = {name: (round(scale * x), round(scale * y)) for name, (x, y) in joints.items()}
        for first, second in limbs:
            if first in places and second in places:
                cv2.line(canvas, places[first], places[second], colour, 2, cv2.LINE_AA)
        for place in places.values():
            cv2.circle(canvas, place, 4, colour, -1, cv2.LINE_AA)
    return np.asarray(canvas)


def person_markup(person: Person, ranked: Sequence[tuple[float, Joints]], limbs: Sequence[tuple[str, str]]) -> Markup:
    """The image with its best pose in green and the known one in red, and alternatives."""
    best = ranked[0][1]
    known = ", known joints in red" if person.joints else ""
    shown = views((f"{person.name}: found in green{known}", embedded(drawn_pose(person, best, limbs), person.name)))

    def describe(pose: Joints) -> str:
        moved = [name for name, place in pose.items() if place != best[name]]
        return f"{', '.join(moved)} elsewhere"

    return joined([shown, alternatives(ranked, describe)])


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
