"""Attributes of tokens for taggers that are linear in them, and encoders that turn them into integers.

A template spells the attributes that depend on a few cells near a token, such as the words at offsets -1 and
0. A corpus repeats the same values over and over: encoders spell and look up each combination once.
"""

from __future__ import annotations

import re
import zlib
from array import array
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache, partial
from itertools import chain
from typing import Any, NamedTuple, Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from structsmooth.sequences import SparseSequences
from structsmooth.tasks.text.conll import Sentence

_WINDOW = 2
_AFFIX_LENGTHS = (2, 3, 4)
_ABSENT = "-"
_NO_ID = -1


class AttributeEncoder(Protocol):
    """What the encoders have in common."""

    @property
    def size(self) -> int:
        """Number of different integers."""

    def encode(self, sentences: Sequence[Sentence], templates: Templates) -> SparseSequences:
        """Integers for the attributes of all tokens."""

    def to_dict(self) -> dict[str, Any]:
        """The encoder as plain JSON; :func:`encoder_from_dict` reads it."""


def sentence_attributes(sentence: Sentence, templates: Templates) -> list[list[str]]:
    """Attributes of each token of a sentence.

    Columns that the sentence lacks, or fills with hyphens, have no attributes.

    Args:
        sentence: its tags play no role.
        templates: what attributes there are, such as :data:`PLAIN` and :data:`RICH`.
    """
    columns = {name: _COLUMNS[name](sentence) for name in _columns_of(templates)}

    def value(cell: _Cell, token: int) -> str | None:
        position = token + cell.offset
        return columns[cell.column][position] if 0 <= position < len(sentence) else None

    return [
        [
            attribute
            for template in templates
            for attribute in template.spell(*(value(cell, token) for cell in template.cells))
        ]
        for token in range(len(sentence))
    ]


def hash_attribute(name: str, bits: int) -> int:
    """Integer below 2**bits for an attribute, the same on every machine: the lowest bits of its CRC-32."""
    return zlib.crc32(name.encode()) & ((1 << bits) - 1)


@dataclass(frozen=True)
class HashingEncoder:
    """Encodes attributes by :func:`hash_attribute`: needs no training data, but some share an integer.

    Args:
        bits: attributes are mapped to ``2**bits`` integers, from 1 to 30 bits.

    Raises:
        ValueError: the number of bits is out of range.
    """

    bits: int = 18

    def __post_init__(self) -> None:
        if not 1 <= self.bits <= 30:
            raise ValueError(f"bits must be from 1 to 30, got {self.bits}")

    @property
    def size(self) -> int:
        """Number of different integers."""
        return 1 << self.bits

    def encode(self, sentences: Sequence[Sentence], templates: Templates) -> SparseSequences:
        """Integers for the attributes of all tokens of the sentences."""
        return _encode(sentences, templates, partial(hash_attribute, bits=self.bits))

    def to_dict(self) -> dict[str, Any]:
        """The encoder as plain JSON."""
        return {"encoder": "hashing", "bits": self.bits}

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> HashingEncoder:
        """The encoder that :meth:`to_dict` was called on."""
        return cls(bits=data["bits"])


@dataclass(frozen=True)
class DictionaryEncoder:
    """Encodes the attributes it knows, each by its own integer, and drops others. See :meth:`fit`.

    Args:
        attributes: the known attributes, different from each other; they are numbered in this order.

    Raises:
        ValueError: an attribute occurs twice.
    """

    attributes: Sequence[str]

    def __post_init__(self) -> None:
        if len(self._ids) < len(self.attributes):
            raise ValueError("attributes must differ from each other")

    @classmethod
    def fit(cls, sentences: Sequence[Sentence], templates: Templates, *, min_count: int = 1) -> DictionaryEncoder:
        """An encoder that knows the attributes of training sentences.

        Args:
            sentences: the training sentences.
            templates: see :func:`sentence_attributes`.
            min_count: number of tokens that must have an attribute for it to be known.
        """
        counts = _count_attributes(sentences, templates)
        # Frequent attributes first: their weights then lie close together in memory.
        return cls([attribute for attribute, count in counts.most_common() if count >= min_count])

    @property
    def size(self) -> int:
        """Number of known attributes."""
        return len(self.attributes)

    def encode(self, sentences: Sequence[Sentence], templates: Templates) -> SparseSequences:
        """Integers for the known attributes of all tokens of the sentences."""
        return _encode(sentences, templates, lambda attribute: self._ids.get(attribute, _NO_ID))

    def to_dict(self) -> dict[str, Any]:
        """The encoder as plain JSON."""
        return {"encoder": "dictionary", "attributes": list(self.attributes)}

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> DictionaryEncoder:
        """The encoder that :meth:`to_dict` was called on."""
        return cls(attributes=data["attributes"])

    @cached_property
    def _ids(self) -> dict[str, int]:
        return {attribute: index for index, attribute in enumerate(self.attributes)}


def encoder_from_dict(data: Mapping[str, Any]) -> AttributeEncoder:
    """The encoder whose ``to_dict`` gave ``data``.

    Raises:
        ValueError: there is no encoder of that name.
    """
    encoders: dict[str, type[HashingEncoder] | type[DictionaryEncoder]] = {
        "hashing": HashingEncoder,
        "dictionary": DictionaryEncoder,
    }
    if data["encoder"] not in encoders:
        raise ValueError(f"unknown encoder {data['encoder']!r}: expected one of {', '.join(encoders)}")
    return encoders[data["encoder"]].from_dict(data)


# Templates: what attributes there are.


_Column = Sequence[str | None]


class _Cell(NamedTuple):
    column: str
    offset: int


class Template(NamedTuple):
    """``spell`` turns the values of the cells into attributes; None is the value outside the sentence."""

    cells: tuple[_Cell, ...]
    spell: Callable[..., tuple[str, ...]]


Templates = tuple[Template, ...]


def _spell_bias() -> tuple[str, ...]:
    return ("bias",)


def _spell_word(offset: int, word: str | None) -> tuple[str, ...]:
    if word is None:
        return (f"B{offset}" if offset < 0 else f"E+{offset}",)
    return (f"word[{offset}]={word}",)


def _spell_column(column: str, offset: int, value: str | None) -> tuple[str, ...]:
    return () if value is None else (f"{column}[{offset}]={value}",)


def _spell_form(word: str) -> tuple[str, ...]:
    lower = word.lower()
    lengths = [length for length in _AFFIX_LENGTHS if length <= len(lower)]
    return (
        f"lower[0]={lower}",
        f"shape[0]={_shape(word)}",
        f"outline[0]={_outline(word)}",
        *(f"prefix={lower[:length]}" for length in lengths),
        *(f"suffix={lower[-length:]}" for length in lengths),
    )


def _spell_neighbour(offset: int, word: str | None) -> tuple[str, ...]:
    return () if word is None else (f"lower[{offset}]={word.lower()}", f"outline[{offset}]={_outline(word)}")


def _spell_joint(name: str, *values: str | None) -> tuple[str, ...]:
    return (f"{name}={'|'.join(value or '' for value in values)}",) if any(values) else ()


def _shape(word: str) -> str:
    """The word with letters and digits replaced by their kind: ``McDonald-95`` becomes ``XxXxxxxx-dd``."""
    return "".join(map(_character_kind, word))


def _character_kind(character: str) -> str:
    if character.isupper():
        return "X"
    if character.islower():
        return "x"
    return "d" if character.isdigit() else character


@lru_cache(maxsize=1 << 16)
def _outline(word: str) -> str:
    """The shape with runs of one character collapsed: ``McDonald-95`` becomes ``XxXx-d``."""
    return re.sub(r"(.)\1+", r"\1", _shape(word))


def _present(values: list[str]) -> _Column:
    return [None if value == _ABSENT else value for value in values]


_COLUMNS: dict[str, Callable[[Sentence], _Column]] = {
    "word": lambda sentence: sentence.words,
    "pos": lambda sentence: _present(sentence.pos),
    "chunk": lambda sentence: _present(sentence.chunk),
    "outline": lambda sentence: list(map(_outline, sentence.words)),
}


def window(column: str) -> Templates:
    """Attributes of the values of a column up to two tokens away: ``word``, ``pos``, ``chunk`` or ``outline``."""
    spell = _spell_word if column == "word" else partial(_spell_column, column)
    return tuple(Template((_Cell(column, offset),), partial(spell, offset)) for offset in range(-_WINDOW, _WINDOW + 1))


def joint(column: str, *offsets: int) -> Template:
    """One attribute of the values of a column at some offsets, from -2 to 2; the outside of the sentence is empty."""
    name = "|".join(f"{column}[{offset}]" for offset in offsets)
    return Template(tuple(_Cell(column, offset) for offset in offsets), partial(_spell_joint, name))


BIAS = Template((), _spell_bias)
PLAIN: Templates = (BIAS, *window("word"), *window("pos"), *window("chunk"))
"""Words, parts of speech and chunk tags up to two tokens away, and a bias: section 7.1.1 of Pillutla et al. (2018), "A
Smoother Way to Train Structured Prediction Models"."""
RICH: Templates = (
    *PLAIN,
    Template((_Cell("word", 0),), _spell_form),
    Template((_Cell("word", -1),), partial(_spell_neighbour, -1)),
    Template((_Cell("word", 1),), partial(_spell_neighbour, 1)),
    joint("word", -1, 0),
    joint("word", 0, 1),
    joint("pos", -1, 0),
    joint("pos", 0, 1),
    joint("outline", -1, 0, 1),
)
"""The plain set; affixes, lower-cased form and shape of the word, the latter two of its neighbours; pairs and triples
of adjacent values. About twice as many attributes."""


def _columns_of(templates: Templates) -> set[str]:
    return {cell.column for template in templates for cell in template.cells}


# Corpora: all tokens at once, each combination of values once.


class _Spellings(NamedTuple):
    """What a template says about a corpus: token t has the attributes number ``which[t]`` of ``distinct``."""

    distinct: Iterator[tuple[str, ...]]
    which: NDArray[np.int64]


class _CodedColumn(NamedTuple):
    """A column of a corpus: position p has the value ``values[codes[p]]``. Nones surround each sentence."""

    values: list[str | None]
    codes: NDArray[np.int64]


def _spellings(sentences: Sequence[Sentence], templates: Templates) -> Iterator[_Spellings]:
    columns = {name: _coded_column(sentences, _COLUMNS[name]) for name in _columns_of(templates)}
    positions = _token_positions(sentences)
    for template in templates:
        yield _corpus_spellings(template, columns, positions)


def _coded_column(sentences: Sequence[Sentence], column: Callable[[Sentence], _Column]) -> _CodedColumn:
    outside: list[str | None] = [None] * _WINDOW
    stream = chain(outside, chain.from_iterable(chain(column(sentence), outside) for sentence in sentences))
    codes: dict[str | None, int] = {}
    coded = np.fromiter((codes.setdefault(value, len(codes)) for value in stream), dtype=np.int64)
    return _CodedColumn(list(codes), coded)


def _token_positions(sentences: Sequence[Sentence]) -> NDArray[np.int64]:
    lengths = [len(sentence) for sentence in sentences]
    preceding_separators = np.repeat(np.arange(1, len(lengths) + 1), lengths)
    return np.arange(sum(lengths)) + _WINDOW * preceding_separators


def _corpus_spellings(
    template: Template, columns: Mapping[str, _CodedColumn], positions: NDArray[np.int64]
) -> _Spellings:
    combination = np.zeros(len(positions), dtype=np.int64)
    for column, offset in template.cells:
        combination = combination * len(columns[column].values) + columns[column].codes[positions + offset]
    _, example, which = np.unique(combination, return_index=True, return_inverse=True)
    cell_values = [_values(columns[column], positions[example] + offset) for column, offset in template.cells]
    combinations = zip(*cell_values, strict=True) if template.cells else [()] * len(example)
    return _Spellings((template.spell(*values) for values in combinations), which)


def _values(column: _CodedColumn, positions: NDArray[np.int64]) -> list[str | None]:
    return [column.values[code] for code in column.codes[positions].tolist()]


def _encode(sentences: Sequence[Sentence], templates: Templates, lookup: Callable[[str], int]) -> SparseSequences:
    """Look up all attributes; those without an integer are dropped."""
    table = np.hstack([_ids(spellings, lookup) for spellings in _spellings(sentences, templates)])
    present = table != _NO_ID
    return SparseSequences(
        attributes=torch.from_numpy(table[present]),
        token_offsets=_offsets(present.sum(axis=1)),
        offsets=_offsets([len(sentence) for sentence in sentences]),
    )


def _ids(spellings: _Spellings, lookup: Callable[[str], int]) -> NDArray[np.int32]:
    """Integers for the attributes of each token, in rows that are filled up with ``_NO_ID``."""
    ids, counts = array("i"), array("i")
    for attributes in spellings.distinct:
        ids.extend(map(lookup, attributes))
        counts.append(len(attributes))
    rows = np.full((len(counts), max(counts, default=0)), _NO_ID, dtype=np.int32)
    rows[np.arange(rows.shape[1]) < np.array(counts)[:, None]] = ids
    return rows[spellings.which]


def _offsets(counts: Sequence[int] | NDArray[np.int64]) -> Tensor:
    return torch.from_numpy(np.concatenate([np.zeros(1, dtype=np.int64), np.cumsum(counts, dtype=np.int64)]))


def _count_attributes(sentences: Sequence[Sentence], templates: Templates) -> Counter[str]:
    """Number of tokens that have each attribute."""
    counts = Counter[str]()
    for distinct, which in _spellings(sentences, templates):
        for attributes, count in zip(distinct, np.bincount(which).tolist(), strict=True):
            for attribute in attributes:
                counts[attribute] += count
    return counts
