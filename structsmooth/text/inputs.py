"""What a tagger reads of each word beside its tag: columns, or the word alone, of files, lists or text."""

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, TextIO

from structsmooth.settings import PositiveInt
from structsmooth.text.boundaries import Boundaries
from structsmooth.text.brat import brat_texts, read_brat
from structsmooth.text.conll import Reader, read_laid_out, texts_of
from structsmooth.text.corpus import Corpus, Sentence
from structsmooth.text.documents import Segmentation
from structsmooth.text.forms import AS_FOUND, Reading, Sample
from structsmooth.text.layouts import Columns, Layout, Roles
from structsmooth.text.lines import source_name
from structsmooth.text.schemes import split_tag
from structsmooth.text.standalone import Splitter
from structsmooth.text.templates import Templates, column_names, for_columns
from structsmooth.text.texts import FORMS, Kind, TextCorpus, TextSentence, line_breaks_of
from structsmooth.text.universal import Universal

Words = Sentence | str | Sequence[str | Sequence[str]]
"""A sentence; a line of text; or tokens: words, or tuples of a word and its columns."""

_APOSTROPHES = "'\u2019"
# A token of a part of a word, such as the 's of "Ada's", the n't of "didn't" and the l' of "l'eau".
_CLITIC = re.compile(rf"[{_APOSTROPHES}]\w+|n[{_APOSTROPHES}]t|\w+[{_APOSTROPHES}]", re.IGNORECASE)
# A word with a period, which may end no sentence.
_SHORTENED = re.compile(r"[^\W\d_][^.]*\.")


@dataclass(frozen=True)
class Inputs:
    """The columns that a tagger reads, and how it takes sentences that lack some.

    Args:
        columns: number of columns of its training files, from words to tags.
        names: of the columns between words and tags that it reads: none, if it reads words alone; ``None`` in models of
            version 0.2, which read the columns of their templates.
        example: cells of a row of its training data, without the tag.
        clitics: parts of words that are tokens of their own in its training data, and abbreviations with their periods.
        line_breaks: how many of them in a row end a sentence of a text, as none in its training data has.
        boundaries: where sentences end between line breaks, as in its training data, if it takes words alone.
        splits: whether texts are cut into sentences there, too.
    """

    columns: PositiveInt
    names: list[str] | None = None
    example: list[str] = field(default_factory=list)
    clitics: list[str] = field(default_factory=list)
    line_breaks: PositiveInt = 1
    boundaries: Boundaries | None = None
    splits: bool = False

    @classmethod
    def of(cls, sentences: Sequence[Sentence], words_only: bool) -> "Inputs":
        """What a tagger of training sentences reads."""
        corpus, breaks = Corpus.of(sentences), line_breaks_of(sentences)
        first = corpus.distinct[0]
        # The third column may hold tags of chunks; hyphens stand where there are none.
        chunks = all(map(_is_chunk, {token.chunk for token in corpus.distinct}))
        names = column_names(len(first.columns), chunks=chunks)
        words = {word for word, _, _ in corpus.distinct}
        clitics = sorted(clitics_of(words) | (abbreviations_of(words) if breaks is None else set()))
        columns, example = [] if words_only else names, [first.word, *first.columns]
        return cls(2 + len(first.columns), columns, example, clitics, breaks or 1)

    @classmethod
    def joined(cls, parts: Sequence["Inputs"]) -> "Inputs":
        """What taggers of all parts of a corpus read."""
        clitics = sorted({clitic for part in parts for clitic in part.clitics})
        names = max(part.names or [] for part in parts)  # "column3" before "chunk", which some part contradicts
        breaks = max(part.line_breaks for part in parts)
        return replace(parts[0], names=names, clitics=clitics, line_breaks=breaks)

    @cached_property
    def how(self) -> Segmentation:
        """Texts are cut into sentences and words, to predict and to measure, which is never helped by annotations."""
        boundaries = self.boundaries if self.splits else None
        return Segmentation(tuple(self.clitics), self.line_breaks, cuts=False, boundaries=boundaries)

    def splitting(self) -> "Inputs":
        """The same for texts whose sentences have no lines of their own.

        Raises:
            ValueError: a tagger that takes no text, or that has not kept where sentences end.
        """
        if not self.words_alone:
            raise ValueError(f"--split-sentences is for text. {self._needed()}")
        if self.boundaries is None:
            raise ValueError("the model does not know where sentences end: train it by this version")
        return replace(self, splits=True)

    @property
    def words_alone(self) -> bool:
        """Whether words without other columns are enough to predict."""
        return self.names == []

    def templates(self, templates: Templates) -> Templates:
        """Templates of the columns that are read, with windows of those that no template looks at."""
        return templates if self.names is None else for_columns(templates, self.names)

    def read(
        self, path: str | TextIO, tags: Sequence[str], reading: Reading = AS_FOUND, is_text: bool = False
    ) -> Corpus:
        """Sentences of a file to predict.

        Args:
            path: a column file with or without tags; for a tagger of words alone also CoNLL-U, a word in each line,
                lines of text, each a sentence, or texts in JSON or with files of brat.
            tags: that the tagger knows.
            reading: the columns of words and tags, where the first lines do not tell, and the encoding.
            is_text: whether these are lines of text, whatever they look like.

        Raises:
            ValueError: a file of another form, with its name; columns that the file lacks, with theirs and an example.
        """
        is_known = frozenset(tags).__contains__

        def choose(name: str, begin: bytes) -> Layout | Reader:
            if is_text:
                return self._texts(name, "text")
            sample = Sample(name, begin)
            # In this order: CoNLL-U has columns, too, and lines of JSON may look like words with tags.
            if not reading.chosen and sample.universal:
                return Universal(keeps_lines=True)
            if (kind := sample.texts(reading)) is not None:
                return self._texts(name, kind)
            if reading.chosen and sample.count > 1:
                return Columns(sample.roles(reading.tag_column is not None, is_known, reading), plain=True)
            sample.refuse(sample.other_form(is_known))
            text = sample.is_text(lambda row: self._fits(row, sample.front, is_known))
            if not text and (self.words_alone or not self._lacks_chunks(sample)):
                return Columns(self._roles(sample, is_known), plain=True)
            return self._texts(name, "text")

        if not (is_text or reading.chosen) and (texts := brat_texts(path)):
            documents = read_brat(texts, reading.encoding, annotated=False)
            return self._checked(TextCorpus.of_texts(documents, "brat", self.how, source_name(path)), path)
        return self._checked(read_laid_out(path, choose, encoding=reading.encoding), path)

    def _texts(self, name: str, kind: Kind) -> Reader:
        """What reads texts, if the tagger needs words alone."""
        if not self.words_alone:
            raise ValueError(self._other(name, FORMS[kind].partition(",")[0]))
        return texts_of(kind, self.how)

    def _checked(self, corpus: Corpus, path: str | TextIO) -> Corpus:
        """A corpus with all columns that the tagger reads."""
        _, cells, tag = corpus.distinct[0]
        if not self.words_alone and len(cells) != self.columns - 2:
            raise ValueError(self._other(source_name(path), str(1 + len(cells) + (tag is not None))))
        return corpus

    def _fits(self, row: Sequence[str], front: int, is_known: Callable[[str], bool]) -> bool:
        """Whether a row may be that of a token."""
        if self.words_alone:
            return len(row) == 1 or (is_known(row[-1]) and (front > 0 or len(row) in (2, self.columns)))
        return self.columns - 1 <= len(row) - front <= self.columns or is_known(row[-1])

    def _lacks_chunks(self, sample: Sample) -> bool:
        """Whether rows have other words where training files have chunks."""
        return "chunk" in (self.names or ()) and not sample.has_mostly(sample.front + 2, _is_chunk)

    def _roles(self, sample: Sample, is_known: Callable[[str], bool]) -> Roles:
        """What the columns say: tags are those that the tagger knows, or stand where training files have them."""
        roles, count = sample.roles(None, is_known, AS_FOUND), sample.count
        if self.words_alone:
            columns = len(range(count)[roles.features])
            if columns not in (0, self.columns - 2) or (columns and roles.tag is None):
                raise ValueError(self._other(sample.name, str(count), text=not sample.tabbed))
            return roles
        # With as many columns as in training the last has tags; with one less the file has none.
        tags = {self.columns: count - 1, self.columns - 1: None}
        return replace(roles, tag=tags.get(count - roles.word, roles.tag))

    def check(self, corpus: Corpus, name: str) -> Corpus:
        """A corpus with tags, if it has the columns of the training data.

        Raises:
            ValueError: it has others.
        """
        found = 2 + len(corpus.distinct[0].columns)
        if found != self.columns and not (found == 2 and self.words_alone):
            raise ValueError(f"{name}: expected {self.columns} columns, as in training; got {found}")
        return corpus

    def sentence(self, tokens: Words) -> Sentence:
        """A sentence of what Python has.

        Raises:
            ValueError: a token without all columns of the training data.
        """
        if isinstance(tokens, Sentence):
            return tokens.cut(self.how) if isinstance(tokens, TextSentence) and tokens.how != self.how else tokens
        if isinstance(tokens, str):
            if not self.words_alone:
                raise ValueError(f"{tokens[:40]!r} is a line of text. {self._needed()}")
            tokens = Splitter(self.clitics).words(tokens)
        rows = [(token,) if isinstance(token, str) else tuple(token) for token in tokens]
        if not rows:
            return Sentence([], [[]] * (self.columns - 2))
        count = 1 if self.words_alone and len(rows[0]) == 1 else self.columns - 1
        for row in rows:
            if len(row) != count:
                needed = "" if self.words_alone else f". {self._needed()}"
                wanted = "1 column" if count == 1 else f"{count} columns"
                raise ValueError(f"a token must have {wanted}, as in training without the tags, got {row}{needed}")
        words, *columns = map(list, zip(*rows, strict=True))
        return Sentence(words, columns)

    def _other(self, name: str, found: str, text: bool = False) -> str:
        """What is wrong with a file of other columns than those of training, which may be lines of text."""
        allowed = f"{self.columns} columns, as in training, or {self.columns - 1} without tags"
        if self.words_alone:
            hint = "; if these are lines of text, give --text" if text else ""
            return f"{name}: expected {allowed}, or words alone; got {found}. Choose the words by --word-column{hint}"
        return f"{name}: expected {allowed}; got {found}. {self._needed()}"

    def _needed(self) -> str:
        """What each word needs, with an example, and how to do without."""
        if not self.names:
            return "Give a word in each line"
        *others, last = self.names
        listed = f"{', '.join(others)} and {last}" if others else last
        example = f", as in {' '.join(self.example)}" if self.example else ""
        cells = ", ".join(map(repr, self.example))
        python = f" (in Python, a tuple such as ({cells}))" if self.example else ""
        return (
            f"This tagger needs {listed} of each word{example}{python}; "
            "one trained with --words-only (words_only=True) takes words alone and text"
        )


def with_inputs(learned: Mapping[str, Any]) -> dict[str, Any]:
    """What a tagger learned, as plain JSON, with names of today.

    Version 0.2 knew the number of columns alone of its inputs, and up to 0.4 attributes were called encoder.
    """
    values = dict(learned)
    if "columns" in values:
        values["inputs"] = {"columns": values.pop("columns")}
    if isinstance(values.get("encoder"), Mapping):
        values["attributes"] = values.pop("encoder")
    return values


def _is_chunk(cell: str) -> bool:
    try:
        return cell == "-" or bool(split_tag(cell))
    except ValueError:
        return False


def abbreviations_of(words: Iterable[str]) -> set[str]:
    """The words with a period behind them, such as Inc. and Mr."""
    return {word for word in words if _SHORTENED.fullmatch(word)}


def clitics_of(words: Iterable[str]) -> set[str]:
    """The words that are parts of words: those that begin or end with an apostrophe.

    Example:
        >>> sorted(clitics_of(["Ada", "'s", "did", "n't"]))
        ["'s", "n't"]
    """
    return {word for word in words if _CLITIC.fullmatch(word)}
