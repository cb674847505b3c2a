"""The forms in which tools for annotation write documents: JSON of several tools, brat, CoNLL-U and columns."""

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

from structsmooth.checkpoint import write_atomic
from structsmooth.files import read_bytes
from structsmooth.text.conll import read_corpus, read_text
from structsmooth.text.corpus import Sentence
from structsmooth.text.documents import Document, Span
from structsmooth.text.forms import AS_FOUND, Reading
from structsmooth.text.inputs import Splitter
from structsmooth.text.layouts import universal_row

# Keys of lists of spans, of their fields, and of tags of tokens, in the order in which they are looked for.
_SPANS = ("spans", "label", "labels", "entities", "annotations")
_START, _END = ("start", "start_offset", "begin"), ("end", "end_offset", "stop")
_LABEL = ("label", "labels", "entity", "type", "tag")
_TAGS = ("ner_tags", "tags", "labels", "label")
_ROW = 'a line of JSON must be {"text": ..., "spans": [{"start": 0, "end": 3, "label": "PER"}]}, or the form of '
_KNOWN = _ROW + "doccano, prodigy, spaCy, Label Studio or Hugging Face"


def document_of(value: Any, names: Sequence[str] = ()) -> Document | None:
    """The document of a value of JSON, or none if annotators rejected or skipped it.

    Args:
        value: in the form of doccano, prodigy, spaCy, Label Studio or Hugging Face.
        names: of the tags, where tokens have their numbers.

    Raises:
        ValueError: a value of another form, or spans that a text cannot have.
    """
    if isinstance(value, list) and len(value) == 2 and isinstance(value[1], Mapping):  # spaCy's examples in Python
        value = {"text": value[0], **value[1]}
    if not isinstance(value, Mapping):
        raise ValueError(f"{_KNOWN}; got {json.dumps(value)[:60]}")
    if value.get("answer", "accept") != "accept":  # of prodigy
        return None
    if isinstance(data := value.get("data"), Mapping):  # of Label Studio
        return _of_label_studio(data, value)
    tokens, text = value.get("tokens"), value.get("text")
    if isinstance(tokens, list) and tokens and all(isinstance(token, str) for token in tokens):
        tags = next((value[key] for key in _TAGS if key in value), None)
        return Document.of_tags(tokens, tags if tags is None else _tags(tags, tokens, names))
    if not isinstance(text, str):
        raise ValueError(f"{_KNOWN}; got the keys {', '.join(map(str, value)) or 'of nothing'}")
    spans = next((value[key] for key in _SPANS if value.get(key) is not None), [])
    if not isinstance(spans, list):
        raise ValueError(f"expected a list of spans, got {json.dumps(spans)[:60]}; labels of whole texts are no spans")
    offsets = tuple((int(t["start"]), int(t["end"])) for t in tokens) if isinstance(tokens, list) else None
    return Document(text, tuple(map(_span, spans)), offsets)


def _of_label_studio(data: Mapping[str, Any], task: Mapping[str, Any]) -> Document | None:
    """The first annotation of a task that nobody cancelled."""
    texts = [text for text in data.values() if isinstance(text, str)]
    if len(texts) != 1 and not isinstance(data.get("text"), str):
        raise ValueError("expected a text in the data of a task of Label Studio")
    done = [one for one in task.get("annotations", task.get("completions", [])) if not one.get("was_cancelled")]
    if not done:
        return None
    values = [part["value"] for part in done[0]["result"] if part.get("type") in ("labels", "hypertextlabels")]
    return Document(str(data.get("text", texts[0])), tuple(map(_span, values)))


def _tags(tags: Any, tokens: Sequence[str], names: Sequence[str]) -> list[str]:
    """Tags of tokens by name."""
    if not isinstance(tags, list) or len(tags) != len(tokens):
        raise ValueError(f"expected a tag for each of {len(tokens)} tokens, got {json.dumps(tags)[:60]}")
    if all(isinstance(tag, str) for tag in tags):
        return tags
    known = all(isinstance(tag, int) and 0 <= tag < len(names) for tag in tags)
    if not known:
        raise ValueError("the tags are numbers: give their names in order, --names O,B-PER,I-PER for instance")
    return [names[tag] for tag in tags]


def _span(value: Any) -> Span:
    if isinstance(value, list) and len(value) == 3:
        start, end, label = value
    elif isinstance(value, Mapping):
        start, end, label = (
            next((value[key] for key in keys if key in value), None) for keys in (_START, _END, _LABEL)
        )
    else:
        start = end = label = None
    if isinstance(label, list) and len(label) == 1:
        (label,) = label
    if type(start) is not int or type(end) is not int or not isinstance(label, str):
        raise ValueError(f"a span must have a start, an end and a label, got {json.dumps(value)[:60]}")
    return Span(start, end, label)


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
        lines = ((f"{path}:{number}", line) for number, line in enumerate(text.split("\n"), 1) if line.strip())
        values = ((place, _loaded(place, line)) for place, line in lines)
    else:
        examples = whole if isinstance(whole, list) and not _is_pair(whole) else [whole]
        values = ((f"{path}: example {number}", value) for number, value in enumerate(examples, 1))
    for place, value in values:
        try:
            found = document_of(value, names)
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            reason = str(error) if isinstance(error, ValueError) else _KNOWN
            raise ValueError(f"{place}: {reason}") from None
        if found is not None:
            yield found


def _is_pair(value: list[Any]) -> bool:
    """Whether a list is one of spaCy's examples in Python."""
    return len(value) == 2 and isinstance(value[0], str)


def _loaded(place: str, line: str) -> Any:
    try:
        return json.loads(line)
    except ValueError as error:
        raise ValueError(f"{place}: expected a value of JSON in each line: {error}") from None


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
    """Words with what stands behind each of them."""
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
