"""Column files of the CoNLL shared tasks: one token per line, a blank line after each sentence."""

import gzip
import os
import re
import zlib
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from io import BytesIO
from os import PathLike
from sys import intern
from typing import BinaryIO, TextIO, cast

from structsmooth.tag_schemes import split_tag
from structsmooth.tasks.progress import tracked_file

_GZIP_MAGIC = b"\x1f\x8b"
_DOCUMENT_START = "-DOCSTART-"
_ABSENT = "-"
_LONGEST_LINE = 1 << 20
_LARGEST = 512 << 20  # bytes of text, which take about twelve times as much memory as sentences

_cells_of_unicode = re.compile(r"[^ \t\r\n\v\f]+").findall


@dataclass(frozen=True)
class Sentence:
    """A sentence as the columns of its file.

    Attributes:
        words: the first column.
        columns: the columns between words and tags, such as part-of-speech and chunk tags.
        tags: the last column; None where tags are to be predicted.
    """

    words: list[str]
    columns: list[list[str]]
    tags: list[str] | None = None

    def __len__(self) -> int:
        return len(self.words)

    @property
    def pos(self) -> list[str]:
        """Part-of-speech tags: the first column after the words, or hyphens."""
        return self.columns[0] if self.columns else [_ABSENT] * len(self)

    @property
    def chunk(self) -> list[str]:
        """Chunk tags: the second column after the words, or hyphens."""
        return self.columns[1] if len(self.columns) > 1 else [_ABSENT] * len(self)


def read_conll(path: str | PathLike[str] | TextIO, *, tagged: bool = True) -> list[Sentence]:
    """Sentences of a column file, as in CoNLL-2003 (word, pos, chunk, tag) and CoNLL-2000 (word, pos, tag).

    White space separates columns, blank lines and ``-DOCSTART-`` lines separate sentences. Files are UTF-8,
    plain or compressed by gzip, of at most 512 MiB of text.

    Args:
        path: the file, or an open text stream.
        tagged: the last column has the tags; otherwise ``Sentence.columns`` has all columns after the first.

    Raises:
        ValueError: a line has another number of columns than the first, a bad tag or bytes that are not UTF-8 (the
            message starts with ``path:line:``); the file is empty, too large or a damaged archive.
        OSError: the file cannot be read, or does not exist (:class:`FileNotFoundError`).
    """
    name = str(path) if isinstance(path, (str, PathLike)) else str(getattr(path, "name", "<stream>"))
    sentences = [_sentence(rows, tagged) for rows in _sentence_rows(_numbered_lines(path, name), name, tagged)]
    if not sentences:
        raise ValueError(f"{name}: no sentences")
    return sentences


def _numbered_lines(source: str | PathLike[str] | TextIO, name: str) -> Iterator[tuple[int, str]]:
    number, size = 0, 0
    try:
        with _opened(source) as file:
            for number, line in enumerate(iter(partial(file.readline, _LONGEST_LINE), b""), start=1):
                size += len(line)
                if len(line) == _LONGEST_LINE:
                    raise ValueError(f"{name}:{number}: a line of more than 1 MiB; each token needs a line of its own")
                if size > _LARGEST:
                    raise ValueError(f"{name}: more than {_LARGEST >> 20} MiB of text; give a part of it")
                yield number, line.decode("utf-8-sig" if number == 1 else "utf-8")
    except UnicodeDecodeError as error:
        place, byte = max(number, 1) + error.object.count(b"\n", 0, error.start), error.object[error.start]
        raise ValueError(f"{name}:{place}: byte {byte:#x} is not {error.encoding}") from None
    except (EOFError, gzip.BadGzipFile, zlib.error) as error:
        raise ValueError(f"{name}: damaged gzip archive: {error}") from error


@contextmanager
def _opened(source: str | PathLike[str] | TextIO) -> Iterator[BinaryIO]:
    """The text of a file or stream as bytes."""
    if isinstance(source, (str, PathLike)):
        with tracked_file(source, f"reading {os.path.basename(source)}") as file:
            archive = file.peek(len(_GZIP_MAGIC)).startswith(_GZIP_MAGIC)
            yield cast(BinaryIO, gzip.GzipFile(fileobj=file) if archive else file)
    else:
        # Standard input may have let undecodable bytes pass, escaped: they come back and are refused later.
        yield BytesIO(source.read().encode("utf-8", "surrogateescape"))


def _sentence_rows(lines: Iterable[tuple[int, str]], name: str, tagged: bool) -> Iterator[list[list[str]]]:
    """The cells of each sentence's tokens."""
    rows: list[list[str]] = []
    columns: int | None = None
    for number, line in lines:
        row = _cells(line)
        if row and row[0] != _DOCUMENT_START:
            try:
                if len(row) != columns:
                    _check_columns(row, columns, tagged)
                if tagged:
                    split_tag(row[-1])
            except ValueError as error:
                raise ValueError(f"{name}:{number}: {error}") from None
            columns = len(row)
            rows.append(row)
        elif rows:
            yield rows
            rows = []
    if rows:
        yield rows


def _check_columns(row: list[str], columns: int | None, tagged: bool) -> None:
    """Refuse another number of columns than before, and words without tags."""
    if columns is not None:
        raise ValueError(f"expected {columns} columns, got {len(row)}")
    if tagged and len(row) < 2:
        raise ValueError("expected a word and a tag, got one column")


def _cells(line: str) -> list[str]:
    """The columns of a line. Only ASCII white space separates them: words may contain no-break spaces."""
    cells = line.split() if line.isascii() else _cells_of_unicode(line)
    return list(map(intern, cells))  # a corpus repeats them over and over


def _sentence(rows: list[list[str]], tagged: bool) -> Sentence:
    words, *columns = map(list, zip(*rows, strict=True))
    tags = columns.pop() if tagged else None
    return Sentence(words, columns, tags)


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
