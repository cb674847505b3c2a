"""Images with a class for every pixel: folders and zip files with ``images/``, ``labels/`` and ``classes.txt``.

Needs OpenCV: ``pip install structsmooth[images]``.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from structsmooth.files import read_text, split_part
from structsmooth.tasks.base import known
from structsmooth.tasks.images import File, by_stem, cv2, decoded, images_of, opened, read_image

# Values of pixels are bytes, and one of them must be left for pixels without a class.
_MOST_CLASSES = 255


@dataclass(frozen=True, eq=False)
class Scene:
    """An image, and which class each of its pixels has.

    Attributes:
        name: of the file, without suffix.
        image: BGR, uint8 [H, W, 3].
        labels: class of every pixel, uint8 [H, W], 255 where it is not known (void); ``None`` where all are to be
            predicted.
        classes: their names.
    """

    name: str
    image: NDArray[np.uint8]
    labels: NDArray[np.uint8] | None
    classes: tuple[str, ...]


def read_scenes(path: str, void: Sequence[str] = ()) -> list[Scene]:
    """Scenes of a folder or zip file, or a single one.

    ``images/`` has the images, ``labels/`` a PNG file of one channel for each, of the same stem, and ``classes.txt`` a
    line for each class. Pixels hold the number of their class, from 0; higher numbers are void. Images to predict need
    no labels; they may be a folder of images, or an image.

    Args:
        path: folder or zip file, for all its images in the order of their names; ``PATH#train`` for those that
            ``train.txt`` names line by line, and ``PATH#train+val`` for those of two files.
        void: names of classes whose pixels count as void.

    Raises:
        FileNotFoundError: no such folder or file.
        ValueError: no images, no such part, or a part that names others; a file that is damaged or no image; labels of
            another size than their image, or without ``classes.txt``. The message names the file.
    """
    source, part = split_part(path)
    root = opened(source)
    images, labels = images_of(root), by_stem(root, "labels")
    classes = tuple(_lines(root / "classes.txt")) if labels else ()
    if len(classes) > _MOST_CLASSES or len(set(classes)) < len(classes):
        raise ValueError(f"{root / 'classes.txt'}: expected up to {_MOST_CLASSES} different names")
    if labels and not set(void) < set(classes):
        raise ValueError(f"{root / 'classes.txt'}: {', '.join(void)} must be some of the classes, and not all")
    kept = tuple(name for name in classes if name not in void)
    numbers = np.full(256, 255, dtype=np.uint8)
    numbers[[classes.index(name) for name in kept]] = np.arange(len(kept))
    names = sorted(images) if part is None else [name for one in part.split("+") for name in _part(root, one, images)]
    return [_read(name, images[name], labels.get(name), kept, numbers) for name in names]


def truth(scene: Scene) -> NDArray[np.uint8]:
    """The labels of the pixels of a scene; an error if they are not known."""
    return known(scene.labels, f"{scene.name} has no labels", " for every image in labels/")


def _part(root: File, part: str, images: dict[str, File]) -> list[str]:
    file = root / f"{part}.txt"
    names = _lines(file)
    for number, name in enumerate(names, 1):
        if name not in images:
            raise ValueError(f"{file}:{number}: images/ has no {name}")
    return names


def _lines(file: File) -> list[str]:
    """The lines of a file that are not empty."""
    if not file.is_file():
        raise ValueError(f"{file}: no such file")
    lines = [line.strip() for line in read_text(file).splitlines() if line.strip()]
    if not lines:
        raise ValueError(f"{file}: empty")
    return lines


def _read(
    name: str, image_file: File, label_file: File | None, classes: tuple[str, ...], numbers: NDArray[np.uint8]
) -> Scene:
    """An image with its labels, which become the ``numbers`` [256] of their values."""
    image = read_image(image_file)
    if label_file is None:
        return Scene(name, image, None, classes)
    labels = decoded(label_file, cv2.IMREAD_UNCHANGED)
    if labels.dtype != np.uint8 or labels.shape != image.shape[:2]:
        expected = f"one byte for each pixel of images/{image_file.name}, {image.shape[:2]}"
        raise ValueError(f"{label_file}: expected {expected}, got {labels.dtype} {labels.shape}")
    return Scene(name, image, numbers[labels], classes)
