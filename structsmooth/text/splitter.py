"""Words of raw text."""

import re
from collections.abc import Iterable

from structsmooth.text.standalone import Splitter as Splitter

_APOSTROPHES = "'\u2019"
# A token of a part of a word, such as the 's of "Ada's", the n't of "didn't" and the l' of "l'eau".
_CLITIC = re.compile(rf"[{_APOSTROPHES}]\w+|n[{_APOSTROPHES}]t|\w+[{_APOSTROPHES}]", re.IGNORECASE)
# A word with a period, which may end no sentence.
_SHORTENED = re.compile(r"[^\W\d_][^.]*\.")


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
