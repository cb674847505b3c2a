"""Layouts of files of tokens: what a line says in columns and in CoNLL-U, and how it is written."""

import re
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from itertools import islice
from sys import intern
from typing import Literal, TextIO, get_args

from structsmooth.text.corpus import Corpus, Sentence, Token
from structsmooth.text.schemes import FORMS, forms_of

SEPARATOR, DOCUMENT, SKIPPED = -1, -2, -3
"""What a line without a token does: it ends a sentence, or a document, or nothing."""

UniversalColumn = Literal["upos", "xpos", "feats", "deprel"]
"""The columns of CoNLL-U that a tagger can learn."""

_UNIVERSAL = {"upos": 3, "xpos": 4, "feats": 5, "deprel": 7}
_UNIVERSAL_COLUMNS = 10
_IDENTIFIER = re.compile(r"(\d+)([-.]\d+)?")  # of a word; of several words, or of an empty node
_WORD, _UNANNOTATED = 1, "_"
_SNIFFED = 1000  # lines
_DOCUMENT_START = "-DOCSTART-"
_BLANKS = " \t\r\n\v\f"
_cells_of_unicode = re.compile(f"[^{_BLANKS}]+").findall


class Layout(ABC):
    """What the lines of a file say.

    Attributes:
        columns: number of columns of all rows, as soon as it is known.
    """

    columns: int | None = None

    def lines(self, block: bytes) -> Iterable[bytes]:
        """The lines to parse of a block of whole lines."""
        return block[:-1].split(b"\n")

    def complete(self, numbers: Sequence[int]) -> int:
        """How many lines of the file the results for parsed lines are of."""
        return len(numbers)

    @abstractmethod
    def separates(self, row: Sequence[str]) -> bool:
        """Whether a row of cells stands between sentences."""

    @abstractmethod
    def parse(self, line: str) -> Token | int:
        """The token of a line, or ``SEPARATOR``, ``DOCUMENT`` or ``SKIPPED``.

        Raises:
            ValueError: a malformed line.
        """


class Columns(Layout):
    """A token per line, white space or tabs between its columns.

    Args:
        tagged: the last column has the tags.
        plain: tags may be any strings, and not those of entities alone.
        unknown: stands in the place of tags that are unknown.
    """

    def __init__(self, tagged: bool, plain: bool = False, unknown: str | None = None) -> None:
        self._tagged, self._plain, self._unknown, self._forms = tagged, plain, unknown, FORMS

    def separates(self, row: Sequence[str]) -> bool:
        """Blank lines and ``-DOCSTART-`` lines do."""
        return separates(row)

    def parse(self, line: str) -> Token | int:
        """The token of a row, unless it has another number of columns than rows before, or no tag."""
        row = cells(line)
        if separates(row):
            return DOCUMENT if row else SEPARATOR
        if self.columns not in (None, len(row)):
            raise ValueError(f"expected {self.columns} columns, got {len(row)}")
        if "" in row:
            place = row.index("") + 1
            raise ValueError(f"column {place} is empty: fill it, with a hyphen for instance; one tab separates columns")
        if not self._tagged:
            token = Token(row[0], tuple(row[1:]))
        elif len(row) < 2:
            raise ValueError("expected a word and a tag, got one column")
        else:
            self._check(row[-1])
            token = Token(row[0], tuple(row[1:-1]), row[-1])
        self.columns = len(row)
        return token

    def _check(self, tag: str) -> None:
        if not self._plain and tag != self._unknown:
            self._forms = forms_of([tag], self._forms)
        elif " " in tag:
            raise ValueError(f"the tag {tag!r} has a space: separate all columns of a row by tabs, or none")


class Universal(Layout):
    """CoNLL-U: ten columns between tabs, comments, and rows of several words or of no word, which are left out.

    Args:
        column: that has the tags; words alone are read if it is not given.
        unknown: stands in the place of tags that are unknown.
    """

    columns = _UNIVERSAL_COLUMNS

    def __init__(self, column: UniversalColumn | None = None, unknown: str | None = None) -> None:
        self._column, self._unknown = column, unknown

    def separates(self, row: Sequence[str]) -> bool:
        """Blank lines do, and comments, which precede the words of a sentence."""
        return not row or row[0].startswith("#")

    def parse(self, line: str) -> Token | int:
        """The form of a word and its tag."""
        if not line.strip():
            return SEPARATOR
        if line.startswith("#"):
            return DOCUMENT if line[1:].split()[:1] == ["newdoc"] else SEPARATOR
        row = cells(line)
        identifier = _IDENTIFIER.fullmatch(row[0])
        if len(row) != _UNIVERSAL_COLUMNS or identifier is None:
            raise ValueError(
                f"expected a row of CoNLL-U: {_UNIVERSAL_COLUMNS} columns between tabs, the first a number; "
                f"got {len(row)} from {row[0]!r}"
            )
        if identifier[2]:
            return SKIPPED
        if self._column is None:
            return Token(row[_WORD])
        tag = row[_UNIVERSAL[self._column]]
        if tag == _UNANNOTATED and self._column != "feats" and tag != self._unknown:
            others = ", ".join(name for name in _UNIVERSAL if name != self._column)
            raise ValueError(f"the word {row[_WORD]!r} has no {self._column}: choose another column ({others})")
        return Token(row[_WORD], (), tag)


def is_universal(name: str, begin: bytes) -> bool:
    """Whether a file is CoNLL-U, by its name or by its first row.

    Args:
        name: of the file.
        begin: its first lines.
    """
    if name.removesuffix(".gz").endswith(".conllu"):
        return True
    rows = (row for row in _rows(begin) if row and not row[0].startswith("#"))
    first = next(rows, [])
    return len(first) == _UNIVERSAL_COLUMNS and _IDENTIFIER.fullmatch(first[0]) is not None


def text_cells(begin: bytes, whole: Callable[[Sequence[str]], bool], tags: frozenset[str]) -> int | None:
    """The cells of the first row of a file with lines of text, and not a word with its columns in each line.

    ``None`` for files in columns, which have the same number of columns in nearly all rows. A single row of several
    cells is text, unless it is a whole row of columns, or ends in a tag.

    Args:
        begin: the first lines of the file.
        whole: whether a row has the columns that it should.
        tags: that are known.
    """
    rows = [row for row in _rows(begin) if not separates(row)]
    counts = Counter(map(len, rows))
    if all(map(whole, rows)) or max(counts) == 1 or all(row[-1] in tags for row in rows):
        return None
    varied = len(rows) == 1 or 2 * max(counts.values()) <= len(rows)
    return len(rows[0]) if varied else None


def universal_columns() -> str:
    """The names of the columns of CoNLL-U that a tagger can learn."""
    *names, last = get_args(UniversalColumn)
    return f"{', '.join(names)} or {last}"


def _rows(begin: bytes) -> Iterable[list[str]]:
    lines = islice(begin.split(b"\n"), _SNIFFED)
    return (cells(line.decode(errors="replace")) for line in lines)


def cells(line: str) -> list[str]:
    """The columns of a line: between tabs where there are any, else between other ASCII white space.

    Words may contain no-break spaces, and spaces in rows with tabs. Cells between two tabs may be empty.
    """
    ascii_only = line.isascii()
    if "\t" in line:
        blanks = None if ascii_only else _BLANKS
        stripped = line.strip(blanks)
        found = [cell.strip(blanks) for cell in stripped.split("\t")] if stripped else []
    else:
        found = line.split() if ascii_only else _cells_of_unicode(line)
    return list(map(intern, found))  # a corpus repeats them over and over


def separates(row: Sequence[str]) -> bool:
    """Whether a row of cells stands between sentences."""
    return not row or row[0] == _DOCUMENT_START


def write_conll(
    sentences: Sequence[Sentence],
    predicted_tags: Sequence[Sequence[str]],
    stream: TextIO,
    separator: str | None = None,
) -> None:
    """Write all columns of the sentences and a last one with the predicted tags.

    The ``conlleval`` script reads this format if the sentences are tagged. ``separator`` stands between the columns:
    that of :func:`separator_of` if it is not given.

    Raises:
        ValueError: the numbers of predicted tags and of tokens differ.
    """
    if len(sentences) != len(predicted_tags):
        raise ValueError(f"got {len(sentences)} sentences, but tags of {len(predicted_tags)}")
    between = separator_of(sentences) if separator is None else separator
    for index, (sentence, predicted) in enumerate(zip(sentences, predicted_tags, strict=True)):
        if len(predicted) != len(sentence):
            raise ValueError(f"sentences[{index}] has {len(sentence)} tokens, got {len(predicted)} tags")
        gold = [] if sentence.tags is None else [sentence.tags]
        rows = zip(sentence.words, *sentence.columns, *gold, predicted, strict=True)
        stream.write("".join(f"{between.join(row)}\n" for row in rows) + "\n")


def separator_of(sentences: Sequence[Sentence]) -> str:
    """What can separate the columns of some sentences: a space, or a tab where a cell has a space."""
    tokens = Corpus.of(sentences).distinct
    return "\t" if any(" " in cell for word, columns, _ in tokens for cell in (word, *columns)) else " "
