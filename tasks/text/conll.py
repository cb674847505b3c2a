"""Files of tagged sentences: in columns, as in the CoNLL shared tasks, in CoNLL-U, and lines of text."""

import gzip
import zlib
from array import array
from collections.abc import Callable, Sequence
from itertools import chain
from os import PathLike
from typing import TextIO

import numpy as np

from structsmooth.tasks.text.corpus import Corpus, Sentence, Token
from structsmooth.tasks.text.layouts import (
    DOCUMENT,
    SKIPPED,
    Columns,
    Layout,
    Universal,
    UniversalColumn,
    is_universal,
    universal_columns,
)
from structsmooth.tasks.text.lines import Part, blocks, opened, part_of

__all__ = ["Sentence", "read_conll", "read_corpus", "read_laid_out", "separator_of", "write_conll"]


def read_conll(path: str | PathLike[str] | TextIO, *, tagged: bool = True) -> list[Sentence]:
    """Sentences of a column file; arguments and errors are those of :func:`read_corpus`."""
    return list(read_corpus(path, tagged=tagged))


def read_corpus(
    path: str | PathLike[str] | TextIO,
    *,
    tagged: bool = True,
    plain: bool = False,
    column: UniversalColumn | None = None,
    share: Callable[[int], range] | None = None,
) -> Corpus:
    """The corpus of a file in columns, as in CoNLL-2003 (word, pos, chunk, tag) and CoNLL-2000 (word, pos, tag).

    Tabs separate the columns of a row that has any, and white space those of others; blank lines and ``-DOCSTART-``
    lines separate sentences. Files are UTF-8, plain or compressed by gzip, of at most 512 MiB of text.

    Args:
        path: the file, or an open text stream.
        tagged: the last column has the tags; otherwise all columns after the first are columns of the sentences.
        plain: tags may be any strings, and not those of entities alone.
        column: the file is CoNLL-U, and this column has the tags. Comments, rows of several words and empty nodes are
            left out.
        share: which neighbouring sentences of a file to keep, given how many there are; all if not given. Other lines
            are not parsed: they may even be malformed.

    Raises:
        ValueError: a line has another number of columns than the first, a bad tag or bytes that are not UTF-8 (the
            message starts with ``path:line:``); the file is empty, too large or a damaged archive; or it is CoNLL-U,
            and there is no ``column``.
        OSError: the file cannot be read, or does not exist (:class:`FileNotFoundError`).
    """

    def choose(name: str, begin: bytes) -> Layout:
        if column is not None:
            return Universal(column)
        if is_universal(name, begin):
            raise ValueError(
                f"{name}: this file is CoNLL-U: choose the column with the tags, --column {universal_columns()}, "
                f"in Python NER(column='upos')"
            )
        return Columns(tagged, plain)

    return read_laid_out(path, choose, share)


def read_laid_out(
    path: str | PathLike[str] | TextIO,
    choose: Callable[[str, bytes], Layout],
    share: Callable[[int], range] | None = None,
) -> Corpus:
    """The corpus of a file in the layout that ``choose`` gives for its name and its first lines.

    Errors and ``share`` are those of :func:`read_corpus`.
    """
    name = str(path) if isinstance(path, (str, PathLike)) else str(getattr(path, "name", "<stream>"))
    numbers, part, done = array("i"), Part(), 0
    layout: Layout | None = None
    try:
        if share is not None:
            with opened(path) as file:
                whole = blocks(file, name, part)
                begin = next(whole, b"")
                layout = choose(name, begin)
                part = part_of(share, chain([begin] if begin else [], whole), layout.separates)
            layout.columns = layout.columns or part.columns
        parsed: _ParsedLines | None = None
        with opened(path) as file:
            for block in blocks(file, name, part):
                if parsed is None:
                    parsed = _ParsedLines(layout or choose(name, block))
                done += _extend(numbers, block, parsed, name, part.lines + done)
    except UnicodeDecodeError as error:  # of a stream that decodes by itself
        place = 1 + error.object.count(b"\n", 0, error.start)
        raise ValueError(f"{name}:{place}: {_undecodable(error)}") from None
    except (EOFError, gzip.BadGzipFile, zlib.error) as error:
        raise ValueError(f"{name}: damaged gzip archive: {error}") from error
    if parsed is None or not parsed.distinct:
        raise ValueError(f"{name}: no sentences")
    return _corpus(parsed, np.frombuffer(numbers, dtype=np.int32))


class _ParsedLines(dict[bytes, int]):
    """The number of the token of each line, which is parsed when it is first seen; below 0 for lines without one."""

    def __init__(self, layout: Layout) -> None:
        self.layout = layout
        self.distinct: dict[Token, int] = {}

    def __missing__(self, line: bytes) -> int:
        found = self.layout.parse(line.decode())
        number = self.distinct.setdefault(found, len(self.distinct)) if isinstance(found, Token) else found
        self[line] = number
        return number


def _extend(numbers: "array[int]", block: bytes, parsed: _ParsedLines, name: str, before: int) -> int:
    """Append the numbers of the tokens of a block, which has some lines before it; returns its number of lines."""
    begin = len(numbers)
    try:
        numbers.extend(map(parsed.__getitem__, parsed.layout.lines(block)))
    except ValueError as error:  # of the line behind the last complete one
        line = before + parsed.layout.complete(numbers[begin:]) + 1
        reason = _undecodable(error) if isinstance(error, UnicodeDecodeError) else str(error)
        raise ValueError(f"{name}:{line}: {reason}") from None
    return block.count(b"\n")


def _undecodable(error: UnicodeDecodeError) -> str:
    return f"byte {error.object[error.start]:#x} is not {error.encoding}"


def _corpus(parsed: _ParsedLines, numbers: "np.typing.NDArray[np.int32]") -> Corpus:
    """The corpus of the numbers of lines."""
    numbers = numbers[numbers != SKIPPED]
    present = numbers >= 0
    ends = np.cumsum(present)[~present]  # tokens before each separator
    offsets = np.unique(np.concatenate([ends, [0, np.count_nonzero(present)]]))
    documents = np.cumsum(numbers == DOCUMENT)[present][offsets[:-1]]
    return Corpus(list(parsed.distinct), numbers[present], offsets, documents)


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
