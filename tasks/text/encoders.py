"""Encoders of attributes: from sentences to sparse sequences of integers.

A corpus repeats the same values over and over: each combination of them is spelled and looked up once.
"""

import zlib
from abc import ABC, abstractmethod
from array import array
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
from functools import cached_property
from itertools import chain
from typing import Any, ClassVar, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from structsmooth.sequences import SparseSequences
from structsmooth.tasks.progress import tracked
from structsmooth.tasks.text.attributes import COLUMNS, WINDOW, Column, Template, Templates, columns_of
from structsmooth.tasks.text.conll import Sentence

_DROPPED = -1


@dataclass(frozen=True)
class AttributeEncoder(ABC):
    """A map from attributes to the integers below :attr:`size`."""

    name: ClassVar[str]

    @property
    @abstractmethod
    def size(self) -> int:
        """Number of different integers."""

    @abstractmethod
    def integer(self, attribute: str) -> int:
        """The integer of an attribute; -1 for an attribute to be dropped."""

    def encode(self, sentences: Sequence[Sentence], templates: Templates) -> SparseSequences:
        """Integers for the attributes of all tokens."""
        steps = tracked(_spellings(sentences, templates), "attributes", len(templates))
        table = np.hstack([_integers(spellings, self.integer) for spellings in steps])
        present = table != _DROPPED
        return SparseSequences(
            attributes=torch.from_numpy(table[present]),
            token_offsets=_offsets(present.sum(axis=1)),
            offsets=_offsets([len(sentence) for sentence in sentences]),
        )

    def to_dict(self) -> dict[str, Any]:
        """The encoder as plain JSON; :func:`encoder_from_dict` reads it."""
        return {"encoder": self.name} | {f.name: getattr(self, f.name) for f in fields(self)}


def hash_attribute(name: str, bits: int) -> int:
    """Integer below 2**bits for an attribute, the same on every machine: the lowest bits of its CRC-32."""
    return zlib.crc32(name.encode()) & ((1 << bits) - 1)


@dataclass(frozen=True)
class HashingEncoder(AttributeEncoder):
    """Encodes attributes by :func:`hash_attribute`: needs no training data, but some attributes share an integer.

    Raises:
        ValueError: ``bits`` is not from 1 to 30.
    """

    bits: int = 18

    name: ClassVar[str] = "hashing"

    def __post_init__(self) -> None:
        if not 1 <= self.bits <= 30:
            raise ValueError(f"bits must be from 1 to 30, got {self.bits}")

    @property
    def size(self) -> int:
        """Number of buckets, 2**bits."""
        return 1 << self.bits

    def integer(self, attribute: str) -> int:
        """The hash of an attribute."""
        return hash_attribute(attribute, self.bits)


@dataclass(frozen=True)
class DictionaryEncoder(AttributeEncoder):
    """Encodes the attributes it knows, each by its own integer, and drops others. See :meth:`fit`.

    Args:
        attributes: the known attributes, different from each other; they are numbered in this order.

    Raises:
        ValueError: an attribute occurs twice.
    """

    attributes: list[str]

    name: ClassVar[str] = "dictionary"

    def __post_init__(self) -> None:
        if len(self._ids) < len(self.attributes):
            raise ValueError("attributes must differ from each other")

    @classmethod
    def fit(cls, sentences: Sequence[Sentence], templates: Templates, *, min_count: int = 1) -> "DictionaryEncoder":
        """An encoder that knows the attributes that at least ``min_count`` tokens of training sentences have."""
        counts = Counter[str]()
        for distinct, which in _spellings(sentences, templates):
            for attributes, count in zip(distinct, np.bincount(which).tolist(), strict=True):
                for attribute in attributes:
                    counts[attribute] += count
        # Frequent attributes first: their weights then lie close together in memory.
        return cls([attribute for attribute, count in counts.most_common() if count >= min_count])

    @property
    def size(self) -> int:
        """Number of known attributes."""
        return len(self.attributes)

    def integer(self, attribute: str) -> int:
        """The number of an attribute; -1 if it is not known."""
        return self._ids.get(attribute, _DROPPED)

    @cached_property
    def _ids(self) -> dict[str, int]:
        return {attribute: index for index, attribute in enumerate(self.attributes)}


def encoder_from_dict(data: Mapping[str, Any]) -> AttributeEncoder:
    """The encoder whose ``to_dict`` gave ``data``.

    Raises:
        ValueError: there is no encoder of that name.
    """
    encoders: dict[str, type[AttributeEncoder]] = {e.name: e for e in (HashingEncoder, DictionaryEncoder)}
    if data["encoder"] not in encoders:
        raise ValueError(f"unknown encoder {data['encoder']!r}: expected one of {', '.join(encoders)}")
    return encoders[data["encoder"]](**{name: value for name, value in data.items() if name != "encoder"})


# Corpora: all tokens at once, each combination of values once.


class _Spellings(NamedTuple):
    """What a template says about a corpus: token t has the attributes number ``which[t]`` of ``distinct``."""

    distinct: Iterator[tuple[str, ...]]
    which: NDArray[np.int64]


class _CodedColumn(NamedTuple):
    """A column of a corpus: position p has the value ``values[codes[p]]``. Nones surround each sentence."""

    values: list[str | None]
    codes: NDArray[np.int64]

    def at(self, positions: NDArray[np.int64]) -> list[str | None]:
        return [self.values[code] for code in self.codes[positions].tolist()]


def _spellings(sentences: Sequence[Sentence], templates: Templates) -> Iterator[_Spellings]:
    columns = {name: _coded_column(sentences, COLUMNS[name]) for name in columns_of(templates)}
    lengths = [len(sentence) for sentence in sentences]
    preceding_separators = np.repeat(np.arange(1, len(lengths) + 1), lengths)
    positions = np.arange(sum(lengths)) + WINDOW * preceding_separators
    for template in templates:
        yield _corpus_spellings(template, columns, positions)


def _coded_column(sentences: Sequence[Sentence], column: Callable[[Sentence], Column]) -> _CodedColumn:
    outside: list[str | None] = [None] * WINDOW
    stream = chain(outside, chain.from_iterable(chain(column(sentence), outside) for sentence in sentences))
    codes: dict[str | None, int] = {}
    coded = np.fromiter((codes.setdefault(value, len(codes)) for value in stream), dtype=np.int64)
    return _CodedColumn(list(codes), coded)


def _corpus_spellings(
    template: Template, columns: Mapping[str, _CodedColumn], positions: NDArray[np.int64]
) -> _Spellings:
    combination = np.zeros(len(positions), dtype=np.int64)
    for column, offset in template.cells:
        combination = combination * len(columns[column].values) + columns[column].codes[positions + offset]
    _, example, which = np.unique(combination, return_index=True, return_inverse=True)
    cell_values = [columns[column].at(positions[example] + offset) for column, offset in template.cells]
    combinations = zip(*cell_values, strict=True) if template.cells else [()] * len(example)
    return _Spellings((template.spell(*values) for values in combinations), which)


def _integers(spellings: _Spellings, lookup: Callable[[str], int]) -> NDArray[np.int32]:
    """Integers for the attributes of each token, in rows that are filled up with ``_DROPPED``."""
    ids, counts = array("i"), array("i")
    for attributes in spellings.distinct:
        ids.extend(map(lookup, attributes))
        counts.append(len(attributes))
    rows = np.full((len(counts), max(counts, default=0)), _DROPPED, dtype=np.int32)
    rows[np.arange(rows.shape[1]) < np.array(counts)[:, None]] = ids
    return rows[spellings.which]


def _offsets(counts: Sequence[int] | NDArray[np.int64]) -> Tensor:
    return torch.from_numpy(np.concatenate([np.zeros(1, dtype=np.int64), np.cumsum(counts, dtype=np.int64)]))
