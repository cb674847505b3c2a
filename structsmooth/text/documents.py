"""Annotated documents: texts with labelled spans, in the forms in which tools for annotation write them."""

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate, groupby, pairwise
from typing import Any, NamedTuple

from structsmooth.text.corpus import Sentence
from structsmooth.text.schemes import Entity, entities, entity_tags


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
        spans: that are labelled.
        tokens: where each token starts and ends, if the file has tokens.

    Raises:
        ValueError: spans or tokens that are empty, leave the text or overlap.
    """

    text: str
    spans: tuple[Span, ...] = ()
    tokens: tuple[tuple[int, int], ...] | None = None

    def __post_init__(self) -> None:
        spans = sorted(_trimmed(self.text, span) for span in self.spans)
        for before, span in pairwise(spans):
            if span.start < before.end:
                first, second = (self.text[s.start : s.end] for s in (before, span))
                raise ValueError(
                    f"the spans {first[:40]!r} and {second[:40]!r} overlap: a tagger gives each token one tag. Keep "
                    "one of them, or learn nested spans with Constituents (docs/structures/constituents.md)"
                )
        object.__setattr__(self, "spans", tuple(spans))
        places = [0, *(place for token in self.tokens or () for place in token), len(self.text)]
        ordered = all(before <= place for before, place in pairwise(places))
        if not ordered or any(start == end for start, end in self.tokens or ()):
            raise ValueError(f"tokens are empty, overlap or leave the text of {len(self.text)} characters")

    @classmethod
    def of_tags(cls, words: Sequence[str], tags: Sequence[str] | None) -> "Document":
        """The words of a sentence, joined by blanks, with its entities."""
        ends = [*accumulate(len(word) + 1 for word in words)]
        tokens = tuple((end - len(word) - 1, end - 1) for word, end in zip(words, ends, strict=True))
        found = entities(tags) if tags else []
        spans = tuple(Span(tokens[e.start][0], tokens[e.end - 1][1], e.type) for e in found)
        return cls(" ".join(words), spans, tokens)

    @property
    def covered(self) -> list[str]:
        """The characters of each span."""
        return [self.text[span.start : span.end] for span in self.spans]

    def tagged(
        self, split: Callable[[str], Sequence[str]], misaligned: list[str]
    ) -> Iterator[tuple[Sentence, list[int]]]:
        """The lines of the text as sentences with BIO tags, and where their tokens start.

        Args:
            split: the words of a line, where the document has no tokens.
            misaligned: takes what spans cover that begin or end inside of tokens. These are split there.
        """
        borders = sorted({place for span in self.spans for place in (span.start, span.end)})
        inside, tokens = set[int](), list[tuple[int, int]]()
        for start, end in _placed(self.text, split) if self.tokens is None else self.tokens:
            cuts = borders[bisect_right(borders, start) : bisect_left(borders, end)]
            inside.update(cuts)
            tokens += pairwise([start, *cuts, end])
        spans = zip(self.covered, self.spans, strict=True)
        misaligned.extend(text for text, span in spans if inside & {span.start, span.end})
        numbers = {start: number for number, (start, _) in enumerate(tokens)}
        ends = {end: number + 1 for number, (_, end) in enumerate(tokens)}
        for text, span in zip(self.covered, self.spans, strict=True):
            if span.start not in numbers or span.end not in ends:
                raise ValueError(f"the span {text[:40]!r} is not covered by tokens")
        breaks = [place for place, character in enumerate(self.text) if character == "\n"]
        lines = [bisect_left(breaks, start) for start, _ in tokens]
        found = list[Entity]()
        for span in self.spans:  # an entity begins anew in the next line
            for _, part in groupby(range(numbers[span.start], ends[span.end]), key=lines.__getitem__):
                first, *others = part
                found.append(Entity(span.label, first, first + 1 + len(others)))
        tags = entity_tags(found, len(tokens), "BIO")
        for _, line in groupby(range(len(tokens)), key=lines.__getitem__):
            inside_line = list(line)
            words = [self.text[slice(*tokens[number])] for number in inside_line]
            starts = [tokens[number][0] for number in inside_line]
            yield Sentence(words, [], [tags[number] for number in inside_line]), starts

    def to_json(self) -> dict[str, Any]:
        """The document as plain JSON, with the keys ``text`` and ``spans``."""
        return {"text": self.text, "spans": [span._asdict() for span in self.spans]}


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
