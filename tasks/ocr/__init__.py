"""Handwritten words: recognition of a sequence of letters, each a small picture."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import ClassVar, TextIO

import numpy as np
import torch
from torch import Tensor

from structsmooth.costs import NormalizedHamming
from structsmooth.problems import SparseChainProblem
from structsmooth.sequences import SparseSequences
from structsmooth.tasks.base import FittedTask, Predictions, Split, Task
from structsmooth.tasks.chains import best_labels, write_scores
from structsmooth.tasks.files import data_file
from structsmooth.tasks.ocr.letters import ALPHABET, PIXELS, Word, read_words


@dataclass(frozen=True)
class FittedOCR(FittedTask):
    """The recognizer: pixels and letters are fixed, there is nothing to learn but the weights."""

    def problem(self, examples: Sequence[Word]) -> SparseChainProblem:
        """Structural hinge losses of the linear chain."""
        labels = torch.tensor([ALPHABET.index(letter) for word in examples for letter in _gold(word)])
        # One attribute for each pixel that is on, and the bias.
        return SparseChainProblem(_sequences(examples), labels, PIXELS + 1, len(ALPHABET), NormalizedHamming())

    def predict(self, weights: Tensor, examples: Sequence[Word], k: int = 1) -> Predictions:
        """The k best texts of each word with their scores."""
        ranked_labels = best_labels(_sequences(examples), weights, len(ALPHABET), k)
        return [[(score, "".join(ALPHABET[y] for y in labels)) for score, labels in ranked] for ranked in ranked_labels]

    def measure(self, examples: Sequence[Word], outputs: Sequence[str]) -> tuple[dict[str, float], str]:
        """Fractions of wrong letters, of right letters, and of words without a wrong letter."""
        gold = [_gold(word) for word in examples]
        pairs = {"letters": ("".join(gold), "".join(outputs)), "words": (gold, outputs)}
        right = {name: sum(a == b for a, b in zip(*pair, strict=True)) for name, pair in pairs.items()}
        share = {name: right[name] / len(pair[0]) for name, pair in pairs.items()}
        letters, whole = share["letters"], share["words"]
        metrics = {"letter_error": 1 - letters, "letter_accuracy": letters, "word_accuracy": whole}
        rows = [f"{n:7}  {share[n]:8.2%}  {right[n]:6}  {len(truth):6}" for n, (truth, _) in pairs.items()]
        return metrics, "\n".join(["         accuracy   right     all", *rows])

    def write(self, examples: Sequence[Word], predictions: Predictions, stream: TextIO) -> None:
        """A line per word with its text, or several texts from the best to the worst.

        Where there are several, a comment line before it has their scores in the same order.
        """
        for ranked in predictions:
            write_scores(ranked, stream)
            stream.write(" ".join(text for _, text in ranked) + "\n")


class OCR(Task):
    """Recognition of handwritten words with a linear chain over pixels and the fraction of wrong letters as cost.

    The weights are as in Osokin et al. (2016), appendix I.1: 128·26 for pixels, 26² for pairs of letters, and 26 each
    for all letters, the first letter and the last one.

    Reference:
        Taskar, Guestrin and Koller (2003), "Max-margin Markov networks".
    """

    summary: ClassVar[str] = "handwritten words: linear chains on the letters of Taskar et al."
    headline: ClassVar[str] = "letter_error"
    headline_is_error: ClassVar[bool] = True
    lam: ClassVar[str] = "50/n"
    passes: ClassVar[int] = 30
    solver: ClassVar[str] = "proximal-bcfw"
    fitted_type: ClassVar[type[FittedTask]] = FittedOCR

    @classmethod
    def default_files(cls) -> dict[str, str]:
        """The small version: training on the first of ten folds, test on the others."""
        folds = {"train": "0", "test": "1-9"}
        return {split: data_file("ocr", f"ocr/ocr_letters.npz#{part}") for split, part in folds.items()}

    def read(self, path: str | TextIO, split: Split = "train") -> list[Word]:
        """Words of an archive, see :func:`~structsmooth.tasks.ocr.letters.read_words`."""
        if not isinstance(path, str):
            raise ValueError("words are read from an .npz file, not from standard input: give its path")
        words = read_words(path)
        if split != "predict":
            _gold(words[0])
        return words

    def texts(self, examples: Sequence[Word]) -> list[int]:
        """Neighbours of the same letters, as different people wrote them, are one text."""
        begins = [i > 0 and word.text != examples[i - 1].text for i, word in enumerate(examples)]
        return list(accumulate(map(int, begins)))

    def fit(self, examples: Sequence[Word]) -> FittedOCR:
        """The task itself: there is nothing to learn."""
        return FittedOCR(self)


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
