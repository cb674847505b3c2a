"""Words of raw text."""

import re
from collections.abc import Iterable

from structsmooth.text.layouts import is_blank

_OPENING = "([{<\"'\u201c\u2018\u00ab\u201e\u00bf\u00a1$\u20ac\u00a3"
_CLOSING = ")]}>\"'\u201d\u2019\u00bb,;:!?\u2026%"
_APOSTROPHES = "'\u2019"
# A token of a part of a word, such as the 's of "Ada's", the n't of "didn't" and the l' of "l'eau".
_CLITIC = re.compile(rf"[{_APOSTROPHES}]\w+|n[{_APOSTROPHES}]t|\w+[{_APOSTROPHES}]", re.IGNORECASE)
# Letters with a period behind each, such as U.S. and the J. of a name.
_ABBREVIATION = re.compile(r"([^\W\d_]\.)+")


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


def clitics_of(words: Iterable[str]) -> set[str]:
    """The words that are parts of words: those that begin or end with an apostrophe.

    Example:
        >>> sorted(clitics_of(["Ada", "'s", "did", "n't"]))
        ["'s", "n't"]
    """
    return {word for word in words if _CLITIC.fullmatch(word)}
