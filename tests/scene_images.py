"""Tiny images of a striped house on grass under the sky, with labels."""

from pathlib import Path

import cv2
import numpy as np
from numpy.typing import NDArray

SIZE = (64, 80)
CLASSES = ("sky", "grass", "house")
COLOURS = np.array([[200, 150, 90], [60, 140, 70], [70, 80, 170]])
VOID = 255


def scene(seed: int) -> tuple[NDArray[np.uint8], NDArray[np.uint8]]:
    """Image, BGR, and labels, with a void frame around the house."""
    rng = np.random.default_rng(seed)
    rows, columns = np.indices(SIZE)
    horizon, left, top = rng.integers(26, 38), rng.integers(12, 36), rng.integers(8, 16)
    labels = np.where(rows < horizon, 0, 1)
    house = (rows >= top) & (rows < top + 34) & (columns >= left) & (columns < left + 30)
    frame = cv2.dilate(house.astype(np.uint8), np.ones((3, 3), np.uint8)) > 0
    labels = np.where(house, 2, labels)
    image = COLOURS[labels] + 40 * ((columns // 3 % 2) * house)[..., None] + rng.normal(0, 12, (*SIZE, 3))
    known = np.where(frame & ~house, VOID, labels)
    return np.clip(image, 0, 255).astype(np.uint8), known.astype(np.uint8)


def write_all(folder: Path, count: int, labelled: bool = True) -> str:
    """Scenes with lists of the even ones (train) and of the odd ones (val); returns the path."""
    for name in ("images", "labels") if labelled else ("images",):
        (folder / name).mkdir(parents=True, exist_ok=True)
    names = [f"s{seed:02d}" for seed in range(count)]
    for seed, name in enumerate(names):
        image, labels = scene(seed)
        assert cv2.imwrite(str(folder / "images" / f"{name}.png"), image)
        if labelled:
            assert cv2.imwrite(str(folder / "labels" / f"{name}.png"), labels)
    if labelled:
        (folder / "classes.txt").write_text("\n".join(CLASSES) + "\n")
        (folder / "train.txt").write_text("\n".join(names[::2]) + "\n")
        (folder / "val.txt").write_text("\n".join(names[1::2]) + "\n")
    return str(folder)
