"""A trained tagger without torch: this file and its folder need Python and numpy alone.

``structsmooth export DIR --format numpy`` copies it beside the weights. In Python, ``Tagger(folder).tag(words)`` gives
the tags of a sentence, and ``probabilities(words)`` those of all tags; ``python tagger.py < lines.txt`` tags lines of
text, a word and its tag in each line. ``tagger.json`` has the names of the tags, in order, and the version.
"""

import json
import re
import sys
import zlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np

Value = str | None
Sentence = str | Sequence[str | Sequence[str]]  # a line of text, words, or tuples of words and other columns
BLANKS = " \t\r\n\v\f"  # between columns: words may contain no-break spaces and separators of files
INVISIBLE = BLANKS + "".join(map(chr, [*range(0x1C, 0x20), 0x85, 0xA0, 0xAD, 0x1680, 0x180E, *range(0x2000, 0x200E)]))
INVISIBLE += "\u115f\u1160\u2028\u2029\u202f\u205f\u2060\u2800\u3000\u3164\ufeff\uffa0"  # blanks of all widths
_OPENING = "([{<\"'\u201c\u2018\u00ab\u201e\u00bf\u00a1$\u20ac\u00a3"
_CLOSING = ")]}>\"'\u201d\u2019\u00bb,;:!?\u2026%"
_ABBREVIATION = re.compile(r"([^\W\d_]\.)+")  # letters with a period behind each, such as U.S. and the J. of a name
# Words that a capital may follow within a sentence.
_TITLE = re.compile(
    "bros|bzw|ca|capt|cmdr|co|col|corp|dr|etc|evtl|fr|ft|gen|ggf|gov|hon|hr|inc|inkl|jr|kgl|lt|ltd|messrs|mlle|mme|mr|"
    "mrs|ms|mt|pres|prof|rep|rev|sen|sgt|sog|sr|st|ste|univ|usw|vgl|vs|zzgl"
)


def spell_bias() -> tuple[str, ...]:
    """The attribute of all tokens."""
    return ("bias",)


def spell_word(offset: int, word: Value) -> tuple[str, ...]:
    """A word at an offset from the token, or that the sentence does not reach so far."""
    if word is None:
        return (f"B{offset}" if offset < 0 else f"E+{offset}",)
    return (f"word[{offset}]={word}",)


def spell_column(column: str, offset: int, value: Value) -> tuple[str, ...]:
    """The value of a column at an offset from the token."""
    return () if value is None else (f"{column}[{offset}]={value}",)


def spell_form(word: str) -> tuple[str, ...]:
    """The lower-cased word, its shapes, and its first and last characters."""
    lower = word.lower()
    lengths = [length for length in (2, 3, 4) if length <= len(lower)]
    return (
        f"lower[0]={lower}",
        f"shape[0]={_shape(word)}",
        f"outline[0]={outline(word)}",
        *(f"prefix={lower[:length]}" for length in lengths),
        *(f"suffix={lower[-length:]}" for length in lengths),
    )


def spell_neighbour(offset: int, word: Value) -> tuple[str, ...]:
    """The lower-cased form and the outline of a word at an offset from the token."""
    return () if word is None else (f"lower[{offset}]={word.lower()}", f"outline[{offset}]={outline(word)}")


def spell_joint(name: str, *values: Value) -> tuple[str, ...]:
    """Several values as one attribute."""
    return (f"{name}={'|'.join(value or '' for value in values)}",) if any(values) else ()


_ALL = (spell_bias, spell_word, spell_column, spell_form, spell_neighbour, spell_joint)
SPELLINGS: dict[str, Callable[..., tuple[str, ...]]] = {spelling.__name__: spelling for spelling in _ALL}


def _shape(word: str) -> str:
    """The word with letters and digits replaced by their kind: ``McDonald-95`` becomes ``XxXxxxxx-dd``."""
    return "".join("X" if c.isupper() else "x" if c.islower() else "d" if c.isdigit() else c for c in word)


@lru_cache(maxsize=1 << 16)
def outline(word: str) -> str:
    """The shape with runs of one character collapsed: ``McDonald-95`` becomes ``XxXx-d``."""
    return re.sub(r"(.)\1+", r"\1", _shape(word))


class Splitter:
    """Splits a line at white space, and punctuation and the given clitics from the words that they touch.

    Those of the clitics that end in a period are abbreviations, whose period stays with them.
    """

    def __init__(self, clitics: Iterable[str] = ()) -> None:
        known = set(map(_plain, clitics))
        self._abbreviations = {c[:-1] for c in known if c.endswith(".")}
        known = {c for c in known if not c.endswith(".")}
        # The longest first: the n't of "didn't" and not the 't.
        self._before = sorted((c for c in known if c.endswith("'")), key=len, reverse=True)
        self._after = sorted((c for c in known if not c.endswith("'")), key=len, reverse=True)

    def words(self, line: str) -> list[str]:
        """The words of a line.

        A period at its end is a word of its own, unless it ends letters as in U.S.; so is one before a word that may
        begin a sentence, as it begins with a capital or its letters have no case, unless it ends an abbreviation or a
        number such as 1. and 12.
        """
        pieces = [] if not line.strip(INVISIBLE) else line.split()
        following: list[str | None] = [*pieces[1:], None]
        return [word for pair in zip(pieces, following, strict=False) for word in self._split(*pair)]

    def _split(self, piece: str, following: str | None) -> list[str]:
        begin, end, after = 0, len(piece), list[str]()
        while begin < end - 1 and piece[begin] in _OPENING and not self._is_clitic(piece[begin:end]):
            begin += 1
        while end > begin + 1 and not self._is_clitic(piece[begin:end]):
            core = piece[begin:end]
            dots = len(core) - len(core.rstrip("."))
            if core[-1] in _CLOSING:
                size = 1
            elif 1 < dots < len(core):
                size = dots
            elif dots == 1 and not _ABBREVIATION.fullmatch(core) and self._ends(core[:-1], following):
                size = 1
            else:
                break
            after.insert(0, piece[end - size : end])
            end -= size
        return [*piece[:begin], *self._parts(piece[begin:end]), *after]

    def _ends(self, word: str, following: str | None) -> bool:
        """Whether a sentence may end behind a word with a period."""
        if following is None:
            return True
        first = next((c for c in following if c not in _OPENING), "")
        if not first.isalpha() or first.islower() or (len(word) < 3 and word.isdigit()):
            return False
        return _plain(word) not in self._abbreviations and not _TITLE.fullmatch(_plain(word))

    def _parts(self, word: str) -> list[str]:
        """A word without punctuation around it, and its clitics."""
        plain = _plain(word)
        for clitic in self._before:
            if plain.startswith(clitic) and len(plain) > len(clitic):
                return [word[: len(clitic)], *self._parts(word[len(clitic) :])]
        for clitic in self._after:
            if plain.endswith(clitic) and len(plain) > len(clitic):
                return [*self._parts(word[: -len(clitic)]), word[-len(clitic) :]]
        return [word]

    def _is_clitic(self, text: str) -> bool:
        return _plain(text) in (*self._before, *self._after)


def _plain(word: str) -> str:
    return word.lower().replace("\u2019", "'")


class Attributes:
    """Attributes of tokens, by the rows of their weights, as a model describes them."""

    def __init__(self, model: dict[str, Any]) -> None:
        self.templates, self.bits = model["templates"], model["bits"]
        self.row_of: dict[Any, int] = {key: row for row, key in enumerate(model["attributes"])}
        self.splitter = Splitter(model["clitics"])

    def tokens(self, sentence: Sentence) -> list[tuple[str, ...]]:
        """The tokens of a sentence."""
        words = self.splitter.words(sentence) if isinstance(sentence, str) else sentence
        return [(token,) if isinstance(token, str) else tuple(token) for token in words]

    def rows(self, tokens: list[tuple[str, ...]]) -> list[list[int]]:
        """Rows of the attributes of each token; -1 for those without weights."""
        columns = {name for cells, _, _ in self.templates for name, _ in cells}
        values = {name: [_value(name, token) for token in tokens] for name in columns}

        def of_token(t: int) -> Iterator[int]:
            for cells, spelling, arguments in self.templates:
                seen = [values[c][t + o] if 0 <= t + o < len(tokens) else None for c, o in cells]
                for name in SPELLINGS[spelling](*arguments, *seen):
                    yield self.row_of.get(name if self.bits is None else zlib.crc32(name.encode()) % 2**self.bits, -1)

        return [list(of_token(t)) for t in range(len(tokens))]


class Tagger:
    """A linear chain over tags, from a folder that ``structsmooth export`` wrote."""

    def __init__(self, folder: str | Path) -> None:
        self.model: dict[str, Any] = json.loads(Path(folder, "tagger.json").read_text(encoding="utf-8"))
        arrays = np.load(Path(folder, "weights.npz"), allow_pickle=False)
        self.transition, (self.start, self.stop) = arrays["transition"], arrays["ends"]
        self.weights = np.pad(arrays["rows"], ((0, 1), (0, 0)))  # the last row is that of attributes without weights
        self.attributes = Attributes(self.model)

    def tag(self, sentence: Sentence) -> list[str]:
        """The best tags of a sentence."""
        tokens = self.attributes.tokens(sentence)
        return [self.model["tags"][state] for state in self._best(self._scores(tokens))] if tokens else []

    def probabilities(self, sentence: Sentence) -> Any:
        """Probabilities [T, S] of the tags at each token, in the order of ``model["tags"]``.

        They are calibrated if ``model["temperature"]`` is a number, by which scores are divided.
        """
        tokens, heat = self.attributes.tokens(sentence), self.model["temperature"] or 1.0
        if not tokens:
            return np.zeros((0, len(self.start)))
        scores, transition = self._scores(tokens) / heat, self.transition / heat
        before, after = [scores[0]], [np.zeros(len(self.start))]
        for row in scores[1:]:
            before.append(row + _log_sums(before[-1][:, None] + transition, 0))
        for row in scores[:0:-1]:
            after.append(_log_sums(transition + row + after[-1], 1))
        return np.exp(np.array(before) + after[::-1] - _log_sums(before[-1], 0))

    def _scores(self, tokens: list[tuple[str, ...]]) -> Any:
        """Scores [T, S] of the tags of each token."""
        scores = np.array([self.weights[rows].sum(0) for rows in self.attributes.rows(tokens)])
        scores[0] += self.start
        scores[-1] += self.stop
        return scores

    def _best(self, scores: Any) -> list[int]:
        """The states of the best sequence, by the Viterbi algorithm."""
        best, back = scores[0], []
        for row in scores[1:]:
            extended = best[:, None] + self.transition
            back.append(extended.argmax(0))
            best = extended.max(0) + row
        states = [int(best.argmax())]
        for pointers in reversed(back):
            states.append(int(pointers[states[-1]]))
        return states[::-1]


def _log_sums(values: Any, axis: int) -> Any:
    """Logarithms of sums of exponentials along an axis; -inf where all values are."""
    largest = np.maximum(values.max(axis, keepdims=True), np.finfo(float).min)
    with np.errstate(divide="ignore"):
        return np.log(np.exp(values - largest).sum(axis)) + largest.squeeze(axis)


def _value(column: str, token: tuple[str, ...]) -> Value:
    """What a column says of a token; a hyphen is nothing."""
    if column in ("word", "outline"):
        return token[0] if column == "word" else outline(token[0])
    number = {"pos": 2, "chunk": 3}.get(column) or int(column.removeprefix("column"))
    if number > len(token):
        raise ValueError(f"{token[0]!r} has {len(token)} columns, the model reads number {number}: give it, too")
    return None if token[number - 1] == "-" else token[number - 1]


if __name__ == "__main__":
    tagger = Tagger(Path(__file__).parent)
    for line in sys.stdin:
        words = tagger.attributes.splitter.words(line)
        print(*map("\t".join, zip(words, tagger.tag(words), strict=True)), "", sep="\n")
