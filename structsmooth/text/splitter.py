"""Words of raw text, and the layout of files of such text."""

import re
from collections.abc import Iterable, Sequence

from structsmooth.text.corpus import Token
from structsmooth.text.layouts import SEPARATOR, Layout
from structsmooth.text.standalone import Splitter as Splitter

_APOSTROPHES = "'\u2019"
# A token of a part of a word, such as the 's of "Ada's", the n't of "didn't" and the l' of "l'eau".
_CLITIC = re.compile(rf"[{_APOSTROPHES}]\w+|n[{_APOSTROPHES}]t|\w+[{_APOSTROPHES}]", re.IGNORECASE)


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
        """How many lines of text the results are of: each ends with a separator."""
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
