"""Constituency trees in brackets, as in the Penn Treebank, and grammars that are learned from them."""

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from structsmooth.text.lines import Source, read_text, source_name

_TOKENS = re.compile(r"[()]|[^()\s]+")
_FUNCTIONS = re.compile(r"(?<=[^-=])[-=].*")
Span = tuple[int, int, str]
_DEEPEST = 150  # brackets inside each other


class Phrase(NamedTuple):
    """A constituent of a sentence, or a word with its part of speech.

    Attributes:
        label: of the constituent, or the part of speech.
        children: constituents, or one word.
    """

    label: str
    children: "tuple[Phrase | str, ...]"

    @property
    def phrases(self) -> "list[Phrase]":
        """The children that are no word."""
        return [child for child in self.children if isinstance(child, Phrase)]

    def leaves(self) -> "list[tuple[str, str]]":
        """Words with their parts of speech."""
        words = [(child, self.label) for child in self.children if isinstance(child, str)]
        return words + [leaf for child in self.phrases for leaf in child.leaves()]

    def constituents(self, first: int = 0) -> "Iterator[Span]":
        """First word, last word and label of constituents, without parts of speech, from the top down.

        Args:
            first: the number of the first word of this one.
        """
        if self.phrases:
            yield first, first + len(self.leaves()) - 1, self.label
        for child in self.phrases:
            yield from child.constituents(first)
            first += len(child.leaves())

    def spans(self) -> Counter[Span]:
        """How often each is among :meth:`constituents`."""
        return Counter(self.constituents())

    def __str__(self) -> str:
        """In brackets, on one line."""
        return f"({self.label} {' '.join(map(str, self.children))})"


def read_brackets(
    path: Source, *, functions: bool = False, traces: bool = False, encoding: str | None = None
) -> list[Phrase]:
    """The trees of a file in the form of the Penn Treebank, plain or compressed.

    Args:
        path: of the file, or a stream of text. Trees may extend over lines. A pair of brackets without label, as around
            a tree of the Penn Treebank, has the label "".
        functions: whether labels of constituents keep functions and indices: NP-SBJ-1, or NP.
        traces: whether words of the part of speech -NONE- and constituents without other words are kept.
        encoding: of the file; UTF-8 if not given.

    Raises:
        FileNotFoundError: there is no such file.
        ValueError: brackets that do not match, a constituent without content, or more than 150 inside each other, with
            the line; and as for other texts: an encoding that is wrong, a damaged archive, too large a file.

    Example:
        >>> from io import StringIO
        >>> (tree,) = read_brackets(StringIO("(S (NP-SBJ (PRP she)) (VP (VBZ sees)))"))
        >>> print(tree)
        (S (NP (PRP she)) (VP (VBZ sees)))
        >>> sorted(tree.spans())
        [(0, 0, 'NP'), (0, 1, 'S'), (1, 1, 'VP')]
    """
    return list(_trees(path, functions, traces, encoding))


def _trees(path: Source, functions: bool, traces: bool, encoding: str | None) -> Iterator[Phrase]:
    name, open_ = source_name(path), list[tuple[str, list[Phrase | str]]]()
    number, before = 0, ""
    for number, line in enumerate(read_text(path, encoding), 1):
        for token in _TOKENS.findall(line):
            place = f"{name}:{number}"
            if token == "(":
                open_.append(("", []))
                if len(open_) > _DEEPEST:
                    raise ValueError(f"{place}: more than {_DEEPEST} brackets inside each other")
            elif not open_:
                raise ValueError(
                    f"{place}: {token!r} must be inside brackets, as in (S (NP (PRP she)) (VP (VBZ sees)))"
                )
            elif token != ")":
                if before == "(":
                    open_[-1] = (token, [])
                else:
                    open_[-1][1].append(token)
            else:
                label, children = open_.pop()
                tree = _closed(label, children, functions, traces, place)
                if tree is not None and not open_:
                    yield tree
                elif tree is not None:
                    open_[-1][1].append(tree)
                elif open_:
                    open_[-1][1].append("")  # what was there, to be left out
            before = token
    if open_:
        raise ValueError(f"{name}:{number}: the file ends inside {len(open_)} brackets that are not closed")


def _closed(label: str, children: list[Phrase | str], functions: bool, traces: bool, place: str) -> Phrase | None:
    """A constituent; nothing if all that it has is traces."""
    words = [child for child in children if isinstance(child, str) and child]
    if not children or (words and len(children) > 1):
        what = "one word" if words else "a word or constituents"
        raise ValueError(
            f"{place}: brackets must have a label and {what}, got ({label} {' '.join(map(str, children))})"
        )
    if words:
        return None if label == "-NONE-" and not traces else Phrase(label, (words[0],))
    kept = tuple(child for child in children if child)
    return Phrase(label if functions else _FUNCTIONS.sub("", label), kept) if kept else None


class Agreement(NamedTuple):
    """How many constituents of one set of trees are in another one; see :func:`labelled_f1`."""

    precision: float
    recall: float
    f1: float


def labelled_f1(
    predicted: "Sequence[Phrase | Counter[Span]]",
    correct: Sequence[Phrase],
    unscored: Sequence[str] = ("ROOT", "TOP", ""),
) -> Agreement:
    """Labelled precision, recall and F1 of constituents over all sentences, punctuation included.

    Args:
        predicted: a tree for each sentence, or its constituents.
        correct: a tree for each sentence.
        unscored: labels that do not count, such as that of the whole tree.

    Raises:
        ValueError: another number of trees.

    Example:
        >>> tree, other = (Phrase("S", (Phrase(label, (Phrase("UH", ("oh",)),)),)) for label in ("NP", "INTJ"))
        >>> labelled_f1([other], [tree])
        Agreement(precision=0.5, recall=0.5, f1=0.5)
    """
    if len(predicted) != len(correct):
        raise ValueError(f"predicted must have a tree for each of {len(correct)} sentences, got {len(predicted)}")

    def scored(tree: Phrase | Counter[Span]) -> Counter[Span]:
        spans = tree.spans() if isinstance(tree, Phrase) else tree
        return Counter({span: count for span, count in spans.items() if span[2] not in unscored})

    pairs = [(scored(tree), scored(gold)) for tree, gold in zip(predicted, correct, strict=True)]
    found, wanted, common = (
        sum(spans.total() for spans in counts)
        for counts in ([a for a, _ in pairs], [b for _, b in pairs], [a & b for a, b in pairs])
    )
    return Agreement(common / max(found, 1), common / max(wanted, 1), 2 * common / max(found + wanted, 1))
