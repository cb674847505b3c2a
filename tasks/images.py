"""Images of folders and zip files, alone or in ``images/`` beside what is known of them, and label maps in files.

Needs OpenCV: ``pip install structsmooth[images]``.
"""

import zipfile
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from io import BytesIO
from pathlib import Path
from typing import Any, Protocol, TypeVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

from structsmooth import markup
from structsmooth.checkpoint import write_atomic
from structsmooth.files import File as File
from structsmooth.files import FileError, check_size, decoding, read_bytes

_SUFFIXES = {".jpg", ".jpeg", ".png", ".bmp", ".gif", ".tif", ".tiff", ".webp"}
_FORMATS = ["JPEG", "PNG", "BMP", "GIF", "TIFF", "WEBP"]
# Bytes that a pixel takes with its features while an image is worked on.
_PIXEL = 96


class _OpenCV:
    """OpenCV, which loads with the first image and not with the list of tasks."""

    def __getattr__(self, name: str) -> Any:
        try:
            import cv2
        except ImportError as error:
            raise ImportError("images need OpenCV: pip install structsmooth[images]") from error
        return getattr(cv2, name)


cv2: Any = _OpenCV()
"""OpenCV; ``ImportError`` says what to do where it is not installed."""


class Named(Protocol):
    """A picture whose predictions are saved under its name."""

    @property
    def name(self) -> str:
        """The name of its file without the suffix."""


N = TypeVar("N", bound=Named)
P = TypeVar("P", bound=np.generic)


def read_listed(path: str | Iterable[str], read: Callable[[str], list[N]]) -> list[N]:
    """What ``read`` finds at a path, or at the paths that the lines of a stream name, empty ones aside.

    Raises:
        ValueError: no paths, or two pictures of the same name, whose predictions would have the same file.
    """
    if isinstance(path, str):
        return read(path)
    pictures = [picture for line in path if line.strip() for picture in read(line.strip())]
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
    with decoding(source, "a folder, a zip file or an image"):
        return zipfile.Path(source)


def images_of(root: File) -> dict[str, File]:
    """Images by their stem: the files in ``images/``, else those of the folder itself, or a single image.

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
    return np.asarray(decoded(file, cv2.IMREAD_COLOR), np.uint8)


def decoded(file: File, flags: int) -> NDArray[Any]:
    """The pixels of an image as OpenCV decodes them with these flags; errors as in :func:`read_image`."""
    data = read_bytes(file)
    check_pixels(data, file)
    with decoding(file, "an image"):
        pixels = cv2.imdecode(np.frombuffer(data, np.uint8), flags)
    if pixels is None:
        raise FileError(f"{file}: no image, or damaged")
    return np.asarray(pixels)


def check_pixels(data: bytes, name: object) -> None:
    """Refuse an encoded image that declares more pixels than there is memory for, before it is decoded.

    Raises:
        FileError: no image, or one that is too large.
    """
    from PIL import Image

    Image.init()
    kinds = (Image.OPEN[kind] for kind in _FORMATS if kind in Image.OPEN)
    read_header = next((header for header, accepts in kinds if accepts and accepts(data[:16]) is True), None)
    if read_header is None:
        raise FileError(f"{name}: no image of the formats {', '.join(_FORMATS)}, or damaged")
    with decoding(name, "an image"), read_header(BytesIO(data), "") as image:
        width, height = image.size
    check_size(name, _PIXEL * width * height)


def embedded(pixels: NDArray[np.uint8], alt: str) -> markup.Markup:
    """An image, BGR, inside a page; ``alt`` says what it shows."""
    return markup.picture(np.ascontiguousarray(pixels[..., ::-1]), alt)


def stretches(pixels: NDArray[P]) -> tuple[NDArray[P], NDArray[np.int64]]:
    """Values and lengths of the stretches of equal pixels of an image of one channel, row by row.

    Example:
        >>> values, lengths = stretches(np.array([[2, 2], [2, 0]], np.uint8))
        >>> values.tolist(), lengths.tolist()
        ([2, 0], [3, 1])
    """
    flat = pixels.ravel()
    starts = np.append(0, 1 + np.flatnonzero(flat[1:] != flat[:-1]))
    return flat[starts], np.diff(starts, append=len(flat))


def unrolled(values: ArrayLike, lengths: ArrayLike, size: Sequence[int]) -> NDArray[Any]:
    """The pixels of height and width ``size`` that :func:`stretches` describes."""
    return np.repeat(np.asarray(values), np.asarray(lengths)).reshape(tuple(size))


def save_png(path: Path, pixels: NDArray[np.uint8]) -> None:
    """Save pixels of one channel [H, W], or of three, BGR [H, W, 3]."""
    write_atomic(path, cv2.imencode(".png", pixels)[1].tobytes())
