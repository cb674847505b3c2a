"""The product of a program with a counter: its outputs by the sum of the counts of the scores that they use.

Shapes: scores and integer counts [B, P] of a program, sums of counts from 0 to C - 1. The best outputs of each sum are
found by one compiled pass over the program; the recursion in plain torch, on any device and twice differentiable, is
that over polynomials in the count.
"""

from __future__ import annotations  # torch.compile of torch 2.5 does not trace those of nested functions

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import pad

from structsmooth.lazy import LazyLoops
from structsmooth.structures import semirings
from structsmooth.structures.operators import compiled_operator
from structsmooth.structures.programs import operators, reference
from structsmooth.structures.programs.levels import levels_of
from structsmooth.structures.programs.program import Program, program_of
from structsmooth.structures.semirings import Recursion, Semiring, TopK

compiled_counters = LazyLoops("structsmooth.structures.programs.compiled_counters")

# Of the scores [B, C, k] of the k best outputs for each sum of counts, the indices [B, k] of those to keep.
Choice = Callable[[Tensor], Tensor]
Outputs = Callable[[Tensor], Tensor]


class Polynomials(Semiring):
    """Polynomials in a count, of degree below C, over another semiring: their coefficients are [..., C R].

    Args:
        semiring: of the coefficients.
        size: C.
    """

    def __init__(self, semiring: Semiring, size: int) -> None:
        self.semiring, self.size = semiring, size

    def split(self, values: Tensor) -> Tensor:
        """Values [..., C R] as coefficients [..., C, R], one for each count."""
        coefficients: Tensor = values.unflatten(-1, (self.size, -1))
        return coefficients

    def embed(self, scores: Tensor) -> Tensor:
        """Scores [...] as polynomials whose only coefficient is that of a count of 0."""
        return pad(self.semiring.embed(scores).unsqueeze(-2), (0, 0, 0, self.size - 1), value=-torch.inf).flatten(-2)

    def shifted(self, values: Tensor, counts: Tensor) -> Tensor:
        """Polynomials times the monomials of counts [...] >= 0: each coefficient moves up by so many."""
        coefficients = self.split(values)
        source = torch.arange(self.size, device=values.device) - counts.unsqueeze(-1)
        index = source.clamp_min(0).unsqueeze(-1).expand_as(coefficients)
        return torch.where((source >= 0).unsqueeze(-1), coefficients.gather(-2, index), -torch.inf).flatten(-2)

    def sum(self, values: Tensor, dim: int) -> Tensor:
        """Sums of polynomials over ``dim``, coefficient by coefficient."""
        return self.semiring.sum(self.split(values), dim).flatten(-2)

    def product(self, left: Tensor, right: Tensor) -> Tensor:
        """The sums over all ways to divide the count between ``left`` and ``right``."""
        first, second = self.split(left), self.split(right)
        counts = torch.arange(self.size, device=left.device)
        rest = counts - counts[:, None]  # [a, c]: of a count of c, what is not the first a
        second = torch.where((rest >= 0)[..., None], second[..., rest.clamp_min(0), :], -torch.inf)
        pairs = self.semiring.product(first.unsqueeze(-2).expand_as(second), second)
        return self.semiring.sum(pairs, pairs.dim() - 3).flatten(-2)


def recursion(
    semiring: Semiring, scores: Tensor, *, counts: Tensor, root_index: Tensor, program: Program, size: int
) -> Tensor:
    """Semiring sums [B, C, R] of the scores of all outputs of each sum of counts; that of an output must be >= 0.

    Polynomials of a node start with the least sum of its derivations, so that counts may be negative.
    """
    levels = levels_of(program.handle, scores.device)
    root, polynomials = levels.roots[root_index], Polynomials(semiring, size)
    least = reference.node_values(TopK(1), -counts.to(scores.dtype), levels).squeeze(-1)
    low = torch.where(least > -torch.inf, -least, 0.0).long()
    padded, added = reference.padded_scores(scores), pad(counts, (0, 2))
    values = polynomials.embed(scores.new_zeros(len(scores), 1))
    # The recursion of ``reference.node_values`` on polynomials in the count: an edge multiplies by the monomial of its
    # own count, and by what the least sums of its tails are above that of its head.
    for level in levels.levels:
        nodes = slice(values.shape[1], values.shape[1] + len(level.score))
        shift = added[:, level.score] + low[:, level.left] - low[:, nodes].unsqueeze(2)
        below = values[:, level.left]
        if level.right is not None:
            below = polynomials.product(below, values[:, level.right])
            shift = shift + low[:, level.right]
        moved = polynomials.shifted(below, shift.clamp_min(0))  # negative where there is no edge
        sums = polynomials.sum(moved + padded[:, level.score].unsqueeze(-1), 2)
        values = torch.cat([values, sums], 1)
    lowest = low.gather(1, root.unsqueeze(1)).squeeze(1).clamp_min(0)
    return polynomials.split(polynomials.shifted(reference.at_root(values, root), lowest))


@dataclass(frozen=True)
class Listing:
    """Compiled passes that list the best outputs of a batch, in place of a recursion.

    Attributes:
        best: of k, the values [B, C, k] and outputs [B, C, k, M] of the k best ones for each sum of counts.
        scores: the scores [B, K] of outputs [B, K, M], differentiable.
        read: outputs [B, K, ...] of the structure from those [B, K, M].
    """

    best: Callable[[int], tuple[Tensor, Tensor]]
    scores: Callable[[Tensor], Tensor]
    read: Outputs


@dataclass(frozen=True)
class ByCount:
    """The outputs of a batch by their counts, 0 to C - 1.

    Attributes:
        potentials: scores.
        recursion: semiring sums [B, C, R] of such scores, one for each count.
        size: C.
        read: outputs [B, K, ...] from the indicators [B, K, ...] of the parts that they have, for each of the scores.
        listing: what lists the best outputs, if not the recursion.
    """

    potentials: tuple[Tensor, ...]
    recursion: Recursion
    size: int
    read: Callable[[tuple[Tensor, ...]], Tensor]
    listing: Listing | None = None

    def logsumexp(self) -> Tensor:
        """Log-partition functions [B, C] of the outputs with each count."""
        return semirings.log_partition(self.recursion, *self.potentials)

    def topk(self, k: int, choice: Choice) -> tuple[Tensor, Tensor]:
        """Scores [B, K] and outputs [B, K, ...] of those that are chosen among the k best ones of each count."""
        if self.listing is not None:
            return self._listed(self.listing, k, choice)

        def chosen(semiring: Semiring, *potentials: Tensor) -> Tensor:
            scores = self.recursion(semiring, *potentials)
            return scores.flatten(1).gather(1, choice(scores.detach()))

        values, parts = semirings.top_k(chosen, k, *self.potentials)
        return values, self.read(parts)

    def _listed(self, listing: Listing, k: int, choice: Choice) -> tuple[Tensor, Tensor]:
        values, y = listing.best(k)
        chosen = choice(values)
        y = y.flatten(1, 2).gather(1, chosen.unsqueeze(2).expand(-1, -1, y.shape[-1]))
        allowed = values.flatten(1).gather(1, chosen) > -torch.inf
        return torch.where(allowed, listing.scores(y), -torch.inf), listing.read(y)


def listed_by_programs(
    scores: Tensor, counts: Tensor, groups: Sequence[tuple[Program, Tensor, Tensor]], size: int, outputs: Outputs
) -> Listing:
    """Compiled passes over programs that have the same P scores.

    Args:
        scores: [B, P].
        counts: int64 [B, P].
        groups: each program with its examples, int64 [B'], and the roots that these have, int64 [B'].
        size: C.
        outputs: outputs [B, K, ...] from the scores [B, K, M] that they use.
    """
    none, longest = scores.shape[1], max(program.longest for program, *_ in groups)
    place = torch.cat([rows for _, rows, _ in groups]).argsort()

    def best(k: int) -> tuple[Tensor, Tensor]:
        found = [
            top_k_by_count(scores[rows].detach(), counts[rows], root_index, program.handle, k, size)
            for program, rows, root_index in groups
        ]
        used = [pad(y, (0, longest - y.shape[-1]), value=none) for _, y in found]
        return torch.cat([values for values, _ in found])[place], torch.cat(used)[place]

    return Listing(best, partial(operators.scores_of_outputs, scores), outputs)


def by_count(
    scores: Tensor, counts: Tensor, root_index: Tensor, program: Program, size: int, compiled: bool, outputs: Outputs
) -> ByCount:
    """The outputs of a program by their counts.

    Args:
        scores: [B, P].
        counts: int64 [B, P]; the sum of those of an output must not be negative.
        root_index: the roots [B] that examples have.
        program: the program.
        size: C; outputs of larger counts are left out.
        compiled: whether compiled passes list the best outputs.
        outputs: outputs [B, K, ...] from the scores [B, K, M] that they use.
    """

    def read(parts: tuple[Tensor, ...]) -> Tensor:
        return outputs(reference.listed(parts[0], program.longest))

    sums_by_count = partial(recursion, counts=counts, root_index=root_index, program=program, size=size)
    rows = torch.arange(len(scores), device=scores.device)
    listing = listed_by_programs(scores, counts, [(program, rows, root_index)], size, outputs) if compiled else None
    return ByCount((scores,), sums_by_count, size, read, listing)


def _inputs(scores: Tensor, counts: Tensor, root_index: Tensor, handle: int, *_: int) -> tuple[Any, ...]:
    program, depth, scores, roots = operators.followed(scores, root_index, handle)
    return program, depth, scores, counts, roots


def _no_lists(
    scores: Tensor, counts: Tensor, root_index: Tensor, handle: int, k: int, size: int
) -> tuple[Tensor, Tensor]:
    program, shape = program_of(handle), (scores.shape[0], size, k)
    return scores.new_full(shape, -torch.inf), root_index.new_full((*shape, program.longest), program.scores)


top_k_by_count = compiled_operator(
    "program_top_k_by_count(Tensor scores, Tensor counts, Tensor root_index, SymInt handle, SymInt k, SymInt size)"
    " -> (Tensor, Tensor)",
    results=_no_lists,
    loop=compiled_counters.batch_top_k_by_count,
    reads=_inputs,
    operations=lambda scores, counts, root_index, handle, k, size: k * len(scores) * program_of(handle).edges * size,
)
"""Values [B, C, k] and outputs [B, C, k, M] for sums of counts from 0 to C - 1."""
