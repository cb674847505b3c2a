"""What a tagger reads of each word beside its tag: columns, or the word alone, of files, lists or text."""

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, TextIO

from structsmooth.settings import PositiveInt
from structsmooth.text.conll import read_laid_out, source_name
from structsmooth.text.corpus import Corpus, Sentence, Token
from structsmooth.text.forms import AS_FOUND, Reading, Sample
from structsmooth.text.layouts import SEPARATOR, Columns, Layout, Roles, Universal, is_blank
from structsmooth.text.schemes import split_tag
from structsmooth.text.templates import Templates, column_names, for_columns

_OPENING = "([{<\"'\u201c\u2018\u00ab\u201e\u00bf\u00a1$\u20ac\u00a3"
_CLOSING = ")]}>\"'\u201d\u2019\u00bb,;:!?\u2026%"
_APOSTROPHES = "'\u2019"
# A token of a part of a word, such as the 's of "Ada's", the n't of "didn't" and the l' of "l'eau".
_CLITIC = re.compile(rf"[{_APOSTROPHES}]\w+|n[{_APOSTROPHES}]t|\w+[{_APOSTROPHES}]", re.IGNORECASE)
# Letters with a period behind each, such as U.S. and the J. of a name.
_ABBREVIATION = re.compile(r"([^\W\d_]\.)+")

Words = Sentence | str | Sequence[str | Sequence[str]]
"""A sentence; a line of text; or tokens: words, or tuples of a word and its columns."""


@dataclass(frozen=True)
class Inputs:
    """The columns that a tagger reads, and how it takes sentences that lack some.

    Args:
        columns: number of columns of its training files, from words to tags.
        names: of the columns between words and tags that it reads: none, if it reads words alone; ``None`` in models of
            version 0.2, which read the columns of their templates.
        example: cells of a row of its training data, without the tag.
        clitics: parts of words that are tokens of their own in its training data.
    """

    columns: PositiveInt
    names: list[str] | None = None
    example: list[str] = field(default_factory=list)
    clitics: list[str] = field(default_factory=list)

    @classmethod
    def of(cls, corpus: Corpus, words_only: bool) -> "Inputs":
        """What a tagger of training sentences reads."""
        first = corpus.distinct[0]
        names = column_names(len(first.columns), chunks=_has_chunks(corpus))
        clitics = sorted(clitics_of(word for word, _, _ in corpus.distinct))
        return cls(2 + len(first.columns), [] if words_only else names, [first.word, *first.columns], clitics)

    @classmethod
    def joined(cls, parts: Sequence["Inputs"]) -> "Inputs":
        """What taggers of all parts of a corpus read."""
        clitics = sorted({clitic for part in parts for clitic in part.clitics})
        names = max(part.names or [] for part in parts)  # "column3" before "chunk", which some part contradicts
        return replace(parts[0], names=names, clitics=clitics)

    @property
    def words_alone(self) -> bool:
        """Whether bare words are enough."""
        return self.names == []

    def templates(self, templates: Templates) -> Templates:
        """Templates of the columns that are read, with windows of those that no template looks at."""
        return templates if self.names is None else for_columns(templates, self.names)

    def read(self, path: str | TextIO, tags: Sequence[str], reading: Reading = AS_FOUND) -> Corpus:
        """Sentences of a file to predict.

        Args:
            path: a column file with or without tags; for a tagger of words alone also CoNLL-U, a word in each line, or
                lines of text, each a sentence.
            tags: that the tagger knows.
            reading: the columns of words and tags, where the first lines do not tell, and the encoding.

        Raises:
            ValueError: a file of another form, with its name; columns that the file lacks, with theirs and an example.
        """
        is_known = frozenset(tags).__contains__

        def choose(name: str, begin: bytes) -> Layout:
            sample = Sample(name, begin)
            if not reading.chosen and sample.universal:
                return Universal()
            if reading.chosen and sample.count > 1:
                return Columns(sample.roles(reading.tag_column is not None, is_known, reading), plain=True)
            sample.refuse(sample.other_form(is_known))
            if not sample.is_text(lambda row: self._fits(row, sample.numbered, is_known)):
                return Columns(self._roles(sample, is_known), plain=True)
            if not self.words_alone:
                raise ValueError(self._other(name, "lines of text"))
            return Text(Splitter(self.clitics))

        corpus = read_laid_out(path, choose, encoding=reading.encoding)
        _, cells, tag = corpus.distinct[0]
        if not self.words_alone and len(cells) != self.columns - 2:
            raise ValueError(self._other(source_name(path), str(1 + len(cells) + (tag is not None))))
        return corpus

    def _fits(self, row: Sequence[str], numbered: bool, is_known: Callable[[str], bool]) -> bool:
        """Whether a row may be that of a token."""
        if self.words_alone:
            return len(row) == 1 or (is_known(row[-1]) and (numbered or len(row) in (2, self.columns)))
        return self.columns - 1 <= len(row) - numbered <= self.columns or is_known(row[-1])

    def _roles(self, sample: Sample, is_known: Callable[[str], bool]) -> Roles:
        """What the columns say: tags are those that the tagger knows, or stand where training files have them."""
        roles, count = sample.roles(None, is_known, AS_FOUND), sample.count
        if self.words_alone:
            columns = len(range(count)[roles.features])
            if columns not in (0, self.columns - 2) or (columns and roles.tag is None):
                raise ValueError(self._other(sample.name, str(count), text=not sample.tabbed))
            return roles
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
            ValueError: no token, or a token without all columns of the training data.
        """
        if isinstance(tokens, Sentence):
            return tokens
        if isinstance(tokens, str):
            if not self.words_alone:
                raise ValueError(f"{tokens[:40]!r} is a line of text. {self._needed()}")
            tokens = Splitter(self.clitics).words(tokens)
        rows = [(token,) if isinstance(token, str) else tuple(token) for token in tokens]
        if not rows:
            raise ValueError("a sentence must have a token at least")
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
    """What a tagger learned, as plain JSON, with its inputs, of which version 0.2 knew the number of columns alone."""
    rest = {name: value for name, value in learned.items() if name != "columns"}
    return rest | ({"inputs": {"columns": learned["columns"]}} if "columns" in learned else {})


def _has_chunks(corpus: Corpus) -> bool:
    """Whether the third column may hold tags of chunks; hyphens stand where there are none."""
    return all(map(_is_chunk, {token.chunk for token in corpus.distinct}))


def _is_chunk(cell: str) -> bool:
    try:
        return cell == "-" or bool(split_tag(cell))
    except ValueError:
        return False


class Splitter:
    """Splits a line at white space, and punctuation from the words that it touches.

    Args:
        clitics: parts of words with an apostrophe that are tokens of their own, as :func:`clitics_of` finds them.

    Example:
        >>> Splitter(["'s"]).words("She left (in 1999) for Ada's office.")
        ['She', 'left', '(', 'in', '1999', ')', 'for', 'Ada', "'s", 'office', '.']
    """

    def __init__(self, clitics: Iterable[str] = ()) -> None:
        known = {clitic.lower().replace("\u2019", "'") for clitic in clitics}
        # The longest first: the n't of "didn't" and not the 't.
        self._before = sorted((c for c in known if c.endswith("'")), key=len, reverse=True)
        self._after = sorted((c for c in known if not c.endswith("'")), key=len, reverse=True)

    def words(self, line: str) -> list[str]:
        """The words of a sentence. A period at its end is a word of its own, unless it ends an abbreviation."""
        pieces = [] if is_blank(line) else line.split()
        words = [word for piece in pieces[:-1] for word in self._split(piece, last=False)]
        return words + [word for piece in pieces[-1:] for word in self._split(piece, last=True)]

    def _split(self, piece: str, last: bool) -> list[str]:
        begin, end = 0, len(piece)
        after: list[str] = []
        while begin < end - 1 and piece[begin] in _OPENING and not self._is_clitic(piece[begin:end]):
            begin += 1
        while end > begin + 1 and not self._is_clitic(piece[begin:end]):
            core = piece[begin:end]
            dots = len(core) - len(core.rstrip("."))
            if core[-1] in _CLOSING:
                size = 1
            elif 1 < dots < len(core):
                size = dots
            elif dots == 1 and last and not _ABBREVIATION.fullmatch(core):
                size = 1
            else:
                break
            after.insert(0, piece[end - size : end])
            end -= size
        return [*piece[:begin], *self._parts(piece[begin:end]), *after]

    def _parts(self, word: str) -> list[str]:
        """A word without punctuation around it, and its clitics."""
        plain = word.lower().replace("\u2019", "'")
        for clitic in self._before:
            if plain.startswith(clitic) and len(plain) > len(clitic):
                return [word[: len(clitic)], *self._parts(word[len(clitic) :])]
        for clitic in self._after:
            if plain.endswith(clitic) and len(plain) > len(clitic):
                return [*self._parts(word[: -len(clitic)]), word[-len(clitic) :]]
        return [word]

    def _is_clitic(self, text: str) -> bool:
        plain = text.lower().replace("\u2019", "'")
        return plain in self._before or plain in self._after


class Text(Layout):
    """Lines of text, each a sentence, whose words are split as ``splitter`` does."""

    def __init__(self, splitter: Splitter) -> None:
        self._splitter = splitter

    def __str__(self) -> str:
        return "lines of text, a sentence in each"

    def lines(self, block: bytes) -> Iterable[bytes]:
        """The words of each line, and an empty line behind them."""
        for line in super().lines(block):
            for word in self._splitter.words(line.decode()):
                yield word.encode()
            yield b""

    def complete(self, numbers: Sequence[int]) -> int:
        """As many as there are separators."""
        return sum(number == SEPARATOR for number in numbers)

    def parse(self, line: str) -> Token | int:
        """A word."""
        return Token(line) if line else SEPARATOR


def clitics_of(words: Iterable[str]) -> set[str]:
    """The words that are parts of words: those that begin or end with an apostrophe.

    Example:
        >>> sorted(clitics_of(["Ada", "'s", "did", "n't"]))
        ["'s", "n't"]
    """
    return {word for word in words if _CLITIC.fullmatch(word)}
