"""Texts with a file of annotations of brat (``.ann``) beside each of them."""

import re
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator, Sequence
from itertools import count
from os import PathLike
from pathlib import Path

from structsmooth.messages import located
from structsmooth.text.documents import Document, Span
from structsmooth.text.lines import Source, read_text, returns_before_breaks

_LINE = re.compile(r"\S(?:[^\n]*\S)?")  # without the blanks at its ends


def brat_texts(path: Source) -> list[Path]:
    """The texts (``.txt``) of a folder, or the one of a path, with annotations beside them; none of another file.

    Raises:
        ValueError: a folder without them.
    """
    if not isinstance(path, (str, PathLike)):
        return []
    file = Path(path)
    if file.is_dir():
        texts = sorted(text for text in file.glob("*.txt") if text.with_suffix(".ann").exists())
        if not texts:
            raise ValueError(
                f"{path}: expected a file, got a folder without texts (.txt) and files of brat (.ann) beside them"
            )
        return texts
    return [file.with_suffix(".txt")] if file.suffix in (".txt", ".ann") and file.with_suffix(".ann").exists() else []


def read_brat(texts: Iterable[Path], encoding: str | None, annotated: bool = True) -> Iterator[Document]:
    """Texts with the entities of the files beside them, unless these are to be found.

    Raises:
        ValueError: a malformed line, or entities that a text cannot have, with the name of the file.
    """
    for text in texts:
        content, returns = "\n".join(read_text(text, encoding)), returns_before_breaks(text, encoding)
        annotations = text.with_suffix(".ann")
        lines = list(enumerate(read_text(annotations, encoding) if annotated or returns else (), 1))
        yield brat_document(content, lines, str(annotations), returns, annotated)


def brat_document(
    content: str, annotations: Sequence[tuple[int, str]], name: str, returns: Sequence[int] = (), annotated: bool = True
) -> Document:
    """A text with the entities of numbered lines of annotations, in a file of this name, say.

    Offsets count the ``returns`` before line breaks, which the text lacks, if the entities are right only so.
    """
    spans, counted = list[Span](), returns[:0]
    try:
        spans = list(_entities(annotations, content, name, ()))
    except ValueError as error:
        try:
            spans, counted = list(_entities(annotations, content, name, returns)), returns
        except ValueError:
            if annotated:
                raise error from None
    with located(name):
        return Document(content, tuple(spans) if annotated else None, source=counted)


def annotation_lines(texts: Iterable[tuple[str, Iterable[Span], Sequence[int]]]) -> Iterator[str]:
    """Lines of annotations without their ends, of texts, their spans, and the returns that offsets count.

    Raises:
        ValueError: labels that brat cannot have.
    """
    numbers = count(1)
    for text, spans, returns in texts:
        for start, end, label in spans:
            if not label or any(character.isspace() or character == ";" for character in label):
                raise ValueError(f"brat has no labels with blanks, such as {label[:40]!r}: write lines of JSON")
            lines = [(start + line.start(), start + line.end()) for line in _LINE.finditer(text[start:end])]
            offsets = ((a + bisect_right(returns, a), b + bisect_right(returns, b - 1)) for a, b in lines)
            where = ";".join(f"{a} {b}" for a, b in offsets)
            yield f"T{next(numbers)}\t{label} {where}\t{' '.join(text[a:b] for a, b in lines)}"


def _entities(lines: Iterable[tuple[int, str]], content: str, name: str, returns: Sequence[int]) -> Iterator[Span]:
    """The entities of lines, none of relations, events, attributes and notes."""
    counted = [place + before for before, place in enumerate(returns)]
    for number, line in lines:
        if not line.startswith("T"):
            continue
        try:
            _, where, covered = line.split("\t", 2)
            label, *offsets = where.replace(";", " ").split(" ")
            places = [place - bisect_left(counted, place) for place in map(int, offsets)]
            start, end = places[0], places[2 * (len(places) // 2) - 1]
        except (ValueError, IndexError):
            message = f"expected T1, a label with offsets, and a text, got {line[:60]!r}"
            raise ValueError(f"{name}:{number}: {message}") from None
        apart = (content[a:b].strip() or a > b for a, b in zip(places[1::2], places[2::2], strict=False))
        if any(apart):
            message = f"{covered[:40]!r} is in several pieces, which no tags can mark: mark one of them"
            raise ValueError(f"{name}:{number}: {message}")
        if not 0 <= start < end <= len(content):
            raise ValueError(
                f"{name}:{number}: offsets must be within the text of {len(content)} characters, got {where}"
            )
        if content[start:end].split() != covered.split():
            message = f"the text has {content[start:end][:40]!r} there, and not {covered[:40]!r}"
            raise ValueError(f"{name}:{number}: {message}")
        yield Span(start, end, label)
