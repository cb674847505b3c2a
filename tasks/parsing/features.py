"""Features of arcs, siblings and relations: templates of words and parts of speech, as keys of hashes."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from typing import Literal
from zlib import crc32

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from structsmooth.encoders.codes import Codes
from structsmooth.problems import PairFeatures
from structsmooth.tasks.parsing.data import Sentence
from structsmooth.tasks.parsing.parts import TreeParts

PartOfSpeech = Literal["upos", "xpos"]

# A template joins some of: the word, the part of speech or the code (w, p, c) of the head, the modifier or its sibling
# (h, m, s), or of a neighbour (h-1, m+1), and the signed distance from head or sibling to modifier (d).
_NEAR = ("hp mp", "hw mw", "hw hp mw", "hw hp mp", "hw mw mp", "hp mw mp", "hw hp mw mp")
_FAR = (
    *("hw", "mw", "hp", "mp", "hw hp", "mw mp"),
    *("hp h-1p mp", "hp h+1p mp", "hp mp m-1p", "hp mp m+1p"),
    *(f"hp h{a}p mp m{b}p" for a in ("-1", "+1") for b in ("-1", "+1")),
)
ARCS = (*_NEAR, *(f"{template} d" for template in (*_NEAR, *_FAR)))
"""Templates of arcs (McDonald, Crammer and Pereira 2005)."""
BETWEEN = ("hp mp",)
"""Templates of arcs that also have the part of speech of a word between head and modifier, one for each such word."""
RELATIONS = (
    "hw hp mw mp",
    "hw mp",
    "hp mw",
    "hw mw",
    "hp mp d",
    "hw mp d",
    "hp mw d",
    "mw mp",
    "hw hp",
    "mp m-1p m+1p d",
    "hp mp m-1w",
    "hp mp m+1w",
    "hp h-1p h+1p mp d",
)
"""Templates of the relation of a word to its head."""
SIBLINGS = (
    *("hp sp mp", "sp mp", "sw mw", "sw mp", "sp mw", "hw sp mp", "hp sw mp", "hp sp mw"),
    *("hp sp mp d", "sp mp d", "sw mw d", "sw mp d", "sp mw d"),
)
"""Templates of two neighbouring modifiers of a head, or of the first one, whose sibling is the head (McDonald and
Pereira 2006)."""
CODED_ARCS = ("hc mc", "hc mp", "hp mc", "hc mc d", "hc mp d", "hp mc d")
CODED_RELATIONS = ("hc mc", "hc mp", "hp mc", "mc mp", "hw mc", "hc mw", "mc", "hc mc d")
"""Further templates where words have codes of an encoder."""

_FIELD = re.compile(r"([hms])([+-]\d)?([wpc])")
_REACH, _EXACT, _MIDDLE = 11, 5, 10  # distances up to 5 count as they are, then those up to 10, then all others
_ROOT, _OUTSIDE = "<root>", np.uint64(0x51ED270B)


@dataclass(frozen=True)
class Tokens:
    """The words of sentences with a root before the words of each, as numbers.

    Attributes:
        lengths: of the sentences, int64 [n].
        values: by the letter of a field, a number for each token: uint64 [tokens].
        sentence: of each token, [tokens].
    """

    lengths: Tensor
    values: dict[str, NDArray[np.uint64]]
    sentence: NDArray[np.int64]

    @classmethod
    def of(cls, sentences: Sequence[Sentence], pos: PartOfSpeech, codes: Sequence[Codes] | None = None) -> "Tokens":
        """The tokens of some sentences, by hashes of words in lower case, of parts of speech and, if given, codes."""
        number = cache(lambda text: crc32(text.encode()))
        words = [number(word) for s in sentences for word in (_ROOT, *map(str.lower, s.words))]
        tags = [number(tag) for s in sentences for tag in (_ROOT, *getattr(s, pos))]
        lengths = torch.tensor([len(s) for s in sentences])
        sentence = np.repeat(np.arange(len(sentences)), lengths.numpy() + 1)
        values = {"w": words, "p": tags}
        if codes is not None:
            values["c"] = [number(str(code)) for of_words in codes for code in (_ROOT, *of_words.tolist())]
        return cls(lengths, {letter: np.array(row, np.uint64) for letter, row in values.items()}, sentence)

    @property
    def templates(self) -> tuple[tuple[str, ...], tuple[str, ...]]:
        """Templates of relations and of arcs."""
        coded = "c" in self.values
        return RELATIONS + CODED_RELATIONS * coded, ARCS + CODED_ARCS * coded

    @property
    def begins(self) -> Tensor:
        """The root of each sentence: int64 [n]."""
        return (self.lengths + 1).cumsum(0) - self.lengths - 1

    def neighbours(self, offset: int, letter: str) -> NDArray[np.uint64]:
        """Values of the tokens so many places behind, of the same sentence."""
        at = np.arange(len(self.sentence)) + offset
        near = np.clip(at, 0, len(at) - 1)
        inside = (near == at) & (self.sentence[near] == self.sentence)
        return np.where(inside, self.values[letter][near], _OUTSIDE)


def pair_features(
    tokens: Tokens,
    first: Tensor,
    second: Tensor,
    bits: int,
    kinds: Tensor | None = None,
    relations: Sequence[str] = (),
    siblings: bool = False,
) -> PairFeatures:
    """Features of parts about the tokens ``first`` and ``second``.

    Kind 0 is that of arcs, the next ones those of relations. If there are siblings, one more kind is that of the first
    modifiers of a head, and then there is one for each token, of neighbouring modifiers whose head it is.
    """
    of_relations, of_arcs = tokens.templates
    templates = [*of_relations, *of_arcs, *BETWEEN, *(SIBLINGS if siblings else ())]
    words = len(of_relations) + len(of_arcs)
    last = words + len(BETWEEN)
    columns = [*range(last, len(templates)), *range(last)]  # keys stay those of their templates
    distances = np.arange(-_REACH, _REACH + 1)
    size = np.minimum(abs(distances), _EXACT + (abs(distances) > _EXACT) + (abs(distances) > _MIDDLE))
    buckets = (np.sign(distances) * size + _REACH).astype(np.uint64)
    directions = (np.sign(distances) + 1).astype(np.uint64)
    with_distance = [words <= k < last or "d" in templates[k].split() for k in range(len(templates))]
    of_distance = [
        _key(directions if words <= k < last else buckets, k, 3) * np.uint32(with_distance[k]) for k in columns
    ]
    names = np.array([crc32(name.encode()) for name in relations], np.uint64)
    of_kind = np.stack([np.append(np.uint32(0), _key(names, k, 4)) for k in columns], 1)
    begin = len(templates) - last
    before_arcs = begin + len(of_relations)
    ranges = [[before_arcs, len(templates)], *[[begin, before_arcs]] * len(relations)]
    if siblings:
        none = np.zeros(1, np.uint64)
        heads = [np.append(_key(none, k, 6), _of_role(tokens, templates[k], "h", k)) for k in columns]
        of_kind = np.concatenate([of_kind, np.stack(heads, 1)])
        ranges += [[0, begin]] * len(heads[0])
    return PairFeatures(
        first.int(),
        second.int(),
        first_keys=_table([_of_role(tokens, templates[k], "s" if k >= last else "h", k) for k in columns]),
        second_keys=_table([_of_role(tokens, templates[k], "m", k) for k in columns]),
        distance_keys=_table(of_distance),
        between_keys=_table([_key(tokens.values["p"], k, 5) for k in range(words, last)]),
        bits=bits,
        kinds=None if kinds is None else kinds.int(),
        kind_keys=torch.from_numpy(of_kind),
        kind_columns=torch.tensor(ranges),
    )


def arc_features(tokens: Tokens, bits: int) -> PairFeatures:
    """Features of all arcs, in the order of :func:`~structsmooth.problems.arcs_of`."""
    return part_features(tokens, TreeParts.arcs(tokens.lengths), bits)


def part_features(tokens: Tokens, parts: TreeParts, bits: int) -> PairFeatures:
    """Features of arcs and siblings."""
    first, second, kinds = _tokens_of(tokens, parts, 0)
    return pair_features(tokens, first, second, bits, kinds, siblings=not bool(parts.is_arc.all()))


def relation_features(tokens: Tokens, heads: Tensor, bits: int, relations: Sequence[str]) -> PairFeatures:
    """Features of all relations of all words to given heads [words], word by word."""
    first, second, kinds = _labelled(tokens, heads, len(relations))
    return pair_features(tokens, first, second, bits, kinds, relations)


def all_features(
    tokens: Tokens, heads: Tensor, bits: int, relations: Sequence[str], parts: TreeParts | None = None
) -> PairFeatures:
    """Features of parts of each sentence, by default all arcs, and then of relations of its words to heads [words]."""
    parts = TreeParts.arcs(tokens.lengths) if parts is None else parts
    count, labelled = len(relations), _labelled(tokens, heads, len(relations))
    both = zip(_tokens_of(tokens, parts, count), labelled, strict=True)
    first, second, kinds = (parts.before_labels(count, *pair) for pair in both)
    return pair_features(tokens, first, second, bits, kinds, relations, siblings=not bool(parts.is_arc.all()))


def _tokens_of(tokens: Tokens, parts: TreeParts, relations: int) -> tuple[Tensor, Tensor, Tensor]:
    """The first and the second token of each part, and its kind."""
    begin = tokens.begins[parts.sentence]
    of_head = torch.where(parts.sibling == parts.head, 0, 1 + begin + parts.head)
    first = begin + torch.where(parts.is_arc, parts.head, parts.sibling)
    return first, begin + parts.modifier, torch.where(parts.is_arc, 0, 1 + relations + of_head)


def _labelled(tokens: Tokens, heads: Tensor, relations: int) -> tuple[Tensor, Tensor, Tensor]:
    """Head, word and kind of all relations of words."""
    begins = torch.repeat_interleave(tokens.begins, tokens.lengths)
    words = torch.arange(len(tokens.sentence))
    words = words[~torch.isin(words, tokens.begins)]
    kinds = torch.arange(1, relations + 1).repeat(len(heads))
    return (begins + heads).repeat_interleave(relations), words.repeat_interleave(relations), kinds


def _of_role(tokens: Tokens, template: str, role: str, column: int) -> NDArray[np.uint32]:
    """Keys of what a template takes of the head (h) or the modifier (m): uint32 [tokens]."""
    joined = np.full(len(tokens.sentence), ord(role), np.uint64)
    for field in template.split():
        match = _FIELD.fullmatch(field)
        if match is not None and match[1] == role:
            joined = _mixed(joined + tokens.neighbours(int(match[2] or 0), match[3]), 0)
    return _key(joined, column, ord(role))


def _table(columns: Sequence[NDArray[np.uint32]]) -> Tensor:
    return torch.from_numpy(np.stack(columns, 1))


def _key(values: NDArray[np.uint64], column: int, salt: int) -> NDArray[np.uint32]:
    """Random numbers that are the same for equal values, and different ones in each column and for each salt."""
    return (_mixed(_mixed(values, column + 1), salt) >> np.uint64(32)).astype(np.uint32)


def _mixed(values: NDArray[np.uint64], seed: int) -> NDArray[np.uint64]:
    """A permutation of the 64-bit numbers that spreads every bit over all (the finalizer of splitmix64)."""
    x = (values + np.uint64(seed * 0x632BE59BD9B4E019 % 2**64)) * np.uint64(0x9E3779B97F4A7C15)
    x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return x ^ (x >> np.uint64(31))


def pair_weights(weights: Tensor, tags: Sequence[str], bits: int, coded: bool = False) -> NDArray[np.float64]:
    """Weights of the template of two parts of speech alone, of head (the root first) and modifier."""
    values = np.array([crc32(tag.encode()) for tag in (_ROOT, *tags)], np.uint64)
    every = dict.fromkeys("wpc" if coded else "wp", values)
    tokens = Tokens(torch.tensor([len(tags)]), every, np.zeros(len(values), np.int64))
    column = len(tokens.templates[0]) + ARCS.index("hp mp")
    of_head, of_modifier = (_of_role(tokens, "hp mp", role, column) for role in "hm")
    buckets = (of_head[:, None] + of_modifier[1:]) >> np.uint32(32 - bits)
    table: NDArray[np.float64] = weights.detach().numpy()[buckets.astype(np.int64)]
    return table
