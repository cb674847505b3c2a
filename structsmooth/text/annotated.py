"""Annotated texts in all forms that tools for annotation write: reading them, and writing them in another form."""

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from io import StringIO
from itertools import accumulate, chain, repeat, zip_longest
from pathlib import Path
from typing import Any, Literal

from structsmooth.checkpoint import write_atomic
from structsmooth.text.brat import annotation_lines, brat_document, brat_texts, read_brat
from structsmooth.text.conll import documents_of, read_corpus
from structsmooth.text.documents import TRAINING, Document, Span
from structsmooth.text.forms import AS_FOUND, Reading, Sample
from structsmooth.text.label_studio import task_of
from structsmooth.text.lines import begun, blocks, decoded_lines, read_text
from structsmooth.text.texts import TextSentence
from structsmooth.text.universal import sentence_lines, universal_row, write_column

Form = Literal["jsonl", "doccano", "label-studio", "conll", "conllu", "brat"]
"""The forms in which documents can be written."""

_ENTITIES = "misc:NER"


def read_documents(
    path: str, reading: Reading = AS_FOUND, column: str | None = None, *, is_text: bool = False
) -> list[Document]:
    """The documents of a file of any form that is known.

    Args:
        path: JSON lines or JSON; a text with an ``.ann`` file of brat beside it, or a folder of such; CoNLL-U, where
            ``column`` has the tags; columns.
        reading: of columns, and the names of tags that are numbers.
        column: of CoNLL-U, such as ``misc:NER``.
        is_text: whether these are lines of text, of which each that is not blank is a text without annotations.

    Raises:
        ValueError: a file of another form, with its name, and the line where it has lines.
    """
    if column is not None:
        return list(_read_universal(path, column, reading))
    if texts := brat_texts(path):
        return list(chain.from_iterable(document.lines() for document in read_brat(texts, reading.encoding)))
    begin, whole = begun(blocks(path, reading.encoding))
    if is_text:
        return list(documents_of("text", decoded_lines(whole, path), path, reading))
    if (kind := Sample(path, begin).texts(reading)) is not None:
        return list(documents_of(kind, decoded_lines(whole, path), path, reading))
    return [Document.of_tags(sentence.words, sentence.tags) for sentence in read_corpus(path, reading=reading)]


def _read_universal(path: str, column: str, reading: Reading) -> Iterator[Document]:
    """Sentences of CoNLL-U, as their text was written, with the entities of a column."""
    corpus = iter(read_corpus(path, column=column, reading=reading))
    words, spaces = list[str](), list[str]()
    for line in [*read_text(path, reading.encoding), ""]:
        row = [] if line.startswith("#") else universal_row(line)
        if row and row[0].isdigit():
            words.append(row[1])
            spaces.append("" if "SpaceAfter=No" in row[-1].split("|") else " ")
        elif words and not row:
            yield Document.of_tags(words, next(corpus).tags, spaces)
            words, spaces = [], []


def write_documents(
    documents: Sequence[Document],
    path: str,
    form: Form,
    misaligned: list[str],
    probabilities: Sequence[Sequence[float]] | None = None,
) -> None:
    """Write documents in a form, if they can be read in it again.

    Args:
        documents: that have words, each line a sentence, but for lines that a span goes over.
        path: a file; for brat, the text (``.txt``), beside which its ``.ann`` is written.
        form: JSON lines with the offsets of characters, which prodigy reads; those of doccano; a list of tasks of Label
            Studio; columns of words and tags; CoNLL-U with words and entities alone; brat, a line for each document.
        misaligned: takes what spans cover that begin or end inside of tokens, where columns split these.
        probabilities: of the spans of each document, if a model has found them: JSON has these beside them, and Label
            Studio predictions in place of annotations.

    Raises:
        ValueError: words, labels or texts that the form cannot have, such as a word that looks like a line between
            documents.
    """
    if form in _JSON:
        values = list(map(_JSON[form], documents, probabilities or repeat(None)))
        lines = [json.dumps(value, ensure_ascii=False) for value in values]
        text = "[" + ",\n".join(lines) + "]\n" if form == "label-studio" else "".join(f"{line}\n" for line in lines)
    elif form == "brat":
        if Path(path).suffix != ".txt":
            raise ValueError(f"{path}: brat has texts in files named .txt, and annotations in .ann beside: name it so")
        text, annotations = _as_brat(documents)
        write_atomic(Path(path).with_suffix(".ann"), annotations)
    else:
        sentences = [
            TextSentence(**vars(sentence), document=document, starts=starts)
            for document in documents
            for sentence, starts, _ in document.tagged(TRAINING, misaligned)
        ]
        text = _as_columns(sentences) if form == "conll" else _as_universal(sentences)
        with _readable(form):
            column, stream = None if form == "conll" else _ENTITIES, StringIO(text)
            stream.name = path
            found = read_corpus(stream, column=column) if sentences else ()
            _expect_same([(s.words, s.tags) for s in found], [(s.words, s.tags) for s in sentences])
            for sentence in sentences:
                Document.of_tags(sentence.words, sentence.tags)  # or its entities cannot be read
    write_atomic(Path(path), text)


def _for_prodigy(document: Document, probabilities: Sequence[float] | None) -> dict[str, Any]:
    value = document.to_json()
    for span, probability in zip(value["spans"], probabilities or (), strict=False):
        span["probability"] = probability
    return value


def _for_doccano(document: Document, probabilities: Sequence[float] | None) -> dict[str, Any]:
    value = {"text": document.text, "label": [list(span) for span in document.spans or ()]}
    return value if probabilities is None else value | {"probabilities": list(probabilities)}


_JSON: Mapping[str, Callable[[Document, Sequence[float] | None], dict[str, Any]]] = {
    "jsonl": _for_prodigy,
    "doccano": _for_doccano,
    "label-studio": lambda document, probabilities: task_of(document.text, document.spans or (), probabilities),
}


def _as_columns(sentences: Sequence[TextSentence]) -> str:
    rows = [list(zip(sentence.words, sentence.tags or (), strict=True)) for sentence in sentences]
    between = "\t" if any(" " in cell for pairs in rows for pair in pairs for cell in pair) else " "
    return "".join("".join(f"{word}{between}{tag}\n" for word, tag in pairs) + "\n" for pairs in rows)


def _as_universal(sentences: Sequence[TextSentence]) -> str:
    lines = (line for s in sentences for line in sentence_lines(s.words, s.line.replace("\r", " "), s.starts))
    stream = StringIO()
    write_column(lines, _ENTITIES, (sentence.tags or () for sentence in sentences), stream)
    return stream.getvalue()


def _as_brat(documents: Sequence[Document]) -> tuple[str, str]:
    """A file of texts, a line for each document, and the file of their annotations."""
    begins = [0, *accumulate(len(document.text) + 1 for document in documents)]
    if any(len([*document.lines()]) > 1 for document in documents):
        raise ValueError("brat has a line for each document, and a text has several lines: write --to jsonl")
    content = "".join(f"{document.text}\n" for document in documents)
    moved = [
        Span(begin + start, begin + end, label)
        for begin, document in zip(begins, documents, strict=False)
        for start, end, label in document.spans or ()
    ]
    lines = list(annotation_lines([(content, moved, ())]))
    with _readable("brat"):
        text = "\n".join(read_text(StringIO(content)))
        read = brat_document(text, list(enumerate(lines, 1)), "the annotations").lines()
        wanted = [(d.text, d.spans) for d in documents if d.text.strip()]
        _expect_same([(document.text, document.spans) for document in read], wanted)
    return content, "".join(f"{line}\n" for line in lines)


@contextmanager
def _readable(form: Form) -> Iterator[None]:
    """A block that reads what is to be written, and refuses what cannot be read."""
    try:
        yield
    except ValueError as error:
        raise ValueError(f"these texts cannot be written --to {form}, but --to jsonl: {error}") from None


def _expect_same(found: Sequence[object], wanted: Sequence[object]) -> None:
    """Refuse what would be read as something else."""
    for got, given in zip_longest(found, wanted):
        if got != given:
            raise ValueError(f"{str(given)[:200]} would be read as {str(got)[:200]}")
