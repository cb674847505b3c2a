"""From raw text to trees: boundaries of sentences, words, and trees beside those of a treebank in CoNLL-U.

A tagger of the column upos finds sentences, words and parts of speech, and a parser trees; both are folders that
``structsmooth train`` wrote. Raw text is what the comments ``# text`` say, with the paragraphs (``# newpar``) or the
documents (``# newdoc``) as lines. The first table has the boundaries of sentences inside of documents, which are
compared by the characters before them, the second words and heads, as the shared task of CoNLL 2018 counts them: F1
of words that are the same characters, and of those that also have the right head (UAS) and relation (LAS).
"""

import io
from argparse import Namespace
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

from scripts.shared.harness import command, installed, option, print_table
from structsmooth.tasks.text.tagging import FittedTagging
from structsmooth.tasks.trained import TrainedModel, load
from structsmooth.text.lines import read_text
from structsmooth.text.texts import TextCorpus, TextSentence

Place = tuple[int, int]


class Word(NamedTuple):
    """Which characters of all text, without blanks, a word is, those of its head (none of the root), and a relation."""

    place: Place
    head: Place | None
    relation: str


class Gold(NamedTuple):
    """A sentence of the treebank, whether a document or a paragraph begins with it, and whether a blank follows."""

    text: str
    rows: list[list[str]]
    new_document: bool
    new_paragraph: bool
    spaced: bool


def sentences_of(path: str) -> list[Gold]:
    """The sentences of a treebank."""
    found, rows, comments = list[Gold](), list[list[str]](), dict[str, str]()
    for line in [*read_text(path), ""]:
        if line.startswith("#"):
            key, _, value = line[1:].partition("=")
            comments[key.split()[0] if key.split() else ""] = value.strip()
        elif line:
            rows.append(line.split("\t"))
        elif rows:
            words = [row for row in rows if row[0].isdigit()]
            new = ("newdoc" in comments or not found, "newpar" in comments)
            found.append(Gold(comments["text"], words, *new, "SpaceAfter=No" not in rows[-1][9]))
            rows, comments = [], {}
    return found


def documents_of(sentences: Sequence[Gold], paragraph: str) -> list[tuple[str, list[int]]]:
    """Texts of documents, with this between paragraphs, and where their sentences end."""
    found = list[tuple[str, list[int]]]()
    separator = ""
    for one in sentences:
        if one.new_document:
            found.append(("", []))
            separator = ""
        text, ends = found[-1]
        text += (paragraph if one.new_paragraph and text else separator) + one.text
        found[-1] = (text, [*ends, len(text)])
        separator = " " if one.spaced else ""
    return found


def splitters(tagger: FittedTagging, train: str) -> Iterator[tuple[str, Callable[[str], list[int]]]]:
    """What finds ends of sentences in a line, by name: of the tagger, and of libraries that are there."""
    yield "none", lambda text: []
    boundaries = tagger.inputs.boundaries
    assert boundaries is not None
    yield "structsmooth", boundaries.ends
    if punkt := installed("nltk.tokenize.punkt"):
        learned = punkt.PunktTrainer("\n".join(text for text, _ in documents_of(sentences_of(train), "\n")))
        cut = punkt.PunktSentenceTokenizer(learned.get_params())
        yield "nltk (punkt)", lambda text: [end for _, end in cut.span_tokenize(text)]
    if pysbd := installed("pysbd"):
        segment = pysbd.Segmenter(language="en", clean=False, char_span=True).segment
        yield "pysbd", lambda text: [span.start + len(span.sent.rstrip()) for span in segment(text)]
    if syntok := installed("syntok.segmenter"):
        parts = syntok.process
        yield "syntok", lambda text: [s[-1].offset + len(s[-1].value) for part in parts(text) for s in part]


def boundary_scores(documents: Sequence[tuple[str, list[int]]], find: Callable[[str], list[int]]) -> list[float]:
    """F1, precision and recall of ends of sentences inside of documents, in percent."""
    found = right = known = 0
    for text, ends in documents:
        guesses, start = set[int](), 0
        for line in text.split("\n"):
            guesses |= {start + len(line), *(start + place for place in find(line))}
            start += len(line) + 1
        guesses, inside = guesses - {len(text)}, {*ends} - {len(text)}
        found, right, known = found + len(guesses), right + len(guesses & inside), known + len(inside)
    return [100 * share for share in (2 * right / max(found + known, 1), right / max(found, 1), right / known)]


def gold_words(sentences: Sequence[Gold]) -> list[Word]:
    """The words of the treebank."""
    found, start = list[Word](), 0
    for one in sentences:
        places = list[Place]()
        for row in one.rows:
            size = len("".join(row[1].split()))
            places.append((start, start + size))
            start += size
        found += _words(places, [int(row[6]) for row in one.rows], [row[7] for row in one.rows])
    return found


def raw_words(tagger: TrainedModel, parser: TrainedModel, lines: Sequence[str]) -> list[Word]:
    """The words of lines of text, with the heads that the models find."""
    corpus = tagger.task.read_text(io.StringIO("\n".join(lines) + "\n"))
    assert isinstance(corpus, TextCorpus)
    assert corpus.documents is not None
    offsets = [0]
    for text in corpus.texts:
        offsets.append(offsets[-1] + len("".join(text.text.split())))
    sentences, tags = list(corpus), tagger.predict(corpus)
    trees = parser.predict([list(zip(s.words, t, strict=True)) for s, t in zip(sentences, tags, strict=True)])
    found = list[Word]()
    for sentence, tree, number in zip(sentences, trees, corpus.documents.tolist(), strict=True):
        assert isinstance(sentence, TextSentence)
        starts = (offsets[number] + len("".join(sentence.text[:start].split())) for start in sentence.starts)
        places = [(start, start + len(word)) for start, word in zip(starts, sentence.words, strict=True)]
        found += _words(places, tree.heads, tree.relations)
    return found


def _words(places: Sequence[Place], heads: Sequence[int], relations: Sequence[str]) -> Iterator[Word]:
    for place, head, relation in zip(places, heads, relations, strict=True):
        yield Word(place, places[head - 1] if head else None, relation.partition(":")[0])


def attachment_scores(gold: Sequence[Word], found: Sequence[Word]) -> list[float]:
    """F1 of words, heads, and heads with relations, in percent."""
    known: Mapping[Place, Word] = {word.place: word for word in gold}
    pairs = [(word, known[word.place]) for word in found if word.place in known]
    heads = [(a, b) for a, b in pairs if a.head == b.head]
    related = sum(a.relation == b.relation for a, b in heads)
    return [200 * count / (len(gold) + len(found)) for count in (len(pairs), len(heads), related)]


def rows_of(tagger: TrainedModel, parser: TrainedModel, path: str) -> Iterator[list[Any]]:
    """Scores of trees, the more is found in the text the farther down."""
    sentences, task = sentences_of(path), tagger.task
    assert isinstance(task, FittedTagging)
    splitting = replace(tagger, task=replace(task, inputs=task.inputs.splitting()))
    gold, words = gold_words(sentences), [[row[1] for row in one.rows] for one in sentences]
    for name, tags in (
        ("the treebank's words and parts of speech", [[row[3] for row in one.rows] for one in sentences]),
        ("the treebank's words", tagger.predict(words)),
    ):
        trees = parser.predict([list(zip(*pair, strict=True)) for pair in zip(words, tags, strict=True)])
        found = [
            replaced
            for one, tree in zip(sentences, trees, strict=True)
            for replaced in zip(one.rows, tree.heads, tree.relations, strict=True)
        ]
        rows = iter([[*row[:6], str(head), relation] for row, head, relation in found])
        parsed = [one._replace(rows=[next(rows) for _ in one.rows]) for one in sentences]
        yield [name, *map(_shown, attachment_scores(gold, gold_words(parsed)))]
    texts = [one.text for one in sentences]
    paragraphs = [line for text, _ in documents_of(sentences, "\n") for line in text.split("\n")]
    documents = [text for text, _ in documents_of(sentences, " ")]
    for name, model, lines in (
        ("a line for each sentence", tagger, texts),
        ("a line for each paragraph", tagger, paragraphs),
        ("a line for each paragraph, --split-sentences", splitting, paragraphs),
        ("a line for each document, --split-sentences", splitting, documents),
    ):
        yield [name, *map(_shown, attachment_scores(gold, raw_words(model, parser, lines)))]


def _shown(percent: float) -> str:
    return f"{percent:.1f}"


@command(
    option("tagger", meaning="folder of a tagger of upos"),
    option("parser", meaning="folder of a parser"),
    option("treebank", meaning="CoNLL-U with comments on texts, paragraphs and documents"),
    option("--train", "", "CoNLL-U from which punkt learns abbreviations, if nltk is there (default: the treebank)"),
)
def main(options: Namespace) -> None:
    """Print both tables."""
    tagger, parser = load(options.tagger), load(options.parser)
    assert isinstance(tagger.task, FittedTagging)
    sentences = sentences_of(options.treebank)
    documents = {unit: documents_of(sentences, join) for unit, join in (("document", " "), ("paragraph", "\n"))}
    print_table(
        ["a line for each", "boundaries by", "F1", "precision", "recall"],
        (
            [unit, name, *map(_shown, boundary_scores(texts, find))]
            for unit, texts in documents.items()
            for name, find in splitters(tagger.task, options.train or options.treebank)
        ),
        text_columns=2,
    )
    cut = [one.words for one in tagger.task.read_text(io.StringIO("".join(f"{one.text}\n" for one in sentences)))]
    others = sum(found != [row[1] for row in one.rows] for found, one in zip(cut, sentences, strict=True))
    print(f"\n{others:,} of {len(sentences):,} sentences have other words than in the treebank\n")
    print_table(["what is given", "words", "UAS", "LAS"], rows_of(tagger, parser, options.treebank), text_columns=1)
