"""Texts with a file of annotations of brat (``.ann``) beside each of them."""

from collections.abc import Iterable, Iterator, Sequence
from os import PathLike
from pathlib import Path

from structsmooth.text.documents import Document, Span
from structsmooth.text.lines import Source, read_text


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
    """The lines of texts that are not blank, with the entities of the files beside them unless these are to be found.

    Raises:
        ValueError: a malformed line, or entities that a line cannot have, with the name of the file.
    """
    for text in texts:
        annotations = text.with_suffix(".ann")
        lines = enumerate(read_text(annotations, encoding) if annotated else (), 1)
        yield from brat_documents("\n".join(read_text(text, encoding)), lines, str(annotations), annotated)


def brat_documents(
    content: str, annotations: Iterable[tuple[int, str]], name: str, annotated: bool = True
) -> Iterator[Document]:
    """The lines of a text with the entities that numbered lines of annotations, in a file of this name, say."""
    spans = [span for number, line in annotations for span in _entities(line, content, f"{name}:{number}")]
    begin = 0
    for line in content.split("\n"):
        end = begin + len(line)
        inside = (span for span in spans if begin <= span.start < end)
        shifted = tuple(Span(s.start - begin, s.end - begin, s.label) for s in inside)
        if line.strip() or shifted:
            try:
                yield Document(line, shifted if annotated else None, source=begin)
            except ValueError as error:
                raise ValueError(f"{name}: {error}") from None
        begin = end + 1


def annotation_lines(texts: Iterable[tuple[int, str, Sequence[Span]]]) -> Iterator[str]:
    """Lines of annotations without their ends, of places where texts begin in a file, the texts, and their spans.

    Raises:
        ValueError: labels that brat cannot have.
    """
    number = 0
    for begin, text, spans in texts:
        for start, end, label in spans:
            number += 1
            if not label or any(character.isspace() or character == ";" for character in label):
                raise ValueError(f"brat has no labels with blanks, such as {label[:40]!r}: write lines of JSON")
            yield f"T{number}\t{label} {begin + start} {begin + end}\t{text[start:end]}"


def _entities(line: str, content: str, place: str) -> Iterator[Span]:
    """The entity of a line, none of relations, events, attributes and notes."""
    if not line.startswith("T"):
        return
    try:
        _, where, covered = line.split("\t", 2)
        label, start_text, end_text, *fragments = where.replace(";", " ").split(" ")
        start, end = int(start_text), int(end_text)
    except ValueError:
        raise ValueError(f"{place}: expected T1, a label with offsets, and a text, got {line[:60]!r}") from None
    if fragments:
        raise ValueError(f"{place}: {covered[:40]!r} is in several pieces, which no tags can mark: mark one of them")
    if content[start:end].replace("\n", " ") != covered:
        raise ValueError(f"{place}: the text has {content[start:end][:40]!r} there, and not {covered[:40]!r}")
    marked = content[start:end]
    yield Span(start + len(marked) - len(marked.lstrip()), end, label)
