"""Handwritten words: archives of arrays with a small picture of each letter."""

from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from structsmooth.files import select
from structsmooth.tasks.arrays import Archive

PIXELS = 16 * 8
ALPHABET = "abcdefghijklmnopqrstuvwxyz"
_LARGEST = 2**31 - 1


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


class _Archive(Archive):
    """An archive of arrays with the words of a data set."""

    def starts(self) -> list[int]:
        """Where words start among the letters, and the number of letters."""
        starts = self.integers("word_start", (-1,), _LARGEST)
        if len(starts) < 2 or starts[0] != 0 or (np.diff(starts.astype(np.int64)) < 1).any():
            raise ValueError(
                f"{self.path}: word_start must rise from 0: where each word starts, then the number of letters"
            )
        return [int(start) for start in starts]

    def pixels(self, letters: int) -> NDArray[np.uint8]:
        return self.integers("pixels", (letters, PIXELS), 1).astype(np.uint8, copy=False)

    def text(self, letters: int) -> str | None:
        if "labels" not in self.arrays:
            return None
        return "".join(ALPHABET[label] for label in self.integers("labels", (letters,), len(ALPHABET) - 1))

    def words_of(self, folds: range, words: int) -> list[int]:
        found: list[int] = np.isin(self.integers("word_fold", (words,), _LARGEST), list(folds)).nonzero()[0].tolist()
        return found
