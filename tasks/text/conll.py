"""Column files of the CoNLL shared tasks: one token per line, a blank line after each sentence."""

import codecs
import gzip
import os
import re
import zlib
from array import array
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from io import BytesIO
from os import PathLike
from sys import intern
from typing import BinaryIO, TextIO, cast

import numpy as np

from structsmooth.tag_schemes import split_tag
from structsmooth.tasks.files import refuse_folder
from structsmooth.tasks.progress import tracked_file
from structsmooth.tasks.text.corpus import Corpus, Sentence, Token

__all__ = ["Sentence", "read_conll", "read_corpus", "write_conll"]

_GZIP_MAGIC = b"\x1f\x8b"
_DOCUMENT_START = "-DOCSTART-"
_BLOCK = 1 << 18
_LONGEST_LINE = 1 << 20
_LARGEST = 512 << 20  # bytes of text; tokens that all differ would take over twenty times as much memory
_SEPARATOR, _DOCUMENT = -1, -2

_cells_of_unicode = re.compile(r"[^ \t\r\n\v\f]+").findall


def read_conll(path: str | PathLike[str] | TextIO, *, tagged: bool = True) -> list[Sentence]:
    """Sentences of a column file; arguments and errors are those of :func:`read_corpus`."""
    return list(read_corpus(path, tagged=tagged))


def read_corpus(path: str | PathLike[str] | TextIO, *, tagged: bool = True, plain: bool = False) -> Corpus:
    """The corpus of a column file, as in CoNLL-2003 (word, pos, chunk, tag) and CoNLL-2000 (word, pos, tag).

    White space separates columns, blank lines and ``-DOCSTART-`` lines separate sentences. Files are UTF-8,
    plain or compressed by gzip, of at most 512 MiB of text.

    Args:
        path: the file, or an open text stream.
        tagged: the last column has the tags; otherwise all columns after the first are columns of the sentences.
        plain: tags may be any strings, and not those of entities alone.

    Raises:
        ValueError: a line has another number of columns than the first, a bad tag or bytes that are not UTF-8 (the
            message starts with ``path:line:``); the file is empty, too large or a damaged archive.
        OSError: the file cannot be read, or does not exist (:class:`FileNotFoundError`).
    """
    name = str(path) if isinstance(path, (str, PathLike)) else str(getattr(path, "name", "<stream>"))
    parsed, numbers = _ParsedLines(tagged, plain), array("i")
    try:
        with _opened(path) as file:
            for lines in _lines(file, name):
                _extend(numbers, lines, parsed, name)
    except UnicodeDecodeError as error:
        place, byte = len(numbers) + 1 + error.object.count(b"\n", 0, error.start), error.object[error.start]
        raise ValueError(f"{name}:{place}: byte {byte:#x} is not {error.encoding}") from None
    except (EOFError, gzip.BadGzipFile, zlib.error) as error:
        raise ValueError(f"{name}: damaged gzip archive: {error}") from error
    if not parsed.distinct:
        raise ValueError(f"{name}: no sentences")
    return _corpus(parsed, np.frombuffer(numbers, dtype=np.int32))


class _ParsedLines(dict[bytes, int]):
    """The number of the token of each line, which is parsed when it is first seen; separators have numbers below 0."""

    def __init__(self, tagged: bool, plain: bool) -> None:
        self._tagged, self._plain = tagged, plain
        self._columns: int | None = None
        self.distinct: dict[Token, int] = {}

    def __missing__(self, line: bytes) -> int:
        row = _cells(line.decode())
        if row and row[0] != _DOCUMENT_START:
            token = self._token(row)
            number = self.distinct.setdefault(token, len(self.distinct))
        else:
            number = _DOCUMENT if row else _SEPARATOR
        self[line] = number
        return number

    def _token(self, row: list[str]) -> Token:
        """The token of a row, unless it has another number of columns than rows before, or no tag."""
        if self._columns not in (None, len(row)):
            raise ValueError(f"expected {self._columns} columns, got {len(row)}")
        if not self._tagged:
            token = Token(row[0], tuple(row[1:]))
        elif len(row) < 2:
            raise ValueError("expected a word and a tag, got one column")
        else:
            if not self._plain:
                split_tag(row[-1])
            token = Token(row[0], tuple(row[1:-1]), row[-1])
        self._columns = len(row)
        return token


def _extend(numbers: "array[int]", lines: list[bytes], parsed: _ParsedLines, name: str) -> None:
    """Append the numbers of the tokens of lines."""
    try:
        numbers.extend(map(parsed.__getitem__, lines))
    except UnicodeDecodeError:
        raise
    except ValueError as error:  # of the line behind the last number
        raise ValueError(f"{name}:{len(numbers) + 1}: {error}") from None


def _lines(file: BinaryIO, name: str) -> Iterator[list[bytes]]:
    """The lines of a file, some at a time, without their ends."""
    number, size, rest = 1, 0, b""
    while block := file.read(_BLOCK):
        size += len(block)
        if size > _LARGEST:
            raise ValueError(f"{name}: more than {_LARGEST >> 20} MiB of text; give a part of it")
        *lines, rest = (rest + (block.removeprefix(codecs.BOM_UTF8) if size == len(block) else block)).split(b"\n")
        yield lines
        number += len(lines)
        if len(rest) > _LONGEST_LINE:
            raise ValueError(f"{name}:{number}: a line of more than 1 MiB; each token needs a line of its own")
    yield [rest]


def _corpus(parsed: _ParsedLines, numbers: "np.typing.NDArray[np.int32]") -> Corpus:
    """The corpus of the numbers of lines."""
    present = numbers >= 0
    ends = np.cumsum(present)[~present]  # tokens before each separator
    offsets = np.unique(np.concatenate([ends, [0, np.count_nonzero(present)]]))
    documents = np.cumsum(numbers == _DOCUMENT)[present][offsets[:-1]]
    return Corpus(list(parsed.distinct), numbers[present], offsets, documents)


@contextmanager
def _opened(source: str | PathLike[str] | TextIO) -> Iterator[BinaryIO]:
    """The text of a file or stream as bytes."""
    if isinstance(source, (str, PathLike)):
        refuse_folder(source)
        with tracked_file(source, f"reading {os.path.basename(source)}") as file:
            archive = file.peek(len(_GZIP_MAGIC)).startswith(_GZIP_MAGIC)
            yield cast(BinaryIO, gzip.GzipFile(fileobj=file) if archive else file)
    else:
        # Standard input may have let undecodable bytes pass, escaped: they come back and are refused later.
        yield BytesIO(source.read().encode("utf-8", "surrogateescape"))


def _cells(line: str) -> list[str]:
    """The columns of a line. Only ASCII white space separates them: words may contain no-break spaces."""
    cells = line.split() if line.isascii() else _cells_of_unicode(line)
    return list(map(intern, cells))  # a corpus repeats them over and over


def write_conll(sentences: Sequence[Sentence], predicted_tags: Sequence[Sequence[str]], stream: TextIO) -> None:
    """Write all columns of the sentences and a last one with the predicted tags.

    The ``conlleval`` script reads this format if the sentences are tagged.

    Raises:
        ValueError: the numbers of predicted tags and of tokens differ.
    """
    if len(sentences) != len(predicted_tags):
        raise ValueError(f"got {len(sentences)} sentences, but tags of {len(predicted_tags)}")
    for index, (sentence, predicted) in enumerate(zip(sentences, predicted_tags, strict=True)):
        if len(predicted) != len(sentence):
            raise ValueError(f"sentences[{index}] has {len(sentence)} tokens, got {len(predicted)} tags")
        gold = [] if sentence.tags is None else [sentence.tags]
        rows = zip(sentence.words, *sentence.columns, *gold, predicted, strict=True)
        stream.write("".join(f"{' '.join(row)}\n" for row in rows) + "\n")
