"""Corpora of texts: where each word stands in its text, and answers in the form in which the texts came."""

import json
import warnings
from array import array
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, TextIO

import numpy as np
from numpy.typing import NDArray

from structsmooth.files import check_size
from structsmooth.text.brat import annotation_lines
from structsmooth.text.corpus import Allowed, Corpus, Sentence, Token
from structsmooth.text.documents import Document, Span
from structsmooth.text.probabilities import ProbableEntity
from structsmooth.text.universal import sentence_lines

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
        text: all of it.
        starts: the place in it where each word starts.
    """

    text: str = ""
    starts: Sequence[int] = ()

    @property
    def line(self) -> str:
        """The line of the text that the sentence is."""
        begin = self.text.rfind("\n", 0, self.starts[0]) + 1
        return self.text[begin:].partition("\n")[0]

    @property
    def places(self) -> list[tuple[int, int]]:
        """Where each word starts and ends in the text."""
        return [(start, start + len(word)) for start, word in zip(self.starts, self.words, strict=True)]


@dataclass(frozen=True, eq=False)
class TextCorpus(Corpus):
    """The sentences of texts.

    Args:
        kind: the form of the file.
        texts: that have the sentences.
        starts: the place in its text where each token starts: int32 [tokens].
        misaligned: what spans cover that begin or end inside of tokens, which are split there.
    """

    kind: Kind = "text"
    texts: Sequence[Document] = ()
    starts: NDArray[np.int32] = field(default_factory=lambda: np.zeros(0, dtype=np.int32))
    misaligned: Sequence[str] = ()

    @classmethod
    def of_texts(
        cls,
        texts: Iterable[Document],
        kind: Kind,
        split: Callable[[str], Sequence[str]],
        name: str,
        share: Callable[[int], range] | None = None,
    ) -> "TextCorpus":
        """The sentences of the lines of texts, or of a share of these, split into words where texts have no tokens.

        Raises:
            ValueError: no sentences, spans that no tokens cover, or allowed tags for another number of tokens.
        """
        texts = list(_bounded(texts, name))
        texts = texts if share is None else [texts[number] for number in share(len(texts))]
        numbers, misaligned, allowed = dict[Token, int](), list[str](), list[Allowed | None]()
        tokens, starts, ends, documents = array("i"), array("i"), [0], list[int]()
        for place, text in enumerate(texts):
            for sentence, begins in _sentences(text, split, misaligned, f"{name}: text {place + 1}"):
                tokens.extend(numbers.setdefault(token, len(numbers)) for token in sentence.tokens)
                starts.extend(begins)
                ends.append(len(tokens))
                documents.append(place)
                allowed.append(sentence.allowed)
        if not tokens:
            raise ValueError(f"{name}: no sentences")
        if misaligned:
            told = f"{len(misaligned)} spans end inside of tokens, such as {misaligned[0][:40]!r}"
            warnings.warn(f"{name}: {told}: these tokens are split", stacklevel=4)
        return cls(
            list(numbers),
            np.array(tokens, dtype=np.int32),
            np.array(ends, dtype=np.int64),
            np.array(documents, dtype=np.int64),
            FORMS[kind],
            allowed=None if not any(allowed) else allowed,
            kind=kind,
            texts=texts,
            starts=np.array(starts, dtype=np.int32),
            misaligned=misaligned,
        )

    def _sentence(self, index: int) -> TextSentence:
        assert self.documents is not None
        text = self.texts[int(self.documents[index])].text
        starts = self.starts[self.offsets[index] : self.offsets[index + 1]].tolist()
        return TextSentence(**vars(super()._sentence(index)), text=text, starts=starts)

    def universal_lines(self) -> Iterable[str]:
        """The lines of CoNLL-U of all sentences, with the text of each and words alone."""
        return (
            line for s in map(self._sentence, range(len(self))) for line in sentence_lines(s.words, s.line, s.starts)
        )

    def write_spans(self, found: Sequence[Sequence[ProbableEntity]], stream: TextIO) -> None:
        """Write what the file says with these entities of each sentence in place of its spans.

        Values of JSON keep their other keys, even those of annotations, and spans come with their text and probability.
        Of files of brat, what stands in the file of annotations is written.
        """
        assert self.documents is not None
        spans: list[list[tuple[Span, float]]] = [[] for _ in self.texts]
        for number, entities in enumerate(found):
            places = self._sentence(number).places
            spans[int(self.documents[number])] += [
                (Span(places[start][0], places[end - 1][1], label), probability)
                for start, end, label, probability in entities
            ]
        answers = zip(self.texts, spans, strict=True)
        if self.kind == "brat":
            shifted = ((text.source, text.text, [span for span, _ in listed]) for text, listed in answers)
            stream.writelines(f"{line}\n" for line in annotation_lines(shifted))
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


def _sentences(
    text: Document, split: Callable[[str], Sequence[str]], misaligned: list[str], place: str
) -> list[tuple[Sentence, list[int]]]:
    """What :meth:`Document.tagged` gives; errors name the place of the text."""
    try:
        return list(text.tagged(split, misaligned))
    except ValueError as error:
        raise ValueError(f"{place}: {error}") from None


def _answer(text: Document, spans: Iterable[tuple[Span, float]]) -> dict[str, Any]:
    """What a value of JSON says, with other spans."""
    value = json.loads(text.source)
    listed = [
        {**span._asdict(), "text": text.text[span.start : span.end], "probability": probability}
        for span, probability in spans
    ]
    return {**(value if isinstance(value, Mapping) else {}), "text": text.text, "spans": listed}
