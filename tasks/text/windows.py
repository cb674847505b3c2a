"""What stands near the tokens of a corpus: each combination of values is named once, and tokens have its number."""

from collections.abc import Callable, Sequence
from math import prod
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from structsmooth.tasks.text.corpus import Corpus, Token

Value = str | None
"""What a column says of a token; ``None`` where it says nothing, as outside the sentence."""
Column = Callable[[Token], Value]


class Combinations(NamedTuple):
    """Distinct combinations of values: token t has number ``of_key[keys[t]]``; keys of no token may have -1."""

    distinct: list[tuple[Value, ...]]
    of_key: NDArray[np.int32]
    keys: NDArray[np.int32]

    @property
    def counts(self) -> list[int]:
        """How many tokens have each combination."""
        counts: list[int] = np.bincount(self.of_key[self.keys], minlength=len(self.distinct)).tolist()
        return counts


class _Coded(NamedTuple):
    """A column of the distinct tokens and, last, of the outside, as numbers of its values; number 0 is None."""

    values: list[Value]
    codes: NDArray[np.int32]


class Windows:
    """The neighbours of all tokens of a corpus, at distances up to ``width``."""

    def __init__(self, corpus: Corpus, width: int) -> None:
        self._distinct = corpus.distinct
        self._coded: dict[Column, _Coded] = {}
        # All sentences one after the other, with as many tokens of the outside around each as a window may see.
        gaps = (corpus.offsets + width * np.arange(len(corpus) + 1))[:, None] + np.arange(width)
        inside = np.ones(len(corpus.tokens) + gaps.size, dtype=np.bool_)
        inside[gaps] = False
        stream = np.full(len(inside), len(corpus.distinct), dtype=np.int32)
        stream[inside] = corpus.tokens
        self._neighbours = {offset: stream[np.roll(inside, offset)] for offset in range(-width, width + 1)}

    def combinations(self, cells: Sequence[tuple[Column, int]]) -> Combinations:
        """The values of columns at offsets from each token, sorted by their numbers."""
        if len(cells) == 1:
            ((column, offset),) = cells
            values, codes = self._code(column)
            found, ranks = _ranks(codes[self._neighbours[offset]], len(values))
            return Combinations([(values[i],) for i in found.tolist()], ranks[codes], self._neighbours[offset])
        coded = [self._code(column) for column, _ in cells]
        sizes = [len(values) for values, _ in coded]
        numbers = np.zeros(len(self._neighbours[0]), dtype=np.int64)
        for (_, offset), (values, codes) in zip(cells, coded, strict=True):
            numbers *= len(values)
            numbers += codes[self._neighbours[offset]]
        found, keys = _distinct(numbers, prod(sizes))
        distinct: list[tuple[Value, ...]] = [()] * len(found)
        if cells:
            parts = np.unravel_index(found, sizes)
            columns = [[values[i] for i in part.tolist()] for part, (values, _) in zip(parts, coded, strict=True)]
            distinct = list(zip(*columns, strict=True))
        return Combinations(distinct, np.arange(len(found), dtype=np.int32), keys)

    def _code(self, column: Column) -> _Coded:
        if column not in self._coded:
            numbers: dict[Value, int] = {None: 0}
            codes = [numbers.setdefault(column(token), len(numbers)) for token in self._distinct]
            self._coded[column] = _Coded(list(numbers), np.array([*codes, 0], dtype=np.int32))
        return self._coded[column]


def _distinct(numbers: NDArray[np.int64], size: int) -> tuple[NDArray[np.int64], NDArray[np.int32]]:
    """The distinct ones of numbers below ``size``, sorted, and the rank of each number among them."""
    if size > len(numbers):
        return _sorted(numbers)
    found, ranks = _ranks(numbers, size)  # without sorting
    return found, ranks[numbers]


def _sorted(numbers: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.int32]]:
    """As :func:`numpy.unique` with the inverse, in half of its memory."""
    order = np.argsort(numbers)
    ordered, first = numbers[order], np.ones(len(numbers), dtype=np.bool_)
    np.not_equal(ordered[1:], ordered[:-1], out=first[1:])
    found = ordered[first]
    del ordered
    keys = np.empty(len(numbers), dtype=np.int32)
    keys[order] = np.cumsum(first, dtype=np.int32) - 1
    return found, keys


def _ranks(numbers: NDArray[np.integer], size: int) -> tuple[NDArray[np.int64], NDArray[np.int32]]:
    """The distinct ones of numbers below ``size``, sorted, and the rank of every number below it, or -1."""
    present = np.zeros(size, dtype=np.bool_)
    present[numbers] = True
    return np.flatnonzero(present), np.where(present, np.cumsum(present, dtype=np.int32) - 1, np.int32(-1))
