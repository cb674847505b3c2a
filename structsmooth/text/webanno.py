"""The TSV of WebAnno and INCEpTION, version 3: words with the features of layers, one of which labels entities."""

import re
from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby
from typing import NamedTuple

from structsmooth.text.documents import Document, Span

_SPANS, _LAYERS = "#T_SP=", ("#T_SP=", "#T_CH=", "#T_RL=")  # of spans, of chains and of relations
_ROW = re.compile(r"\d+-\d+(\.\d+)?\t(\d+)-(\d+)\t([^\t]+)\t(.*)")  # a word, or with a point, a part of the one before
_ANNOTATION = re.compile(r"((?:\\.|[^\\|\[])+)(?:\[(\d+)\])?")  # its value, and its number if it has several words
_NONE, _EMPTY = "_", "*"


class _Feature(NamedTuple):
    """A feature of a layer; those of chains and relations have no layer here."""

    layer: str
    name: str

    def __str__(self) -> str:
        return f"{self.layer}.{self.name}"


class _Row(NamedTuple):
    """A word, or a part of the one before: where it stands, its offsets in units of UTF-16, and its features."""

    place: str
    is_part: bool
    begin: int
    end: int
    form: str
    values: list[str]


def webanno_documents(
    lines: Iterable[str], name: str, feature: str | None = None, annotated: bool = True
) -> Iterator[Document]:
    """The sentences of a file, with the entities that a feature of a layer of spans labels.

    Args:
        lines: of the file.
        name: of the file, for messages.
        feature: its name, perhaps behind that of its layer, as in ``NamedEntity.value``; by default the value of named
            entities, or the only one that there is.
        annotated: whether there must be such a feature; otherwise entities are left aside.

    Raises:
        ValueError: a malformed line, an entity without a value or over several sentences, or no such feature.
    """
    features, before = list[_Feature](), set[str]()
    for _, block in groupby(enumerate(lines, 1), lambda numbered: not numbered[1].strip()):
        rows = list[_Row]()
        for number, line in block:
            if line.startswith(_LAYERS):
                features += _features(line)
            elif line.strip() and not line.startswith("#"):
                rows.append(_row(line, len(features), f"{name}:{number}"))
        if rows:
            text, tokens, places = _text(rows)
            labelled = _entities(rows, places, _column(features, feature, name), features) if annotated else {}
            if shared := before & labelled.keys():
                number = min(shared)
                raise ValueError(
                    f"{rows[0].place}: the entity [{number}] has begun in a sentence before: mark it in one"
                )
            before |= {key for key in labelled if key.isdecimal()}
            try:
                yield Document(text, tuple(labelled.values()) if annotated else None, tokens, source="{}")
            except ValueError as error:
                raise ValueError(f"{rows[0].place}: {error}") from None


def _features(line: str) -> list[_Feature]:
    """The features of a layer that a line of the head declares."""
    layer, *names = line[len(_SPANS) :].strip().split("|")
    layer = layer.rpartition(".")[2] if line.startswith(_SPANS) else ""
    return [_Feature(layer, name) for name in names or [""]]


def _column(features: Sequence[_Feature], wanted: str | None, name: str) -> int:
    """The place of the feature that has labels."""
    spans = [place for place, feature in enumerate(features) if feature.layer]
    found = [place for place in spans if wanted in (features[place].name, str(features[place]))]
    if wanted is None:
        found = [place for place in spans if features[place] == ("NamedEntity", "value")] or spans
    if len(found) != 1:
        listed = ", ".join(str(features[place]) for place in spans) or "none"
        raise ValueError(f"{name}: choose the feature that labels entities by --tag-column, of {listed}")
    return found[0]


def _row(line: str, features: int, place: str) -> _Row:
    found = _ROW.fullmatch(line)
    values = [] if found is None else found[5].split("\t")
    if found is None or len(values) < features:
        raise ValueError(f"{place}: expected 1-1, 0-3, a word and {features} features between tabs, got {line[:60]!r}")
    begin, end = int(found[2]), int(found[3])
    # Files of some versions have words as they are, those of others with backslashes before brackets and the like.
    form = found[4] if 2 * (end - begin) == len(found[4].encode("utf-16-le")) else _unescaped(found[4])
    return _Row(place, found[1] is not None, begin, end, form, values)


def _text(rows: Sequence[_Row]) -> tuple[str, tuple[tuple[int, int], ...], list[tuple[int, int]]]:
    """The text of a sentence, and where its words, and all rows, start and end: blanks between words are one blank."""
    text, word, tokens, places = "", rows[0], list[tuple[int, int]](), list[tuple[int, int]]()
    for row in rows:
        if row.is_part and tokens:
            units, start = word.form.encode("utf-16-le"), tokens[-1][0]
            ends = (len(units[: 2 * (end - word.begin)].decode("utf-16-le", "ignore")) for end in (row.begin, row.end))
            first, last = (start + end for end in ends)
            places.append((first, last))
            continue
        text += " " if tokens and row.begin > word.end else ""
        tokens.append((len(text), len(text) + len(row.form)))
        places.append(tokens[-1])
        text, word = text + row.form, row
    return text, tuple(tokens), places


def _entities(
    rows: Sequence[_Row], places: Sequence[tuple[int, int]], column: int, features: Sequence[_Feature]
) -> dict[str, Span]:
    """The entities of a sentence by their numbers; by their places those that have one word and no number."""
    found = dict[str, Span]()
    for row, (start, end) in zip(rows, places, strict=True):
        annotations = [] if row.values[column] == _NONE else _ANNOTATION.findall(row.values[column])
        for label, number in annotations:
            if label == _EMPTY and features[column].name:
                raise ValueError(
                    f"{row.place}: the entity of {row.form[:40]!r} has no {features[column].name}: give it one"
                )
            key = number or f"{row.place} {label}"
            label = features[column].layer if label == _EMPTY else _unescaped(label)
            found[key] = Span(found[key].start if key in found else start, end, label)
    return found


def _unescaped(text: str) -> str:
    return re.sub(r"\\(.)", r"\1", text)
