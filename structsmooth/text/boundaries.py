"""Where sentences end in running text: an averaged perceptron over the blanks, learned from known sentences."""

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from random import Random
from typing import NamedTuple

from structsmooth.text.standalone import outline

_PIECES = re.compile(r"\S+")
_MOST, _PASSES = 100_000, 5  # words to learn from, and passes over them
_RARE, _SMALL = 3, 0.05  # attributes of fewer gaps, and smaller weights, are left out
_NEAR = 4  # tokens of punctuation, and characters of it, that are looked at
# What no sentence begins with: it touches the word before it, or did so before it was cut off.
_CLOSING = frozenset(".,;:!?)]}%\u2026\u201d\u2019\u00bb'\"")


class _Piece(NamedTuple):
    """A token, or what stands between blanks: punctuation before and behind its core of letters and digits."""

    before: str
    core: str
    behind: str

    @classmethod
    def of(cls, text: str) -> "_Piece":
        places = [place for place, character in enumerate(text) if character.isalnum()]
        if not places:
            return cls(text, "", "")
        return cls(text[: places[0]], text[places[0] : places[-1] + 1], text[places[-1] + 1 :])


@dataclass(frozen=True)
class Boundaries:
    """Weights of the attributes of gaps between words; a gap ends a sentence if their sum is positive.

    Attributes are of the words beside a gap and of the punctuation between them, which are the same whether or not
    punctuation is cut off. Abbreviations of the training data have words of their own that speak against an end.

    Args:
        weights: by attribute; none if sentences end only where lines do.

    Reference:
        Freund and Schapire (1999), "Large Margin Classification Using the Perceptron Algorithm".
    """

    weights: dict[str, float] = field(default_factory=dict)

    @classmethod
    def of(cls, sentences: Iterable[Sequence[str]]) -> "Boundaries":
        """What the words of sentences, in the order of their text, tell: the first 100,000 of them.

        Example:
            >>> known = Boundaries.of([["Mr.", "Li", "sang", "."], ["We", "sang", "."], ["Mr.", "Wu", "left", "."]] * 5)
            >>> known.split("We left. Mr. Li sang. Mr. Wu sang.")
            ['We left.', 'Mr. Li sang.', 'Mr. Wu sang.']
        """
        pieces, ends = list[_Piece](), set[int]()
        for words in beginning(sentences):
            pieces += map(_Piece.of, words)
            ends.add(len(pieces) - 1)
        gaps = [
            (list(attributes), gap in ends)
            for gap, attributes in _gaps(pieces)
            if gap in ends or _may_end(pieces[gap + 1])
        ]
        counts = Counter(name for attributes, _ in gaps for name in attributes)
        kept = [([name for name in names if counts[name] >= _RARE], is_end) for names, is_end in gaps]
        return cls(_averaged(kept))

    def ends(self, text: str) -> list[int]:
        """The places of the blanks of a text, the first behind each last word, at which sentences end."""
        found = list(_PIECES.finditer(text))
        pieces = [_Piece.of(piece[0]) for piece in found]
        return [
            found[gap].end() for gap, names in _gaps(pieces) if sum(self.weights.get(name, 0.0) for name in names) > 0
        ]

    def split(self, text: str) -> list[str]:
        """The sentences of a text, without the blanks between them."""
        return [text[begin:end].strip() for begin, end in pairwise([0, *self.ends(text), len(text)])]


def beginning(sentences: Iterable[Sequence[str]]) -> list[Sequence[str]]:
    """The first sentences that are learned from, of 100,000 words, or a sentence more."""
    found, count = list[Sequence[str]](), 0
    for words in sentences:
        found.append(words)
        count += len(words)
        if count >= _MOST:
            break
    return found


def _gaps(pieces: Sequence[_Piece]) -> Iterator[tuple[int, Iterator[str]]]:
    """The gaps that may end a sentence, by the number of the piece before each, with their attributes."""
    return ((gap, _attributes(pieces, gap)) for gap in range(len(pieces) - 1) if not _runs_on(*pieces[gap : gap + 2]))


def _runs_on(piece: _Piece, following: _Piece) -> bool:
    """Whether nothing but a blank stands before a small letter: half of all gaps, where hardly a sentence ends."""
    return bool(piece.core) and not piece.behind and not following.before and following.core[:1].islower()


def _attributes(pieces: Sequence[_Piece], gap: int) -> Iterator[str]:
    """Attributes of the gap behind a piece."""
    left, right, word, following = "", "", "", ""
    for before, word, behind in reversed(pieces[max(gap + 1 - _NEAR, 0) : gap + 1]):
        left = (behind if word else before) + left
        if word:
            break
    for before, following, _ in pieces[gap + 1 : gap + 1 + _NEAR]:
        right += before
        if following:
            break
    left, right = left[:_NEAR], right[:2]
    shape, next_shape = outline(word)[:6], outline(following)[:6]
    yield left
    yield f"{left} next={outline(right + following)[:6]}"
    yield f"{left} {shape} {next_shape}"
    yield f"{left} {shape}"
    yield f"{left} {right}"
    yield f"{left} {min(len(word), 5)} {next_shape[:1]}"
    yield f"{left} word={word.lower()}"
    yield f"{left} next={following.lower()} {next_shape[:1]}"


def _may_end(following: _Piece) -> bool:
    """Whether a sentence may begin with a token, in text that is cut into tokens."""
    return bool(following.core) or following.before[0] not in _CLOSING


def _averaged(gaps: Sequence[tuple[Sequence[str], bool]]) -> dict[str, float]:
    """The mean of the weights of a perceptron over all steps."""
    weights, sums, step = dict[str, float](), dict[str, float](), 1
    order, draw = list(range(len(gaps))), Random(0)
    for _ in range(_PASSES):
        draw.shuffle(order)
        for number in order:
            names, is_end = gaps[number]
            if (sum(weights.get(name, 0) for name in names) > 0) != is_end:
                change = 1 if is_end else -1
                for name in names:
                    weights[name] = weights.get(name, 0) + change
                    sums[name] = sums.get(name, 0) + step * change
            step += 1
    means = {name: round(weight - sums[name] / step, 2) for name, weight in weights.items()}
    return {name: mean for name, mean in means.items() if abs(mean) > _SMALL}
