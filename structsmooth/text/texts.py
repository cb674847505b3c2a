"""Corpora of texts: where each word stands in its text, and answers in the form in which the texts came."""

import json
import warnings
from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from operator import itemgetter
from typing import Any, Literal, TextIO

import numpy as np
from numpy.typing import NDArray

from structsmooth.files import check_size
from structsmooth.messages import located
from structsmooth.text.brat import annotation_lines
from structsmooth.text.corpus import Allowed, Corpus, Sentence, Token
from structsmooth.text.documents import NOTHING, TRAINING, Document, Segmentation, Span, longest_break
from structsmooth.text.label_studio import task_of
from structsmooth.text.probabilities import ProbableEntity
from structsmooth.text.schemes import Entity, entities, entity_tags
from structsmooth.text.universal import sentence_lines

ProbableSpan = tuple[Span, float]
"""A span, and the probability that an output has it with both of its ends."""

Kind = Literal["text", "json lines", "json list", "brat", "webanno"]
"""The forms of files of texts."""

FORMS: Mapping[Kind, str] = {
    "text": "lines of text, a sentence in each",
    "json lines": "lines of JSON, texts with spans",
    "json list": "JSON, a list of texts with spans",
    "brat": "texts with annotations of brat",
    "webanno": "the TSV of WebAnno, words with entities",
}
"""Their names in messages."""


@dataclass(frozen=True)
class TextSentence(Sentence):
    """A sentence of a text.

    Attributes:
        document: that has it.
        starts: the place in the text where each word starts.
        spans: of the document that begin in the sentence; ``None`` if nobody annotated it.
        how: the text was cut into sentences and words.
    """

    document: Document = NOTHING
    starts: Sequence[int] = ()
    spans: tuple[Span, ...] | None = None
    how: Segmentation = TRAINING

    @property
    def text(self) -> str:
        """All of the text."""
        return self.document.text

    @property
    def line(self) -> str:
        """The lines of the text that the sentence is, or its part of them, as one line."""
        if self.how.boundaries is not None:
            return self.text[self.starts[0] : self.places[-1][1]].replace("\n", " ")
        begin = self.text.rfind("\n", 0, self.starts[0]) + 1
        end = self.text.find("\n", self.places[-1][1])
        return self.text[begin : len(self.text) if end < 0 else end].replace("\n", " ")

    @property
    def places(self) -> list[tuple[int, int]]:
        """Where each word starts and ends in the text."""
        return [(start, start + len(word)) for start, word in zip(self.starts, self.words, strict=True)]

    @property
    def longest_break(self) -> int:
        """The largest number of line breaks in a row inside of the sentence."""
        return longest_break(self.text[self.starts[0] : self.places[-1][1]])

    @property
    def is_exact(self) -> bool:
        """Whether the tags say what the spans say: these begin and end with words of the sentence."""
        right, tagged = self.compared(entities(self.tags or ()))
        return self.spans is None or right == tagged

    def cut(self, how: Segmentation) -> "TextSentence":
        """The same characters with the words that they have when they are cut as ``how`` says."""
        begin, end, tokens, spans = self.starts[0], self.places[-1][1], self.document.tokens, self.spans
        if tokens is not None:
            tokens = tokens[bisect_left(tokens, (begin,)) : bisect_left(tokens, (end,))]
            tokens = tuple((start - begin, stop - begin) for start, stop in tokens)
        if spans is not None:  # one may go on in the next sentence
            spans = tuple(Span(s.start - begin, min(s.end, end) - begin, s.label) for s in spans)
        part = Document(self.text[begin:end], spans, tokens)
        ((sentence, starts, _),) = part.tagged(replace(how, line_breaks=end, boundaries=None), [])
        moved = [begin + start for start in starts]
        whole = () if self.document.allowed is None else self.document.tagged(how, [])
        allowed = next((line.sentence.allowed for line in whole if line.starts == moved), None)
        origin = self.origin if sentence.words == self.words else None
        read = Sentence(sentence.words, self.columns, sentence.tags, allowed, origin)
        return replace(self, **vars(read), starts=moved, how=how)

    def compared(self, found: Iterable[Entity]) -> tuple[list[str], list[str]]:
        """BIO tags of the spans, and of entities of words, of the pieces of words that spans cut.

        The tags of an entity are those of a span if both are the same characters with the same label.
        """
        spans, places = self.spans or (), self.places
        borders, pieces = sorted({place for span in spans for place in span[:2]}), list[tuple[int, int]]()
        for start, end in places:
            pieces += pairwise([start, *borders[bisect_right(borders, start) : bisect_left(borders, end)], end])
        if spans and spans[-1].end > pieces[-1][1]:  # it goes on in the next sentence, where no entity reaches
            pieces.append((pieces[-1][1], spans[-1].end))
        guesses = (Span(places[start][0], places[end - 1][1], label) for label, start, end in found)
        right, guessed = (
            entity_tags([Entity(s.label, *_within(s, pieces)) for s in side], len(pieces), "BIO")
            for side in (spans, guesses)
        )
        return right, guessed


@dataclass(frozen=True, eq=False)
class TextCorpus(Corpus):
    """The sentences of texts.

    Args:
        kind: the form of the file.
        texts: that have the sentences.
        starts: the place in its text where each token starts: int32 [tokens].
        spans: those that begin in each sentence.
        misaligned: what spans cover that do not begin and end with words of a sentence; these words may have been cut.
        how: the texts were cut into sentences and words.
    """

    kind: Kind = "text"
    texts: Sequence[Document] = ()
    starts: NDArray[np.int32] = field(default_factory=lambda: np.zeros(0, dtype=np.int32))
    spans: Sequence[tuple[Span, ...]] = ()
    misaligned: Sequence[str] = ()
    how: Segmentation = TRAINING

    @classmethod
    def of_texts(
        cls,
        texts: Iterable[Document],
        kind: Kind,
        how: Segmentation,
        name: str,
        share: Callable[[int], range] | None = None,
    ) -> "TextCorpus":
        """The sentences of texts, or of a share of these.

        Raises:
            ValueError: no sentences, spans that no tokens cover, or allowed tags for another number of tokens.
        """
        texts = list(_bounded(texts, name))
        how = how.of(texts)
        texts = texts if share is None else [texts[number] for number in share(len(texts))]
        numbers, misaligned, allowed = dict[Token, int](), list[str](), list[Allowed | None]()
        tokens, starts, ends, documents = array("i"), array("i"), [0], list[int]()
        spans = list[tuple[Span, ...]]()
        for place, text in enumerate(texts):
            with located(f"{name}: text {place + 1}"):
                lines = list(text.tagged(how, misaligned))
            for sentence, begins, begun in lines:
                tokens.extend(numbers.setdefault(token, len(numbers)) for token in sentence.tokens)
                starts.extend(begins)
                ends.append(len(tokens))
                documents.append(place)
                allowed.append(sentence.allowed)
                spans.append(begun)
        if not tokens:
            raise ValueError(f"{name}: no sentences")
        if misaligned and how.cuts:
            told = f"{len(misaligned)} spans end inside of tokens, such as {misaligned[0][:40]!r}"
            warnings.warn(f"{name}: {told}: these tokens are split", stacklevel=4)
        if how.cuts and how.line_breaks is not None and how.line_breaks > 1:
            ending = f"{how.line_breaks} line breaks in a row end a sentence, and fewer do not"
            warnings.warn(f"{name}: some spans go over line breaks: {ending}", stacklevel=4)
        return cls(
            list(numbers),
            np.array(tokens, dtype=np.int32),
            np.array(ends, dtype=np.int64),
            np.array(documents, dtype=np.int64),
            "lines of text, cut into sentences" if kind == "text" and how.boundaries is not None else FORMS[kind],
            allowed=None if not any(allowed) else allowed,
            kind=kind,
            texts=texts,
            starts=np.array(starts, dtype=np.int32),
            spans=spans,
            misaligned=misaligned,
            how=how,
        )

    def cut(self, how: Segmentation) -> "TextCorpus":
        """The sentences that the texts have when they are cut as ``how`` says."""
        return self if how == self.how else self.of_texts(self.texts, self.kind, how, self.form)

    def chosen(self, sentences: Sequence[int]) -> "TextCorpus":
        """Some sentences with the texts that have them; sentences of a text stay neighbours."""
        assert self.documents is not None
        corpus, numbers = super().chosen(sentences), dict[int, int]()
        documents = [numbers.setdefault(number, len(numbers)) for number in self.documents[list(sentences)].tolist()]
        assert isinstance(corpus, TextCorpus)
        return replace(
            corpus,
            documents=np.array(documents, dtype=np.int64),
            texts=[self.texts[number] for number in numbers],
            starts=self.starts[self._places(sentences)],
            spans=[self.spans[i] for i in sentences],
        )

    def _sentence(self, index: int) -> TextSentence:
        assert self.documents is not None
        document = self.texts[int(self.documents[index])]
        starts = self.starts[self.offsets[index] : self.offsets[index + 1]].tolist()
        spans = None if document.spans is None else self.spans[index]
        read = super()._sentence(index)
        return TextSentence(**vars(read), document=document, starts=starts, spans=spans, how=self.how)

    def universal_lines(self) -> Iterable[str]:
        """The lines of CoNLL-U of all sentences, with the text of each and words alone."""
        return (
            line for s in map(self._sentence, range(len(self))) for line in sentence_lines(s.words, s.line, s.starts)
        )

    def answered(self, found: Sequence[Sequence[ProbableEntity]]) -> "list[tuple[Document, list[ProbableSpan]]]":
        """The texts, and in each these entities of its sentences, with their probabilities."""
        assert self.documents is not None
        spans: list[list[ProbableSpan]] = [[] for _ in self.texts]
        for number, probable in enumerate(found):
            places = self._sentence(number).places
            spans[int(self.documents[number])] += [
                (Span(places[start][0], places[end - 1][1], label), probability)
                for start, end, label, probability in probable
            ]
        return list(zip(self.texts, spans, strict=True))

    def write_spans(self, found: Sequence[Sequence[ProbableEntity]], stream: TextIO) -> None:
        """Write what the file says with these entities of each sentence in place of its spans.

        Values of JSON keep their other keys, even those of annotations, and spans come with their text and probability.
        Of files of brat, what stands in the file of annotations is written.
        """
        answers = self.answered(found)
        if self.kind == "brat":
            bare = ((text.text, [span for span, _ in listed], text.source) for text, listed in answers)
            stream.writelines(f"{line}\n" for line in annotation_lines(bare))
            return
        lines = (json.dumps(_answer(text, listed), ensure_ascii=False) for text, listed in answers)
        if self.kind == "json list":
            stream.write("[" + ",\n".join(lines) + "]\n")
        else:
            stream.writelines(f"{line}\n" for line in lines)


def _bounded(texts: Iterable[Document], name: str) -> Iterator[Document]:
    """The texts of a file, as long as there is memory for them."""
    size = 0
    for text in texts:
        size += text.size
        check_size(name, size, whole=False)
        yield text


def line_breaks_of(sentences: Sequence[Sentence]) -> int | None:
    """How many line breaks in a row end those sentences, as none has; ``None`` if they are not of texts."""
    if isinstance(sentences, TextCorpus):
        return sentences.how.line_breaks
    known = () if isinstance(sentences, Corpus) else sentences
    longest = [sentence.longest_break for sentence in known if isinstance(sentence, TextSentence)]
    return 1 + max(longest) if longest else None


def _within(span: Span, pieces: Sequence[tuple[int, int]]) -> tuple[int, int]:
    """The first piece that a span has, and the one behind its last."""
    return bisect_right(pieces, span.start, key=itemgetter(1)), bisect_left(pieces, span.end, key=itemgetter(0))


def _answer(text: Document, spans: Sequence[ProbableSpan]) -> dict[str, Any]:
    """What a value of JSON says, with other spans."""
    value = json.loads(text.source)
    listed = [
        {**span._asdict(), "text": text.text[span.start : span.end], "probability": probability}
        for span, probability in spans
    ]
    answer = {**(value if isinstance(value, Mapping) else {}), "text": text.text, "spans": listed}
    if isinstance(answer.get("data"), Mapping):  # a task of Label Studio, which shows predictions alone
        regions = [span for span, _ in spans], [probability for _, probability in spans]
        answer["predictions"] = task_of(text.text, *regions)["predictions"]
    return answer
