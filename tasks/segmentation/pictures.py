"""Images with masks of their objects, and pictures of segmentations.

Needs OpenCV: ``pip install structsmooth[images]``.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from structsmooth.files import numbered, select
from structsmooth.tasks.images import File, by_stem, cv2, decoded, images_of, opened, read_image

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
    return [_read(name, images[name], masks.get(name)) for name in numbered(path, sorted(images), part, "images")]


def overlay(picture: Picture, predicted: NDArray[np.bool_]) -> NDArray[np.uint8]:
    """The image with the predicted object in green, and the outline of the mask in red, if there is one: BGR."""
    canvas = picture.image.copy()
    tinted = _OPACITY * canvas[predicted] + (1 - _OPACITY) * np.array(_PREDICTED)
    canvas[predicted] = tinted.astype(np.uint8)
    if picture.mask is not None:
        outlines, _ = cv2.findContours(picture.mask.astype(np.uint8), cv2.RETR_LIST, cv2.CHAIN_APPROX_NONE)
        cv2.drawContours(canvas, outlines, -1, _OUTLINE, 1)
    return canvas


def _read(name: str, image_file: File, mask_file: File | None) -> Picture:
    image = read_image(image_file)
    if mask_file is None:
        return Picture(name, image, None)
    mask = decoded(mask_file, cv2.IMREAD_GRAYSCALE) > 0
    if mask.shape != image.shape[:2]:
        expected = f"the size of images/{image_file.name}, {image.shape[:2]}"
        raise ValueError(f"{mask_file}: expected {expected}, got {mask.shape}")
    if mask.all() or not mask.any():
        raise ValueError(f"{mask_file}: expected object and background, got one colour")
    return Picture(name, image, mask)
