"""Frozen features of words as discrete codes, which templates of features take as they take words."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from structsmooth.encoders.frozen import FrozenFeatures
from structsmooth.plain import PACKED
from structsmooth.text.corpus import Corpus, Sentence

_ROUNDS = 15  # of k-means
_KEPT = 1 << 16  # sentences whose codes are kept in memory
_TOKENS = 1 << 14  # whose distances are in memory at a time

Codes = NDArray[np.int64]


@dataclass(frozen=True)
class CodedFeatures:
    """Frozen features of words, as the number of the nearest one of some centers: similar words share a code.

    Args:
        frozen: the features.
        centers: K of them, of standardized features: float32 [K · D].
    """

    frozen: FrozenFeatures
    centers: NDArray[np.float32] = field(metadata=PACKED)

    @classmethod
    def fit(
        cls, place: str, layers: Sequence[int], sentences: Sequence[Sequence[str]], count: int, seed: int = 0
    ) -> "CodedFeatures":
        """Centers of the words of training sentences, by k-means.

        Args:
            place: of the encoder.
            layers: whose features are taken together.
            sentences: their words.
            count: K, or the number of words if they are fewer.
            seed: of the first centers.

        Raises:
            ImportError: transformers is not installed.
            ValueError: no such encoder or layers.
        """
        corpus = _corpus(sentences)
        frozen = FrozenFeatures.fit(place, layers, 0, corpus)
        rows = _standardized(frozen, corpus)
        first = np.random.default_rng(seed).choice(len(rows), min(count, len(rows)), replace=False)
        centers = rows[np.sort(first)]
        for _ in range(_ROUNDS):
            nearest = _nearest(rows, centers)
            sums, counts = np.zeros_like(centers), np.bincount(nearest, minlength=len(centers))[:, None]
            np.add.at(sums, nearest, rows)
            centers = np.where(counts > 0, sums / np.maximum(counts, 1), centers).astype(np.float32)
        return cls(frozen, centers.flatten())

    def of(self, sentences: Sequence[Sequence[str]]) -> list[Codes]:
        """The codes of the words of some sentences; those of the latest ones are kept."""
        keys = list(map(tuple, sentences))
        known = {key: codes for key in keys if (codes := self._known.get(key)) is not None}
        if new := list(dict.fromkeys(key for key in keys if key not in known)):
            corpus = _corpus(new)
            codes = _nearest(_standardized(self.frozen, corpus), self.centers.reshape(-1, self.frozen.size))
            known |= zip(new, np.split(codes, corpus.offsets[1:-1]), strict=True)
            if len(self._known) + len(new) > _KEPT:
                self._known.clear()
            self._known.update(known)
        return [known[key] for key in keys]

    @cached_property
    def _known(self) -> dict[tuple[str, ...], Codes]:
        return {}


def _corpus(sentences: Sequence[Sequence[str]]) -> Corpus:
    return Corpus.of([Sentence(list(words), []) for words in sentences])


def _standardized(frozen: FrozenFeatures, corpus: Corpus) -> NDArray[np.float32]:
    """Features of all words, [words, D]."""
    rows: NDArray[np.float32] = (frozen.raw(corpus) - frozen.center) / frozen.deviation
    return rows


def _nearest(rows: NDArray[np.float32], centers: NDArray[np.float32]) -> Codes:
    """The number of the nearest center of each row."""
    lengths = (centers**2).sum(1)
    parts = (rows[begin : begin + _TOKENS] for begin in range(0, len(rows), _TOKENS))
    return np.concatenate([np.zeros(0, np.int64), *((lengths - 2 * part @ centers.T).argmin(1) for part in parts)])
