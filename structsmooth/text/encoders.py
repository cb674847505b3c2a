"""Encoders of attributes: from sentences to sparse sequences of integers.

Each combination of values is spelled and looked up once; see :mod:`structsmooth.text.corpus`.
"""

import zlib
from abc import ABC, abstractmethod
from array import array
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
from functools import cached_property
from hashlib import sha256
from itertools import starmap
from pathlib import Path
from typing import Annotated, Any, ClassVar, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

from structsmooth.messages import tracked
from structsmooth.plain import from_plain, plain
from structsmooth.sequences import MixedSequences, SparseSequences
from structsmooth.settings import Interval, check_settings
from structsmooth.text.corpus import Combinations, Corpus, Sentence, Windows
from structsmooth.text.mapped import mapped
from structsmooth.text.templates import WINDOW, Template, Templates, column

_DROPPED = -1
_BLOCK = 1 << 14  # tokens


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

    def encode(
        self, sentences: Sequence[Sentence], templates: Templates, cache: str | Path | None = None
    ) -> SparseSequences | MixedSequences:
        """Integers for the attributes of all tokens, in memory or mapped from a file in the folder ``cache``."""
        corpus = Corpus.of(sentences)
        steps = tracked(_combinations(corpus, templates), "attributes", len(templates))
        tables = [_table(starmap(spell, found.distinct), found, self.integer) for (_, spell), found in steps]
        token_offsets = _token_offsets(tables, len(corpus.tokens))
        parts, size = _integers(tables, len(corpus.tokens)), int(token_offsets[-1])
        attributes = (
            _joined(parts, size) if cache is None else mapped(_file(tables, Path(cache)), (size,), np.int32, parts)
        )
        return SparseSequences(*map(torch.from_numpy, (attributes, token_offsets, corpus.offsets)))

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> "AttributeEncoder":
        """The encoder whose :meth:`to_dict` gave ``data``."""
        return encoder_from_dict(data)

    def names(self, sentences: Sequence[Sentence], templates: Templates) -> dict[int, str]:
        """An attribute for each integer that some sentences have; several of them may share an integer."""
        if not sentences:
            return {}
        steps = _combinations(Corpus.of(sentences), templates)
        spelled = (a for template, found in steps for values in found.distinct for a in template.spell(*values))
        return {number: attribute for attribute in spelled if (number := self.integer(attribute)) != _DROPPED}

    def to_dict(self) -> dict[str, Any]:
        """The encoder as plain JSON; :func:`encoder_from_dict` reads it."""
        return {"encoder": self.name} | {f.name: plain(getattr(self, f.name)) for f in fields(self)}


def hash_attribute(name: str, bits: int) -> int:
    """Integer below 2**bits for an attribute, the same on every machine: the lowest bits of its CRC-32."""
    return zlib.crc32(name.encode()) & ((1 << bits) - 1)


@dataclass(frozen=True)
class HashingEncoder(AttributeEncoder):
    """Encodes attributes by :func:`hash_attribute`: needs no training data, but some attributes share an integer.

    Raises:
        ValueError: ``bits`` is not from 1 to 30.
    """

    bits: Annotated[int, Interval(1, 30)] = 18

    name: ClassVar[str] = "hashing"

    def __post_init__(self) -> None:
        check_settings(self)

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
        return cls.of_counts(attribute_counts(sentences, templates), min_count=min_count)

    @classmethod
    def of_counts(cls, counts: Counter[str], *, min_count: int = 1) -> "DictionaryEncoder":
        """An encoder that knows the attributes that were counted often enough."""
        known = sorted(attribute for attribute, count in counts.items() if count >= min_count)
        # Frequent attributes first: their weights then lie close together in memory.
        return cls(sorted(known, key=counts.__getitem__, reverse=True))

    @property
    def size(self) -> int:
        """Number of known attributes."""
        return len(self.attributes)

    def names(self, sentences: Sequence[Sentence], templates: Templates) -> dict[int, str]:
        """All known attributes by their integers."""
        return dict(enumerate(self.attributes))

    def integer(self, attribute: str) -> int:
        """The number of an attribute; -1 if it is not known."""
        return self._ids.get(attribute, _DROPPED)

    @cached_property
    def _ids(self) -> dict[str, int]:
        return {attribute: index for index, attribute in enumerate(self.attributes)}


def attribute_counts(sentences: Sequence[Sentence], templates: Templates) -> Counter[str]:
    """How many tokens of some sentences have each attribute."""
    counts = Counter[str]()
    for template, found in _combinations(Corpus.of(sentences), templates):
        for values, count in zip(found.distinct, found.counts, strict=True):
            for attribute in template.spell(*values):
                counts[attribute] += count
    return counts


def encoder_from_dict(data: Mapping[str, Any]) -> AttributeEncoder:
    """The encoder whose ``to_dict`` gave ``data``.

    Raises:
        ValueError: there is no encoder of that name.
    """
    # Those of this file, and what floors above it put beside words.
    encoders: dict[str, type[AttributeEncoder]] = {kind.name: kind for kind in AttributeEncoder.__subclasses__()}
    name, settings = data.get("encoder"), {key: value for key, value in data.items() if key != "encoder"}
    if name not in encoders:
        raise ValueError(f"unknown encoder {name!r}: expected one of {', '.join(encoders)}")
    encoder: AttributeEncoder = from_plain(encoders[name], settings, "encoder")
    return encoder


class _Table(NamedTuple):
    """The integers of a template: token t has those of row ``keys[t]``, filled up with ``_DROPPED``."""

    rows: NDArray[np.int32]
    keys: NDArray[np.int32]


def _combinations(corpus: Corpus, templates: Templates) -> Iterator[tuple[Template, Combinations]]:
    """What each template finds in a corpus."""
    windows = Windows(corpus, WINDOW)
    for template in templates:
        cells = [(column(name), offset) for name, offset in template.cells]
        yield template, windows.combinations(cells)


def _table(spelled: Iterable[tuple[str, ...]], found: Combinations, lookup: Callable[[str], int]) -> _Table:
    ids, counts = array("i"), array("i")
    for attributes in spelled:
        ids.extend(map(lookup, attributes))
        counts.append(len(attributes))
    # The last row is that of number -1.
    rows = np.full((len(counts) + 1, max(counts, default=0)), _DROPPED, dtype=np.int32)
    rows[:-1][np.arange(rows.shape[1]) < np.array(counts)[:, None]] = ids
    return _Table(rows[found.of_key], found.keys)


def _token_offsets(tables: Sequence[_Table], tokens: int) -> NDArray[np.int64]:
    """Where the integers of each token begin, and where those of the last token end."""
    offsets = np.zeros(tokens + 1, dtype=np.int64)
    for rows, keys in tables:
        offsets[1:] += (rows != _DROPPED).sum(axis=1, dtype=np.int32)[keys]
    return np.cumsum(offsets, out=offsets)


def _integers(tables: Sequence[_Table], tokens: int) -> Iterator[NDArray[np.int32]]:
    """The integers of all tokens in order, some tokens at a time."""
    for begin in range(0, tokens, _BLOCK):
        block = np.hstack([rows[keys[begin : begin + _BLOCK]] for rows, keys in tables])
        yield block[block != _DROPPED]


def _joined(parts: Iterable[NDArray[np.int32]], size: int) -> NDArray[np.int32]:
    """Arrays of some size in all, end to end."""
    whole, end = np.empty(size, dtype=np.int32), 0
    for part in parts:
        begin, end = end, end + len(part)
        whole[begin:end] = part
    return whole


def _file(tables: Sequence[_Table], folder: Path) -> Path:
    """Where the integers of tables are kept: the name is a digest of all that they depend on."""
    digest = sha256()
    for table in tables:
        for part in table:
            digest.update(repr(part.shape).encode())
            digest.update(np.ascontiguousarray(part).data)
    return folder / f"{digest.hexdigest()}.npy"
