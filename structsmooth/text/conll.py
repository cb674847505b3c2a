"""Files of tagged sentences: a block of whole lines at a time, whole files or the share of a process."""

import codecs
import gzip
import os
import sys
import zlib
from array import array
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from io import BufferedReader, BytesIO
from itertools import chain
from os import PathLike
from typing import BinaryIO, NamedTuple, TextIO, cast

import numpy as np
from numpy.typing import NDArray

from structsmooth.files import expect_file
from structsmooth.messages import tracked_file
from structsmooth.text.corpus import Corpus, Sentence, Token
from structsmooth.text.layouts import (
    DOCUMENT,
    SKIPPED,
    Columns,
    Layout,
    Universal,
    UniversalColumn,
    cells,
    is_universal,
    separates,
    universal_columns,
)

_GZIP_MAGIC = b"\x1f\x8b"
_BLOCK = 1 << 18
_LONGEST_LINE = 1 << 20
_LARGEST = 512 << 20  # bytes of text; tokens that all differ would take over twenty times as much memory
_END = ord("\n")
# Whether a line that begins with a byte may separate sentences: those are white space, a hyphen, and a number sign.
_MAY_SEPARATE = np.isin(np.arange(256), list(b"-# \t\r\v\f\x1c\x1d\x1e\x1f"))

_NONE = np.empty((2, 0), dtype=np.int64)


def read_conll(path: str | PathLike[str] | TextIO, *, tagged: bool = True) -> list[Sentence]:
    """Sentences of a column file; arguments and errors are those of :func:`read_corpus`."""
    return list(read_corpus(path, tagged=tagged))


def read_corpus(
    path: str | PathLike[str] | TextIO,
    *,
    tagged: bool = True,
    plain: bool = False,
    column: UniversalColumn | None = None,
    unknown: str | None = None,
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
        unknown: what stands in the place of tags that are unknown, if some are.
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
            return Universal(column, unknown)
        if is_universal(name, begin):
            raise ValueError(
                f"{name}: this file is CoNLL-U: choose the column with the tags, --column {universal_columns()}, "
                f"in Python NER(column='upos')"
            )
        return Columns(tagged, plain, unknown)

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


class Part(NamedTuple):
    """Some lines of a file, from byte ``start`` to byte ``stop`` of its text.

    Attributes:
        lines: number of lines before them.
        columns: number of columns of the first row of the whole file, if that is known.
    """

    start: int = 0
    stop: int = sys.maxsize
    lines: int = 0
    columns: int | None = None


@contextmanager
def opened(source: str | PathLike[str] | TextIO) -> Iterator[BinaryIO]:
    """The text of a file or stream as bytes, without a byte order mark."""
    if isinstance(source, (str, PathLike)):
        expect_file(source)
        with tracked_file(source, f"reading {os.path.basename(source)}") as file:
            archive = file.peek(len(_GZIP_MAGIC)).startswith(_GZIP_MAGIC)
            yield _behind_mark(gzip.GzipFile(fileobj=file) if archive else file)
    else:
        # Standard input may have let undecodable bytes pass, escaped: they come back and are refused later.
        yield _behind_mark(BufferedReader(BytesIO(source.read().encode("utf-8", "surrogateescape"))))


def _behind_mark(text: BufferedReader | gzip.GzipFile) -> BinaryIO:
    if text.peek(len(codecs.BOM_UTF8)).startswith(codecs.BOM_UTF8):
        text.read(len(codecs.BOM_UTF8))
    return cast(BinaryIO, text)


def blocks(file: BinaryIO, name: str, part: Part) -> Iterator[bytes]:
    """The lines of a part, some at a time, each with its end.

    Raises:
        ValueError: the text is too large, or a line too long.
    """
    number, size, rest = part.lines + 1, part.start, b""
    if part.start:  # pipes cannot seek
        file.seek(part.start, os.SEEK_CUR)
    while block := file.read(min(_BLOCK, part.stop - size)):
        size += len(block)
        if size > _LARGEST:
            raise ValueError(f"{name}: more than {_LARGEST >> 20} MiB of text; give a part of it")
        whole, end, rest = (rest + block).rpartition(b"\n")
        if end:
            yield whole + end
            number += whole.count(b"\n") + 1
        if len(rest) > _LONGEST_LINE:
            raise ValueError(f"{name}:{number}: a line of more than 1 MiB; each token needs a line of its own")
    if rest:
        yield rest + b"\n"


def part_of(
    share: Callable[[int], range], whole: Iterable[bytes], separates: Callable[[Sequence[str]], bool] = separates
) -> Part:
    """The lines of some neighbouring sentences; each sentence has all lines up to the next.

    Args:
        share: the numbers of the sentences, given how many there are.
        whole: the blocks of the file.
        separates: whether a row of cells stands between sentences.
    """
    begins, byte, line, separated, columns = [_NONE], 0, 0, True, None
    for block in whole:
        starts = _line_starts(block)
        separating = _separating(block, starts, separates)
        first = np.flatnonzero(~separating & np.append(separated, separating[:-1]))
        if columns is None and len(first):
            columns = len(_loose_cells(block, starts[first[0]]))
        begins.append(np.stack([byte + starts[first], line + first]))
        byte, line, separated = byte + len(block), line + len(starts), separating[-1]
    places = np.concatenate([*begins, [[byte], [line]]], axis=1)  # of all sentences, and of the end
    if places.shape[1] == 1:
        return Part()  # no share has any sentence: all of the file is to be refused
    places[:, 0] = 0
    own = share(places.shape[1] - 1)
    (start, lines), (stop, _) = places[:, [own.start, own.stop]].T.tolist()
    return Part(start, stop, lines, columns)


def _line_starts(block: bytes) -> NDArray[np.int64]:
    ends = np.flatnonzero(np.frombuffer(block, dtype=np.uint8) == _END)
    return np.append(0, ends[:-1] + 1)


def _separating(
    block: bytes, starts: NDArray[np.int64], separates: Callable[[Sequence[str]], bool]
) -> NDArray[np.bool_]:
    """Which lines of a block separate sentences."""
    first = np.frombuffer(block, dtype=np.uint8)[starts]
    separating: NDArray[np.bool_] = first == _END
    for i in np.flatnonzero(_MAY_SEPARATE[first]).tolist():
        separating[i] = separates(_loose_cells(block, starts[i]))
    return separating


def _loose_cells(block: bytes, start: int) -> list[str]:
    """The columns of the line that begins somewhere; bytes that are not UTF-8 are refused when the line is parsed."""
    return cells(block[start : block.index(b"\n", start)].decode(errors="replace"))
