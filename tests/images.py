"""Tiny images of a bright, striped ellipse on a dark, noisy ground, with masks."""

import zipfile
from pathlib import Path

import cv2
import numpy as np
from numpy.typing import NDArray

SIZE = (72, 96)


def ellipse(seed: int) -> tuple[NDArray[np.uint8], NDArray[np.uint8]]:
    """Image, BGR, and mask, 0 and 255."""
    rng = np.random.default_rng(seed)
    height, width = SIZE
    rows, columns = np.indices(SIZE)
    centre, radii = (height / 2 + rng.uniform(-8, 8), width / 2 + rng.uniform(-12, 12)), rng.uniform(15, 25, 2)
    inside = ((rows - centre[0]) / radii[0]) ** 2 + ((columns - centre[1]) / radii[1]) ** 2 < 1
    stripes = 150 + 60 * (columns // 4 % 2)
    image = np.where(inside, stripes, 70)[..., None] * np.array([0.6, 0.8, 1.0])
    noisy = np.clip(image + rng.normal(0, 25, (*SIZE, 3)), 0, 255).astype(np.uint8)
    return noisy, np.where(inside, 255, 0).astype(np.uint8)


def write(folder: Path, name: str, image: NDArray[np.uint8], mask: NDArray[np.uint8] | None) -> None:
    """An image, and its mask if there is one, where the readers expect them."""
    for kind, pixels in (("images", image), ("masks", mask)):
        (folder / kind).mkdir(parents=True, exist_ok=True)
        if pixels is not None:
            assert cv2.imwrite(str(folder / kind / f"{name}.png"), pixels)


def write_all(folder: Path, count: int, masks: bool = True) -> str:
    """Several images; returns the path."""
    for seed in range(count):
        image, mask = ellipse(seed)
        write(folder, f"e{seed:02d}", image, mask if masks else None)
    return str(folder)


def zipped(folder: Path) -> str:
    """The files of a folder in a zip file next to it."""
    path = folder.with_suffix(".zip")
    with zipfile.ZipFile(path, "w") as archive:
        for file in sorted(folder.rglob("*.*")):
            archive.write(file, file.relative_to(folder))
    return str(path)
