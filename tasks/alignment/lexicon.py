"""What sentence pairs without links tell about words: counts, the Dice coefficient, and Model 1 in both directions."""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from structsmooth.plain import PACKED
from structsmooth.tasks.alignment.data import SentencePair

Table = NDArray[np.float32]
_ITERATIONS = 5


@dataclass(frozen=True, eq=False)
class Lexicon:
    """Counts and translation probabilities of the words of some sentence pairs.

    Words are numbered; the last number of each language stands for all unknown words. Pairs of words that stand in the
    same sentence pair are sorted by their ``keys``, source number times the number of target words plus target number.

    Attributes:
        sources: words of the source language.
        targets: words of the target language.
        source_counts: occurrences of each source word, int32 [S + 1].
        target_counts: of each target word, int32 [T + 1].
        keys: of pairs of words, int64 [K].
        pair_counts: how often both stand in the same sentence pair, at most as often as each does, int32 [K].
        source_given_target: p(source | target) of Model 1, float32 [K].
        target_given_source: p(target | source), float32 [K].
        source_given_none: p(source | no word), float32 [S + 1].
        target_given_none: p(target | no word), float32 [T + 1].

    Reference:
        Brown, Della Pietra, Della Pietra and Mercer (1993), Model 1.
    """

    sources: list[str]
    targets: list[str]
    source_counts: NDArray[np.int32] = field(metadata=PACKED)
    target_counts: NDArray[np.int32] = field(metadata=PACKED)
    keys: NDArray[np.int64] = field(metadata=PACKED)
    pair_counts: NDArray[np.int32] = field(metadata=PACKED)
    source_given_target: Table = field(metadata=PACKED)
    target_given_source: Table = field(metadata=PACKED)
    source_given_none: Table = field(metadata=PACKED)
    target_given_none: Table = field(metadata=PACKED)

    @classmethod
    def of(cls, pairs: Sequence[SentencePair]) -> "Lexicon":
        """The lexicon of sentence pairs, whose links do not matter; upper and lower case count as the same."""
        pairs = [pair for pair in pairs if pair.source and pair.target]
        sources = sorted({word.lower() for pair in pairs for word in pair.source})
        targets = sorted({word.lower() for pair in pairs for word in pair.target})
        numbers, width = (_numbers(sources), _numbers(targets)), len(targets) + 1
        texts = [(_ids(numbers[0], pair.source), _ids(numbers[1], pair.target)) for pair in pairs]
        tables = [np.add.outer(f * width, e) for f, e in texts]
        shapes = [(len(f), len(e)) for f, e in texts]
        keys, entries = np.unique(_joined([table.ravel() for table in tables]), return_inverse=True)
        source_ids, target_ids = keys // width, keys % width
        forward, forward_none = model_1(entries, shapes, source_ids, target_ids)
        flipped = [shape[::-1] for shape in shapes]
        backward, backward_none = model_1(_transposed(entries, shapes), flipped, target_ids, source_ids)
        return cls(
            sources,
            targets,
            source_counts=_counts(_joined([f for f, _ in texts]), len(sources) + 1),
            target_counts=_counts(_joined([e for _, e in texts]), width),
            keys=keys,
            pair_counts=_common_counts(texts, keys, width),
            source_given_target=forward.astype(np.float32),
            target_given_source=backward.astype(np.float32),
            source_given_none=forward_none.astype(np.float32),
            target_given_none=backward_none.astype(np.float32),
        )

    def numbers(self, pair: SentencePair) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Numbers of the source and target words of a sentence pair."""
        sources, targets = self._numbers
        return _ids(sources, pair.source), _ids(targets, pair.target)

    def dice(self, pair: SentencePair) -> NDArray[np.float64]:
        """2 c(f, e) / (c(f) + c(e)) of all word pairs, [N, M]; 0 for unknown ones."""
        f, e = self.numbers(pair)
        both = self._values(self.pair_counts, f, e)
        return 2 * both / np.maximum(np.add.outer(self.source_counts[f], self.target_counts[e]), 1)

    def posteriors(self, pair: SentencePair) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Probabilities of links by Model 1, [N, M] each: that j emitted word i, and that i emitted word j."""
        f, e = self.numbers(pair)
        forward, backward = (
            self._values(table, f, e) for table in (self.source_given_target, self.target_given_source)
        )
        return (
            forward / np.maximum(forward.sum(1) + self.source_given_none[f], 1e-12)[:, None],
            backward / np.maximum(backward.sum(0) + self.target_given_none[e], 1e-12),
        )

    def ranks(self, pair: SentencePair) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Logarithms of the ranks of the words by frequency, over that of the largest rank, in [0, 1]."""
        f, e = self.numbers(pair)
        sources, targets = self._ranks
        return sources[f], targets[e]

    def __post_init__(self) -> None:
        sources, targets, pairs = len(self.sources) + 1, len(self.targets) + 1, len(self.keys)
        sizes = (sources, targets, pairs, pairs, pairs, pairs, sources, targets)
        arrays = [(f.name, getattr(self, f.name)) for f in fields(self) if f.metadata == PACKED]
        wrong = [name for (name, array), size in zip(arrays, sizes, strict=True) if len(array) < size]
        if wrong or (np.diff(self.keys) <= 0).any() or not all(np.isfinite(array).all() for _, array in arrays):
            raise ValueError(f"the arrays of a lexicon do not fit its words: {', '.join(wrong) or 'keys'}")

    def _values(self, table: NDArray[Any], f: NDArray[np.int64], e: NDArray[np.int64]) -> NDArray[np.float64]:
        """Entries [N, M] of a table, 0 where there is none."""
        wanted = np.add.outer(f * (len(self.targets) + 1), e)
        if not len(self.keys):
            return np.zeros(wanted.shape)
        at = np.minimum(np.searchsorted(self.keys, wanted), len(self.keys) - 1)
        return np.where(self.keys[at] == wanted, table[at], 0.0)

    @cached_property
    def _numbers(self) -> tuple[dict[str, int], dict[str, int]]:
        return _numbers(self.sources), _numbers(self.targets)

    @cached_property
    def _ranks(self) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        return _log_ranks(self.source_counts), _log_ranks(self.target_counts)


def model_1(
    entries: NDArray[np.int64], shapes: Sequence[tuple[int, int]], outputs: NDArray[np.int64], inputs: NDArray[np.int64]
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """p(output | input) of pairs of words [K], and p(output | no word), after five iterations of EM.

    Args:
        entries: numbers in 0, ..., K − 1 of the pairs of words of all sentence pairs, row by row.
        shapes: output and input words of each sentence pair.
        outputs: the output word of each of the K pairs.
        inputs: its input word.
    """
    count = int(outputs.max(initial=0)) + 2
    t, t_none = np.full(len(outputs), 1 / count), np.full(count, 1 / count)
    lengths = np.array([m for n, m in shapes for _ in range(n)], dtype=np.int64)
    starts = np.cumsum(lengths) - lengths
    words = outputs[entries[starts]]
    for _ in range(_ITERATIONS if len(entries) else 0):
        emitted, none = t[entries], t_none[words]
        total = np.add.reduceat(emitted, starts) + none
        expected = np.bincount(entries, emitted / np.repeat(total, lengths), len(t))
        t = expected / np.bincount(inputs, expected)[inputs]
        t_none = np.bincount(words, none / total, count)
        t_none = t_none / t_none.sum()
    return t, t_none


def _transposed(entries: NDArray[np.int64], shapes: Sequence[tuple[int, int]]) -> NDArray[np.int64]:
    """The entries of all sentence pairs in the order of the transposed tables."""
    ends = np.cumsum([n * m for n, m in shapes], dtype=np.int64)
    blocks = np.split(entries, ends)  # the last one is empty
    return _joined([block.reshape(shape).T.ravel() for block, shape in zip(blocks, shapes, strict=False)])


def _common_counts(
    texts: Sequence[tuple[NDArray[np.int64], NDArray[np.int64]]], keys: NDArray[np.int64], width: int
) -> NDArray[np.int32]:
    """How often two words stand in the same sentence pair, at most as often as each of them does there."""
    both = np.zeros(len(keys), dtype=np.int32)
    for f, e in texts:
        sources, source_counts = np.unique(f, return_counts=True)
        targets, target_counts = np.unique(e, return_counts=True)
        at = np.searchsorted(keys, np.add.outer(sources * width, targets))
        both[at] += np.minimum.outer(source_counts, target_counts).astype(np.int32)
    return both


def _counts(words: NDArray[np.int64], size: int) -> NDArray[np.int32]:
    return np.bincount(words, minlength=size).astype(np.int32)


def _joined(arrays: Sequence[NDArray[np.int64]]) -> NDArray[np.int64]:
    return np.concatenate([*arrays, np.zeros(0, dtype=np.int64)])


def _numbers(words: Iterable[str]) -> dict[str, int]:
    return {word: i for i, word in enumerate(words)}


def _ids(numbers: Mapping[str, int], words: Sequence[str]) -> NDArray[np.int64]:
    return np.array([numbers.get(word.lower(), len(numbers)) for word in words], dtype=np.int64)


def _log_ranks(counts: NDArray[np.int32]) -> NDArray[np.float64]:
    """Words of the same count have the same rank: one more than the number of more frequent words."""
    ranks = 1.0 + np.searchsorted(np.sort(-counts), -counts)
    logarithms: NDArray[np.float64] = np.log(ranks) / max(math.log(len(counts)), 1.0)
    return logarithms
