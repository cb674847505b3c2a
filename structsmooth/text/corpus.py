"""Sentences as columns of cells, corpora of them as numbers of distinct tokens, and what stands near a token."""

from array import array
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass, field, replace
from math import prod
from typing import Any, NamedTuple, overload

import numpy as np
from numpy.typing import NDArray

_ABSENT = "-"

Allowed = Sequence[Collection[str] | None]
"""The tags that each token of a sentence may have, ``None`` for all of them."""


class Token(NamedTuple):
    """The cells of a row: the word, the columns between word and tag, and the tag, if there is one."""

    word: str
    columns: tuple[str, ...] = ()
    tag: str | None = None

    @property
    def pos(self) -> str:
        """Part-of-speech tag: the first column after the word, or a hyphen."""
        return self.columns[0] if self.columns else _ABSENT

    @property
    def chunk(self) -> str:
        """Chunk tag: the second column after the word, or a hyphen."""
        return self.columns[1] if len(self.columns) > 1 else _ABSENT


@dataclass(frozen=True)
class Sentence:
    """A sentence as the columns of its file.

    Attributes:
        words: the first column.
        columns: the columns between words and tags, such as part-of-speech and chunk tags.
        tags: the last column; None where tags are to be predicted.
        allowed: the tags that may be predicted for each token; all if not given.
        origin: the corpus that it is of, which knows its neighbours, and its number there.
    """

    words: list[str]
    columns: list[list[str]]
    tags: list[str] | None = None
    allowed: Allowed | None = None
    origin: "Origin | None" = field(default=None, compare=False, repr=False)

    def __len__(self) -> int:
        return len(self.words)

    @property
    def tokens(self) -> list[Token]:
        """The tokens of the sentence: its words with their columns and tags."""
        columns = zip(*self.columns, strict=True) if self.columns else [()] * len(self)
        tags = [None] * len(self) if self.tags is None else self.tags
        return list(map(Token, self.words, columns, tags))

    @property
    def pos(self) -> list[str]:
        """Part-of-speech tags: the first column after the words, or hyphens."""
        return [token.pos for token in self.tokens]

    @property
    def chunk(self) -> list[str]:
        """Chunk tags: the second column after the words, or hyphens."""
        return [token.chunk for token in self.tokens]


@dataclass(frozen=True, eq=False)
class Corpus(Sequence[Sentence]):
    """Sentences that keep each distinct token once, since a corpus repeats them over and over; slices are lists.

    Args:
        distinct: the distinct tokens in the order in which they first occur.
        tokens: number of each token among them: int32 [tokens].
        offsets: sentence i has tokens offsets[i] to offsets[i + 1] - 1: int64 [n + 1].
        documents: number of the document of each sentence: int64 [n]; ``None`` where it is unknown.
        form: what the file was read as, in words; none if they are from no file.
        separator: between the columns of the file, if that is known.
        allowed: the tags that may be predicted for the tokens of each sentence; all if not given.
        source: the corpus of which these are some sentences, and their numbers there: int64 [n].
    """

    distinct: list[Token]
    tokens: NDArray[np.int32]
    offsets: NDArray[np.int64]
    documents: NDArray[np.int64] | None = None
    form: str = ""
    separator: str | None = None
    allowed: Sequence[Allowed | None] | None = None
    source: "tuple[Corpus, NDArray[np.int64]] | None" = None

    @classmethod
    def of(cls, sentences: Sequence[Sentence]) -> "Corpus":
        """The corpus of some sentences."""
        if isinstance(sentences, Corpus):
            return sentences
        numbers: dict[Token, int] = {}
        tokens = array("i", (numbers.setdefault(token, len(numbers)) for s in sentences for token in s.tokens))
        offsets = np.cumsum([0, *map(len, sentences)], dtype=np.int64)
        return cls(list(numbers), np.array(tokens, dtype=np.int32), offsets, source=_source(sentences))

    @classmethod
    def joined(cls, corpora: Sequence["Corpus"]) -> "Corpus":
        """The sentences of corpora of one form, one after the other; a document ends with its corpus."""
        numbers: dict[Token, int] = {}
        tokens, offsets, documents = list[Any](), [np.zeros(1, np.int64)], list[Any]()
        for corpus in corpora:
            renumbered = np.array(
                [numbers.setdefault(token, len(numbers)) for token in corpus.distinct], dtype=np.int32
            )
            tokens.append(renumbered[corpus.tokens])
            offsets.append(offsets[-1][-1] + corpus.offsets[1:])
            if corpus.documents is not None:
                # Numbers go on where those of the corpus before end.
                before = documents[-1][-1] + 1 if documents else 0
                documents.append(before + corpus.documents - corpus.documents[0])
        known = np.concatenate(documents) if len(documents) == len(corpora) else None
        whole = np.concatenate(tokens), np.concatenate(offsets), known
        allowed = [tags for corpus in corpora for tags in corpus.allowed or [None] * len(corpus)]
        kept = allowed if any(allowed) else None
        return cls(list(numbers), *whole, corpora[0].form, corpora[0].separator, kept)

    def part(self, sentences: range) -> "Corpus":
        """Neighbouring sentences, as a corpus."""
        begin, end = self.offsets[sentences.start], self.offsets[sentences.stop]
        kept = slice(sentences.start, sentences.stop)
        documents = None if self.documents is None else self.documents[kept]
        offsets = self.offsets[sentences.start : sentences.stop + 1] - begin
        allowed = None if self.allowed is None else self.allowed[kept]
        whole, numbers = self.whole
        cells = self.distinct, self.tokens[begin:end], offsets, documents
        return Corpus(*cells, self.form, self.separator, allowed, (whole, numbers[kept]))

    def chosen(self, sentences: Sequence[int]) -> "Corpus":
        """Some sentences, in any order, as a corpus of the same form; their source keeps their neighbours."""
        documents, (whole, numbers) = None if self.documents is None else self.documents[list(sentences)], self.whole
        allowed = None if self.allowed is None else [self.allowed[i] for i in sentences]
        offsets = np.cumsum([0, *(self.offsets[i + 1] - self.offsets[i] for i in sentences)], dtype=np.int64)
        tokens = self.tokens[self._places(sentences)]
        source = whole, numbers[list(sentences)]
        return replace(self, tokens=tokens, offsets=offsets, documents=documents, allowed=allowed, source=source)

    def _places(self, sentences: Sequence[int]) -> NDArray[np.int64]:
        """The numbers of the tokens of some sentences."""
        ranges = [np.arange(self.offsets[i], self.offsets[i + 1]) for i in sentences]
        return np.concatenate([np.zeros(0, np.int64), *ranges])

    def parts(self, most: int) -> Iterator["Corpus"]:
        """Neighbouring sentences of at most so many tokens, if none has more; the corpus itself, if it has no more."""
        if len(self.tokens) <= most:
            yield self
            return
        begin = 0
        while begin < len(self):
            # The last sentence that ends within so many tokens; one that has more is a part of its own.
            end = int(np.searchsorted(self.offsets, self.offsets[begin] + most, "right")) - 1
            yield self.part(range(begin, end := max(end, begin + 1)))
            begin = end

    @property
    def whole(self) -> "tuple[Corpus, NDArray[np.int64]]":
        """The corpus with the neighbours of all sentences, and the numbers of the sentences there."""
        return self.source or (self, np.arange(len(self)))

    def __len__(self) -> int:
        return len(self.offsets) - 1

    @overload
    def __getitem__(self, index: int) -> Sentence: ...
    @overload
    def __getitem__(self, index: slice) -> list[Sentence]: ...
    def __getitem__(self, index: int | slice) -> Sentence | list[Sentence]:
        if isinstance(index, slice):
            return [self._sentence(i) for i in range(len(self))[index]]
        return self._sentence(range(len(self))[index])

    def __iter__(self) -> Iterator[Sentence]:
        return map(self._sentence, range(len(self)))

    def _sentence(self, index: int) -> Sentence:
        numbers = self.tokens[self.offsets[index] : self.offsets[index + 1]].tolist()
        words, columns, tags = zip(*map(self.distinct.__getitem__, numbers), strict=True)
        tagged = [tag for tag in tags if tag is not None]
        allowed = None if self.allowed is None else self.allowed[index]
        origin = Origin(self, index) if self.source is None else Origin(self.source[0], int(self.source[1][index]))
        return Sentence(list(words), list(map(list, zip(*columns, strict=True))), tagged or None, allowed, origin)


class Origin(NamedTuple):
    """A corpus, and the number of a sentence there."""

    corpus: Corpus
    number: int


def _source(sentences: Sequence[Sentence]) -> tuple[Corpus, NDArray[np.int64]] | None:
    """The one corpus of which sentences are, and their numbers there; ``None`` if there is no such corpus."""
    origins = [sentence.origin for sentence in sentences if sentence.origin is not None]
    if not origins or len(origins) < len(sentences) or any(one.corpus is not origins[0].corpus for one in origins):
        return None
    return origins[0].corpus, np.array([one.number for one in origins])


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
        # One number for the values of all columns, in mixed radix.
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
    """What :func:`numpy.unique` gives with the inverse, in half of its memory."""
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
