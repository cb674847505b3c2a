"""Tiny images of colored rectangles, the table of their boxes, and a network that tells the colors."""

import io
from collections.abc import Iterable, Mapping
from pathlib import Path

import numpy as np
import torch
from PIL import Image
from torch import nn

COLORS = {"dog": (250, 40, 30), "cat": (20, 60, 250)}

# Class and edges (xmin, ymin, xmax, ymax).
Object = tuple[str, tuple[int, int, int, int]]


def tiny(_weights: str) -> nn.Module:
    """A random convolution, as a backbone."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        return nn.Sequential(nn.Conv2d(3, 6, 16, stride=16), nn.ReLU())


def drawn(objects: Iterable[Object]) -> bytes:
    """A file of an image with these objects."""
    pixels = np.random.default_rng(0).integers(90, 140, (40, 60, 3)).astype(np.uint8)
    for label, (xmin, ymin, xmax, ymax) in objects:
        pixels[ymin:ymax, xmin:xmax] = COLORS[label]
    stream = io.BytesIO()
    Image.fromarray(pixels).save(stream, "PNG")
    return stream.getvalue()


def rows(pictures: Mapping[str, Iterable[Object]]) -> str:
    """The table of the boxes of all images, by name."""
    lines = [f"{name}.png,{label},{','.join(map(str, box))}" for name, o in pictures.items() for label, box in o]
    return "\n".join(["image,class,xmin,ymin,xmax,ymax", *lines, ""])


def write_all(folder: Path, pictures: Mapping[str, Iterable[Object]]) -> Path:
    """Images, and a table beside them; returns the path of that."""
    for name, objects in pictures.items():
        (folder / f"{name}.png").write_bytes(drawn(objects))
    table = folder / "train.csv"
    table.write_text(rows(pictures))
    return table
