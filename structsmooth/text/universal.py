"""CoNLL-U: its rows and columns, and treebanks whose lines come back as they were."""

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import chain, groupby
from typing import Literal, TextIO, get_args

from structsmooth.text.corpus import Corpus, Token
from structsmooth.text.layouts import (
    BLANK_LINE,
    DOCUMENT,
    IDENTIFIER,
    SEPARATOR,
    SKIPPED,
    UNIVERSAL_COLUMNS,
    Layout,
    cells,
    empty,
)

UniversalColumn = Literal["upos", "xpos", "feats", "deprel"]
"""The columns of CoNLL-U that a tagger can learn."""

_PLACES = {"upos": 3, "xpos": 4, "feats": 5, "deprel": 7}
_WORD, _UNANNOTATED, _MISC = 1, "_", 9


class Universal(Layout):
    """CoNLL-U: ten columns between tabs, comments, and rows of several words or of no word, which are left out.

    Args:
        column: that has the tags, or ``misc:`` and the name of a value in the last column, where O stands for none;
            words alone are read if it is not given.
        unknown: stands in the place of tags that are unknown.
        keeps_lines: whether the corpus is a :class:`Treebank`.
    """

    separator = re.compile(f"{BLANK_LINE}|#.*")  # comments precede the words of a sentence

    def __init__(self, column: str | None = None, unknown: str | None = None, keeps_lines: bool = False) -> None:
        if column is not None and column not in _PLACES and not key_of(column):
            raise ValueError(f"column must be {universal_columns()}, or misc:NER for instance, got {column!r}")
        self._column, self._unknown, self._key = column, unknown, key_of(column or "")
        self.keeps_lines = keeps_lines

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
            return Token(row[_WORD], (), dict(_pairs(row[-1])).get(self._key, "O"))
        tag = row[_PLACES[self._column]]
        # In the column feats, _ says that a word has none.
        if tag == _UNANNOTATED and self._column != "feats" and tag != self._unknown:
            others = ", ".join(name for name in _PLACES if name != self._column)
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
    if row and not row[_WORD]:
        raise empty(_WORD + 1)
    return row


@dataclass(frozen=True, eq=False)
class Treebank(Corpus):
    """The sentences of a file in CoNLL-U with all of its lines.

    Args:
        content: the lines in UTF-8, each with its end, some at a time.
    """

    content: Sequence[bytes] = ()

    def universal_lines(self) -> Iterable[str]:
        """All lines of the file as they were."""
        return (line for block in self.content for line in block[:-1].decode().split("\n"))

    def chosen(self, sentences: Sequence[int]) -> "Treebank":
        """Some sentences with their lines, and the comments before them."""
        corpus, found, comments = super().chosen(sentences), list[list[str]](), list[str]()
        assert isinstance(corpus, Treebank)
        for is_between, run in groupby(self.universal_lines(), lambda line: bool(Universal.separator.fullmatch(line))):
            lines = list(run)
            if is_between:
                comments = [line for line in lines if line.startswith("#")]
            # Lines without a numbered word, such as empty nodes alone, make no sentence of the corpus.
            elif any(line.split("\t", 1)[0].isdigit() for line in lines):
                found.append([*comments, *lines, ""])
        return replace(corpus, content=["".join(f"{line}\n" for line in found[i]).encode() for i in sentences])


def sentence_lines(words: Sequence[str], text: str = "", starts: Sequence[int] = ()) -> Iterator[str]:
    """The lines of a sentence of bare words, with a blank one behind them.

    A text is told in a comment; where words start in it tells, in the last column, behind which ones there is no blank.
    """
    if text:
        yield f"# text = {text}"
    followed = set(starts)
    for number, word in enumerate(words, 1):
        # The next word starts where this one ends.
        touches = bool(starts) and starts[number - 1] + len(word) in followed
        yield "\t".join([str(number), word, *[_UNANNOTATED] * 7, "SpaceAfter=No" if touches else _UNANNOTATED])
    yield ""


def rewritten(lines: Iterable[str], change: Callable[[list[str]], None]) -> Iterator[str]:
    """Lines of CoNLL-U in which the rows of words have been changed, and all else is as it was."""
    for line in lines:
        row = line.split("\t")
        if len(row) == UNIVERSAL_COLUMNS and row[0].strip().isdigit():
            change(row)
        yield "\t".join(row)


def write_column(lines: Iterable[str], column: str, tags: Iterable[Sequence[str]], stream: TextIO) -> None:
    """Write lines of CoNLL-U with the tags of their words, sentence by sentence, in a column."""
    found, key = chain.from_iterable(tags), key_of(column)

    def change(row: list[str]) -> None:
        tag = next(found)
        place, cell = (_MISC, _with_value(row[_MISC], key, tag)) if key else (_PLACES[column], tag)
        row[place] = cell

    stream.writelines(f"{line}\n" for line in rewritten(lines, change))


def key_of(column: str) -> str:
    """The name of the value in the last column that a column such as misc:NER stands for; nothing for others."""
    prefix, _, key = column.partition(":")
    return key if prefix == "misc" else ""


def _pairs(misc: str) -> Iterator[tuple[str, str]]:
    """The names and values of the last column."""
    for part in misc.split("|"):
        name, _, value = part.partition("=")
        yield name, value


def _with_value(misc: str, key: str, tag: str) -> str:
    """The last column with a tag as the value of a key, which need not be there for O."""
    if key in dict(_pairs(misc)):
        return "|".join(f"{key}={tag}" if part.partition("=")[0] == key else part for part in misc.split("|"))
    if tag == "O":
        return misc
    return f"{key}={tag}" if misc == _UNANNOTATED else f"{misc}|{key}={tag}"


def universal_columns() -> str:
    """The names of the columns of CoNLL-U that a tagger can learn."""
    *names, last = get_args(UniversalColumn)
    return f"{', '.join(names)} or {last}"
