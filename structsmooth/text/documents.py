"""Annotated documents: texts with labelled spans, in the forms in which tools for annotation write them."""

import re
from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import accumulate, groupby, pairwise
from operator import add, itemgetter
from sys import getsizeof
from typing import Any, NamedTuple

from structsmooth.files import LIMIT_VARIABLE, size_limit
from structsmooth.text.boundaries import Boundaries
from structsmooth.text.corpus import Allowed, Sentence
from structsmooth.text.lines import WORD
from structsmooth.text.schemes import Entity, entities, entity_tags
from structsmooth.text.standalone import Splitter

_BREAKS = re.compile(r"\n(?:[^\S\n]*\n)*")  # line breaks with nothing but blanks between them

# Bytes of memory that a document, and a span or token of it, take beside their characters.
_DOCUMENT, _PLACE = 512, 160


class Span(NamedTuple):
    """Characters ``start`` to ``end`` (exclusive) of a text, with a label; characters are those of Unicode."""

    start: int
    end: int
    label: str


@dataclass(frozen=True)
class Segmentation:
    """How texts are cut into sentences and words.

    Args:
        clitics: parts of words that are words of their own, and abbreviations; see :class:`Splitter`.
        line_breaks: how many line breaks in a row end a sentence; ``None`` for as few as no span goes over.
        cuts: whether ends of spans cut words. Only annotations tell these, so that nothing is measured on such words.
        boundaries: tell where sentences end between line breaks; if not given, they do not.
    """

    clitics: tuple[str, ...] = ()
    line_breaks: int | None = None
    cuts: bool = True
    boundaries: Boundaries | None = field(default=None, hash=False)

    @cached_property
    def splitter(self) -> Splitter:
        """What cuts sentences into words."""
        return Splitter(self.clitics)

    def of(self, documents: Sequence["Document"]) -> "Segmentation":
        """The same for some documents, with a number of line breaks."""
        if self.line_breaks is not None:
            return self
        return replace(self, line_breaks=max((document.line_breaks for document in documents), default=1))


TRAINING = Segmentation()
"""What training makes of texts: spans are whole, and are whole words."""
UNCUT = Segmentation(line_breaks=1, cuts=False)
"""Texts as nothing but their characters tell."""


class Line(NamedTuple):
    """A sentence of a text, where its words start, and the spans that begin in it."""

    sentence: Sentence
    starts: list[int]
    spans: tuple[Span, ...]


@dataclass(frozen=True)
class Document:
    """A text with spans, in order, which do not overlap.

    Args:
        text: as it was given, or its tokens, joined by blanks.
        spans: that are labelled; ``None`` in a text that nobody annotated.
        tokens: where each token starts and ends, if the file has tokens.
        allowed: the tags that each token may have, ``None`` for all, if the file says so. Tokens are those that answers
            have, and not those that ends of spans cut.
        source: what answers need of the file: the value of JSON, or the returns that offsets of brat count.

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

    @property
    def line_breaks(self) -> int:
        """How many line breaks in a row end a sentence, such that no span is in two sentences."""
        return 1 + max(map(longest_break, self.covered), default=0)

    def lines(self) -> Iterator["Document"]:
        """The lines of a text without tokens that are not blank; those of a span over several lines are together."""
        spans = self.spans or ()
        joined = {place for span in spans for place in range(span.start, span.end) if self.text[place] == "\n"}
        ends = [run.start() for run in re.finditer("\n", self.text) if run.start() not in joined]
        for before, end in pairwise([-1, *ends, len(self.text)]):
            begin = before + 1
            if self.text[begin:end].strip():
                inside = spans[bisect_left(spans, (begin,)) : bisect_left(spans, (end,))]
                moved = tuple(Span(span.start - begin, span.end - begin, span.label) for span in inside)
                yield Document(self.text[begin:end], None if self.spans is None else moved)

    def tagged(self, how: Segmentation, misaligned: list[str]) -> Iterator[Line]:
        """The sentences of the text, with BIO tags if it is annotated: a token that a span covers in part is in it.

        Args:
            how: what are sentences, and words where the document has no tokens.
            misaligned: takes what spans cover that begin or end inside of tokens, or are in several sentences.

        Raises:
            ValueError: spans that no tokens cover, or allowed tags for another number of tokens.
        """
        spans, breaks = self.spans or (), self._breaks(how.of([self]).line_breaks or 1)
        if how.boundaries is not None:
            breaks = sorted({*breaks, *how.boundaries.ends(self.text)})
        borders = sorted({place for span in spans for place in span[:2]}) if how.cuts else []
        words, tokens, most = list[Any](), list[Any](), size_limit() // WORD
        for start, end in self._placed(breaks, how.splitter) if self.tokens is None else self.tokens:
            words.append((start, end))
            # Spans that begin or end inside of a word cut it, so that training sees whole spans; predictions never do.
            tokens += pairwise([start, *borders[bisect_right(borders, start) : bisect_left(borders, end)], end])
            if len(tokens) > most:
                raise ValueError(
                    f"more than {most:,} words in a text: make it several, or set {LIMIT_VARIABLE} to more than "
                    f"{size_limit() >> 20} MiB"
                )
        tags_allowed = None if how.cuts else self.allowed  # of the tokens that answers have
        if tags_allowed is not None and len(tags_allowed) != len(tokens):
            raise ValueError(f"allowed must have an entry for each of {len(tokens)} tokens, got {len(tags_allowed)}")
        lines = [bisect_left(breaks, start) for start, _ in tokens]
        starts, ends = ({place[side] for place in words} for side in (0, 1))
        found, begun = list[Entity](), dict[int, list[Span]]()
        for span, text in zip(spans, self.covered, strict=True):
            # Both searches are by one side of the tokens, which do not overlap: so both sides are in order.
            first = bisect_right(tokens, span.start, key=itemgetter(1))
            stop = bisect_left(tokens, span.end, key=itemgetter(0))
            if first >= stop or not (tokens[first][0] <= span.start < span.end <= tokens[stop - 1][1]):
                raise ValueError(f"the span {text[:40]!r} is not covered by tokens")
            if span.start not in starts or span.end not in ends or lines[first] < lines[stop - 1]:
                misaligned.append(text)
            begun.setdefault(lines[first], []).append(span)
            first = max(first, found[-1].end if found else 0)  # of two spans in a token, it is in the first
            # A span over a line break that ends a sentence is an entity in each of the sentences.
            for _, part in groupby(range(first, stop), key=lines.__getitem__):
                begin, *others = part
                found.append(Entity(span.label, begin, begin + 1 + len(others)))
        tags = None if self.spans is None else entity_tags(found, len(tokens), "BIO")
        for number, line in groupby(range(len(tokens)), key=lines.__getitem__):
            begin, *others = line
            inside = slice(begin, begin + 1 + len(others))
            own = [self.text[slice(*token)] for token in tokens[inside]]
            allowed = None if tags_allowed is None else tags_allowed[inside]
            sentence = Sentence(own, [], None if tags is None else tags[inside], allowed)
            yield Line(sentence, [start for start, _ in tokens[inside]], tuple(begun.get(number, ())))

    def _breaks(self, count: int) -> list[int]:
        """The places of the line breaks that end sentences, of which there are ``count`` in a row."""
        runs = [(run.start(), run[0]) for run in _BREAKS.finditer(self.text)]
        return [a + i for a, run in runs if run.count("\n") >= count for i, c in enumerate(run) if c == "\n"]

    def _placed(self, breaks: Sequence[int], splitter: Splitter) -> Iterator[tuple[int, int]]:
        """Where the words of each sentence start and end."""
        for before, end in pairwise([-1, *breaks, len(self.text)]):
            place = before + 1
            for word in splitter.words(self.text[place:end]):
                place = self.text.index(word, place)
                yield place, place + len(word)
                place += len(word)

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
    # Counted, not searched: the blanks may be of several kinds.
    start = span.start + len(covered) - len(covered.lstrip())
    return Span(start, start + len(covered.strip()), span.label)


NOTHING = Document("")


def longest_break(text: str) -> int:
    """The largest number of line breaks in a row that a text has, with nothing but blanks between them."""
    return max((run.count("\n") for run in _BREAKS.findall(text)), default=0)
