"""What a network of limited length reads of a text, and from where each word is taken."""

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

Numbers = NDArray[np.int64]


class Window(NamedTuple):
    """Pieces ``begin`` to ``end`` of a text; the numbers of words that are taken from there, and their first pieces."""

    begin: int
    end: int
    words: Numbers
    places: Numbers


def windows(first: Numbers, words: range, around: range, room: int) -> Iterator[Window]:
    """Windows that show each word of a sentence once, as far from the edges of its window as overlaps allow.

    Args:
        first: number of the first piece of each word of a text, and of what follows the last one: int64 [words + 1].
        words: of the sentence.
        around: the pieces of the sentence with its context; what does not fit beside a sentence is left out evenly.
        room: pieces that the network reads at once.

    Yields:
        A single window where the sentence fits into one; else windows that overlap by half. A word goes by its first
        piece, and to the earlier one of two windows that show it equally well.

    Example:
        >>> first = np.arange(10)  # nine words of a piece each
        >>> [(w.begin, w.end, w.words.tolist()) for w in windows(first, range(9), range(9), 4)]
        [(0, 4, [0, 1, 2]), (2, 6, [3, 4]), (4, 8, [5, 6]), (5, 9, [7, 8])]
    """
    begin, end = int(first[words.start]), int(first[words.stop])
    numbers = np.arange(words.start, words.stop)
    if not len(numbers):
        return
    if end - begin <= room:
        left, right = begin - around.start, around.stop - end
        spare = room - (end - begin)
        left = min(left, max(spare // 2, spare - right))
        yield Window(begin - left, end + min(right, spare - left), numbers, first[numbers] - begin + left)
        return
    starts = np.unique(np.minimum(np.arange(begin, end, max(room // 2, 1)), end - room))
    places = first[numbers, None]
    margins = np.minimum(places - starts, starts + room - 1 - places)  # negative outside of the window
    chosen = margins.argmax(1)
    for number, start in enumerate(starts.tolist()):
        if (shown := numbers[chosen == number]).size:
            yield Window(start, start + room, shown, first[shown] - start)
