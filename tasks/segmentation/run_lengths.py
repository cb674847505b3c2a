"""Segmentations as JSON lines with run lengths."""

import json
from collections.abc import Sequence
from typing import TextIO

import numpy as np
from numpy.typing import NDArray

from structsmooth.tasks.base import Predictions
from structsmooth.tasks.segmentation.pictures import Picture


def write_segmentations(pictures: Sequence[Picture], predictions: Predictions, stream: TextIO) -> None:
    """Write a line of JSON for each image: its name, height and width, and score and runs of each segmentation."""
    for picture, ranked in zip(pictures, predictions, strict=True):
        found = [{"score": score, "runs": run_lengths(mask)} for score, mask in ranked]
        line = {"image": picture.name, "size": picture.image.shape[:2], "segmentations": found}
        stream.write(json.dumps(line) + "\n")


def run_lengths(mask: NDArray[np.bool_]) -> list[int]:
    """Lengths of stretches of false and true pixels in turns, row by row, false first.

    Example:
        >>> run_lengths(np.array([[True, True], [False, True]]))
        [0, 2, 1, 1]
    """
    flat = np.concatenate([[False], mask.ravel()])
    changes = np.flatnonzero(flat[1:] != flat[:-1])
    return [int(length) for length in np.diff(changes, prepend=0, append=mask.size)]
