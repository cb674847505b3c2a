"""The rules of context-free grammars, and the programs of their derivations."""

from collections.abc import Iterable, Iterator, Sequence
from functools import lru_cache
from operator import index as as_integer
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from structsmooth.structures.programs import Program, ProgramBuilder, cached_program
from structsmooth.structures.programs.program import handles_of

_PIECE = 1 << 18  # edges that are added to a program at once


class Productions:
    """The rules of a :class:`~structsmooth.Grammar`.

    Args:
        rules: R rules between symbols 0 to N - 1: (a, b, c) for a → b c, and (a, b) for a → b. None for all N³ binary
            ones, by a, then b, then c.
        symbols: their number N. Default: one more than the largest symbol of a rule.

    Raises:
        TypeError: a symbol that is no integer.
        ValueError: a rule of another form, with a symbol that is out of range, or that stands there twice; rules a → b
            that form a cycle, by which a sentence would have infinitely many trees.

    Example:
        >>> Productions([(2, 0, 1), (3, 2)]).symbols
        4
    """

    def __init__(self, rules: Sequence[Sequence[int]] | None, symbols: int | None = None) -> None:
        if rules is None:
            self.rules, self.symbols, self.chain = None, symbols or 0, 1
            self.count, self.levels = self.symbols**3, torch.zeros(self.symbols, dtype=torch.int64)
            return
        self.rules = listed = tuple(tuple(as_integer(symbol) for symbol in rule) for rule in rules)
        self.count = len(listed)
        self.symbols = 1 + max(map(max, listed), default=-1) if symbols is None else symbols
        if self.symbols < 1:
            raise ValueError("rules must be at least one, or symbols given, got neither")
        for rule in listed:
            if len(rule) not in (2, 3) or not all(0 <= symbol < self.symbols for symbol in rule):
                raise ValueError(f"rules must be 2 or 3 symbols from 0 to {self.symbols - 1}, got {rule}")
        if len(set(listed)) < len(listed):
            twice = next(rule for r, rule in enumerate(listed) if rule in listed[:r])
            raise ValueError(f"rules must be different, got {twice} twice")
        self.levels = torch.from_numpy(_levels(listed, self.symbols))
        self.chain = 1 + int(self.levels.max())
        codes = [self._code(*rule) for rule in listed]
        self._codes, self._order = torch.tensor(codes, dtype=torch.int64).sort()

    def _code(self, head: Any, left: Any, right: Any = -1) -> Any:
        return (head * self.symbols + left) * (self.symbols + 1) + 1 + right

    def level(self, symbol: Tensor) -> Tensor:
        """The largest number of rules a → b one after the other that begin with symbols."""
        return self.levels.to(symbol.device)[symbol]

    def find(self, head: Tensor, left: Tensor, right: Tensor) -> Tensor:
        """The numbers of rules, int64; ``right`` is -1 for a → b. -1 if there is none."""
        if self.rules is None:
            known = (head >= 0) & (left >= 0) & (right >= 0)
            return torch.where(known, (head * self.symbols + left) * self.symbols + right, -1)
        if not self.rules:
            return torch.full_like(head, -1)
        codes, order = self._codes.to(head.device), self._order.to(head.device)
        wanted = torch.where((head >= 0) & (left >= 0), self._code(head, left, right), -1)
        place = torch.searchsorted(codes, wanted).clamp_max(codes.shape[0] - 1)
        return torch.where(codes[place] == wanted, order[place], -1)


def _levels(rules: tuple[tuple[int, ...], ...], symbols: int) -> np.ndarray:
    """The largest number of rules a → b [N] one after the other that begin with each symbol."""
    chains = np.array([rule for rule in rules if len(rule) == 2], np.int64).reshape(-1, 2)
    level = np.zeros(symbols, np.int64)
    for _ in range(symbols):
        higher = level.copy()
        np.maximum.at(higher, chains[:, 0], 1 + level[chains[:, 1]])
        if np.array_equal(higher, level):
            return level
        level = higher
    cyclic = [rule for rule in chains.tolist() if level[rule[0]] >= symbols]
    raise ValueError(f"rules of two symbols must form no cycle, got one by which {cyclic[0][0]} derives itself")


class _Forms(NamedTuple):
    """Rules by their form: of two symbols on the right side, and of one.

    Attributes:
        binary: rules a → b c [R2, 4]: a, b, c and the number of the rule, by a.
        chains: rules a → b [R1, 3]: a, b and the number, by a.
        pairs: different right sides [Q, 2].
        pair: which of them rules have, [R2].
        level: the largest number of chains one after the other from each symbol [N].
        others: which symbols may be a word, and have rules of two symbols, [2, N].
        derives: which symbols derive one word, and several, [2, N].
    """

    binary: np.ndarray
    chains: np.ndarray
    pairs: np.ndarray
    pair: np.ndarray
    level: np.ndarray
    others: np.ndarray
    derives: np.ndarray


def _forms(preterminals: int, symbols: int, rules: tuple[tuple[int, ...], ...] | None) -> _Forms:
    if rules is None:
        triples = np.moveaxis(np.indices((symbols,) * 3), 0, -1).reshape(-1, 3)
        binary = np.hstack([triples, np.arange(len(triples))[:, None]])
    else:
        binary = _of_length(3, rules)
    chains, level = _of_length(2, rules or ()), _levels(rules or (), symbols)
    codes, pair = np.unique(binary[:, 1] * symbols + binary[:, 2], return_inverse=True)
    others = np.array([np.arange(symbols) < preterminals, np.isin(np.arange(symbols), binary[:, 0])])
    derives = others.copy()
    for _ in range(level.max()):
        for several in derives:
            several[chains[several[chains[:, 1]], 0]] = True
    pairs = np.stack([codes // symbols, codes % symbols], 1)
    return _Forms(binary, chains, pairs, pair.reshape(-1), level, others, derives)


def _of_length(length: int, rules: tuple[tuple[int, ...], ...]) -> np.ndarray:
    """Rules of some symbols and their numbers, by the symbol on the left side: [R, length + 1]."""
    numbered = [(*rule, r) for r, rule in enumerate(rules) if len(rule) == length]
    found = np.array(numbered, np.int64).reshape(-1, length + 1)
    return found[np.argsort(found[:, 0], kind="stable")]


@lru_cache(maxsize=64)
def span_tables(preterminals: int, symbols: int, rules: tuple[tuple[int, ...], ...] | None) -> tuple[Any, ...]:
    """The rules of a grammar as :mod:`structsmooth.structures.inside_outside.compiled` reads them, which says how."""
    binary, chains, pairs, pair, level, others, derives = _forms(preterminals, symbols, rules)
    kinds = [np.flatnonzero(left[pairs[:, 0]] & right[pairs[:, 1]]) for left in derives for right in derives]
    order = np.argsort(pair, kind="stable")
    by_pair = _starts(pair[order], len(pairs)), order, binary[order, 0]
    tables = (
        (pairs, np.concatenate(kinds), np.cumsum([0, *map(len, kinds)])),
        (_starts(binary[:, 0], symbols), pair, binary[:, 3], *by_pair),
        (_starts(chains[:, 0], symbols), chains[:, 1], chains[:, 2], np.argsort(level, kind="stable"), others),
    )
    return tuple(tuple(np.ascontiguousarray(array, np.int64) for array in arrays) for arrays in tables)


def _starts(groups: np.ndarray, count: int) -> np.ndarray:
    """Where each of ``count`` groups begins in a sorted list of them, and where the last one ends."""
    return np.searchsorted(groups, np.arange(count + 1))


@cached_program
def derivations(words: int, preterminals: int, symbols: int, rules: tuple[tuple[int, ...], ...] | None) -> Program:
    """Scores of words by preterminal, rules, starts, and spans by symbol. Roots are the lengths from 0 to ``words``.

    For the words i to j there is a node for each pair of symbols that a rule has on its right side, so that splits are
    not multiplied by rules, and two for each symbol: before and after the score of the span.
    """
    forms = _forms(preterminals, symbols, rules)
    binary, chains, pairs, pair = forms.binary, forms.chains, forms.pairs, forms.pair
    narrow, wide = forms.derives
    place = np.argsort(np.argsort(forms.level, kind="stable"))
    numbers, count = binary[:, 3], len(binary) + len(chains)
    width = len(pairs) + 2 * symbols
    starts = words * preterminals + count
    spans = starts + symbols
    builder = ProgramBuilder(scores=spans + words * words * symbols)

    def base(i: Any, j: Any) -> Any:
        """The first node of a span; by their last word, then from short to long. One more ends those of a last word."""
        return 1 + width * (j * (j + 1) // 2 + j - i) + j

    def node(i: Any, j: Any, symbol: Any, scored: bool = True) -> Any:
        return base(i, j) + len(pairs) + 2 * place[symbol] + scored

    builder.add(0)
    i, k, j = (axis[:, None] for axis in np.nonzero(_splits(words)))
    for short, left in ((True, narrow), (False, wide)):
        for brief, right in ((True, narrow), (False, wide)):
            sized, used = ((i == k) == short) & ((k + 1 == j) == brief), left[pairs[:, 0]] & right[pairs[:, 1]]
            q = np.flatnonzero(used)
            for a, b, c in _pieces((axis[sized[:, 0]] for axis in (i, k, j)), len(q)):
                builder.add(base(a, c) + q, node(a, b, pairs[q, 0]), node(b + 1, c, pairs[q, 1]))
    first, last = (axis[:, None] for axis in np.triu_indices(words, 1))
    index = words * preterminals + numbers
    for a, b in _pieces((first, last), len(binary)):
        builder.add(node(a, b, binary[:, 0], False), base(a, b) + pair, index=index)
    word, symbol = np.ogrid[:words, :symbols]
    builder.add(node(word, word, symbol, False), index=word * preterminals + symbol, where=symbol < preterminals)
    for i, j, derives in ((word, word, narrow), (first, last, wide)):
        above, below, rule = chains[derives[chains[:, 1]]].T
        builder.add(node(i, j, above, False), node(i, j, below), index=words * preterminals + rule)
        index = spans + (i * words + j) * symbols + symbol
        builder.add(node(i, j, symbol), node(i, j, symbol, False), index=index, where=derives)
        whole = derives[None] & (i == 0)
        builder.add(base(0, j) + width, node(0, j, symbol), index=starts + symbol, where=whole)
    ends = base(0, np.arange(words)) + width
    return builder.build(np.append(0, ends), int(ends[-1]) + 1)  # sentences of some lengths may have no tree


derivation_handle = handles_of(derivations)


def _pieces(axes: Iterable[np.ndarray], width: int) -> Iterator[tuple[np.ndarray, ...]]:
    """Columns of the same lengths in pieces with so few rows that arrays with some entries in each are small."""
    columns, rows = list(axes), max(1, _PIECE // max(1, width))
    return (tuple(c[start : start + rows] for c in columns) for start in range(0, len(columns[0]), rows))


def _splits(words: int) -> np.ndarray:
    """[i, k, j], true where words i to j can be split behind word k."""
    i, k, j = np.ogrid[:words, :words, :words]
    return (i <= k) & (k < j)
