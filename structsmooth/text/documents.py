"""Annotated documents: texts with labelled spans, in the forms in which tools for annotation write them."""

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import accumulate, groupby, pairwise
from operator import add
from sys import getsizeof
from typing import Any, NamedTuple

from structsmooth.files import LIMIT_VARIABLE, size_limit
from structsmooth.text.corpus import Allowed, Sentence
from structsmooth.text.lines import WORD
from structsmooth.text.schemes import Entity, entities, entity_tags

# Bytes of memory that a document, and a span or token of it, take beside their characters.
_DOCUMENT, _PLACE = 512, 160


class Span(NamedTuple):
    """Characters ``start`` to ``end`` (exclusive) of a text, with a label; characters are those of Unicode."""

    start: int
    end: int
    label: str


@dataclass(frozen=True)
class Document:
    """A text with spans, in order, which do not overlap.

    Args:
        text: as it was given, or its tokens, joined by blanks.
        spans: that are labelled; ``None`` in a text that nobody annotated.
        tokens: where each token starts and ends, if the file has tokens.
        allowed: the tags that each token may have, ``None`` for all, if the file says so.
        source: what answers need of the file: the value of JSON, or where the text begins in a file of brat.

    Raises:
        ValueError: spans or tokens that are empty, leave the text or overlap.
    """

    text: str
    spans: tuple[Span, ...] | None = ()
    tokens: tuple[tuple[int, int], ...] | None = None
    allowed: Allowed | None = None
    source: Any = field(default=None, compare=False, repr=False)

    def __post_init__(self) -> None:
        if self.spans is not None:
            object.__setattr__(self, "spans", tuple(self._checked(self.spans)))
        places = [0, *(place for token in self.tokens or () for place in token), len(self.text)]
        ordered = all(type(place) is int and before <= place for before, place in pairwise(places))
        if not ordered or any(start == end for start, end in self.tokens or ()):
            raise ValueError(f"tokens are empty, overlap or leave the text of {len(self.text)} characters")

    def _checked(self, spans: Sequence[Span]) -> list[Span]:
        """The spans in order, if they are such as a text can have."""
        ordered = sorted(_trimmed(self.text, span) for span in spans)
        for before, span in pairwise(ordered):
            if span.start < before.end:
                first, second = (self.text[s.start : s.end] for s in (before, span))
                raise ValueError(
                    f"the spans {first[:40]!r} and {second[:40]!r} overlap: a tagger gives each token one tag. Keep "
                    "one of them, or learn nested spans with Constituents (docs/structures/constituents.md)"
                )
        return ordered

    @classmethod
    def of_tags(
        cls, words: Sequence[str], tags: Sequence[str] | None, spaces: Sequence[str] | None = None
    ) -> "Document":
        """The words of a sentence with its entities, and spaces behind each word: blanks, if they are not given."""
        spaced = list(map(add, words, spaces or [" "] * len(words)))
        starts = [0, *accumulate(map(len, spaced))]
        tokens = tuple((start, start + len(word)) for start, word in zip(starts, words, strict=False))
        spans = tuple(Span(tokens[e.start][0], tokens[e.end - 1][1], e.type) for e in entities(tags or ()))
        text = "".join(spaced)[: tokens[-1][1] if tokens else 0]
        return cls(text, None if tags is None else spans, tokens)

    @property
    def size(self) -> int:
        """Bytes of memory that the document takes."""
        counts = len(self.spans or ()) + len(self.tokens or ())
        return getsizeof(self.text) + getsizeof(self.source) + _DOCUMENT + _PLACE * counts

    @property
    def covered(self) -> list[str]:
        """The characters of each span."""
        return [self.text[span.start : span.end] for span in self.spans or ()]

    def tagged(
        self, split: Callable[[str], Sequence[str]], misaligned: list[str]
    ) -> Iterator[tuple[Sentence, list[int]]]:
        """The lines of the text as sentences, with BIO tags if it is annotated, and where their tokens start.

        Args:
            split: the words of a line, where the document has no tokens.
            misaligned: takes what spans cover that begin or end inside of tokens. These are split there.
        """
        annotated = self.spans or ()
        borders = sorted({place for span in annotated for place in (span.start, span.end)})
        inside, tokens, most = set[int](), list[tuple[int, int]](), size_limit() // WORD
        for start, end in _placed(self.text, split) if self.tokens is None else self.tokens:
            cuts = borders[bisect_right(borders, start) : bisect_left(borders, end)]
            inside.update(cuts)
            tokens += pairwise([start, *cuts, end])
            if len(tokens) > most:
                raise ValueError(
                    f"more than {most:,} words in a text: make it several, or set {LIMIT_VARIABLE} to more than "
                    f"{size_limit() >> 20} MiB"
                )
        spans = list(zip(self.covered, annotated, strict=True))
        misaligned.extend(text for text, span in spans if inside & {span.start, span.end})
        numbers = {start: number for number, (start, _) in enumerate(tokens)}
        ends = {end: number + 1 for number, (_, end) in enumerate(tokens)}
        for text, span in spans:
            if span.start not in numbers or span.end not in ends:
                raise ValueError(f"the span {text[:40]!r} is not covered by tokens")
        breaks = [place for place, character in enumerate(self.text) if character == "\n"]
        lines = [bisect_left(breaks, start) for start, _ in tokens]
        found = list[Entity]()
        for span in annotated:  # an entity begins anew in the next line
            for _, part in groupby(range(numbers[span.start], ends[span.end]), key=lines.__getitem__):
                first, *others = part
                found.append(Entity(span.label, first, first + 1 + len(others)))
        tags = None if self.spans is None else entity_tags(found, len(tokens), "BIO")
        if self.allowed is not None and len(self.allowed) != len(tokens):
            raise ValueError(f"allowed must have an entry for each of {len(tokens)} tokens, got {len(self.allowed)}")
        for _, line in groupby(range(len(tokens)), key=lines.__getitem__):
            inside_line = list(line)
            words = [self.text[slice(*tokens[number])] for number in inside_line]
            starts = [tokens[number][0] for number in inside_line]
            marks = None if tags is None else [tags[number] for number in inside_line]
            allowed = None if self.allowed is None else [self.allowed[number] for number in inside_line]
            yield Sentence(words, [], marks, allowed), starts

    def to_json(self) -> dict[str, Any]:
        """The document as plain JSON, with the keys ``text`` and ``spans``."""
        return {"text": self.text, "spans": [span._asdict() for span in self.spans or ()]}


def _trimmed(text: str, span: Span) -> Span:
    """A span without the blanks at its ends, which annotators mark by mistake."""
    if not 0 <= span.start < span.end <= len(text):
        raise ValueError(f"the span {tuple(span)} is empty or leaves the text of {len(text)} characters")
    covered = text[span.start : span.end]
    if not covered.strip():
        raise ValueError(f"the span {tuple(span)} has nothing but blanks")
    start = span.start + len(covered) - len(covered.lstrip())
    return Span(start, start + len(covered.strip()), span.label)


def _placed(text: str, split: Callable[[str], Sequence[str]]) -> Iterator[tuple[int, int]]:
    """Where the words of each line of a text start and end."""
    place = 0
    for line in text.split("\n"):
        for word in split(line):
            place = text.index(word, place)
            yield place, place + len(word)
            place += len(word)
