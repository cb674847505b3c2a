"""Pictures of poses.

Needs OpenCV: ``pip install structsmooth[images]``.
"""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from structsmooth.markup import Markup, alternatives, joined, views
from structsmooth.tasks.images import cv2, embedded
from structsmooth.tasks.pose.data import Joints, Person

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
