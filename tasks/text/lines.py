"""Lines of column files, a block of whole lines at a time, and where the sentences of a file begin."""

import codecs
import gzip
import os
import re
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from io import BufferedReader, BytesIO
from os import PathLike
from sys import intern
from typing import BinaryIO, NamedTuple, TextIO, cast

import numpy as np
from numpy.typing import NDArray

from structsmooth.tasks.files import expect_file
from structsmooth.tasks.progress import tracked_file

_GZIP_MAGIC = b"\x1f\x8b"
_DOCUMENT_START = "-DOCSTART-"
_BLOCK = 1 << 18
_LONGEST_LINE = 1 << 20
_LARGEST = 512 << 20  # bytes of text; tokens that all differ would take over twenty times as much memory
_END = ord("\n")
# Whether a line that begins with a byte may separate sentences: those are white space, a hyphen, and a number sign.
_MAY_SEPARATE = np.isin(np.arange(256), list(b"-# \t\r\v\f\x1c\x1d\x1e\x1f"))

_NONE = np.empty((2, 0), dtype=np.int64)

_BLANKS = " \t\r\n\v\f"
_cells_of_unicode = re.compile(f"[^{_BLANKS}]+").findall


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
