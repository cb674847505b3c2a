"""The TSV of WebAnno and INCEpTION, version 3: words with the features of layers, one of which labels entities."""

import re
from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby

from structsmooth.messages import located
from structsmooth.text.documents import Document, Span

_SPANS, _LAYERS = "#T_SP=", ("#T_SP=", "#T_CH=", "#T_RL=")  # of spans, of chains and of relations
_ROW = re.compile(r"\d+-\d+(\.\d+)?\t(\d+)-(\d+)\t([^\t]+)\t(.*)")  # a word, or with a point, a part of the one before
_ANNOTATION = re.compile(r"((?:\\.|[^\\|\[])+)(?:\[(\d+)\])?")  # its value, and its number if it has several words


def webanno_documents(
    lines: Iterable[str], name: str, feature: str | None = None, annotated: bool = True
) -> Iterator[Document]:
    """The sentences of a file of some name, with the entities that a feature of a layer of spans labels.

    Args:
        lines: of the file.
        name: of the file, for messages.
        feature: such as ``value`` or ``NamedEntity.value``, which is the default; else the only one that there is.
        annotated: whether there must be such a feature; otherwise entities are left aside.

    Raises:
        ValueError: a malformed line, an entity without a value or over several sentences, or no such feature.
    """
    features, before = list[str](), set[str]()  # of the columns behind the words; numbers of entities
    for _, block in groupby(enumerate(lines, 1), lambda numbered: not numbered[1].strip()):
        rows = list[tuple[str, str]]()
        for number, line in block:
            if line.startswith(_LAYERS):
                layer, *names = line[len(_SPANS) :].strip().split("|")
                layer = layer.rpartition(".")[2] if line.startswith(_SPANS) else ""
                features += [f"{layer}.{one}" for one in names or [""]]
            elif line.strip() and not line.startswith("#"):
                rows.append((f"{name}:{number}", line))
        if rows:
            yield _document(rows, features, _column(features, feature, name) if annotated else None, before)


def _column(features: Sequence[str], wanted: str | None, name: str) -> int:
    """The place of the feature that has labels."""
    spans = [one for one in features if not one.startswith(".")]
    found = [one for one in spans if wanted in (one, one.partition(".")[2])]
    if wanted is None:
        found = [one for one in spans if one == "NamedEntity.value"] or spans
    if len(found) != 1:
        raise ValueError(f"{name}: choose what labels entities by --tag-column, of {', '.join(spans) or 'none'}")
    return features.index(found[0])


def _document(
    rows: Sequence[tuple[str, str]], features: Sequence[str], column: int | None, before: set[str]
) -> Document:
    """A sentence of rows and their places; ``before`` has the numbers of entities of others, and takes those of it."""
    text, word, begin, end, tokens, entities = "", "", 0, 0, list[tuple[int, int]](), dict[str, Span]()
    for place, line in rows:
        row = _ROW.fullmatch(line)
        values = [] if row is None else row[5].split("\t")
        if row is None or len(values) < len(features) or (row[1] and not tokens):
            wanted = f"1-1, 0-3, a word and {len(features)} features between tabs"
            raise ValueError(f"{place}: expected {wanted}, got {line[:60]!r}")
        first, last = int(row[2]), int(row[3])
        if row[1] is None:  # a word: blanks before it become one blank
            text += " " if tokens and first > end else ""
            word, begin, end = _as_long_as(row[4], last - first), first, last
            tokens.append((len(text), len(text) + len(word)))
            text += word
        span = [tokens[-1][0] + _characters(word, unit - begin) for unit in (first, last)]
        for value, number in (
            _ANNOTATION.findall(values[column]) if column is not None and values[column] != "_" else ()
        ):
            layer, _, name = features[column or 0].partition(".")
            if (value == "*" and name) or number in before:
                wrong = "has begun in a sentence before: mark it in one" if number in before else f"has no {name}"
                raise ValueError(f"{place}: the entity of {row[4][:40]!r} {wrong}")
            key, label = number or f"{place} {value}", layer if value == "*" else _unescaped(value)
            entities[key] = Span(entities[key].start if key in entities else span[0], span[1], label)
    before |= {key for key in entities if key.isdecimal()}
    with located(rows[0][0]):
        return Document(text, None if column is None else tuple(entities.values()), tuple(tokens), source="{}")


def _characters(word: str, units: int) -> int:
    """How many characters some units of UTF-16, in which offsets count, are."""
    return len(word.encode("utf-16-le")[: 2 * units].decode("utf-16-le", "ignore"))


def _as_long_as(form: str, units: int) -> str:
    """A word as it is, or without the backslashes that files of some versions have before brackets and the like."""
    return form if 2 * units == len(form.encode("utf-16-le")) else _unescaped(form)


def _unescaped(text: str) -> str:
    return re.sub(r"\\(.)", r"\1", text)
