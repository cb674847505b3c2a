"""Layouts of files of tokens: what a line says in columns and in CoNLL-U, and how it is written."""

import re
from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from sys import intern
from typing import ClassVar, Literal, TextIO, get_args

from structsmooth.text.corpus import Corpus, Sentence, Token
from structsmooth.text.schemes import FORMS, TYPES_ALONE, Form, forms_of
from structsmooth.text.standalone import BLANKS, INVISIBLE

SEPARATOR, DOCUMENT, SKIPPED, COMMENT = -1, -2, -3, -4
"""What a line without a token does: it ends a sentence, or a document, or nothing; a comment precedes a sentence."""

UniversalColumn = Literal["upos", "xpos", "feats", "deprel"]
"""The columns of CoNLL-U that a tagger can learn."""

DOCUMENT_START = "-DOCSTART-"
IDENTIFIER = re.compile(r"(\d+)([-.]\d+)?")
"""The number of a word in CoNLL-U; of several words, or of an empty node."""

_UNIVERSAL = {"upos": 3, "xpos": 4, "feats": 5, "deprel": 7}
UNIVERSAL_COLUMNS = 10
_WORD, _UNANNOTATED = 1, "_"
_cells = re.compile(f"[^{BLANKS}]+").findall
_BLANK_LINE = f"[{re.escape(INVISIBLE)}]*"
MAY_SEPARATE = frozenset(["", *INVISIBLE, "-", "#"])
"""What lines between sentences begin with."""


@dataclass(frozen=True)
class Roles:
    """What the columns of a file say, counted from 0. Those between words and tags are features; others are left out.

    Args:
        count: how many there are.
        word: the column with the words.
        tag: the one with the tags; ``None`` in files without: then all columns behind the words are features.
        numbers: how many columns in front of all others number sentences and the words in them.
        ranges: whether ``1-2`` in the last of these stands for several words, as in CoNLL-U; else it is the second word
            of the first sentence, as in WebAnno.
        forms: of the tags.
        header: the cells of a row with the names of the columns.
        known: tags that tell words from comments, in files where a number sign may begin a comment.
    """

    count: int
    word: int = 0
    tag: int | None = None
    numbers: int = 0
    ranges: bool = True
    forms: tuple[Form, ...] = FORMS
    header: tuple[str, ...] = ()
    known: frozenset[str] | None = None

    @property
    def features(self) -> slice:
        """The columns that are features of the words."""
        if self.tag is None:
            return slice(self.word + 1, self.count)
        return slice(min(self.word, self.tag) + 1, max(self.word, self.tag))

    def is_comment(self, row: Sequence[str], known: frozenset[str], plain: bool = False) -> bool:
        """Whether a row that begins with a number sign is a comment, and no word with a tag."""
        mark = row[0].strip("#") == ""
        if len(row) != self.count:
            return mark or len(row) > 1 or row[0].startswith("##")
        if self.numbers or self.tag is None:
            return self.numbers > 0
        return mark and row[self.tag] not in known and (plain or not is_tag(row[self.tag]))

    def __str__(self) -> str:
        used = range(self.count)[self.features]
        parts = ["a word in each line"] if self.count == 1 else [f"{self.count} columns", f"words in {self.word + 1}"]
        parts += [f"features in {_listed(used)}"] if used else []
        parts += [f"tags in {self.tag + 1}"] if self.tag is not None else []
        left = sorted(set(range(self.numbers, self.count)) - {self.word, self.tag, *used})
        parts += [f"numbers of words in {self.numbers}"] if self.numbers else []
        left = [*range(self.numbers - 1), *left]
        parts += [f"{_listed(left)} left out"] if left else []
        parts += ["comments left out"] if self.known is not None else []
        return ", ".join([*parts, *(["a header"] if self.header else [])])


def _listed(columns: Iterable[int]) -> str:
    return " and ".join(str(column + 1) for column in columns)


class Layout(ABC):
    """What the lines of a file say; its text is the form of the file in words.

    Attributes:
        separator: matches whole lines between sentences.
        has_sentence_lines: whether each line has sentences of its own, whatever stands between them.
    """

    separator: ClassVar[re.Pattern[str]] = re.compile(_BLANK_LINE)
    has_sentence_lines: ClassVar[bool] = False

    def lines(self, block: bytes) -> Iterable[bytes]:
        """The lines to parse of a block of whole lines."""
        return block[:-1].split(b"\n")

    def complete(self, numbers: Sequence[int]) -> int:
        """How many lines of the file the results for parsed lines are of."""
        return len(numbers)

    def finish(self, corpus: Corpus, name: str) -> Corpus:
        """What reading a file of this name gives, when all lines are parsed: the corpus of their tokens."""
        return corpus

    @abstractmethod
    def parse(self, line: str) -> Token | int:
        """The token of a line, or ``SEPARATOR``, ``DOCUMENT``, ``SKIPPED`` or ``COMMENT``.

        Raises:
            ValueError: a malformed line.
        """


class Columns(Layout):
    """A token per line, white space or tabs between its columns; blank lines and ``-DOCSTART-`` lines separate.

    Args:
        roles: of the columns.
        plain: tags may be any strings, and not those of entities alone.
        unknown: stands in the place of tags that are unknown.
    """

    separator = re.compile(rf"{_BLANK_LINE}|[ \v\f]*{DOCUMENT_START}(?:[{BLANKS}].*)?")

    def __init__(self, roles: Roles, plain: bool = False, unknown: str | None = None) -> None:
        self._roles, self._plain, self._unknown, self._forms = roles, plain, unknown, roles.forms
        self._features = roles.features

    def __str__(self) -> str:
        return str(self._roles)

    def parse(self, line: str) -> Token | int:
        """The token of a row, unless it has another number of columns than others, or no tag."""
        row, roles = cells(line), self._roles
        if not row:
            return SEPARATOR
        if row[0] == DOCUMENT_START:
            return DOCUMENT
        if roles.known is not None and row[0].startswith("#") and roles.is_comment(row, roles.known, self._plain):
            return COMMENT
        if "" in row:
            raise _empty(row.index("") + 1)
        if roles.tag == roles.word:
            raise ValueError("expected a word and a tag, got one column")
        if len(row) != roles.count:
            if line.count("\t") == roles.count - 1:
                raise _empty(len(row) + 1)
            raise ValueError(f"expected {roles.count} columns, got {len(row)}")
        if roles.header and roles.header == tuple(row):
            return SKIPPED
        if roles.numbers and not (number := row[roles.numbers - 1]).isdecimal():
            if IDENTIFIER.fullmatch(number) is None:
                raise ValueError(f"expected the number of a word in column {roles.numbers}, got {number[:40]!r}")
            if roles.ranges:
                return SKIPPED
        if roles.tag is not None:
            self._check(row[roles.tag])
        tag = None if roles.tag is None else row[roles.tag]
        return Token(row[roles.word], tuple(row[self._features]), tag)

    def _check(self, tag: str) -> None:
        if " " in tag and (self._plain or not is_tag(tag)):
            remedy = "give tags without, and separate all columns of a row by tabs, or none"
            raise ValueError(f"the tag {tag[:40]!r} has a space: {remedy}")
        if not self._plain and tag != self._unknown:
            self._forms = forms_of([tag], self._forms)


def _empty(column: int) -> ValueError:
    return ValueError(f"column {column} is empty: fill it, with a hyphen for instance; one tab separates columns")


def is_tag(cell: str) -> bool:
    """Whether a cell is a tag of entities, whose type may have blanks; several tags are none."""
    if " " in cell and all(map(is_tag, cell.split())):
        return False
    try:
        return forms_of([cell]) != (TYPES_ALONE,)
    except ValueError:
        return False


class Universal(Layout):
    """CoNLL-U: ten columns between tabs, comments, and rows of several words or of no word, which are left out.

    Args:
        column: that has the tags, or ``misc:`` and the name of a value in the last column, where O stands for none;
            words alone are read if it is not given.
        unknown: stands in the place of tags that are unknown.
    """

    separator = re.compile(f"{_BLANK_LINE}|#.*")  # comments precede the words of a sentence

    def __init__(self, column: str | None = None, unknown: str | None = None) -> None:
        prefix, _, key = (column or "").partition(":")
        if column is not None and column not in _UNIVERSAL and not (prefix == "misc" and key):
            raise ValueError(f"column must be {universal_columns()}, or misc:NER for instance, got {column!r}")
        self._column, self._unknown, self._key = column, unknown, key

    def __str__(self) -> str:
        return f"CoNLL-U, words with tags of {self._column}" if self._column else "CoNLL-U, words alone"

    def parse(self, line: str) -> Token | int:
        """The form of a word and its tag."""
        if line.startswith("#"):
            return DOCUMENT if line[1:].split()[:1] == ["newdoc"] else SEPARATOR
        row = universal_row(line)
        if not row:
            return SEPARATOR
        if not row[0].isdigit():
            return SKIPPED
        if self._column is None:
            return Token(row[_WORD])
        if self._key:
            values = dict(value.partition("=")[::2] for value in row[-1].split("|"))
            return Token(row[_WORD], (), values.get(self._key, "O"))
        tag = row[_UNIVERSAL[self._column]]
        if tag == _UNANNOTATED and self._column != "feats" and tag != self._unknown:
            others = ", ".join(name for name in _UNIVERSAL if name != self._column)
            raise ValueError(
                f"the word {row[_WORD][:40]!r} has no {self._column}: choose another column ({others}), or give "
                "--unknown _ if some words have one"
            )
        return Token(row[_WORD], (), tag)


def universal_row(line: str) -> list[str]:
    """The ten columns of a row of CoNLL-U; none of a blank line.

    Raises:
        ValueError: something else.
    """
    row = cells(line)
    if row and (len(row) != UNIVERSAL_COLUMNS or IDENTIFIER.fullmatch(row[0]) is None):
        raise ValueError(
            f"expected a row of CoNLL-U: {UNIVERSAL_COLUMNS} columns between tabs, the first a number; "
            f"got {len(row)} from {row[0][:40]!r}"
        )
    return row


def universal_columns() -> str:
    """The names of the columns of CoNLL-U that a tagger can learn."""
    *names, last = get_args(UniversalColumn)
    return f"{', '.join(names)} or {last}"


def is_blank(line: str) -> bool:
    """Whether a line looks blank: it has nothing but blanks of Unicode, of any width."""
    return not line.strip(INVISIBLE)


def cells(line: str) -> list[str]:
    """The columns of a line, none if it is blank: between tabs where there are any, else between ASCII white space.

    Words may contain no-break spaces, and spaces in rows with tabs. Cells before and between tabs may be empty.
    """
    if is_blank(line):
        return []
    if "\t" in line:
        found = [cell.strip(BLANKS) for cell in line.rstrip(BLANKS).split("\t")]
    else:
        found = line.split() if line.isascii() and line.isprintable() else _cells(line)  # the first is faster
    return list(map(intern, found))  # a corpus repeats them over and over


def write_conll(
    sentences: Sequence[Sentence], predicted_tags: Sequence[Sequence[str]], stream: TextIO, separator: str | None = None
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
