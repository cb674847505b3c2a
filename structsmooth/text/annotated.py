"""The forms in which tools for annotation write documents: JSON of several tools, brat, CoNLL-U and columns."""

import json
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, Literal

from structsmooth.checkpoint import write_atomic
from structsmooth.files import read_bytes
from structsmooth.text.conll import read_corpus, read_text
from structsmooth.text.corpus import Sentence
from structsmooth.text.documents import Document, Span
from structsmooth.text.forms import AS_FOUND, Reading
from structsmooth.text.json_forms import document_of, loaded
from structsmooth.text.layouts import universal_row
from structsmooth.text.splitter import Splitter


def read_documents(
    path: str, reading: Reading = AS_FOUND, column: str | None = None, names: Sequence[str] = ()
) -> list[Document]:
    """The documents of a file of any form that is known.

    Args:
        path: JSON lines or JSON; a text with an ``.ann`` file of brat beside it, or a folder of such; CoNLL-U, where
            ``column`` has the tags; columns.
        reading: of columns.
        column: of CoNLL-U, such as ``misc:NER``.
        names: of tags that are numbers.

    Raises:
        ValueError: a file of another form, with its name, and the line where it has lines.
    """
    file = Path(path)
    if file.is_dir():
        texts = sorted(text for text in file.glob("*.txt") if text.with_suffix(".ann").exists())
        if not texts:
            raise ValueError(f"{path}: expected texts (.txt) with files of brat (.ann) beside them")
        return [document for text in texts for document in _read_brat(text, reading)]
    if file.suffix in (".txt", ".ann") and file.with_suffix(".ann").exists():
        return _read_brat(file.with_suffix(".txt"), reading)
    if column is not None:
        return list(_read_universal(path, column, reading))
    if read_bytes(file)[:1] in (b"{", b"["):
        return list(_read_json(path, reading, names))
    return [Document.of_tags(s.words, s.tags) for s in read_corpus(path, reading=reading)]


def _read_json(path: str, reading: Reading, names: Sequence[str]) -> Iterator[Document]:
    """Documents of lines of JSON, or of one value that is a list."""
    text = "\n".join(read_text(path, reading.encoding))
    values: Iterable[tuple[str, Any]]
    try:
        whole = json.loads(text)
    except ValueError:
        numbered = enumerate(text.split("\n"), 1)
        values = ((f"{path}:{number}", line) for number, line in numbered if line.strip())
    else:
        examples = whole if isinstance(whole, list) and not _is_pair(whole) else [whole]
        values = ((f"{path}: example {number}", value) for number, value in enumerate(examples, 1))
    for place, value in values:
        try:
            found = document_of(loaded(value) if isinstance(value, str) else value, names)
        except ValueError as error:
            raise ValueError(f"{place}: {error}") from None
        if found is not None:
            yield found


def _is_pair(value: list[Any]) -> bool:
    """Whether a list is one of spaCy's examples in Python."""
    return len(value) == 2 and isinstance(value[0], str)


def _read_brat(text: Path, reading: Reading) -> list[Document]:
    """The lines of a text with the entities of the file beside it."""
    content = "\n".join(read_text(text, reading.encoding))
    name, spans = text.with_suffix(".ann"), list[Span]()
    for number, line in enumerate(read_text(name, reading.encoding), 1):
        if not line.startswith("T"):  # relations, events, attributes and notes
            continue
        try:
            _, place, covered = line.split("\t")
            label, *offsets = place.replace(";", " ").split(" ")
            start, end = int(offsets[0]), int(offsets[-1])  # of all fragments, if there are several
        except ValueError:
            raise ValueError(
                f"{name}:{number}: expected T1, a label with offsets, and a text, got {line[:60]!r}"
            ) from None
        if len(offsets) == 2 and content[start:end].replace("\n", " ") != covered:
            raise ValueError(
                f"{name}:{number}: the text has {content[start:end][:40]!r} there, and not {covered[:40]!r}"
            )
        spans.append(Span(start, end, label))
    begin, documents = 0, list[Document]()
    for line in content.split("\n"):
        end = begin + len(line)
        inside = [span for span in spans if begin <= span.start < end]
        try:
            shifted = tuple(Span(s.start - begin, s.end - begin, s.label) for s in inside)
            documents += [Document(line, shifted)] if line.strip() else []
        except ValueError as error:
            raise ValueError(f"{name}: {error}") from None
        begin = end + 1
    return documents


def _read_universal(path: str, column: str, reading: Reading) -> Iterator[Document]:
    """Sentences of CoNLL-U, as their text was written, with the entities of a column."""
    corpus = iter(read_corpus(path, column=column, reading=reading))
    words, spaces = list[str](), list[str]()
    for line in [*read_text(path, reading.encoding), ""]:
        row = [] if line.startswith("#") else universal_row(line)
        if row and row[0].isdigit():
            words.append(row[1])
            spaces.append("" if "SpaceAfter=No" in row[-1].split("|") else " ")
        elif words and not row and not line.startswith("#"):
            yield _joined(words, spaces, next(corpus).tags)
            words, spaces = [], []


def _joined(words: Sequence[str], spaces: Sequence[str], tags: Sequence[str] | None) -> Document:
    """The document of some words, with what stands behind each of them in its text, and their tags."""
    text, places = "", list[tuple[int, int]]()
    for word, space in zip(words, spaces, strict=True):
        places.append((len(text), len(text) + len(word)))
        text += word + space
    found = Document.of_tags(words, tags)
    starts = {start: place[0] for (start, _), place in zip(found.tokens or (), places, strict=True)}
    ends = {end: place[1] for (_, end), place in zip(found.tokens or (), places, strict=True)}
    spans = tuple(Span(starts[span.start], ends[span.end], span.label) for span in found.spans)
    return Document(text.rstrip(" "), spans, tuple(places))


Form = Literal["jsonl", "conll", "conllu", "brat"]
"""The forms in which documents can be written."""


def write_documents(documents: Sequence[Document], path: str, form: Form, misaligned: list[str]) -> None:
    """Write documents in a form.

    Args:
        documents: that have words, each line a sentence.
        path: a file; for brat, the text, beside which its ``.ann`` is written.
        form: JSON lines with the offsets of characters; columns of words and tags; CoNLL-U with words and entities
            alone; brat, a line for each document.
        misaligned: takes what spans cover that begin or end inside of tokens, where columns split these.
    """
    if form == "jsonl":
        text = "".join(f"{json.dumps(d.to_json(), ensure_ascii=False)}\n" for d in documents)
    elif form == "brat":
        text = _as_brat(documents, Path(path))
    else:
        split = Splitter().words
        sentences = [s for document in documents for s, _ in document.tagged(split, misaligned)]
        text = "".join(map(_as_columns if form == "conll" else _as_universal, sentences))
    write_atomic(Path(path), text)


def _as_columns(sentence: Sentence) -> str:
    between = "\t" if any(" " in word for word in sentence.words) else " "
    rows = zip(sentence.words, sentence.tags or (), strict=True)
    return "".join(f"{word}{between}{tag}\n" for word, tag in rows) + "\n"


def _as_universal(sentence: Sentence) -> str:
    rows = enumerate(zip(sentence.words, sentence.tags or (), strict=True), 1)
    return "".join(f"{n}\t{word}{7 * chr(9) + '_'}\tNER={tag}\n" for n, (word, tag) in rows) + "\n"


def _as_brat(documents: Sequence[Document], path: Path) -> str:
    lines, begin, number = list[str](), 0, 0
    for document in documents:
        if "\n" in document.text:
            raise ValueError("brat has a line for each document, and a text has several lines: write --to jsonl")
        for span, covered in zip(document.spans, document.covered, strict=True):
            number += 1
            lines.append(f"T{number}\t{span.label} {begin + span.start} {begin + span.end}\t{covered}\n")
        begin += len(document.text) + 1
    write_atomic(path.with_suffix(".ann"), "".join(lines))
    return "".join(f"{document.text}\n" for document in documents)
