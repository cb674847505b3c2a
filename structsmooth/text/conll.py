"""Files of tagged sentences: a block of whole lines at a time, whole files or the share of a process."""

import codecs
import gzip
import os
import re
import sys
import zlib
from array import array
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from io import BufferedReader, BytesIO
from itertools import chain
from os import PathLike
from typing import TextIO

import numpy as np
from numpy.typing import NDArray

from structsmooth.files import LIMIT_VARIABLE, expect_file, size_limit
from structsmooth.messages import bounded, tracked_file
from structsmooth.text.corpus import Corpus, Sentence, Token
from structsmooth.text.forms import AS_FOUND, Reading, Sample
from structsmooth.text.json_forms import AnnotatedLines
from structsmooth.text.layouts import COMMENT, DOCUMENT, MAY_SEPARATE, SKIPPED, Layout, Universal, universal_columns
from structsmooth.text.splitter import Splitter

_GZIP_MAGIC = b"\x1f\x8b"
_BLOCK = 1 << 18
_BEGIN = 1 << 17  # bytes that tell the form of a file
_LONGEST_LINE = 1 << 20
_LARGEST = 512 << 20  # bytes of text; tokens that all differ would take over twenty times as much memory
HIDDEN = (
    "all words are _, as in treebanks whose text may not be published: put them in as the page of the treebank says"
)
MOST_HIDDEN = 2
"""Words of a sentence that may all be underscores."""
_RETURNS = re.compile(rb"\r+\n|\r")
_UTF_16 = (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)

Source = str | PathLike[str] | TextIO

# Bytes of memory that reading a line takes, however short it is: so many lines may a file have.
_LEAST_LINE = 32


def read_conll(path: Source, *, tagged: bool = True) -> list[Sentence]:
    """Sentences of a column file; arguments and errors are those of :func:`read_corpus`."""
    return list(read_corpus(path, tagged=tagged))


def read_corpus(
    path: Source,
    *,
    tagged: bool = True,
    plain: bool = False,
    column: str | None = None,
    unknown: str | None = None,
    reading: Reading = AS_FOUND,
    share: Callable[[int], range] | None = None,
) -> Corpus:
    """The corpus of a file in columns, as in CoNLL-2003 (word, pos, chunk, tag) and CoNLL-2000 (word, pos, tag).

    Tabs separate the columns of a row that has any, and white space those of others; blank lines and ``-DOCSTART-``
    lines separate sentences. The first lines tell which column has what: the word is first, or behind numbers of the
    words, and the tag last, or first in front of the word; a header and comments in front of sentences are left out.
    Files are UTF-8, plain or compressed by gzip, of at most 512 MiB of text.

    Args:
        path: the file, or an open text stream.
        tagged: a column has the tags; otherwise all columns behind the words are columns of the sentences.
        plain: tags may be any strings, and not those of entities alone.
        column: the file is CoNLL-U, and this column has the tags. Comments, rows of several words and empty nodes are
            left out.
        unknown: what stands in the place of tags that are unknown, if some are.
        reading: the columns of words and tags, where the first lines do not tell, and the encoding.
        share: which neighbouring sentences of a file to keep, given how many there are; all if not given. Other lines
            are not parsed: they may even be malformed.

    Raises:
        ValueError: a line has another number of columns than others, a bad tag or bytes that are not UTF-8 (the
            message starts with ``path:line:``); the file is empty, too large, a damaged archive or of another form,
            which the message names; or it is CoNLL-U, and there is no ``column``.
        OSError: the file cannot be read, or does not exist (:class:`FileNotFoundError`).
    """

    def choose(name: str, begin: bytes) -> Layout:
        if column is not None:
            return Universal(column, unknown)
        sample = Sample(name, begin)
        if not reading.chosen and sample.is_json:
            return AnnotatedLines(Splitter().words, annotated=tagged)
        if not reading.chosen and sample.universal:
            raise ValueError(
                f"{name}: this file is CoNLL-U: choose the column with the tags, --column {universal_columns()}, "
                f"in Python NER(column='upos')"
            )
        return sample.columns(tagged, plain, unknown, reading)

    return read_laid_out(path, choose, share, reading.encoding)


def read_laid_out(
    path: Source,
    choose: Callable[[str, bytes], Layout],
    share: Callable[[int], range] | None = None,
    encoding: str | None = None,
) -> Corpus:
    """The corpus of a file in the layout that ``choose`` gives for its name and its first lines.

    Errors and ``share`` are those of :func:`read_corpus`.
    """
    name, numbers, wanted, done = source_name(path), array("i"), range(sys.maxsize), 0
    if share is not None:
        begin, whole = _begun(blocks(path, encoding))
        layout = choose(name, begin)
        wanted = lines_of(share, whole, layout.separator, layout.has_sentence_lines)
    begin, whole = _begun(blocks(path, encoding))
    parsed = _ParsedLines(choose(name, begin))
    for block in whole:
        count = block.count(b"\n")
        if done + count > size_limit() // _LEAST_LINE:
            raise ValueError(f"{name}: more than {done:,} lines: split the file, or raise {LIMIT_VARIABLE}")
        if kept := _within(block, range(wanted.start - done, wanted.stop - done), count):
            _extend(numbers, kept, parsed, name, max(done, wanted.start))
        done += count
    if not parsed.distinct:
        raise ValueError(f"{name}: no sentences")
    corpus = _corpus(parsed, np.frombuffer(numbers, dtype=np.int32), name, wanted.start)
    return parsed.layout.finish(corpus, name)


def read_text(path: Source, encoding: str | None = None) -> Iterator[str]:
    """The lines of a text; errors are those of :func:`read_corpus`."""
    for block in blocks(path, encoding or "utf-8"):
        yield from block[:-1].decode().split("\n")


def source_name(path: Source) -> str:
    """The name of a file or stream, for messages."""
    return str(path) if isinstance(path, (str, PathLike)) else str(getattr(path, "name", "standard input"))


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


def _extend(numbers: "array[int]", block: bytes, parsed: _ParsedLines, name: str, before: int) -> None:
    """Append the numbers of the tokens of a block, which has some lines before it."""
    begin = len(numbers)
    try:
        numbers.extend(map(parsed.__getitem__, parsed.layout.lines(block)))
    except ValueError as error:  # of the line behind the last complete one
        line = before + parsed.layout.complete(numbers[begin:]) + 1
        reason = _undecodable(error, None) if isinstance(error, UnicodeDecodeError) else bounded(str(error))
        raise ValueError(f"{name}:{line}: {reason}") from None


def _undecodable(error: UnicodeDecodeError, encoding: str | None) -> str:
    expected = encoding or error.encoding  # codecs of one byte call themselves "charmap"
    byte = error.object[error.start]
    return f"byte {byte:#x} is not {expected}; give the encoding of the file, as in --encoding latin-1"


def _corpus(parsed: _ParsedLines, numbers: NDArray[np.int32], name: str, before: int) -> Corpus:
    """The corpus of the numbers of lines, which have some before them."""
    inside = np.flatnonzero((numbers[1:] == COMMENT) & (numbers[:-1] >= 0))
    if len(inside):
        raise ValueError(
            f"{name}:{before + int(inside[0]) + 2}: this line in a sentence begins with #, but has not the columns and "
            "tags of other rows; comments stand before sentences"
        )
    numbers = numbers[numbers != SKIPPED]
    present = numbers >= 0
    ends = np.cumsum(present)[~present]  # tokens before each separator
    offsets = np.unique(np.concatenate([ends, [0, np.count_nonzero(present)]]))
    documents = np.cumsum(numbers == DOCUMENT)[present][offsets[:-1]]
    corpus = Corpus(list(parsed.distinct), numbers[present], offsets, documents, str(parsed.layout))
    _expect_words(corpus, name)
    return corpus


def _expect_words(corpus: Corpus, name: str) -> None:
    """Refuse sentences of underscores, which stand for words that may not be published."""
    hidden = np.array([token.word == "_" for token in corpus.distinct])[corpus.tokens]
    counts = np.add.reduceat(hidden, corpus.offsets[:-1], dtype=np.int64)
    whole = np.flatnonzero((counts == np.diff(corpus.offsets)) & (counts > MOST_HIDDEN))
    if len(whole):
        raise ValueError(f"{name}: sentence {whole[0] + 1} of {len(corpus)}: {HIDDEN}")


@contextmanager
def opened(source: Source, decoded: bool = True) -> Iterator[BufferedReader | gzip.GzipFile]:
    """The text of a file or stream as bytes; ``decoded`` if a stream is to decode by itself what it has."""
    if isinstance(source, (str, PathLike)):
        expect_file(source)
        with tracked_file(source, f"reading {os.path.basename(source)}") as file:
            archive = file.peek(len(_GZIP_MAGIC)).startswith(_GZIP_MAGIC)
            yield gzip.GzipFile(fileobj=file) if archive else file
    else:
        raw = None if decoded else getattr(source, "buffer", None)
        # Standard input may have let undecodable bytes pass, escaped: they come back and are refused later.
        yield BufferedReader(BytesIO(source.read().encode("utf-8", "surrogateescape") if raw is None else raw.read()))


def blocks(source: Source, encoding: str | None = None) -> Iterator[bytes]:
    """The lines of a text in UTF-8, some at a time, each with a newline as its end.

    Lines end in a newline, a carriage return or both. Byte order marks are left out, and tell UTF-16.

    Raises:
        ValueError: the text is too large, or a line too long; a damaged archive; an encoding that is unknown or wrong.
    """
    name, number, size, rest, returns = source_name(source), 1, 0, b"", b""
    try:
        with opened(source, encoding is None) as file:
            for piece in _utf8(file, encoding):
                size += len(piece)
                if size > _LARGEST:
                    raise ValueError(f"{name}: more than {_LARGEST >> 20} MiB of text; give a part of it")
                text = returns + piece
                ended = text.rstrip(b"\r")
                returns = text[len(ended) :]  # a newline may follow
                ended = _RETURNS.sub(b"\n", ended) if b"\r" in ended else ended
                whole, end, rest = (rest + ended).rpartition(b"\n")
                if end:
                    yield whole + end
                    number += whole.count(b"\n") + 1
                if len(rest) + len(returns) > _LONGEST_LINE:
                    raise ValueError(f"{name}:{number}: a line of more than 1 MiB; each token needs a line of its own")
    except UnicodeDecodeError as error:
        place = number + error.object.count(b"\n", 0, error.start)
        raise ValueError(f"{name}:{place}: {_undecodable(error, encoding)}") from None
    except UnicodeError as error:
        raise ValueError(f"{name}: {error}; give the encoding of the file, as in --encoding latin-1") from None
    except (EOFError, gzip.BadGzipFile, zlib.error) as error:
        raise ValueError(f"{name}: damaged gzip archive: {error}") from error
    rest += returns.replace(b"\r", b"\n")
    if rest:
        yield rest if rest.endswith(b"\n") else rest + b"\n"


def _utf8(file: BufferedReader | gzip.GzipFile, encoding: str | None) -> Iterator[bytes]:
    """Pieces of a text in some encoding, by default UTF-8, in UTF-8 without a byte order mark."""
    mark = file.peek(len(codecs.BOM_UTF8))
    if mark.startswith(codecs.BOM_UTF8):
        file.read(len(codecs.BOM_UTF8))
    elif (encoding is None or _codec(encoding).name == "utf-8") and mark.startswith(_UTF_16):
        encoding = "utf-16"
    pieces = iter(lambda: file.read(_BLOCK), b"")
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


def _begun(whole: Iterator[bytes]) -> tuple[bytes, Iterator[bytes]]:
    """The first lines of a file, and all of its blocks."""
    begin = b""
    while len(begin) < _BEGIN and (block := next(whole, b"")):
        begin += block
    return begin, chain([begin] if begin else [], whole)


def lines_of(
    share: Callable[[int], range], whole: Iterable[bytes], separator: re.Pattern[str], each: bool = False
) -> range:
    """The lines of some neighbouring sentences; each sentence has all lines up to the next.

    Args:
        share: the numbers of the sentences, given how many there are.
        whole: the blocks of the file.
        separator: of lines between sentences.
        each: whether each other line has sentences of its own.
    """
    begins, line, separated = array("q"), 0, True
    for block in whole:
        lines = block[:-1].decode(errors="replace").split("\n")
        found = (line[:1] in MAY_SEPARATE and separator.fullmatch(line) is not None for line in lines)
        separating = np.fromiter(found, np.bool_, len(lines))
        after = each | np.append(separated, separating[:-1])
        begins.extend((line + np.flatnonzero(~separating & after)).tolist())
        line, separated = line + len(lines), bool(separating[-1])
    if not begins:
        return range(line)  # no share has any sentence: all of the file is to be refused
    places = [0, *begins[1:], line]  # of all sentences, and of the end
    numbers = share(len(begins))
    return range(places[numbers.start], places[numbers.stop])


def _within(block: bytes, lines: range, count: int) -> bytes:
    """The lines of a block whose numbers are in a range."""
    if lines.start <= 0 and lines.stop >= count:
        return block
    return b"".join(line + b"\n" for line in block[:-1].split(b"\n")[max(lines.start, 0) : max(lines.stop, 0)])
