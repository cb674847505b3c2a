"""Regular expressions over labels, compiled to deterministic automata."""

import re
from collections import defaultdict
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

_TOKEN = re.compile(r'\s*(?:"([^"]*)"|([()|*+?.])|([^\s()|*+?."]+))')
_MOST = 20_000  # states: some patterns need exponentially many


class _Piece(NamedTuple):
    """What a part of a pattern reads: whether nothing will do, and at which places it may begin and end."""

    nullable: bool
    first: frozenset[int]
    last: frozenset[int]


class _Reader:
    """Recursive descent, which finds the labels of each place of a pattern and the places that follow each other."""

    def __init__(self, pattern: str, labels: Sequence[str]) -> None:
        self.pattern, self.numbers = pattern, {label: j for j, label in enumerate(labels)}
        self.at, self.labels_at = 0, list[frozenset[int]]()
        self.follow: defaultdict[int, set[int]] = defaultdict(set)

    def whole(self) -> _Piece:
        piece = self.union()
        if self.pattern[self.at :].strip():
            raise self.error("an operator without what it is for")
        return piece

    def union(self) -> _Piece:
        piece = self.sequence()
        while self.takes("|"):
            other = self.sequence()
            piece = _Piece(piece.nullable or other.nullable, piece.first | other.first, piece.last | other.last)
        return piece

    def sequence(self) -> _Piece:
        piece = self.repeated()
        while (match := _TOKEN.match(self.pattern, self.at)) and match[2] not in tuple("|)*+?"):
            other = self.repeated()
            self.join(piece.last, other.first)
            first = piece.first | other.first if piece.nullable else piece.first
            last = piece.last | other.last if other.nullable else other.last
            piece = _Piece(piece.nullable and other.nullable, first, last)
        return piece

    def repeated(self) -> _Piece:
        piece = self.single()
        while operator := next(filter(self.takes, "*+?"), None):
            if operator != "?":
                self.join(piece.last, piece.first)
            piece = piece._replace(nullable=piece.nullable or operator != "+")
        return piece

    def single(self) -> _Piece:
        if self.takes("("):
            piece = self.union()
            if not self.takes(")"):
                raise self.error("a bracket that is not closed")
            return piece
        match = _TOKEN.match(self.pattern, self.at)
        if match is None or match[2] not in (None, "."):
            raise self.error("no label where one must be")
        name = match[1] if match[3] is None else match[3]
        if match[2] is None and name not in self.numbers:
            raise self.error(f"the label {name!r}, which is none of {', '.join(self.numbers)}")
        self.at = match.end()
        place = frozenset({len(self.labels_at)})
        self.labels_at.append(frozenset(self.numbers.values()) if match[2] else frozenset({self.numbers[name]}))
        return _Piece(False, place, place)

    def takes(self, operator: str) -> bool:
        match = _TOKEN.match(self.pattern, self.at)
        if match is None or match[2] != operator:
            return False
        self.at = match.end()
        return True

    def join(self, last: frozenset[int], first: frozenset[int]) -> None:
        for place in last:
            self.follow[place] |= first

    def error(self, what: str) -> ValueError:
        return ValueError(f"pattern has {what}, at place {self.at} of {self.pattern!r}")


def compiled_pattern(pattern: str, labels: Sequence[str]) -> tuple[np.ndarray, np.ndarray]:
    """The least deterministic automaton that accepts what a pattern does.

    The places of labels in a pattern are the states of Glushkov's automaton; sets of them are those of a deterministic
    one, of which Moore's algorithm joins those that accept the same.

    Args:
        pattern: of labels, with the operators of :meth:`structsmooth.factors.Automaton.from_pattern`.
        labels: names of the S labels.

    Returns:
        The next state [Q, S], from 0, with -1 where there is none; and whether each state accepts, [Q].

    Raises:
        TypeError: a pattern that is no text.
        ValueError: a pattern that is none, or with too many states.
    """
    if not isinstance(pattern, str):
        raise TypeError(f'pattern must be a text, as in "(O | B-PER I-PER*)*", got {pattern!r}')
    reader = _Reader(pattern, labels)
    piece = reader.whole()
    start = frozenset({-1})
    reader.follow[-1] = set(piece.first)
    states, table = {start: 0}, list[list[int]]()
    for state in (found_states := [start]):  # grows meanwhile
        after = frozenset[int]().union(*(reader.follow[place] for place in state))
        table.append([])
        for j in range(len(labels)):
            found = frozenset(place for place in after if j in reader.labels_at[place])
            if found and found not in states:
                states[found] = len(states)
                found_states.append(found)
            table[-1].append(states[found] if found else -1)
        if len(states) > _MOST:
            raise ValueError(f"pattern needs more than {_MOST} states: {pattern!r}")
    accepts = np.array([bool(state & piece.last) or (piece.nullable and -1 in state) for state in states])
    return _joined(np.array(table).reshape(len(states), -1), accepts)


def _joined(table: np.ndarray, accepts: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The same automaton with as few states as possible, the first of which is 0."""
    blocks = accepts.astype(np.int64)
    while True:
        after = np.where(table < 0, -1, blocks[table])
        _, first, finer = np.unique(np.column_stack([blocks, after]), axis=0, return_index=True, return_inverse=True)
        finer = finer.reshape(-1)
        if finer.max() == blocks.max():
            break
        blocks = finer
    order = np.argsort(first)  # by their first states, of which 0 is one
    number = np.argsort(order)[finer]
    chosen = first[order]
    return np.where(table[chosen] < 0, -1, number[table[chosen]]), accepts[chosen]
