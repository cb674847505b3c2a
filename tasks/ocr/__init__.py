"""Handwritten words: recognition of a sequence of letters, each a small picture."""

from __future__ import annotations

import zipfile
import zlib
from argparse import ArgumentParser, Namespace
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, ClassVar, NamedTuple, TextIO

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from structsmooth.costs import NormalizedHamming
from structsmooth.problems import SparseChainProblem
from structsmooth.sequences import SparseSequences
from structsmooth.tasks.base import Task
from structsmooth.tasks.chains import best_labels
from structsmooth.tasks.files import data_file, select

_PIXELS = 16 * 8
_ALPHABET = "abcdefghijklmnopqrstuvwxyz"
# One attribute for each pixel that is on, and the bias.
_FEATURES = _PIXELS + 1
_KEYS = ("pixels", "labels", "word_start", "word_fold")
_SMALL = {"train": "0", "test": "1-9"}


@dataclass(frozen=True)
class Word:
    """A handwritten word.

    Attributes:
        pixels: one row of 0 and 1 for each letter, rows of 8 pixels one after the other: uint8 [T, 128].
        text: what it says; None where that is to be predicted.
    """

    pixels: NDArray[np.uint8]
    text: str | None = None


class OCR(Task):
    """Recognition of handwritten words with a linear chain over pixels and the fraction of wrong letters as cost.

    Weights are those of Osokin et al. (2016), appendix I.1: 128·26 of pixels, 26² of pairs of letters, and 26 each of
    all letters, the first and the last one.

    Reference:
        Taskar, Guestrin and Koller (2003), "Max-margin Markov networks".
    """

    summary: ClassVar[str] = "handwritten words: linear chains on the letters of Taskar et al."
    headline: ClassVar[str] = "letter_error"
    lam: ClassVar[str] = "50/n"
    passes: ClassVar[int] = 30
    solver: ClassVar[str] = "bcfw"

    @classmethod
    def add_arguments(cls, parser: ArgumentParser) -> None:
        """None."""

    @classmethod
    def from_options(cls, options: Namespace) -> OCR:
        """The task has no options."""
        return cls()

    @classmethod
    def default_files(cls) -> dict[str, str]:
        """The small version: training on the first of ten folds, test on the others."""
        return {split: data_file("ocr", f"ocr/ocr_letters.npz#{folds}") for split, folds in _SMALL.items()}

    def read(self, path: str | TextIO) -> list[Word]:
        """Words of an archive of arrays, or those of some folds of it: ``letters.npz#1-9``.

        The archive has ``pixels`` [letters, 128] of 0 and 1, ``word_start`` [words + 1], where words start among the
        letters; ``labels`` [letters] from 0 for a to 25 for z, which data to predict may lack; and ``word_fold``
        [words], if folds are asked for.

        Raises:
            ValueError: not such an archive, with its path and the array.
            FileNotFoundError: no such file.
        """
        if not isinstance(path, str):
            raise ValueError("words are read from an .npz file, not from standard input: give its path")
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

    def fit(self, examples: Sequence[Word]) -> None:
        """Nothing: pixels and letters are fixed."""

    def problem(self, examples: Sequence[Word]) -> SparseChainProblem:
        """Structural hinge losses of the linear chain."""
        labels = torch.tensor([_ALPHABET.index(letter) for word in examples for letter in _gold(word)])
        return SparseChainProblem(_sequences(examples), labels, _FEATURES, len(_ALPHABET), NormalizedHamming())

    def predict(self, weights: Tensor, examples: Sequence[Word], k: int = 1) -> list[list[tuple[float, str]]]:
        """The k best texts of each word with their scores."""
        states = len(_ALPHABET)
        rows, transition, ends = weights.view(-1, states).split([_FEATURES, states, 2])
        ranked_labels = best_labels(_sequences(examples), rows, transition, ends, k)
        return [
            [(score, "".join(_ALPHABET[y] for y in labels)) for score, labels in ranked] for ranked in ranked_labels
        ]

    def measure(self, examples: Sequence[Word], outputs: Sequence[str]) -> tuple[dict[str, float], str]:
        """Fractions of wrong letters, of right letters, and of words without a wrong one."""
        gold = [_gold(word) for word in examples]
        pairs = list(zip("".join(gold), "".join(outputs), strict=True))
        letters = _Count(sum(right == guess for right, guess in pairs), len(pairs))
        words = _Count(sum(right == guess for right, guess in zip(gold, outputs, strict=True)), len(gold))
        metrics = {
            "letter_error": 1 - letters.fraction,
            "letter_accuracy": letters.fraction,
            "word_accuracy": words.fraction,
        }
        rows = [
            f"{name:7}  {count.fraction:8.2%}  {count.right:6}  {count.all:6}"
            for name, count in (("letters", letters), ("words", words))
        ]
        return metrics, "\n".join(["         accuracy   right     all", *rows])

    def write(self, examples: Sequence[Word], predictions: Sequence[list[tuple[float, str]]], stream: TextIO) -> None:
        """A line per word with its text, or several from the best to the worst.

        Where there are several, a comment line before it has their scores in the same order.
        """
        for ranked in predictions:
            if len(ranked) > 1:
                stream.write("# scores " + " ".join(f"{score:.6g}" for score, _ in ranked) + "\n")
            stream.write(" ".join(text for _, text in ranked) + "\n")

    def to_dict(self) -> dict[str, Any]:
        """Nothing."""
        return {}

    @classmethod
    def from_dict(cls, data: dict[str, Any]) -> OCR:
        """The task."""
        return cls(**data)


class _Count(NamedTuple):
    right: int
    all: int

    @property
    def fraction(self) -> float:
        return self.right / self.all


def _sequences(words: Sequence[Word]) -> SparseSequences:
    """The attributes of a letter: its pixels that are on, and the bias."""
    on = np.concatenate([word.pixels for word in words])
    on = np.pad(on, ((0, 0), (0, 1)), constant_values=1)
    token_offsets = np.cumsum([0, *on.sum(axis=1, dtype=np.int64)])
    offsets = np.cumsum([0, *(len(word.pixels) for word in words)])
    attributes = on.nonzero()[1].astype(np.int32)
    return SparseSequences(*map(torch.from_numpy, (attributes, token_offsets, offsets)))


def _gold(word: Word) -> str:
    if word.text is None:
        raise ValueError("these words have no labels: training and evaluation need them")
    return word.text


class _Archive:
    """The arrays of a file of any origin, checked where they are asked for."""

    def __init__(self, path: str) -> None:
        self._path, self._arrays = path, _load(path)

    def starts(self) -> list[int]:
        """Where words start among the letters, and the number of letters."""
        starts = self._integers("word_start", (-1,), np.iinfo(np.int32).max)
        if len(starts) < 2 or starts[0] != 0 or (np.diff(starts.astype(np.int64)) < 1).any():
            raise ValueError(f"{self._path}: word_start must rise from 0, a number per word and that of all letters")
        return [int(start) for start in starts]

    def pixels(self, letters: int) -> NDArray[np.uint8]:
        return self._integers("pixels", (letters, _PIXELS), 1).astype(np.uint8, copy=False)

    def text(self, letters: int) -> str | None:
        if "labels" not in self._arrays:
            return None
        return "".join(_ALPHABET[label] for label in self._integers("labels", (letters,), len(_ALPHABET) - 1))

    def words_of(self, folds: range, words: int) -> list[int]:
        fold = self._integers("word_fold", (words,), np.iinfo(np.int32).max)
        return [int(word) for word in np.flatnonzero(np.isin(fold, list(folds)))]

    def _integers(self, key: str, shape: tuple[int, ...], most: int) -> NDArray[Any]:
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


def _load(path: str) -> dict[str, NDArray[Any]]:
    try:
        with open(path, "rb") as file:
            if not zipfile.is_zipfile(file):
                raise ValueError("not a zip archive")
            with np.load(file, allow_pickle=False) as arrays:
                return {key: arrays[key] for key in _KEYS if key in arrays}
    except (ValueError, EOFError, zipfile.BadZipFile, zlib.error) as error:
        raise ValueError(f"{path}: expected an archive of arrays (.npz): {error}") from error
