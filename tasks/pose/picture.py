"""Pictures of poses.

Needs OpenCV: ``pip install structsmooth[images]``.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from structsmooth.checkpoint import write_atomic
from structsmooth.tasks.pose.data import Joints, Person
from structsmooth.tasks.segmentation.pictures import opencv

# BGR; pictures are made larger until their longer side has so many pixels.
_TRUE, _FOUND, _LONGER_SIDE = (0, 0, 255), (0, 220, 0), 480


def draw_pose(person: Person, pose: Joints, limbs: Sequence[tuple[str, str]], path: Path) -> None:
    """Save the image with the limbs that were found in green and, below them, those that are known in red."""
    cv2: Any = opencv()
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
    write_atomic(path, cv2.imencode(".png", canvas)[1].tobytes())
