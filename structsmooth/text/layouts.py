"""Layouts of files of tokens: what a line says in columns, and how it is written."""

import re
from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from sys import intern
from typing import ClassVar, TextIO

from structsmooth.text.corpus import Corpus, Sentence, Token
from structsmooth.text.schemes import FORMS, TYPES_ALONE, Form, forms_of
from structsmooth.text.standalone import BLANKS, INVISIBLE

SEPARATOR, DOCUMENT, SKIPPED, COMMENT = -1, -2, -3, -4
"""What a line without a token does: it ends a sentence, or a document, or nothing; a comment precedes a sentence."""

DOCUMENT_START = "-DOCSTART-"
IDENTIFIER = re.compile(r"(\d+)([-.]\d+)?")
"""The number of a word in CoNLL-U; of several words, or of an empty node."""
NUMBER = re.compile(r"(\d+)([-.]\d+)?[.:)]?")
"""The same in other files, perhaps with a mark behind it."""

UNIVERSAL_COLUMNS = 10
_cells = re.compile(f"[^{BLANKS}]+").findall
BLANK_LINE = f"[{re.escape(INVISIBLE)}]*"
MAY_SEPARATE = frozenset(["", *INVISIBLE, "-", "#"])
"""What lines between sentences begin with."""


@dataclass(frozen=True)
class Roles:
    """What the columns of a file say, counted from 0. Those between words and tags are features; others are left out.

    Args:
        count: how many there are.
        word: the column with the words.
        tag: the one with the tags; ``None`` in files without: then all columns behind the words are features.
        front: how many columns in front of all others number sentences and words, or have offsets.
        numbers: the one that numbers words, counted from 1; 0 if there is none.
        ranges: whether ``1-2`` there stands for several words, as in CoNLL-U; else it is the second word of the first
            sentence, as in WebAnno.
        bare: whether other columns between words and tags are left out.
        forms: of the tags.
        header: the cells of a row with the names of the columns.
        known: tags that tell words from comments, in files where a number sign may begin a comment.
        tabbed: whether tabs separate the columns.
        ends: whether the last column may tell that a sentence ends, as in HIPE, where comments stand in sentences.
    """

    count: int
    word: int = 0
    tag: int | None = None
    front: int = 0
    numbers: int = 0
    ranges: bool = True
    bare: bool = False
    forms: tuple[Form, ...] = FORMS
    header: tuple[str, ...] = ()
    known: frozenset[str] | None = None
    tabbed: bool = False
    ends: bool = False

    @property
    def features(self) -> slice:
        """The columns that are features of the words."""
        if self.bare:
            return slice(0)
        if self.tag is None:
            return slice(self.word + 1, self.count)
        return slice(min(self.word, self.tag) + 1, max(self.word, self.tag))

    def is_comment(self, row: Sequence[str], known: frozenset[str], plain: bool = False) -> bool:
        """Whether a row that begins with a number sign is a comment, and no word with a tag."""
        mark = row[0].strip("#") == ""
        # A row of another length is no token: a comment, unless it looks like a word beginning with the sign.
        if len(row) != self.count:
            return mark or len(row) > 1 or row[0].startswith("##")
        if self.front or self.tag is None:
            return self.front > 0
        return mark and row[self.tag] not in known and (plain or not is_tag(row[self.tag]))

    def __str__(self) -> str:
        used = range(self.count)[self.features]
        parts = ["a word in each line"] if self.count == 1 else [f"{self.count} columns", f"words in {self.word + 1}"]
        parts += [f"features in {_listed(used)}"] if used else []
        parts += [f"tags in {self.tag + 1}"] if self.tag is not None else []
        left = sorted(set(range(self.count)) - {self.word, self.tag, self.numbers - 1, *used})
        parts += [f"numbers of words in {self.numbers}"] if self.numbers else []
        parts += [f"{_listed(left)} left out"] if left else []
        parts += ["ends of sentences in the last"] if self.ends else []
        parts += ["comments left out"] if self.known is not None else []
        return ", ".join([*parts, *(["a header"] if self.header else [])])


def _listed(columns: Iterable[int]) -> str:
    return " and ".join(str(column + 1) for column in columns)


class Layout(ABC):
    """What the lines of a file say; its text is the form of the file in words.

    Attributes:
        separator: matches whole lines between sentences.
        between: what separates cells of a row, where answers keep it.
        keeps_lines: whether the corpus keeps all lines as they are.
    """

    separator: ClassVar[re.Pattern[str]] = re.compile(BLANK_LINE)
    between: str | None = None
    keeps_lines: bool = False

    @abstractmethod
    def parse(self, line: str) -> Token | int:
        """The token of a line, or ``SEPARATOR``, ``DOCUMENT``, ``SKIPPED`` or ``COMMENT``.

        Raises:
            ValueError: a malformed line.
        """

    def ends(self, line: str) -> bool:
        """Whether a sentence ends with the token of a line, even if no separator follows."""
        return False


class Columns(Layout):
    """A token per line, white space or tabs between its columns; blank lines and ``-DOCSTART-`` lines separate.

    Args:
        roles: of the columns.
        plain: tags may be any strings, and not those of entities alone.
        unknown: stands in the place of tags that are unknown.
    """

    separator = re.compile(rf"{BLANK_LINE}|[ \v\f]*{DOCUMENT_START}(?:[{BLANKS}].*)?")

    def __init__(self, roles: Roles, plain: bool = False, unknown: str | None = None) -> None:
        self._roles, self._plain, self._unknown, self._forms = roles, plain, unknown, roles.forms
        self._features, self.between = roles.features, "\t" if roles.tabbed else None

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
            return SKIPPED if roles.ends else COMMENT
        if "" in row:
            raise empty(row.index("") + 1)
        if roles.tag == roles.word:
            raise ValueError("expected a word and a tag, got one column")
        if len(row) != roles.count:
            # Blanks at the end of a line are stripped, and with them a last cell that is empty: its tab tells.
            if line.count("\t") == roles.count - 1:
                raise empty(len(row) + 1)
            raise ValueError(f"expected {roles.count} columns, got {len(row)}")
        # Files that were joined have their headers in between.
        if roles.header and roles.header == tuple(row):
            return SKIPPED
        if roles.numbers and not (number := row[roles.numbers - 1]).isdecimal():
            if (found := NUMBER.fullmatch(number)) is None:
                raise ValueError(f"expected the number of a word in column {roles.numbers}, got {number[:40]!r}")
            if roles.ranges and found[2]:
                return SKIPPED
        if roles.tag is not None:
            self._check(row[roles.tag])
        tag = None if roles.tag is None else row[roles.tag]
        return Token(row[roles.word], tuple(row[self._features]), tag)

    def ends(self, line: str) -> bool:
        """Whether a sentence ends with a row, by its last column."""
        return self._roles.ends and ends_sentence(cells(line))

    def _check(self, tag: str) -> None:
        if " " in tag and (self._plain or not is_tag(tag)):
            remedy = "give tags without, and separate all columns of a row by tabs, or none"
            raise ValueError(f"the tag {tag[:40]!r} has a space: {remedy}")
        if not self._plain and tag != self._unknown:
            self._forms = forms_of([tag], self._forms)


def empty(column: int) -> ValueError:
    """The error about a column without anything in it."""
    return ValueError(f"column {column} is empty: fill it, with a hyphen for instance; one tab separates columns")


def ends_sentence(row: Sequence[str]) -> bool:
    """Whether the last cell of a row says that a sentence ends."""
    return "EndOfSentence" in row[-1].split("|")


def is_tag(cell: str) -> bool:
    """Whether a cell is a tag of entities, whose type may have blanks; several tags are none."""
    if " " in cell and all(map(is_tag, cell.split())):
        return False
    try:
        return forms_of([cell]) != (TYPES_ALONE,)
    except ValueError:
        return False


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
    """What separates the columns of some sentences: a space, or a tab where the file has tabs or a cell has a space."""
    if isinstance(sentences, Corpus) and sentences.separator is not None:
        return sentences.separator
    tokens = Corpus.of(sentences).distinct
    return "\t" if any(" " in cell for word, columns, _ in tokens for cell in (word, *columns)) else " "
