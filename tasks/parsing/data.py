"""Treebanks in CoNLL-U: sentences with parts of speech and dependency trees."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any, NamedTuple, TextIO

import numpy as np

from structsmooth.tasks.base import known
from structsmooth.text.conll import expect_words
from structsmooth.text.layouts import is_blank
from structsmooth.text.lines import read_text, source_name
from structsmooth.text.universal import rewritten, universal_row

_FORM, _UPOS, _XPOS, _HEAD, _DEPREL = 1, 3, 4, 6, 7
_UNKNOWN = "_"


class Tree(NamedTuple):
    """A dependency tree, as a label or as an output.

    Attributes:
        heads: of each word, 0 for the root and i for word number i, counted from 1; -1 for unknown heads in files to
            train on.
        relations: of each word to its head.
        probabilities: of the head of each word, if they were asked for.
    """

    heads: tuple[int, ...]
    relations: tuple[str, ...]
    probabilities: tuple[float, ...] = ()

    @property
    def has_single_root(self) -> bool:
        """Whether the root is the head of one word, or may be that of one whose head is unknown."""
        return (count := self.heads.count(0)) == 1 or (count == 0 and -1 in self.heads)

    def is_output(self, projective: bool, single_root: bool) -> bool:
        """Whether a parser may predict the tree: one without crossing arcs, or with one root, if it must be such."""
        is_allowed = not projective or projectivized(self.heads) == self.heads
        return -1 not in self.heads and is_allowed and (self.heads.count(0) == 1 or not single_root)


@dataclass(frozen=True)
class Sentence:
    """A sentence with parts of speech.

    Attributes:
        words: the words.
        upos: universal parts of speech, ``_`` where they are unknown.
        xpos: parts of speech of the treebank, likewise.
        tree: the tree; ``None`` if it is unknown.
        lines: of the file, comments and rows of several words included; none if the sentence is from no file.
    """

    words: tuple[str, ...]
    upos: tuple[str, ...]
    xpos: tuple[str, ...]
    tree: Tree | None = None
    lines: tuple[str, ...] = ()

    def __len__(self) -> int:
        return len(self.words)


def read_trees(path: str | TextIO, labelled: bool = True, unknown: str | None = None) -> list[Sentence]:
    """The sentences of a file in CoNLL-U, plain or compressed by gzip.

    Args:
        path: the file, or an open text stream.
        labelled: whether trees are read. Otherwise columns of heads and relations are left aside.
        unknown: what stands in the place of unknown heads; without it, all words of a tree must have heads.

    Raises:
        ValueError: a malformed line or a sentence whose heads are no tree, with the path and the line; no sentence at
            all; or a damaged archive.
        OSError: a file that cannot be read, or does not exist.
    """
    name, sentences, rows, number = source_name(path), list[Sentence](), list[str](), 0
    for number, line in enumerate(chain(read_text(path), [""]), 1):
        if not is_blank(line):
            rows.append(line)
        elif rows:
            sentences += _sentence(rows, name, number - len(rows), labelled, unknown)
            rows = []
    if not sentences:
        raise ValueError(f"{name}: no sentences")
    counts = np.array([(s.words.count("_"), len(s.words)) for s in sentences])
    expect_words(counts[:, 0], counts[:, 1], name)
    return sentences


def write_tree(sentence: Sentence, tree: Tree, comments: Sequence[str], stream: TextIO) -> None:
    """Write a sentence with a tree in CoNLL-U: all that was read, with other heads and relations.

    Probabilities of heads, if the tree has any, are added to the last column, as ``HeadProb=0.97``. Enhanced
    dependencies, which belong to another tree, are left out.

    Args:
        sentence: the sentence.
        tree: of its words.
        comments: lines to add before the words.
        stream: to write to.
    """
    lines = sentence.lines or [
        "\t".join([str(i), word, "_", upos, xpos, *"_____"])
        for i, (word, upos, xpos) in enumerate(zip(sentence.words, sentence.upos, sentence.xpos, strict=True), 1)
    ]
    found = zip(tree.heads, tree.relations, tree.probabilities or [None] * len(tree.heads), strict=True)

    def change(row: list[str]) -> None:
        head, relation, probability = next(found)
        row[_HEAD : _HEAD + 3] = [str(head), relation, _UNKNOWN]
        if probability is not None:
            row[-1] = "|".join([*([row[-1]] if row[-1] != _UNKNOWN else []), f"HeadProb={probability:.4f}"])

    begin = next(place for place, line in enumerate(lines) if not line.startswith("#"))
    commented = [*lines[:begin], *(f"# {comment}" for comment in comments), *lines[begin:]]
    stream.write("\n".join(rewritten(commented, change)) + "\n\n")


def sentence_of(pairs: Any) -> Sentence:
    """A sentence of pairs of a word and its part of speech.

    Raises:
        ValueError: something else.
    """
    if isinstance(pairs, str) or not all(isinstance(p, (tuple, list)) and len(p) == 2 for p in pairs):
        wanted = "a list of pairs of a word and its part of speech, as in [('birds', 'NOUN'), ('sing', 'VERB')]"
        raise ValueError(f"a sentence must be {wanted}; got {pairs!r}")
    words, tags = zip(*pairs, strict=True) if pairs else ((), ())
    return Sentence(tuple(map(str, words)), tuple(map(str, tags)), tuple(map(str, tags)))


def known_tree(sentence: Sentence) -> Tree:
    """The tree of a sentence.

    Raises:
        ValueError: there is none.
    """
    return known(
        sentence.tree, "these sentences have no trees", ", as heads and relations in columns 7 and 8 of CoNLL-U"
    )


def projectivized(heads: Sequence[int]) -> tuple[int, ...]:
    """A projective tree near another: the shortest of the arcs that cross moves up to the head of its head, repeatedly.

    No further word becomes a child of the root, if the root has one. Unknown heads, -1, cross nothing, and a word whose
    arc would move up to an unknown head has an unknown one, too.

    Reference:
        Nivre and Nilsson (2005), "Pseudo-Projective Dependency Parsing".
    """
    lifted = list(heads)
    while (crossing := _crossing(lifted)).any():
        movable = [m for m in np.flatnonzero(crossing).tolist() if lifted[m] and lifted[lifted[m] - 1]]
        # Of two arcs that cross, one has a head other than the root, and can move; if need be, to the root.
        movable = movable or [m for m in np.flatnonzero(crossing).tolist() if lifted[m]]
        word = min(movable, key=lambda m: abs(lifted[m] - m - 1))
        lifted[word] = lifted[lifted[word] - 1]
    return tuple(lifted)


def _crossing(heads: Sequence[int]) -> "np.typing.NDArray[np.bool_]":
    """Which words have arcs that cross others, or would, whatever unknown heads are: over a word above their head."""
    head, word = np.array(heads), np.arange(1, len(heads) + 1)
    low, high = np.minimum(head, word), np.maximum(head, word)
    # Unknown heads: an empty arc.
    low, high = np.where(head < 0, word, low), np.where(head < 0, word, high)
    inside = (low[:, None] < low) & (low < high[:, None]) & (high[:, None] < high)
    crossing = np.asarray((inside | inside.T).any(1))
    for m, head_of_word in enumerate(heads if -1 in heads else (), 1):
        above = head_of_word
        while above > 0 and not crossing[m - 1]:
            above = heads[above - 1]
            crossing[m - 1] = min(m, head_of_word) < above < max(m, head_of_word)
    return crossing


def _sentence(lines: list[str], name: str, first: int, labelled: bool, unknown: str | None) -> list[Sentence]:
    """The sentence of some lines, of which the first has a number; none if there are only comments."""
    rows: list[list[str]] = []
    places: list[int] = []
    for place, line in enumerate(lines, first):
        if line.startswith("#"):
            continue
        try:
            row = universal_row(line)
        except ValueError as error:
            raise ValueError(f"{name}:{place}: {error}") from None
        if not row[0].isdigit():
            continue
        if row[0].lstrip("0") != str(len(rows) + 1):
            raise ValueError(f"{name}:{place}: expected word number {len(rows) + 1}, got {row[0][:40]!r}")
        rows.append(row)
        places.append(place)
    if not rows:
        return []
    words, upos, xpos = (tuple(row[column] for row in rows) for column in (_FORM, _UPOS, _XPOS))
    tree = _tree(rows, name, places, unknown) if labelled else None
    return [Sentence(words, upos, xpos, tree, tuple(lines))]


def _tree(rows: Sequence[Sequence[str]], name: str, places: Sequence[int], unknown: str | None) -> Tree | None:
    """The tree of the rows of words; ``None`` if no word has a head, unless heads may be unknown."""
    if unknown is None and all(row[_HEAD] == _UNKNOWN for row in rows):
        return None
    heads = []
    for number, (row, place) in enumerate(zip(rows, places, strict=True), 1):
        head = row[_HEAD]
        if head == unknown:
            heads.append(-1)
            continue
        if not head.isdecimal() or int(head) > len(rows) or int(head) == number:
            raise ValueError(
                f"{name}:{place}: expected another word's number from 0 to {len(rows)} as head, got {head[:40]!r}"
            )
        heads.append(int(head))
    # After as many steps up as there are words, who has not arrived at the root goes in a circle. Unknown heads end a
    # way.
    above = [0, *heads]
    for _ in heads:
        above = [heads[a - 1] if a > 0 else 0 for a in above]
    if any(a > 0 for a in above):
        place = places[next(m for m, a in enumerate(above[1:]) if a > 0)]
        raise ValueError(f"{name}:{place}: expected heads that make a tree: this word is not below the root")
    return Tree(tuple(heads), tuple(row[_DEPREL] for row in rows))
