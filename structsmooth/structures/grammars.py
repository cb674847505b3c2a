"""Context-free grammars: trees of rules over words."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from structsmooth.structures import checks
from structsmooth.structures.base import no_class_penalties, widened
from structsmooth.structures.checks import check_lengths, length_mask
from structsmooth.structures.inside_outside import operators as inside_outside
from structsmooth.structures.productions import Productions, derivation_handle, derivations
from structsmooth.structures.programs import DynamicProgram, Program


class Grammar(DynamicProgram):
    """All trees of a context-free grammar over sentences, bound to scores of its rules.

    Symbols are 0 to N - 1, of which the first P may be a word: they are the preterminals. The score of a tree is the
    sum of those of its start symbol, its rules, its words and its spans. With logarithms of probabilities, it is a
    probabilistic grammar, and ``logsumexp`` the log-likelihood of a sentence. Rules are all N³ binary ones, or those of
    ``productions``, which may have one symbol on the right, too. An output is an int64 tensor [B, n, n, D] for at most
    D - 1 such rules one after the other: at [b, i, j] the symbols of the words i to j, inclusive, from the top down,
    then -1. Complexity per example: max and exp oracle O(n³ Q + n² R) for R rules with Q different right sides; top-K
    at worst K log K times that. They take as much memory once, but for the exp oracle on the CPU, O(n² Q): it sums in
    the linear domain, span by span, where that loses nothing.

    Backends, forbidden (-inf) scores and infeasible examples are as in :class:`~structsmooth.programs.DynamicProgram`.

    Args:
        rules: scores [R] or [B, R] of ``productions``; without, [N, N, N] or [B, N, N, N], entry [a, b, c] for a → b c.
        lexical: scores [B, n, P], floating point, of each word under each of the first P symbols.
        start: scores [N] or [B, N] of the symbol of the whole sentence.
        lengths: numbers of words [B], integers from 0 to n; all n if not given.
        spans: scores [B, n, n, N] of words i to j under each symbol, such as constraints; 0 if not given.
        productions: which rules there are; all binary ones if not given.
        validate_args: whether to check values too. Default: ``Structure.validate_args_default``.
        backend: ``"compiled"`` (CPU only), ``"triton"`` (GPU only), ``"torch"``, or ``"auto"`` for the fastest.

    Raises:
        TypeError: a tensor of the wrong dtype.
        ValueError: wrong shapes or values, or tensors on different devices.

    Reference:
        Baker (1979); Goodman (1999), on all sums by one recursion.

    Example:
        Determiners are 0, nouns 1; noun phrases, 2, consist of both:

        >>> lexical = torch.tensor([[[0.0, -torch.inf], [-1.0, 0.0]]])
        >>> grammar = Grammar(torch.zeros(1), lexical, torch.zeros(3), productions=Productions([(2, 0, 1)]))
        >>> value, y = grammar.max()
        >>> value, (y >= 0).nonzero()[:, 1:3].tolist(), y[y >= 0].tolist()
        (tensor([0.]), [[0, 0], [0, 1], [1, 1]], [0, 2, 1])
    """

    oracles = replace(DynamicProgram.oracles, cpu=inside_outside)
    potential_names = ("lexical", "rules", "start", "spans")
    row_names = ("lengths",)
    field_names = ("potential_dims", "symbols", "productions")
    potential_dims: Mapping[str, int]

    def __init__(
        self,
        rules: Tensor,
        lexical: Tensor,
        start: Tensor,
        lengths: Tensor | None = None,
        *,
        spans: Tensor | None = None,
        productions: Productions | None = None,
        validate_args: bool | None = None,
        backend: checks.Backend = "auto",
    ) -> None:
        self.lexical, self.rules, self.start = lexical, rules, start
        for name, scores in (("lexical", lexical), ("start", start)):
            checks.require_scores(name, scores)
        self.potential_dims = {"rules": 4 if productions is None else 2, "start": 2}
        self.symbols = start.shape[-1] if start.dim() else 0
        if not isinstance(productions, Productions | None):
            raise TypeError(f"productions must be Productions, got {type(productions).__name__}")
        self.productions = Productions(None, self.symbols) if productions is None else productions
        if lexical.dim() != 3 or 0 in lexical.shape[1:]:
            raise ValueError(f"lexical must have shape [B, n, P] with n, P >= 1, got {tuple(lexical.shape)}")
        shape = (*lexical.shape[:2], lexical.shape[1], self.symbols)
        self.spans = widened(lexical).new_zeros(()).expand(shape) if spans is None else spans
        self.lengths = checks.lengths_or_all(lengths, "lexical", lexical)
        super().__init__(validate_args, backend)
        if self.validate_args:
            check_lengths(self.lengths, lexical.shape[1], "n", least=0)

    def check_shapes(self) -> None:
        """Raise unless scores fit each other and the productions."""
        batch, words, preterminals = self.lexical.shape
        n, productions = self.productions.symbols, self.productions
        rules = (("N",) * 3, (n,) * 3) if productions.rules is None else (("R",), (productions.count,))
        wanted = {"rules": rules, "start": (("N",), (n,))}
        if preterminals > n:
            raise ValueError(f"lexical must have shape [B, n, P] with P <= N = {n} symbols, got P = {preterminals}")
        for name, scores in self.named_potentials():
            checks.require_scores(name, scores)
            checks.require_device(name, scores, "lexical", self.lexical)
            names, sizes = wanted.get(name, ((), ()))
            if name in wanted and not checks.has_shape(scores, sizes, (batch, *sizes)):
                either = f"[{', '.join(names)}] or [{', '.join(('B', *names))}]"
                raise ValueError(f"{name} must have shape {either} = {(batch, *sizes)}, got {tuple(scores.shape)}")
        checks.require_shape("spans", self.spans, "[B, n, n, N]", (batch, words, words, n))

    def used_scores(self, name: str) -> Tensor:
        """Scores of words and spans, zero at padding, and all others."""
        scores: Tensor = getattr(self, name)
        inside = {"lexical": length_mask(self.lengths, self.lexical.shape[1]), "spans": self.mask}
        return checks.inside(inside[name], scores) if name in inside else scores

    @property
    def mask(self) -> Tensor:
        """[B, n, n, N], true for symbols of spans from word i to j >= i inside the sentences."""
        inside = length_mask(self.lengths, self.lexical.shape[1])
        return (inside.unsqueeze(2) & inside.unsqueeze(1)).triu().unsqueeze(3).expand(self.spans.shape)

    def program(self) -> Program:
        """The program of :func:`~structsmooth.structures.productions.derivations`."""
        return derivations(*self._program_sizes)

    @property
    def handle(self) -> int:
        """The number of :meth:`program`, which is built where one of its passes is needed."""
        return derivation_handle(*self._program_sizes)

    @property
    def _program_sizes(self) -> tuple[Any, ...]:
        return *self.lexical.shape[1:], self.symbols, self.productions.rules

    def program_scores(self) -> Tensor:
        """Scores of words, rules, starts and spans: [B, P]."""
        lexical, rules, start, spans = (widened(self.used_scores(name)) for name in self.potential_names)
        rules = rules.flatten(-3) if self.productions.rules is None else rules
        shared = (scores.expand(lexical.shape[0], -1) for scores in (rules, start))
        return torch.cat([lexical.flatten(1), *shared, spans.flatten(1)], 1)

    def sizes(self) -> Tensor:
        """The root of the program for the length of each sentence: int64 [B]."""
        return self.lengths

    @property
    def _offsets(self) -> tuple[int, int, int, int]:
        """Where scores of rules, starts and spans begin, and their number."""
        _, words, preterminals = self.lexical.shape
        starts = words * preterminals + self.productions.count
        return words * preterminals, starts, starts + self.symbols, starts + self.symbols * (1 + words * words)

    def _used(self, y: Tensor) -> tuple[Tensor, ...]:
        """Which words, rules, starts and spans outputs use, [B, ...] each; -1 for none, and for rules that miss."""
        words, preterminals, n = self.lexical.shape[1], self.lexical.shape[2], self.symbols
        place = torch.arange(words, device=y.device)
        top, bottom = y[..., 0], y.gather(3, (y >= 0).sum(3, keepdim=True).sub(1).clamp_min(0)).squeeze(3)
        # Whether of the words i to j, those up to k are a constituent and those behind it, too: [B, i, j, k].
        behind = (top >= 0).mT.roll(-1, 2) & (place < place[:, None])
        k = ((top >= 0).unsqueeze(2) & behind.unsqueeze(1)).int().argmax(3)
        left, right = top.gather(2, k), top.gather(1, (k + 1).clamp_max(words - 1))
        find = self.productions.find
        binary = torch.where((top >= 0) & (place > place[:, None]), find(bottom, left, right), -1)
        chains = find(y[..., :-1], y[..., 1:], torch.full_like(y[..., 1:], -1))
        tag = bottom.diagonal(dim1=1, dim2=2)
        word = torch.where((tag >= 0) & (tag < preterminals), place * preterminals + tag, -1)
        cell = (place[:, None] * words + place).unsqueeze(2) * n
        start = top[:, 0].gather(1, (self.lengths - 1).clamp_min(0)[:, None])
        return word, torch.cat([binary.flatten(1), chains.flatten(1)], 1), start, torch.where(y >= 0, cell + y, -1)

    def derivation(self, y: Tensor) -> Tensor:
        """The scores that outputs ``y`` use: those of their words, rules, starts and spans."""
        *offsets, none = (0, *self._offsets)
        used = zip(offsets, self._used(y), strict=True)
        return torch.cat([torch.where(index >= 0, offset + index, none).flatten(1) for offset, index in used], 1)

    def outputs(self, used: Tensor) -> Tensor:
        """Outputs [B, K, n, n, D] from the scores that they use: the symbols of spans, -1 where there are none."""
        words, depth = self.lexical.shape[1], self.productions.chain
        spans, end = self._offsets[2:]
        is_span = (used >= spans) & (used < end)
        cell, symbol = (used - spans) // self.symbols, (used - spans) % self.symbols
        # Symbols of one span are in the order of the chain of rules between them.
        level = self.productions.level(symbol)
        above = (cell.unsqueeze(3) == cell.unsqueeze(2)) & (level.unsqueeze(3) < level.unsqueeze(2))
        place = torch.where(is_span, cell * depth + (above & is_span.unsqueeze(2)).sum(3), words * words * depth)
        y = torch.full((*used.shape[:2], words * words * depth + 1), -1, device=used.device).scatter(2, place, symbol)
        return y[..., :-1].view(*used.shape[:2], words, words, depth)

    def checked_labels(self, y: Tensor) -> Tensor:
        """Outputs as int64, with -1 at padding."""
        checks.require_integers("y", y, "hold integer labels")
        checks.require_shape("y", y, "[B, n, n, D]", (*self.spans.shape[:3], self.productions.chain))
        checks.require_device("y", y, "lexical", self.lexical)
        y = torch.where(self.mask[..., :1], y, -1).to(torch.int64)
        if self.validate_args and y.numel():
            if int(y.min()) < -1 or int(y.max()) >= self.symbols:
                raise ValueError(f"y must hold labels from 0 to {self.symbols - 1}, and -1 where there are none")
            word, rules, start, spans = ((index >= 0).flatten(1).sum(1) for index in self._used(y))
            # A tree has a rule for each symbol that is not a word's.
            right = (start == self.lengths.clamp_max(1)) & (word == self.lengths) & (word + rules == spans)
            tree = (y[..., 0] >= 0).flatten(1).sum(1) == (2 * self.lengths - 1).clamp_min(0)
            if not bool((right & tree).all()):
                wrong = int((right & tree).long().argmin())
                raise ValueError(f"y must hold labels of trees of the grammar; those of example {wrong} make none")
        return y

    def as_classes(self, y: Tensor) -> tuple[Tensor, int]:
        """Whether each span has each symbol, [B, n, n, N], as one of two classes."""
        has = torch.zeros(*y.shape[:3], self.symbols + 1, dtype=torch.int64, device=y.device)
        return has.scatter(3, torch.where(y >= 0, y, self.symbols), 1)[..., :-1], 2

    def potential_costs(self, costs: Tensor) -> tuple[Tensor, ...]:
        """Costs of classes, [B, n, n, N, 2], as costs of spans and, for missing ones, of the first word."""
        none = checks.inside(self.mask, costs[..., 0]).flatten(1).sum(1)
        first = torch.arange(self.lexical.shape[1], device=costs.device) == 0
        nothing = costs.new_zeros(())
        return first[:, None] * none[:, None, None], nothing, nothing, costs[..., 1] - costs[..., 0]

    def class_penalties(self, allowed: Tensor) -> Tensor | tuple[Tensor, ...]:
        """Not for spans, whose absence is no part: :meth:`restrict` forbids those that are."""
        raise no_class_penalties(self, "spans")

    def class_marginals(self) -> Tensor:
        """Probabilities [B, n, n, N, 2] that spans have symbols, or not; 0 at padding."""
        _, _, start, spans = self.marginals()
        none = start.sum(1)[:, None, None, None] - spans
        return torch.stack([checks.inside(self.mask, none), spans], 4)

    def read_max_marginals(self, values: Tensor) -> Tensor:
        """The largest score [B, n, P] of a tree in which a word has a preterminal; zero at padding."""
        return checks.inside(length_mask(self.lengths, self.lexical.shape[1]), super().read_max_marginals(values))
