"""Images with masks: folders and zip files with ``images/`` and ``masks/``, and pictures of segmentations.

Needs OpenCV: ``pip install structsmooth[images]``.
"""

from __future__ import annotations

import zipfile
import zlib
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any

import numpy as np
from numpy.typing import NDArray

from structsmooth.checkpoint import write_atomic
from structsmooth.tasks.files import select

_SUFFIXES = {".jpg", ".jpeg", ".png", ".bmp", ".tif", ".tiff", ".webp"}
# BGR, and the share of the image that stays.
_PREDICTED, _OUTLINE, _OPACITY = (0, 200, 0), (0, 0, 255), 0.45


@dataclass(frozen=True)
class Picture:
    """An image and where its object is.

    Attributes:
        name: that of the file, without suffix.
        image: BGR, uint8 [H, W, 3].
        mask: true on the object, bool [H, W]; ``None`` where it is not known.
    """

    name: str
    image: NDArray[np.uint8]
    mask: NDArray[np.bool_] | None


def read_pictures(path: str) -> list[Picture]:
    """Pictures of a folder or zip file in the order of their names.

    ``images/`` has the images, ``masks/`` those of the same stem, if there are any: 0 is background, all else object.

    Args:
        path: folder or zip file; ``PATH#1-200`` for some of its images, counted from 1.

    Raises:
        FileNotFoundError: no such folder or file.
        ValueError: no images, or not as many as asked for; two of the same stem; a file that is no image or damaged; a
            mask of another size than its image, or of one colour. The message names the file.
    """
    source, part = select(path)
    if not source.exists():
        raise FileNotFoundError(f"{source}: no such folder or zip file")
    files = _Files(source)
    images, masks = files.stems("images"), files.stems("masks")
    names = sorted(images)
    if not names:
        raise ValueError(f"{source}: no images in images/")
    if part is not None:
        if part.start < 1 or part.stop > len(names) + 1:
            raise ValueError(f"{path}: there are {len(names)} images, counted from 1")
        names = names[part.start - 1 : part.stop - 1]
    return [_read(name, files, images[name], masks.get(name)) for name in names]


def save_overlay(path: Path, picture: Picture, predicted: NDArray[np.bool_]) -> None:
    """Save the image with the predicted object in green, and the outline of the mask in red, if there is one."""
    cv2 = opencv()
    canvas = picture.image.copy()
    tinted = _OPACITY * canvas[predicted] + (1 - _OPACITY) * np.array(_PREDICTED)
    canvas[predicted] = tinted.astype(np.uint8)
    if picture.mask is not None:
        outlines, _ = cv2.findContours(picture.mask.astype(np.uint8), cv2.RETR_LIST, cv2.CHAIN_APPROX_NONE)
        cv2.drawContours(canvas, outlines, -1, _OUTLINE, 1)
    write_atomic(path, cv2.imencode(".png", canvas)[1].tobytes())


def _read(name: str, files: _Files, image_file: str, mask_file: str | None) -> Picture:
    image = _decode(files, image_file, colour=True)
    if mask_file is None:
        return Picture(name, image, None)
    mask = _decode(files, mask_file, colour=False) > 0
    if mask.shape != image.shape[:2]:
        raise ValueError(
            f"{files.path}/{mask_file}: expected the size of {image_file}, {image.shape[:2]}, got {mask.shape}"
        )
    if mask.all() or not mask.any():
        raise ValueError(f"{files.path}/{mask_file}: expected object and background, got one colour")
    return Picture(name, image, mask)


def _decode(files: _Files, name: str, *, colour: bool) -> NDArray[np.uint8]:
    cv2 = opencv()
    data = np.frombuffer(files.read(name), np.uint8)
    pixels = cv2.imdecode(data, cv2.IMREAD_COLOR if colour else cv2.IMREAD_GRAYSCALE) if len(data) else None
    if pixels is None:
        raise ValueError(f"{files.path}/{name}: no image, or damaged")
    return np.asarray(pixels, np.uint8)


class _Files:
    """The files of a folder or a zip file, by names relative to it.

    Args:
        path: of the folder or zip file.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._archive = None if path.is_dir() else _open_zip(path)

    def read(self, name: str) -> bytes:
        """The bytes of a file."""
        if self._archive is None:
            return (self.path / name).read_bytes()
        try:
            return self._archive.read(name)
        except (zipfile.BadZipFile, zlib.error) as error:
            raise ValueError(f"{self.path}/{name}: damaged ({error})") from error

    def stems(self, folder: str) -> dict[str, str]:
        """Images in a folder by their stem."""
        found: dict[str, str] = {}
        for name in self._names():
            path = PurePosixPath(name)
            if str(path.parent) != folder or path.suffix.lower() not in _SUFFIXES:
                continue
            if path.stem in found:
                raise ValueError(f"{self.path}: {found[path.stem]} and {name} have the same name")
            found[path.stem] = name
        return found

    def _names(self) -> list[str]:
        if self._archive is not None:
            return self._archive.namelist()
        return [file.relative_to(self.path).as_posix() for file in self.path.glob("*/*") if file.is_file()]


def _open_zip(path: Path) -> zipfile.ZipFile:
    try:
        return zipfile.ZipFile(path)
    except zipfile.BadZipFile as error:
        raise ValueError(f"{path}: neither a folder nor a zip file ({error})") from error


def opencv() -> Any:
    """OpenCV, without which all but images works.

    Raises:
        ImportError: it is not installed, with what to do.
    """
    try:
        import cv2
    except ImportError as error:
        raise ImportError("images need OpenCV: pip install structsmooth[images]") from error
    return cv2
