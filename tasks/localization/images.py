"""Images with objects in boxes, wherever they come from, and reports of what is wrong with some of them."""

import math
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import lru_cache
from io import BytesIO
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from structsmooth.files import FileError, decoding, read_bytes
from structsmooth.tasks.images import check_pixels

EDGES = ("xmin", "ymin", "xmax", "ymax")
"""Names of the edges of a box, in its order."""
# Names that a report gives of each kind of fault.
_NAMED = 10

Box = tuple[float, float, float, float]
"""Edges (xmin, ymin, xmax, ymax) in pixels from the upper left corner of the image: the first pixel is from 0 to 1."""


class ImageFile(NamedTuple):
    """An image on disk: a file, or a member of a zip archive."""

    path: str
    member: str = ""

    @classmethod
    def at(cls, path: Path | zipfile.Path) -> "ImageFile":
        """The file of a path, in an archive or not."""
        return cls(str(path.root.filename), path.at) if isinstance(path, zipfile.Path) else cls(str(path))

    def read_bytes(self) -> bytes:
        """The encoded image.

        Raises:
            OSError: it cannot be read.
            FileError: it is too large.
        """
        try:
            if not self.member:
                return read_bytes(Path(self.path))
            return read_bytes(_archive(self.path, Path(self.path).stat().st_mtime_ns) / self.member)
        except FileError as error:
            if error.__cause__ is None:  # too large
                raise
            raise OSError("missing, encrypted or damaged in the archive") from error
        except OSError as error:
            raise OSError(f"unreadable file ({error.strerror or 'No such file'})") from error

    def __str__(self) -> str:
        return self.member or self.path


class BoxedObject(NamedTuple):
    """An object in an image; difficult objects do not count."""

    label: str
    box: Box
    difficult: bool = False


@dataclass(frozen=True)
class AnnotatedImage:
    """An image, by the name in reports and predictions, and the objects in it; ``None`` where these are not known."""

    name: str
    file: ImageFile
    objects: tuple[BoxedObject, ...] | None = None


@dataclass
class Faults:
    """What is wrong with which images; ``str()`` is a report."""

    names: dict[str, list[str]] = field(default_factory=dict)

    def add(self, reason: str, name: str) -> None:
        """Note what is wrong with an image."""
        self.names.setdefault(reason, []).append(name)

    @contextmanager
    def noting(self, name: object) -> Iterator[None]:
        """A block about an image: errors about files and values that it raises become faults."""
        try:
            yield
        except (OSError, ValueError) as error:
            self.add(str(error), str(name))

    def update(self, others: "Faults") -> None:
        """Note the faults of another report too."""
        for reason, names in others.names.items():
            self.names.setdefault(reason, []).extend(names)

    def __bool__(self) -> bool:
        return bool(self.names)

    def __str__(self) -> str:
        return "\n".join(
            f"{reason}: {', '.join(names[:_NAMED])}" + f" and {len(names) - _NAMED} more" * (len(names) > _NAMED)
            for reason, names in self.names.items()
        )


def decode(data: bytes) -> NDArray[np.uint8]:
    """Pixels [height, width, 3] of an encoded image, RGB, as they are stored: boxes ignore its orientation mark too.

    Raises:
        ValueError: a corrupt image.
    """
    from PIL import Image

    check_pixels(data, "corrupt image")
    with decoding("corrupt image", "a whole one"), Image.open(BytesIO(data)) as image:
        return np.asarray(image.convert("RGB"))


def clip_box(box: Box, width: int, height: int) -> Box:
    """The part of a box that is in the image.

    Raises:
        ValueError: a box without area, or outside the image.
    """
    xmin, ymin, xmax, ymax = box
    if not (xmin < xmax and ymin < ymax):
        raise ValueError("box without area")
    clipped = (max(xmin, 0.0), max(ymin, 0.0), min(xmax, float(width)), min(ymax, float(height)))
    if not (clipped[0] < clipped[2] and clipped[1] < clipped[3]):
        raise ValueError("box outside the image")
    return clipped


def finite(text: Any) -> float:
    """The number that a file gives for an edge; ``ValueError`` if it is not finite."""
    number = float(text)
    if not math.isfinite(number):
        raise ValueError(f"expected a finite number, got {text!r}")
    return number


@lru_cache(maxsize=4)
def _archive(path: str, _modified: int) -> zipfile.Path:
    with decoding(path, "a zip file"):
        return zipfile.Path(path)
