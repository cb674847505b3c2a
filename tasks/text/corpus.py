"""Sentences as columns of cells, and corpora of them as numbers of distinct tokens."""

from array import array
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple, overload

import numpy as np
from numpy.typing import NDArray

_ABSENT = "-"


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
    """

    words: list[str]
    columns: list[list[str]]
    tags: list[str] | None = None

    def __len__(self) -> int:
        return len(self.words)

    @property
    def tokens(self) -> list[Token]:
        """The sentence by rows."""
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
    """

    distinct: list[Token]
    tokens: NDArray[np.int32]
    offsets: NDArray[np.int64]
    documents: NDArray[np.int64] | None = None

    @classmethod
    def of(cls, sentences: Sequence[Sentence]) -> "Corpus":
        """The corpus of some sentences."""
        if isinstance(sentences, Corpus):
            return sentences
        numbers: dict[Token, int] = {}
        tokens = array("i", (numbers.setdefault(token, len(numbers)) for s in sentences for token in s.tokens))
        offsets = np.cumsum([0, *map(len, sentences)], dtype=np.int64)
        return cls(list(numbers), np.array(tokens, dtype=np.int32), offsets)

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
        return Sentence(list(words), list(map(list, zip(*columns, strict=True))), tagged or None)
