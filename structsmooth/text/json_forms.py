"""The forms in which tools for annotation write texts as JSON, and the texts of files of such values."""

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from structsmooth.messages import located
from structsmooth.text.corpus import Allowed
from structsmooth.text.documents import Document, Span
from structsmooth.text.label_studio import text_of_task
from structsmooth.text.lines import LARGEST_VALUE

# Keys of lists of spans, of their fields, and of tags of tokens, in the order in which they are looked for.
_SPANS = ("spans", "label", "labels", "entities", "ents", "annotations")
_START, _END = ("start", "start_offset", "begin"), ("end", "end_offset", "stop")
_LABEL = ("label", "labels", "hypertextlabels", "entity", "type", "tag")
_TAGS = ("ner_tags", "tags", "labels", "label")
_IGNORED = -100  # by losses, in data sets of Hugging Face
_KNOWN = (
    'a line of JSON must be {"text": ..., "spans": [{"start": 0, "end": 3, "label": "PER"}]}, or have the form of '
    "doccano, prodigy, spaCy, Label Studio or Hugging Face"
)


def document_of(
    value: Any, names: Sequence[str] = (), annotated: bool = True, annotator: str | None = None
) -> Document | None:
    """The document of a value of JSON, or none if annotators rejected or skipped it.

    Args:
        value: in the form of doccano, prodigy, spaCy, Label Studio or Hugging Face.
        names: of the tags, where tokens have their numbers.
        annotated: whether there must be spans or tags, or an empty list of them; otherwise they are left aside.
        annotator: whose annotations count in Label Studio, as of :func:`text_of_task`.

    Raises:
        ValueError: a value of another form, or spans that a text cannot have.
    """
    try:
        return _document_of(value, names, annotated, annotator)
    except (KeyError, TypeError, AttributeError, IndexError):
        raise ValueError(f"{_KNOWN}; got {json.dumps(value)[:60]}") from None


def json_documents(
    lines: Iterable[str],
    name: str,
    names: Sequence[str] = (),
    annotated: bool = True,
    annotator: str | None = None,
) -> Iterator[Document]:
    """The documents of lines of JSON, or of one value over all lines; of a list, those of its entries.

    Raises:
        ValueError: what :func:`document_of` refuses, with the name of the file, and the line or the entry.
    """
    found = False
    for place, value in _values(iter(lines), name):
        with located(place):
            document = document_of(value, names, annotated, annotator)
        if document is not None:
            found = True
            yield document if annotated else replace(document, source=json.dumps(value))
    if annotator is not None and not found:
        raise ValueError(f"{name}: no text with annotations by {annotator}")


def _values(lines: Iterator[str], name: str) -> Iterator[tuple[str, Any]]:
    """The values of lines, or the entries of a list, and where they stand."""
    others = lines  # of the value that begins in the first line
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        # Only a value that begins in the first line may take others: then the lines are one value, and the loop ends.
        value, others = _loaded(line, others, name, number), iter(())
        if isinstance(value, list) and not is_pair(value):
            yield from ((f"{name}: example {place}", entry) for place, entry in enumerate(value, 1))
        else:
            yield f"{name}:{number}", value


def _document_of(value: Any, names: Sequence[str], annotated: bool, annotator: str | None) -> Document | None:
    if is_pair(value):
        value = {"text": value[0], **value[1]}
    if not isinstance(value, Mapping):
        raise ValueError(f"{_KNOWN}; got {json.dumps(value)[:60]}")
    if value.get("answer", "accept") != "accept":  # of prodigy
        return None
    tokens, text, allowed = value.get("tokens"), value.get("text", value.get("data")), _allowed(value.get("allowed"))
    if isinstance(tokens, list) and all(isinstance(token, str) for token in tokens) and (tokens or text is None):
        tags = _tags(_first(value, _TAGS), tokens, names) if annotated else None
        return replace(Document.of_tags(tokens, tags), allowed=allowed)
    if (task := text_of_task(value, annotated, annotator)) is not None:
        text, regions = task
        if regions is None:
            return None if annotated else Document(text, None)
        return Document(text, _spans(regions, text))
    if not isinstance(text, str):
        raise ValueError(f"{_KNOWN}; got the keys {', '.join(map(str, value)) or 'of nothing'}")
    offsets = tuple((token["start"], token["end"]) for token in tokens) if isinstance(tokens, list) else None
    if not annotated:
        return Document(text, None, offsets, allowed)
    spans = [] if "answer" in value and not value.keys() & {*_SPANS} else _first(value, _SPANS)
    if not isinstance(spans, list):
        raise ValueError(f"expected a list of spans, got {json.dumps(spans)[:60]}; labels of whole texts are no spans")
    return Document(text, _spans(spans, text), offsets, allowed)


def is_pair(value: Any) -> bool:
    """Whether a value of JSON is one of spaCy's examples in Python, a text and its annotations."""
    return isinstance(value, list) and len(value) == 2 and isinstance(value[0], str) and isinstance(value[1], Mapping)


def _first(value: Mapping[str, Any], keys: Sequence[str]) -> Any:
    """The value of the first of some keys that says something, or an empty list if those that are there do not."""
    present = [value[key] for key in keys if key in value]
    if not present:
        raise ValueError(f"no annotation: expected one of the keys {', '.join(keys)}, got {', '.join(map(str, value))}")
    return next((found for found in present if found is not None), [])


def _allowed(sets: Any) -> Allowed | None:
    """The tags that tokens may have, by the key ``allowed``."""
    if sets is None:
        return None
    listed = [tags for tags in sets if tags is not None] if isinstance(sets, list) else [sets]
    if not all(isinstance(tags, list) and all(isinstance(tag, str) for tag in tags) for tags in listed):
        raise ValueError(
            'allowed must be a list with a list of tags, or null, for each token, as in [null, ["B-PER", "O"]]; '
            f"got {json.dumps(sets)[:60]}"
        )
    return list(sets)


def _tags(tags: Any, tokens: Sequence[str], names: Sequence[str]) -> list[str]:
    """Tags of tokens by name."""
    if not isinstance(tags, list) or len(tags) != len(tokens):
        raise ValueError(f"expected a tag for each of {len(tokens)} tokens, got {json.dumps(tags)[:60]}")
    for token, tag in zip(tokens, tags, strict=True):
        if tag in (None, _IGNORED):
            raise ValueError(
                f"the tag of {token[:40]!r} is {json.dumps(tag)}, which stands for an unknown one: take "
                "such tokens out, or write columns, with _ for such tags and --unknown _"
            )
    if all(isinstance(tag, str) for tag in tags):
        return tags
    if wrong := [tag for tag in tags if type(tag) is not int]:
        raise ValueError(f"tags must be all names or all whole numbers, got {json.dumps(wrong[0])[:60]}")
    if not names:
        raise ValueError("the tags are numbers: give their names in order, --names O,B-PER,I-PER for instance")
    if wrong := [tag for tag in tags if not 0 <= tag < len(names)]:
        raise ValueError(f"the tag {wrong[0]} is none of the {len(names)} that --names names, counted from 0")
    return [names[tag] for tag in tags]


def _spans(values: Sequence[Any], text: str) -> tuple[Span, ...]:
    """The spans of a text, of which each may say what it covers."""
    spans = tuple(map(_span, values))
    for value, (start, end, _) in zip(values, spans, strict=True):
        covered = value.get("text") if isinstance(value, Mapping) else None
        if isinstance(covered, str) and covered != text[start:end]:
            raise ValueError(
                f"the text has {text[start:end][:40]!r} from {start} to {end}, and not {covered[:40]!r}: offsets count "
                "characters of Unicode, an emoji as one"
            )
    return spans


def _span(value: Any) -> Span:
    if isinstance(value, list) and len(value) == 3:
        start, end, label = value
    elif isinstance(value, Mapping):
        start, end, label = (
            next((value[key] for key in keys if key in value), None) for keys in (_START, _END, _LABEL)
        )
    else:
        start = end = label = None
    if isinstance(label, list) and len(label) > 1:
        raise ValueError(f"a span has several labels, {json.dumps(label)[:60]}: keep one, as a token has one tag")
    if isinstance(label, list) and len(label) == 1:
        (label,) = label
    if type(start) is not int or type(end) is not int or not isinstance(label, str):
        raise ValueError(f"a span must have a start, an end and a label, got {json.dumps(value)[:60]}")
    return Span(start, end, label)


def _loaded(text: str, others: Iterator[str], name: str, number: int) -> Any:
    """The value of a line of JSON, or if it has none, of it and some others, in a file of this name.

    Raises:
        ValueError: they have none, or one that is too large or has halves of characters, which no file can have.
    """
    try:
        try:
            value = json.loads(_bounded(text))
        except json.JSONDecodeError:
            if not (rest := "\n".join(others)).strip():
                raise
            text = _bounded(f"{text}\n{rest}")
            value = json.loads(text)
    except (ValueError, RecursionError) as error:
        place = number + getattr(error, "lineno", 1) - 1
        raise ValueError(f"{name}:{place}: expected a value of JSON in each line: {error}") from None
    if "\\ud" in text.lower():  # which only such an escape can spell
        try:
            json.dumps(value, ensure_ascii=False).encode()
        except UnicodeEncodeError as error:
            half = f"\\u{ord(error.object[error.start]):04x} is half of a character (a lone surrogate)"
            raise ValueError(f"{name}:{number}: {half}: take it out") from None
    return value


def _bounded(text: str) -> str:
    if len(text) > LARGEST_VALUE:
        raise ValueError(f"this one has more than {LARGEST_VALUE >> 20} MiB")
    return text
