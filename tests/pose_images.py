"""Tiny images of stick figures: a joint is a patch with a pattern of its own."""

from pathlib import Path

import cv2
import numpy as np
from numpy.typing import NDArray

Points = dict[str, tuple[float, float]]

HEIGHT, WIDTH, SIDE = 52, 44, 8
HEADER = "file,joint,x,y"


def patch(joint: str) -> NDArray[np.uint8]:
    rows, columns = np.indices((SIDE, SIDE))
    pattern = {"head": rows // 2 % 2, "hand": columns // 2 % 2, "foot": (rows + columns) // 3 % 2}[joint]
    return (255 * pattern).astype(np.uint8)


def figure(seed: int) -> tuple[NDArray[np.uint8], Points]:
    """Image, BGR, and the middles of the patches: the hand right of the head, the foot below."""
    rng = np.random.default_rng(seed)
    head = rng.integers([8, 8], [15, 17])
    places = {
        "head": head,
        "hand": head + rng.integers([12, 1], [17, 6]),
        "foot": head + rng.integers([1, 18], [6, 23]),
    }
    image = rng.integers(120, 136, (HEIGHT, WIDTH, 3)).astype(np.uint8)
    for joint, (x, y) in places.items():
        image[y - SIDE // 2 : y + SIDE // 2, x - SIDE // 2 : x + SIDE // 2] = patch(joint)[..., None]
    return image, {joint: (float(x), float(y)) for joint, (x, y) in places.items()}


def table(figures: dict[str, Points]) -> str:
    """Lines of ``joints.csv``."""
    rows = [f"{name}.png,{joint},{x:g},{y:g}" for name, points in figures.items() for joint, (x, y) in points.items()]
    return "\n".join([HEADER, *rows]) + "\n"


def write_all(folder: Path, count: int, joints: bool = True) -> str:
    """Several images; returns the path."""
    (folder / "images").mkdir(parents=True)
    figures = {}
    for seed in range(count):
        image, figures[f"p{seed:02d}"] = figure(seed)
        assert cv2.imwrite(str(folder / "images" / f"p{seed:02d}.png"), image)
    if joints:
        (folder / "joints.csv").write_text(table(figures))
    return str(folder)
