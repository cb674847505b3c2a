"""The lines of texts in any encoding, plain or compressed, a block of them at a time."""

import codecs
import gzip
import os
import re
import sys
import zlib
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from io import BufferedReader, RawIOBase
from itertools import chain
from os import PathLike
from typing import Any, TextIO

from structsmooth.files import LIMIT_VARIABLE, check_size, expect_file, size_limit
from structsmooth.messages import tracked_file

_GZIP_MAGIC = b"\x1f\x8b"
_BLOCK = 1 << 18
BEGIN = 1 << 17  # bytes that tell the form of a file
_LONGEST_LINE = 1 << 20
LARGEST_VALUE = 24 << 20  # bytes of a value of JSON, which takes many times as much memory
_LARGEST = 512 << 20  # bytes of text; tokens that all differ would take over twenty times as much memory
_LEAST_LINE = 64  # bytes of memory that reading a line takes, however short it is
WORD = 1 << 10  # bytes that a word takes while its sentence is tagged
_RETURNS = re.compile(rb"\r+\n|\r")
_MARKS = re.compile(rb"^\xef\xbb\xbf", re.M)
_SURROGATES = re.compile(rb"\xed[\xa0-\xaf][\x80-\xbf]\xed[\xb0-\xbf][\x80-\xbf]")  # a character of CESU-8, in halves
_UTF_16 = (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)

Source = str | PathLike[str] | TextIO


def source_name(path: Source | list[str]) -> str:
    """The name of a file or stream, or of several files, for messages."""
    if isinstance(path, list):
        return f"{path[0]} to {path[-1]}"
    if path is sys.stdin:
        return "standard input"
    return str(path) if isinstance(path, (str, PathLike)) else str(getattr(path, "name", "standard input"))


def read_text(path: Source, encoding: str | None = None) -> Iterator[str]:
    """The lines of a text; errors are those of :func:`blocks`, and bytes that are not in the encoding."""
    return decoded_lines(blocks(path, encoding), source_name(path))


def decoded_lines(whole: Iterable[bytes], name: str) -> Iterator[str]:
    """The lines of the blocks of a text of this name, without their ends.

    Raises:
        ValueError: bytes that are not UTF-8, with their line.
    """
    done = 0
    for block in whole:
        try:
            lines = block[:-1].decode().split("\n")
        except UnicodeDecodeError as error:
            place = done + 1 + block.count(b"\n", 0, error.start)
            raise ValueError(f"{name}:{place}: {undecodable(error)}") from None
        yield from lines
        done += len(lines)


def check_words(place: str, count: int) -> None:
    """Refuse a sentence, or a text, of more words than there is memory to tag together, whose place is told."""
    check_size(f"{place} of {count:,} words", WORD * count)


def returns_before_breaks(path: Source, encoding: str | None = None) -> list[int]:
    """Where in a text, as its lines have it, line breaks have carriage returns before them, which lines lack."""
    with opened(path, encoding is None) as file:
        text = _mended(b"".join(_utf8(file, encoding))).decode()
    places = list[int]()
    for run in re.finditer("\r+(?=\n)", text):
        places += [run.start() - len(places)] * len(run[0])
    return places


def undecodable(error: UnicodeDecodeError, encoding: str | None = None) -> str:
    """What is wrong with a byte, and what to do."""
    expected = encoding or error.encoding  # codecs of one byte call themselves "charmap"
    byte = error.object[error.start]
    return f"byte {byte:#x} is not {expected}; give the encoding of the file, as in --encoding latin-1"


class _Encoded(RawIOBase):
    """What a stream of text has, as bytes of UTF-8: no more is read than is asked for."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream

    def readable(self) -> bool:
        """Yes."""
        return True

    def readinto(self, into: Any) -> int:
        """Fill a buffer with characters, of which each may take four bytes."""
        # A stream may have let undecodable bytes pass, escaped: they come back and are refused later.
        piece = self._stream.read(max(len(into) // 4, 1)).encode("utf-8", "surrogateescape")
        into[: len(piece)] = piece
        return len(piece)


def own_encoding(source: Source, encoding: str | None) -> str | None:
    """The encoding of the bytes of a source: the given one, or of standard input its own; none of a text."""
    if isinstance(source, (str, PathLike)):
        return encoding
    if not hasattr(source, "buffer"):
        return None
    return source.encoding if encoding is None and source is sys.stdin else encoding


@contextmanager
def opened(source: Source, decoded: bool = True) -> Iterator[BufferedReader | gzip.GzipFile]:
    """The text of a file or stream as bytes; ``decoded`` if a stream is to decode by itself what it has."""
    if isinstance(source, (str, PathLike)):
        expect_file(source)
        with tracked_file(source, f"reading {os.path.basename(source)}") as file:
            yield _unpacked(file)
    else:
        raw = None if decoded else getattr(source, "buffer", None)
        yield BufferedReader(_Encoded(source), _BLOCK) if raw is None else _unpacked(raw)


def _unpacked(file: BufferedReader) -> BufferedReader | gzip.GzipFile:
    """A file of bytes, or what it has if it is an archive of gzip."""
    return gzip.GzipFile(fileobj=file) if file.peek(len(_GZIP_MAGIC)).startswith(_GZIP_MAGIC) else file


def blocks(source: Source, encoding: str | None = None, endless: bool = False) -> Iterator[bytes]:
    """The lines of a text in UTF-8, some at a time, each with a newline as its end.

    Lines end in a newline, a carriage return or both. Byte order marks are left out, also where files were joined, and
    tell UTF-16. Characters that CESU-8 has in two halves, as Java and some databases write them, become UTF-8. Of a
    stream these are the lines that have arrived; an ``endless`` one may have any number of them.

    Raises:
        ValueError: the text is too large, or a line too long, or there are too many; a damaged archive; an encoding
            that is unknown or wrong.
    """
    name, number, size, rest, returns = source_name(source), 1, 0, list[bytes](), b""
    longest, encoding = _LONGEST_LINE, own_encoding(source, encoding)
    try:
        with opened(source, encoding is None) as file:
            for piece in _utf8(file, encoding):
                if not size and piece.lstrip()[:1] in (b"{", b"["):  # JSON may have no other lines
                    longest = LARGEST_VALUE
                size += len(piece)
                if size > _LARGEST and not endless:
                    raise ValueError(f"{name}: more than {_LARGEST >> 20} MiB of text; give a part of it")
                text = returns + piece
                ended = text.rstrip(b"\r")
                returns = text[len(ended) :]  # a newline may follow
                ended = _RETURNS.sub(b"\n", ended) if b"\r" in ended else ended
                whole, end, last = ended.rpartition(b"\n")
                if end:
                    yield _mended(b"".join([*rest, whole, end]))
                    number += whole.count(b"\n") + 1
                    rest = []
                rest.append(last)
                if number > size_limit() // _LEAST_LINE and not endless:
                    raise ValueError(f"{name}: more than {number:,} lines: split the file, or raise {LIMIT_VARIABLE}")
                if sum(map(len, rest)) + len(returns) > longest:
                    most = f"a line of more than {longest >> 20} MiB"
                    raise ValueError(f"{name}:{number}: {most}; each token needs a line of its own")
    except UnicodeDecodeError as error:
        place = number + error.object.count(b"\n", 0, error.start)
        raise ValueError(f"{name}:{place}: {undecodable(error, encoding)}") from None
    except UnicodeError as error:
        raise ValueError(f"{name}: {error}; give the encoding of the file, as in --encoding latin-1") from None
    except (EOFError, gzip.BadGzipFile, zlib.error) as error:
        raise ValueError(f"{name}: damaged gzip archive: {error}") from error
    if remaining := _mended(b"".join([*rest, returns.replace(b"\r", b"\n")])):
        yield remaining if remaining.endswith(b"\n") else remaining + b"\n"


def _mended(lines: bytes) -> bytes:
    """Lines without marks at their beginnings, and with halves of characters put together."""
    lines = _MARKS.sub(b"", lines) if b"\xef\xbb\xbf" in lines else lines
    return _SURROGATES.sub(_whole, lines) if b"\xed" in lines else lines


def _whole(halves: re.Match[bytes]) -> bytes:
    return halves[0].decode(errors="surrogatepass").encode("utf-16", "surrogatepass").decode("utf-16").encode()


def begun(whole: Iterator[bytes]) -> tuple[bytes, Iterator[bytes]]:
    """The first lines of a file, and all of its blocks."""
    begin = b""
    while len(begin) < BEGIN and (block := next(whole, b"")):
        begin += block
    return begin[:_LONGEST_LINE], chain([begin] if begin else [], whole)


def _utf8(file: BufferedReader | gzip.GzipFile, encoding: str | None) -> Iterator[bytes]:
    """Pieces of a text in some encoding, by default UTF-8, in UTF-8 without a byte order mark."""
    mark = file.peek(len(codecs.BOM_UTF8))
    if mark.startswith(codecs.BOM_UTF8):
        file.read(len(codecs.BOM_UTF8))
    elif (encoding is None or _codec(encoding).name == "utf-8") and mark.startswith(_UTF_16):
        encoding = "utf-16"
    pieces = iter(lambda: file.read1(_BLOCK), b"")
    if encoding is None:
        return pieces
    decoder = codecs.getincrementaldecoder(_codec(encoding).name)()
    return (decoder.decode(piece, not piece).encode() for piece in chain(pieces, [b""]))


def _codec(encoding: str) -> codecs.CodecInfo:
    try:
        with suppress(UnicodeError):
            b"a".decode(encoding)  # refuses what is a codec and no encoding of text
        return codecs.lookup(encoding)
    except LookupError:
        raise ValueError(f"unknown encoding {encoding!r}: expected one such as latin-1, cp1252 or euc-jp") from None
