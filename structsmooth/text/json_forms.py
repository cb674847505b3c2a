"""The forms in which tools for annotation write texts as JSON, and files with one of them in each line."""

import json
import warnings
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from structsmooth.text.corpus import Corpus, Token
from structsmooth.text.documents import Document, Span
from structsmooth.text.layouts import DOCUMENT, SEPARATOR, SKIPPED, Layout
from structsmooth.text.probabilities import ProbableEntity

# Keys of lists of spans, of their fields, and of tags of tokens, in the order in which they are looked for.
_SPANS = ("spans", "label", "labels", "entities", "annotations")
_START, _END = ("start", "start_offset", "begin"), ("end", "end_offset", "stop")
_LABEL = ("label", "labels", "entity", "type", "tag")
_TAGS = ("ner_tags", "tags", "labels", "label")
_KNOWN = (
    'a line of JSON must be {"text": ..., "spans": [{"start": 0, "end": 3, "label": "PER"}]}, or have the form of '
    "doccano, prodigy, spaCy, Label Studio or Hugging Face"
)
# Lines in the place of a value without a document, behind a sentence, and behind a document.
_LEFT_OUT = b"\t"
_ENDS = {_LEFT_OUT.decode(): SKIPPED, "\n": SEPARATOR, "": DOCUMENT}


def document_of(value: Any, names: Sequence[str] = (), annotated: bool = False) -> Document | None:
    """The document of a value of JSON, or none if annotators rejected or skipped it.

    Args:
        value: in the form of doccano, prodigy, spaCy, Label Studio or Hugging Face.
        names: of the tags, where tokens have their numbers.
        annotated: whether there must be spans, or an empty list of them.

    Raises:
        ValueError: a value of another form, or spans that a text cannot have.
    """
    try:
        return _document_of(value, names, annotated)
    except (KeyError, TypeError, AttributeError, IndexError):
        raise ValueError(f"{_KNOWN}; got {json.dumps(value)[:60]}") from None


def _document_of(value: Any, names: Sequence[str], annotated: bool) -> Document | None:
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
        tags = _first(value, _TAGS, annotated)
        return Document.of_tags(tokens, tags if tags is None else _tags(tags, tokens, names))
    if not isinstance(text, str):
        raise ValueError(f"{_KNOWN}; got the keys {', '.join(map(str, value)) or 'of nothing'}")
    spans = _first(value, _SPANS, annotated) or []
    if not isinstance(spans, list):
        raise ValueError(f"expected a list of spans, got {json.dumps(spans)[:60]}; labels of whole texts are no spans")
    offsets = tuple((int(t["start"]), int(t["end"])) for t in tokens) if isinstance(tokens, list) else None
    return Document(text, tuple(map(_span, spans)), offsets)


def _first(value: Mapping[str, Any], keys: Sequence[str], required: bool) -> Any:
    """The value of the first of some keys."""
    found = next((value[key] for key in keys if value.get(key) is not None), None)
    if required and found is None:
        raise ValueError(f"no annotation: expected one of the keys {', '.join(keys)}, got {', '.join(map(str, value))}")
    return found


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


@dataclass(frozen=True, eq=False)
class AnnotatedCorpus(Corpus):
    """The sentences of lines of JSON, with what is needed to write answers in their form.

    Args:
        values: of the lines, without those that have no document.
        texts: of these.
        starts: where the tokens of each sentence start in its text.
    """

    values: list[Any] = field(default_factory=list)
    texts: list[str] = field(default_factory=list)
    starts: list[list[int]] = field(default_factory=list)

    def answers(self, spans: Sequence[Sequence[ProbableEntity]]) -> Iterator[dict[str, Any]]:
        """What the values say with the spans of each sentence in place of theirs, if they have any."""
        assert self.documents is not None
        by_document = defaultdict[int, list[dict[str, Any]]](list)
        for number, (sentence, starts, found) in enumerate(zip(self, self.starts, spans, strict=True)):
            document = int(self.documents[number])
            for span in found:
                begin, end = starts[span.start], starts[span.end - 1] + len(sentence.words[span.end - 1])
                covered = {"start": begin, "end": end, "label": span.label, "text": self.texts[document][begin:end]}
                by_document[document].append({**covered, "probability": span.probability})
        for document, (value, text) in enumerate(zip(self.values, self.texts, strict=True)):
            yield {**(value if isinstance(value, Mapping) else {}), "text": text, "spans": by_document[document]}


class AnnotatedLines(Layout):
    """A value of JSON in each line: an annotated text, whose lines are sentences.

    Args:
        split: the words of a line, where a value has no tokens.
        names: of the tags, where tokens have their numbers.
        annotated: whether texts must have spans.
    """

    has_sentence_lines = True

    def __init__(
        self, split: Callable[[str], Sequence[str]], names: Sequence[str] = (), annotated: bool = True
    ) -> None:
        self._split, self._names, self._annotated = split, names, annotated
        self._values, self._texts, self._starts = list[Any](), list[str](), list[list[int]]()
        self._misaligned = list[str]()

    def __str__(self) -> str:
        return "lines of JSON, texts with spans"

    def lines(self, block: bytes) -> Iterable[bytes]:
        """The words of the sentences of each value with their tags, and a line behind each sentence and each value."""
        for line in super().lines(block):
            value = loaded(line.decode()) if line.strip() else None
            document = None if value is None else document_of(value, self._names, self._annotated)
            if document is None:
                yield _LEFT_OUT
                continue
            self._values.append(value)
            self._texts.append(document.text)
            for sentence, starts in document.tagged(self._split, self._misaligned):
                self._starts.append(starts)
                rows = zip(sentence.words, sentence.tags or (), strict=True)
                yield from (f"{word}\t{tag}".encode() for word, tag in rows)
                yield b"\n"
            yield b""

    def complete(self, numbers: Sequence[int]) -> int:
        """How many lines have been read as a whole."""
        return sum(number in (DOCUMENT, SKIPPED) for number in numbers)

    def parse(self, line: str) -> Token | int:
        """A word with its tag."""
        if line in _ENDS:
            return _ENDS[line]
        word, _, tag = line.rpartition("\t")
        return Token(word, (), tag)

    def finish(self, corpus: Corpus, name: str) -> AnnotatedCorpus:
        """The corpus of all lines, with their values; warns of spans that end inside of tokens."""
        if self._misaligned:
            count, first = len(self._misaligned), self._misaligned[0][:40]
            warnings.warn(
                f"{name}: {count} spans end inside of tokens, such as {first!r}: these tokens are split", stacklevel=4
            )
        return AnnotatedCorpus(**vars(corpus), values=self._values, texts=self._texts, starts=self._starts)


def loaded(line: str) -> Any:
    """The value of a line of JSON.

    Raises:
        ValueError: it has none.
    """
    try:
        return json.loads(line)
    except (ValueError, RecursionError) as error:
        raise ValueError(f"expected a value of JSON in each line: {error}") from None
