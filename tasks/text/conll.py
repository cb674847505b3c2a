"""Column files of the CoNLL shared tasks: one token per line, a blank line after each sentence."""

import gzip
import zlib
from array import array
from collections.abc import Callable, Sequence
from os import PathLike
from typing import TextIO

import numpy as np

from structsmooth.tag_schemes import split_tag
from structsmooth.tasks.text.corpus import Corpus, Sentence, Token
from structsmooth.tasks.text.lines import Part, blocks, cells, opened, part_of, separates

__all__ = ["Sentence", "read_conll", "read_corpus", "write_conll"]

_SEPARATOR, _DOCUMENT = -1, -2


def read_conll(path: str | PathLike[str] | TextIO, *, tagged: bool = True) -> list[Sentence]:
    """Sentences of a column file; arguments and errors are those of :func:`read_corpus`."""
    return list(read_corpus(path, tagged=tagged))


def read_corpus(
    path: str | PathLike[str] | TextIO,
    *,
    tagged: bool = True,
    plain: bool = False,
    share: Callable[[int], range] | None = None,
) -> Corpus:
    """The corpus of a column file, as in CoNLL-2003 (word, pos, chunk, tag) and CoNLL-2000 (word, pos, tag).

    White space separates columns, blank lines and ``-DOCSTART-`` lines separate sentences. Files are UTF-8,
    plain or compressed by gzip, of at most 512 MiB of text.

    Args:
        path: the file, or an open text stream.
        tagged: the last column has the tags; otherwise all columns after the first are columns of the sentences.
        plain: tags may be any strings, and not those of entities alone.
        share: which neighbouring sentences of a file to keep, given how many there are; all if not given. Other lines
            are not parsed: they may even be malformed.

    Raises:
        ValueError: a line has another number of columns than the first, a bad tag or bytes that are not UTF-8 (the
            message starts with ``path:line:``); the file is empty, too large or a damaged archive.
        OSError: the file cannot be read, or does not exist (:class:`FileNotFoundError`).
    """
    name = str(path) if isinstance(path, (str, PathLike)) else str(getattr(path, "name", "<stream>"))
    parsed, numbers, part = _ParsedLines(tagged, plain), array("i"), Part()
    try:
        if share is not None:
            with opened(path) as file:
                part = part_of(share, blocks(file, name, part))
            parsed.columns = part.columns
        with opened(path) as file:
            for block in blocks(file, name, part):
                _extend(numbers, block[:-1].split(b"\n"), parsed, name, part.lines)
    except UnicodeDecodeError as error:
        place = part.lines + len(numbers) + 1 + error.object.count(b"\n", 0, error.start)
        raise ValueError(f"{name}:{place}: byte {error.object[error.start]:#x} is not {error.encoding}") from None
    except (EOFError, gzip.BadGzipFile, zlib.error) as error:
        raise ValueError(f"{name}: damaged gzip archive: {error}") from error
    if not parsed.distinct:
        raise ValueError(f"{name}: no sentences")
    return _corpus(parsed, np.frombuffer(numbers, dtype=np.int32))


class _ParsedLines(dict[bytes, int]):
    """The number of the token of each line, which is parsed when it is first seen; separators have numbers below 0."""

    def __init__(self, tagged: bool, plain: bool) -> None:
        self._tagged, self._plain = tagged, plain
        self.columns: int | None = None  # of all rows
        self.distinct: dict[Token, int] = {}

    def __missing__(self, line: bytes) -> int:
        row = cells(line.decode())
        if not separates(row):
            token = self._token(row)
            number = self.distinct.setdefault(token, len(self.distinct))
        else:
            number = _DOCUMENT if row else _SEPARATOR
        self[line] = number
        return number

    def _token(self, row: list[str]) -> Token:
        """The token of a row, unless it has another number of columns than rows before, or no tag."""
        if self.columns not in (None, len(row)):
            raise ValueError(f"expected {self.columns} columns, got {len(row)}")
        if not self._tagged:
            token = Token(row[0], tuple(row[1:]))
        elif len(row) < 2:
            raise ValueError("expected a word and a tag, got one column")
        else:
            if not self._plain:
                split_tag(row[-1])
            token = Token(row[0], tuple(row[1:-1]), row[-1])
        self.columns = len(row)
        return token


def _extend(numbers: "array[int]", lines: list[bytes], parsed: _ParsedLines, name: str, skipped: int) -> None:
    """Append the numbers of the tokens of lines; before the first of all, some lines of the file were skipped."""
    try:
        numbers.extend(map(parsed.__getitem__, lines))
    except UnicodeDecodeError:
        raise
    except ValueError as error:  # of the line behind the last number
        raise ValueError(f"{name}:{skipped + len(numbers) + 1}: {error}") from None


def _corpus(parsed: _ParsedLines, numbers: "np.typing.NDArray[np.int32]") -> Corpus:
    """The corpus of the numbers of lines."""
    present = numbers >= 0
    ends = np.cumsum(present)[~present]  # tokens before each separator
    offsets = np.unique(np.concatenate([ends, [0, np.count_nonzero(present)]]))
    documents = np.cumsum(numbers == _DOCUMENT)[present][offsets[:-1]]
    return Corpus(list(parsed.distinct), numbers[present], offsets, documents)


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
