"""Images with masks: folders and zip files with ``images/`` and ``masks/``, or images alone; pictures of segmentations.

Needs OpenCV: ``pip install structsmooth[images]``.
"""

import zipfile
import zlib
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol, TypeVar

import numpy as np
from numpy.typing import NDArray

from structsmooth import markup
from structsmooth.checkpoint import write_atomic
from structsmooth.files import select

_SUFFIXES = {".jpg", ".jpeg", ".png", ".bmp", ".gif", ".tif", ".tiff", ".webp"}
File = Path | zipfile.Path
"""A file or folder, on disk or in a zip file."""


class Named(Protocol):
    """A picture with a name."""

    @property
    def name(self) -> str:
        """Of its file, without suffix."""


P = TypeVar("P", bound=Named)

# BGR, and the share of the image that stays.
_PREDICTED, _OUTLINE, _OPACITY = (0, 200, 0), (0, 0, 255), 0.45


@dataclass(frozen=True)
class Picture:
    """An image and where its object is.

    Attributes:
        name: of the file, without suffix.
        image: BGR, uint8 [H, W, 3].
        mask: true on the object, bool [H, W]; ``None`` where it is not known.
    """

    name: str
    image: NDArray[np.uint8]
    mask: NDArray[np.bool_] | None


def read_pictures(path: str) -> list[Picture]:
    """Pictures of a folder or zip file in the order of their names, or a single one.

    ``images/`` has the images, and ``masks/`` the masks of the same stem, if there are any: 0 is background, all else
    object. Without ``images/`` the images are those of the folder itself.

    Args:
        path: folder, zip file or image; ``PATH#1-200`` for some of the images of a folder or zip file, counted from 1.

    Raises:
        FileNotFoundError: no such folder or file.
        ValueError: no images, or fewer than asked for; two images of the same stem; a file that is damaged or no image;
            a mask of another size than its image, or of one colour. The message names the file.
    """
    source, part = select(path)
    root = opened(source)
    images, masks = images_of(root), by_stem(root, "masks")
    names = sorted(images)
    if part is not None:
        if part.start < 1 or part.stop > len(names) + 1:
            raise ValueError(f"{path}: there are {len(names)} images, counted from 1")
        names = names[part.start - 1 : part.stop - 1]
    return [_read(name, images[name], masks.get(name)) for name in names]


def read_listed(lines: Iterable[str], read: Callable[[str], Sequence[P]]) -> list[P]:
    """What ``read`` finds at the paths that lines name, such as those of standard input; empty lines count for nothing.

    Raises:
        ValueError: no paths, or two pictures of the same name, whose predictions would have the same file.
    """
    pictures = [picture for line in lines if line.strip() for picture in read(line.strip())]
    if not pictures:
        raise ValueError("standard input: expected lines with paths of images")
    counts = Counter(picture.name for picture in pictures)
    if twice := [name for name, count in counts.items() if count > 1]:
        raise ValueError(f"standard input: two images have the name {twice[0]}")
    return pictures


def opened(source: Path) -> File:
    """A folder, the root of a zip file, or an image.

    Raises:
        FileNotFoundError: there is none of them.
        ValueError: a file that is no zip file, and has no suffix of an image.
    """
    if not source.exists():
        raise FileNotFoundError(f"{source}: no such folder, zip file or image")
    if source.is_dir() or is_image(source):
        return source
    try:
        return zipfile.Path(source)
    except zipfile.BadZipFile as error:
        raise ValueError(f"{source}: neither a folder nor a zip file nor an image ({error})") from error


def images_of(root: File) -> dict[str, File]:
    """By their stem: the files in ``images/``, else those of the folder itself, or a single image.

    Raises:
        ValueError: there are none, or two of the same stem.
    """
    if root.is_file():
        return {Path(root.name).stem: root}
    images = by_stem(root, "images") or by_stem(root, "")
    if not images:
        raise ValueError(f"{root}: no images, neither in images/ nor beside it")
    return images


def by_stem(root: File, folder: str) -> dict[str, File]:
    """Images in a folder by their stem; ``ValueError`` if two have the same."""
    found: dict[str, File] = {}
    for file in (root / folder).iterdir() if (root / folder).is_dir() else ():
        stem = Path(file.name).stem
        if not (is_image(file) and file.is_file()):
            continue
        if stem in found:
            raise ValueError(f"{root / folder}: {found[stem].name} and {file.name} have the same name")
        found[stem] = file
    return found


def is_image(file: File) -> bool:
    """Whether the suffix of a file is that of an image."""
    return Path(file.name).suffix.lower() in _SUFFIXES


def read_image(file: File) -> NDArray[np.uint8]:
    """The pixels of an image, BGR: uint8 [H, W, 3].

    Raises:
        ValueError: a file that is damaged or no image.
    """
    return np.asarray(decoded(file, opencv().IMREAD_COLOR), np.uint8)


def decoded(file: File, flags: int) -> NDArray[Any]:
    """The pixels of an image as OpenCV decodes them with these flags; errors as in :func:`read_image`."""
    cv2 = opencv()
    try:
        data = np.frombuffer(file.read_bytes(), np.uint8)
    except (zipfile.BadZipFile, zlib.error) as error:
        raise ValueError(f"{file}: damaged ({error})") from error
    pixels = cv2.imdecode(data, flags) if len(data) else None
    if pixels is None:
        raise ValueError(f"{file}: no image, or damaged")
    return np.asarray(pixels)


def overlay(picture: Picture, predicted: NDArray[np.bool_]) -> NDArray[np.uint8]:
    """The image with the predicted object in green, and the outline of the mask in red, if there is one: BGR."""
    cv2 = opencv()
    canvas = picture.image.copy()
    tinted = _OPACITY * canvas[predicted] + (1 - _OPACITY) * np.array(_PREDICTED)
    canvas[predicted] = tinted.astype(np.uint8)
    if picture.mask is not None:
        outlines, _ = cv2.findContours(picture.mask.astype(np.uint8), cv2.RETR_LIST, cv2.CHAIN_APPROX_NONE)
        cv2.drawContours(canvas, outlines, -1, _OUTLINE, 1)
    return canvas


def embedded(pixels: NDArray[np.uint8], alt: str) -> markup.Markup:
    """An image, BGR, inside a page; ``alt`` says what it shows."""
    return markup.picture(np.ascontiguousarray(pixels[..., ::-1]), alt)


def run_lengths(mask: NDArray[np.bool_]) -> list[int]:
    """Lengths of stretches of false and true pixels in turns, row by row, false first.

    Example:
        >>> run_lengths(np.array([[True, True], [False, True]]))
        [0, 2, 1, 1]
    """
    flat = np.concatenate([[False], mask.ravel()])
    changes = np.flatnonzero(flat[1:] != flat[:-1])
    return [int(length) for length in np.diff(changes, prepend=0, append=mask.size)]


def from_run_lengths(runs: Sequence[int], size: Sequence[int]) -> NDArray[np.bool_]:
    """The mask of height and width ``size`` that :func:`run_lengths` describes.

    Example:
        >>> from_run_lengths([0, 2, 1, 1], [2, 2]).tolist()
        [[True, True], [False, True]]
    """
    return np.repeat(np.arange(len(runs)) % 2 == 1, runs).reshape(tuple(size))


def save_png(path: Path, pixels: NDArray[np.uint8]) -> None:
    """Save pixels of one channel [H, W], or of three, BGR [H, W, 3]."""
    write_atomic(path, opencv().imencode(".png", pixels)[1].tobytes())


def _read(name: str, image_file: File, mask_file: File | None) -> Picture:
    image = read_image(image_file)
    if mask_file is None:
        return Picture(name, image, None)
    mask = decoded(mask_file, opencv().IMREAD_GRAYSCALE) > 0
    if mask.shape != image.shape[:2]:
        expected = f"the size of images/{image_file.name}, {image.shape[:2]}"
        raise ValueError(f"{mask_file}: expected {expected}, got {mask.shape}")
    if mask.all() or not mask.any():
        raise ValueError(f"{mask_file}: expected object and background, got one colour")
    return Picture(name, image, mask)


def opencv() -> Any:
    """OpenCV, which only images need; ``ImportError`` says what to do where it is not installed."""
    try:
        import cv2
    except ImportError as error:
        raise ImportError("images need OpenCV: pip install structsmooth[images]") from error
    return cv2
