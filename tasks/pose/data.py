"""Images of people and where their joints are: folders and zip files with ``images/`` and ``joints.csv``, or LSPET.

Needs OpenCV: ``pip install structsmooth[images]``.
"""

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from structsmooth.files import csv_rows, load_arrays, numbered, read_text, select
from structsmooth.tasks.images import File, images_of, opened, read_image

Point = tuple[float, float]
"""x and y in pixels from the upper left corner of the image: the first pixel is from 0 to 1."""
Joints = Mapping[str, Point]
"""The places x and y of the joints of a person that are known, in pixels, by name."""

_TABLE = "joints.csv"
_COLUMNS = ("file", "joint", "x", "y")
# How far outside the image a joint may be, in longer sides of the image.
_MARGIN = 0.1
# The extended Leeds Sports Pose data, as an archive of arrays with one of images beside it.
_LSPET_JOINTS, _LSPET_IMAGES = "lspet400.npz", "lspet400_crops.zip"


@dataclass(frozen=True, eq=False)
class Person:
    """An image of a person.

    Attributes:
        name: of the file, without suffix.
        image: BGR, uint8 [H, W, 3].
        joints: those that are known, in the order of the data; none in images to predict.
    """

    name: str
    image: NDArray[np.uint8]
    joints: Joints


def read_people(path: str) -> list[Person]:
    """People of a folder or zip file in the order of the names of their images, or a single one.

    ``images/`` has the images, one person each. Lines of ``joints.csv`` are the name of an image, that of a joint, x
    and y, under the header ``file,joint,x,y``; more columns are ignored, and joints without a line are not known.
    Images to predict need no joints; they may be a folder of images, or an image. A folder with ``lspet400.npz`` and
    ``lspet400_crops.zip`` is read too.

    Args:
        path: folder, zip file or image; ``PATH#1-200`` for some of the images, counted from 1.

    Raises:
        FileNotFoundError: no such folder or file.
        ValueError: no images, or fewer than asked for; a file that is damaged or no image; a line that is malformed,
            or about an image that is missing, a joint that the image already has, or a place outside the image by more
            than a tenth of its longer side. The message names the file and the line or the joint.
    """
    source, part = select(path)
    is_lspet = (source / _LSPET_JOINTS).is_file()
    root = opened(source / _LSPET_IMAGES if is_lspet else source)
    images = images_of(root)
    chosen = numbered(path, sorted(images), part, "images")
    joints = _of_lspet(source) if is_lspet else _of_table(root, images)
    people = [Person(name, read_image(images[name]), joints.get(name, {})) for name in chosen]
    for person in people:
        _check_places(person, str(source if is_lspet else root / _TABLE))
    return people


def known_joints(person: Person) -> Joints:
    """The joints of a person some of whose joints are known."""
    if not person.joints:
        raise ValueError(f"{person.name} has no joints: training and evaluation need some for every image")
    return person.joints


def person_size(joints: Joints, torso: tuple[str, str]) -> float:
    """The distance of two joints, in pixels; 0.4 times the longer side of the box of all joints if one is not known.

    At least 1. On LSPET, left shoulder and right hip are 0.39 such sides apart, as a median.
    """
    if all(name in joints for name in torso):
        return max(math.dist(*(joints[name] for name in torso)), 1.0)
    places = np.array(list(joints.values()))
    return max(0.4 * float(np.ptp(places, axis=0).max()), 1.0)


def _of_table(root: File, images: Mapping[str, File]) -> dict[str, dict[str, Point]]:
    """Joints of the table by the stems of images."""
    table = root / _TABLE
    joints: dict[str, dict[str, Point]] = {}
    if not root.is_dir() or not table.is_file():
        return joints
    stems = {file.name: stem for stem, file in images.items()}
    for line, (file, joint, point) in _rows(table):
        place = f"{table}:{line}"
        if file not in stems:
            raise ValueError(f"{place}: there is no image {file}")
        points = joints.setdefault(stems[file], {})
        if joint in points:
            raise ValueError(f"{place}: {file} has the joint {joint} twice")
        points[joint] = point
    return joints


def _rows(table: File) -> Iterator[tuple[int, tuple[str, str, Point]]]:
    """Number and content of each line after the header."""
    rows = csv_rows(read_text(table).splitlines(), table)
    _, header = next(rows, (1, []))
    if not set(_COLUMNS) <= set(header):
        raise ValueError(f"{table}:1: expected the header {','.join(_COLUMNS)}")
    for line, cells in rows:
        row = dict(zip(header, cells, strict=False))
        file, joint, *numbers = (row.get(column, "") for column in _COLUMNS)
        try:
            x, y = map(float, numbers)
        except ValueError:
            x = y = math.nan
        if not (joint and math.isfinite(x) and math.isfinite(y)):
            raise ValueError(f"{table}:{line}: expected a file, a joint and two numbers")
        yield line, (file, joint, (x, y))


def _of_lspet(folder: Path) -> dict[str, dict[str, Point]]:
    """Joints of the cropped images."""
    arrays = load_arrays(str(folder / _LSPET_JOINTS))
    names = [str(name) for name in arrays["joint_names"]]
    return {
        Path(str(file)).stem: {
            joint: (float(x), float(y)) for joint, (x, y) in zip(names, places, strict=True) if np.isfinite(x + y)
        }
        for file, places in zip(arrays["filenames"], arrays["joints_crop"], strict=True)
    }


def _check_places(person: Person, place: str) -> None:
    height, width = person.image.shape[:2]
    margin = _MARGIN * max(height, width)
    for joint, (x, y) in person.joints.items():
        if not (-margin <= x <= width + margin and -margin <= y <= height + margin):
            raise ValueError(
                f"{place}: {joint} of {person.name} at {x:g}, {y:g} is outside the image of {width} x {height}"
            )
