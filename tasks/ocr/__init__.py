"""Handwritten words: recognition of a sequence of letters, each a small picture."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import accumulate
from typing import Any, ClassVar, Literal, TextIO

import numpy as np
import torch
from torch import Tensor

from structsmooth.costs import NormalizedHamming
from structsmooth.kernels import FittedKernel, KernelFeatures
from structsmooth.markup import Block, Markup, confusion
from structsmooth.models.chains import scored_by_kernel
from structsmooth.problems import LinearProblem
from structsmooth.sequences import DenseSequences, Sequences, SparseSequences
from structsmooth.settings import Positive, PositiveInt
from structsmooth.tasks.base import FittedTask, Predictions, Split, Task, known, labelled
from structsmooth.tasks.chains import transition_matrix, write_scores
from structsmooth.tasks.ocr.letters import ALPHABET, PIXELS, Word, read_words
from structsmooth.tasks.ocr.shown import letter_table, pixel_weights, word_markup
from structsmooth.text.tagger import Tagger, Tags, chain_problem


@dataclass(frozen=True)
class FittedOCR(FittedTask):
    """The recognizer: pixels and letters are fixed, and there is nothing to learn but weights and landmarks.

    Args:
        task: the task.
        landmarks_seen: letters of the training data that a kernel compares others to: their pixels as hexadecimal
            digits.
    """

    task: "OCR"
    landmarks_seen: list[str] = field(default_factory=list)

    example_type: ClassVar[type] = Word
    output_json: ClassVar[tuple[str, Any]] = ("letters", str)

    def __post_init__(self) -> None:
        if not all(re.fullmatch(f"[0-9a-f]{{{PIXELS // 4}}}", digits) for digits in self.landmarks_seen):
            raise ValueError(f"landmarks_seen must be texts of {PIXELS // 4} hexadecimal digits")
        if bool(self.landmarks_seen) != (self.task.kernel_features is not None):
            raise ValueError("landmarks_seen belong to a kernel that is not linear, which needs them")

    @property
    def dim(self) -> int:
        """Weights of landmarks, or of pixels and the bias, and of pairs and ends."""
        return (len(self.landmarks_seen) or PIXELS + 1) * len(ALPHABET) + (len(ALPHABET) + 2) * len(ALPHABET)

    def problem(self, examples: Sequence[Word]) -> LinearProblem:
        """Structural hinge losses of the linear chain."""
        labels = torch.tensor([ALPHABET.index(letter) for word in examples for letter in _gold(word)])
        sequences: Sequences = _sequences(examples)
        if self._kernel is not None:
            sequences = DenseSequences.of(self._kernel(_pixels(examples), torch.float32), _lengths(examples))
        sizes, scale = (self._tagger.features, len(ALPHABET)), self.task.transition_scale
        return chain_problem("hinge", sequences, labels, sizes, NormalizedHamming(), transition_scale=scale)

    def predict(self, weights: Tensor, examples: Sequence[Word], k: int = 1) -> Predictions:
        """The k best texts of each word with their scores."""
        if not any(len(word.pixels) for word in examples):
            return [[(0.0, "")] for _ in examples]
        sequences: Sequences = _sequences(examples)
        if self._kernel is not None:
            kernel = self._kernel, _pixels(examples), _lengths(examples)
            sequences, weights = scored_by_kernel(*kernel, weights, len(ALPHABET))
        found = self._tagger.best(sequences, weights, k)
        return [[(score, "".join(letters)) for score, letters in ranked] for ranked in found]

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

    def show_example(self, example: Word, ranked: Sequence[tuple[float, str]]) -> Markup:
        """The pictures of the letters, what they were read as, and the right letters where that is wrong."""
        return word_markup(example, ranked)

    def mistake(self, example: Word, output: str) -> float:
        """The fraction of wrong letters."""
        return sum(a != b for a, b in zip(_gold(example), output, strict=True)) / len(output)

    def show_results(self, examples: Sequence[Word], outputs: Sequence[str]) -> list[Block]:
        """How many letters of each kind are right, and which are taken for which."""
        gold, found = "".join(map(_gold, examples)), "".join(outputs)
        return [letter_table(gold, found), confusion("Letters by gold and predicted letter", gold, found)]

    def show_weights(self, weights: Tensor, examples: Sequence[Word]) -> list[Block]:
        """Scores of pairs of letters, and the weights of the pixels unless letters are compared by a kernel."""
        pairs = transition_matrix(weights, ALPHABET, self.task.transition_scale, "letter")
        return [pairs] if self._kernel else [pairs, pixel_weights(weights)]

    @cached_property
    def _kernel(self) -> FittedKernel | None:
        kernel = self.task.kernel_features
        if kernel is None:
            return None
        digits = np.frombuffer(bytes.fromhex("".join(self.landmarks_seen)), np.uint8)
        return kernel.at(torch.from_numpy(np.unpackbits(digits).reshape(-1, PIXELS)))

    @property
    def _tagger(self) -> Tagger:
        """A linear chain over letters; their attributes are pixels that are on, and the bias."""
        size = PIXELS + 1 if self._kernel is None else self._kernel.size
        return Tagger(Tags(ALPHABET, None, constrained=False), size, self.task.transition_scale)


@dataclass(frozen=True)
class OCR(Task):
    """Recognition of handwritten words with a linear chain over pixels and the fraction of wrong letters as cost.

    The weights are as in Osokin et al. (2016), appendix I.1: 128·26 for pixels, 26² for pairs of letters, and 26 each
    for all letters, the first letter and the last one.

    Args:
        kernel: how letters are compared: by their pixels, or by a kernel of them.
        gamma: γ of the kernel: exp(−γ‖x − z‖²) of rbf, (γ⟨x, z⟩ + 1)^degree of the polynomials.
        degree: degree of polynomial kernels.
        landmarks: letters that a kernel compares others to, drawn from the training data; all of them if not given,
            which is exact.
        transition_scale: factor of the scores of pairs of letters; the larger it is, the less they are regularized.

    Reference:
        Taskar, Guestrin and Koller (2003), "Max-margin Markov networks".
    """

    kernel: Literal["linear", "rbf", "polynomial", "cosine-polynomial"] = "linear"
    gamma: Positive = 0.05
    degree: PositiveInt = 3
    landmarks: PositiveInt | None = None
    transition_scale: Positive = 1.0

    summary: ClassVar[str] = "handwritten words: linear chains on the letters of Taskar et al."
    files: ClassVar[str] = (
        "An .npz archive of pixels [letters, 128], labels [letters], word_start [words + 1] and word_fold "
        "[words]; PATH#1-9 selects folds."
    )
    # The small version: training on the first of ten folds, test on the others.
    data: ClassVar[Mapping[str, str]] = {"train": "ocr/ocr_letters.npz#0", "test": "ocr/ocr_letters.npz#1-9"}
    example: ClassVar[str] = "--train 'letters.npz#1-9' --test 'letters.npz#0'"
    headline: ClassVar[str] = "letter_error"
    headline_is_error: ClassVar[bool] = True
    lam: ClassVar[str] = "50/n"
    passes: ClassVar[int] = 30
    solver: ClassVar[str] = "proximal-bcfw"
    cpu_alone: ClassVar[bool] = True
    fitted_type: ClassVar[type[FittedTask]] = FittedOCR

    def __post_init__(self) -> None:
        super().__post_init__()
        _ = self.kernel_features

    @property
    def kernel_features(self) -> KernelFeatures | None:
        """The kernel, unless it is linear."""
        if self.kernel == "linear":
            return None
        return KernelFeatures(self.kernel, self.gamma, self.degree, self.landmarks)

    def read(self, path: str | TextIO, split: Split = "train") -> list[Word]:
        """Words of an archive, see :func:`~structsmooth.tasks.ocr.letters.read_words`."""
        if not isinstance(path, str):
            raise ValueError("words are read from an .npz file, not from standard input: give its path")
        return labelled(read_words(path), split, _gold)

    def texts(self, examples: Sequence[Word]) -> list[int]:
        """Neighbours of the same letters, as different people wrote them, are one text."""
        begins = [i > 0 and word.text != examples[i - 1].text for i, word in enumerate(examples)]
        return list(accumulate(map(int, begins)))

    def fit(self, examples: Sequence[Word]) -> FittedOCR:
        """The recognizer, with the landmarks of a kernel."""
        if self.kernel_features is None:
            return FittedOCR(self)
        landmarks = self.kernel_features.chosen(_pixels(examples))
        return FittedOCR(self, [np.packbits(row).tobytes().hex() for row in landmarks.numpy().astype(np.uint8)])


def _sequences(words: Sequence[Word]) -> SparseSequences:
    """The attributes of a letter: its pixels that are on, and the bias."""
    on = np.concatenate([word.pixels for word in words])
    on = np.pad(on, ((0, 0), (0, 1)), constant_values=1)
    token_offsets = np.cumsum([0, *on.sum(axis=1, dtype=np.int64)])
    offsets = np.cumsum([0, *(len(word.pixels) for word in words)])
    attributes = on.nonzero()[1].astype(np.int32)
    return SparseSequences(*map(torch.from_numpy, (attributes, token_offsets, offsets)))


def _pixels(words: Sequence[Word]) -> Tensor:
    """The pixels of all letters: uint8 [letters, 128]."""
    return torch.from_numpy(np.concatenate([word.pixels for word in words]))


def _lengths(words: Sequence[Word]) -> Tensor:
    return torch.tensor([len(word.pixels) for word in words])


def _gold(word: Word) -> str:
    return known(word.text, "these words have no labels")
