"""Handwritten words, and what recognizers learned, in reports."""

from collections import Counter
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from structsmooth.markup import (
    Drawing,
    Markup,
    Table,
    alternatives,
    diverging,
    element,
    enlarged,
    joined,
    verdict,
    views,
)
from structsmooth.tasks.ocr.letters import ALPHABET, PIXELS, Word

# Rows and columns of the picture of a letter, and how much larger it is shown.
_SHAPE, _FACTOR = (16, 8), 4


def word_markup(word: Word, ranked: Sequence[tuple[float, str]]) -> Markup:
    """The pictures of the letters above what they were read as, and alternatives."""
    found = ranked[0][1]
    ink = np.where(word.pixels.reshape(-1, *_SHAPE, 1) > 0, [90, 90, 90, 255], 0).astype(np.uint8)
    letters = zip(ink, found, word.text or found, strict=True)
    shown = element("p", *(_letter(*letter) for letter in letters), class_="letters")
    return joined([shown, alternatives(ranked, str)])


def letter_table(gold: str, found: str) -> Table:
    """How many letters of each kind are right."""
    every, right = Counter(gold), Counter(a for a, b in zip(gold, found, strict=True) if a == b)
    guessed = Counter(found)
    rows = [
        (letter, f"{right[letter] / max(guessed[letter], 1):.1%}", f"{right[letter] / every[letter]:.1%}", f"{count:,}")
        for letter, count in sorted(every.items())
    ]
    return Table("Letters", ("letter", "precision", "recall", "gold"), rows)


def pixel_weights(weights: Tensor) -> Drawing:
    """The weights of the pixels of each letter as a picture."""
    pixels = weights.detach().numpy().reshape(-1, len(ALPHABET))[:PIXELS].T.reshape(-1, *_SHAPE)
    colours = diverging(pixels.astype(np.float64), float(np.abs(pixels).max(initial=0.0)))
    pairs = zip(ALPHABET, colours, strict=True)
    figures = [(letter, enlarged(tints, f"weights of the pixels of {letter}", _FACTOR)) for letter, tints in pairs]
    caption = "Weights of pixels: blue speaks for the letter, orange against it"
    return Drawing(caption, views(*figures, kind="letters"))


def _letter(ink: NDArray[np.uint8], found: str, right: str) -> Markup:
    verdicts = [verdict("plain", found)] if found == right else [verdict("wrong", found), verdict("missed", right)]
    return element("span", enlarged(ink, f"a letter, read as {found}", _FACTOR), *verdicts, class_="letter")
