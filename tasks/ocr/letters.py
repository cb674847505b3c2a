"""Handwritten words: archives of arrays with a small picture of each letter."""

from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from structsmooth.files import load_arrays, select

PIXELS = 16 * 8
ALPHABET = "abcdefghijklmnopqrstuvwxyz"


@dataclass(frozen=True)
class Word:
    """A handwritten word.

    Attributes:
        pixels: one row of 0 and 1 for each letter, rows of 8 pixels one after the other: uint8 [T, 128].
        text: its letters; ``None`` if they are to be predicted.
    """

    pixels: NDArray[np.uint8]
    text: str | None = None


def read_words(path: str) -> list[Word]:
    """Words of an archive of arrays, or of some of its folds: ``letters.npz#1-9``.

    The archive has ``pixels`` [letters, 128] of 0 and 1; ``word_start`` [words + 1], where words start among the
    letters; ``labels`` [letters] from 0 for a to 25 for z, which may be absent; and ``word_fold`` [words], if folds are
    asked for.

    Raises:
        ValueError: not such an archive, with its path and the array.
        FileNotFoundError: no such file.
    """
    file, folds = select(path)
    archive = _Archive(str(file))
    starts = archive.starts()
    spans = list(pairwise(starts))
    if folds is not None:
        spans = [spans[word] for word in archive.words_of(folds, len(spans))]
    if not spans:
        raise ValueError(f"{path}: no words")
    pixels, text = archive.pixels(starts[-1]), archive.text(starts[-1])
    return [Word(pixels[start:stop], text and text[start:stop]) for start, stop in spans]


class _Archive:
    """The arrays of a file of any origin, checked where they are asked for."""

    def __init__(self, path: str) -> None:
        self._path, self._arrays = path, load_arrays(path)

    def starts(self) -> list[int]:
        """Where words start among the letters, and the number of letters."""
        starts = self._integers("word_start", (-1,))
        if len(starts) < 2 or starts[0] != 0 or (np.diff(starts.astype(np.int64)) < 1).any():
            raise ValueError(
                f"{self._path}: word_start must rise from 0: where each word starts, then the number of letters"
            )
        return [int(start) for start in starts]

    def pixels(self, letters: int) -> NDArray[np.uint8]:
        return self._integers("pixels", (letters, PIXELS), 1).astype(np.uint8, copy=False)

    def text(self, letters: int) -> str | None:
        if "labels" not in self._arrays:
            return None
        return "".join(ALPHABET[label] for label in self._integers("labels", (letters,), len(ALPHABET) - 1))

    def words_of(self, folds: range, words: int) -> list[int]:
        found: list[int] = np.isin(self._integers("word_fold", (words,)), list(folds)).nonzero()[0].tolist()
        return found

    def _integers(self, key: str, shape: tuple[int, ...], most: int = 2**31 - 1) -> NDArray[Any]:
        """An array of integers from 0 to ``most``; a size of -1 may be any."""
        if key not in self._arrays:
            raise ValueError(f"{self._path}: no array {key}")
        array = self._arrays[key]
        if array.dtype.kind not in "iub":
            raise ValueError(f"{self._path}: {key} must be integers, got {array.dtype}")
        if array.ndim != len(shape) or any(size not in (-1, own) for size, own in zip(shape, array.shape, strict=True)):
            raise ValueError(f"{self._path}: {key} must have shape {shape}, got {array.shape}")
        if array.size and not 0 <= array.min() <= array.max() <= most:
            raise ValueError(f"{self._path}: {key} must be from 0 to {most}, got {array.min()} to {array.max()}")
        return array
