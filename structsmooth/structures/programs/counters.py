"""The product of a program with a counter: its outputs by the sum of the counts of the scores that they use.

Shapes: scores and integer counts [B, P] of a program, sums of counts from 0 to C - 1. The best outputs of each sum are
found by one compiled pass over the program; the recursion in plain torch, on any device and twice differentiable, is
that over polynomials in the count.
"""

from __future__ import annotations  # torch.compile of torch 2.5 does not trace those of nested functions

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

import torch
from torch import Tensor
from torch.nn.functional import pad

from structsmooth.compiled.threads import over_batch
from structsmooth.structures import semirings
from structsmooth.structures.operators import operator
from structsmooth.structures.programs import operators, reference
from structsmooth.structures.programs.levels import levels_of
from structsmooth.structures.programs.program import Program, program_of
from structsmooth.structures.semirings import Recursion, Semiring, TopK

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
        """Values [..., C R] as [..., C, R]."""
        coefficients: Tensor = values.unflatten(-1, (self.size, -1))
        return coefficients

    def embed(self, scores: Tensor) -> Tensor:
        """Scores [...] of a count of 0."""
        return pad(self.semiring.embed(scores).unsqueeze(-2), (0, 0, 0, self.size - 1), value=-torch.inf).flatten(-2)

    def shifted(self, values: Tensor, counts: Tensor) -> Tensor:
        """Values with counts [...] >= 0 added to theirs."""
        coefficients = self.split(values)
        source = torch.arange(self.size, device=values.device) - counts.unsqueeze(-1)
        index = source.clamp_min(0).unsqueeze(-1).expand_as(coefficients)
        return torch.where((source >= 0).unsqueeze(-1), coefficients.gather(-2, index), -torch.inf).flatten(-2)

    def sum(self, values: Tensor, dim: int) -> Tensor:
        """Sums of the coefficients."""
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
    semiring: Semiring, scores: Tensor, *, counts: Tensor, which: Tensor, program: Program, size: int
) -> Tensor:
    """Semiring sums [B, C, R] of the scores of all outputs of each sum of counts; that of an output must be >= 0.

    Polynomials of a node start with the least sum of its derivations, so that counts may be negative.
    """
    levels = levels_of(program.handle, scores.device)
    root, polynomials = levels.roots[which], Polynomials(semiring, size)
    least = reference.node_values(TopK(1), -counts.to(scores.dtype), levels).squeeze(-1)
    low = torch.where(least > -torch.inf, -least, 0.0).long()
    padded, added = reference.padded_scores(scores), pad(counts, (0, 2))
    values = polynomials.embed(scores.new_zeros(len(scores), 1))
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
class ByCount:
    """The outputs of a batch by their counts, 0 to C - 1.

    Attributes:
        potentials: scores.
        recursion: semiring sums [B, C, R] of such scores, one for each count.
        size: C.
        read: outputs [B, K, ...] from the indicators [B, K, ...] of the parts that they have, for each of the scores.
    """

    potentials: tuple[Tensor, ...]
    recursion: Recursion
    size: int
    read: Callable[[tuple[Tensor, ...]], Tensor]

    def logsumexp(self) -> Tensor:
        """Log-partition functions [B, C] of the outputs with each count."""
        return semirings.log_partition(self.recursion, *self.potentials)

    def topk(self, k: int, choice: Choice) -> tuple[Tensor, Tensor]:
        """Scores [B, K] and outputs [B, K, ...] of those that are chosen among the k best ones of each count."""

        def chosen(semiring: Semiring, *potentials: Tensor) -> Tensor:
            scores = self.recursion(semiring, *potentials)
            return scores.flatten(1).gather(1, choice(scores.detach()))

        values, parts = semirings.top_k(chosen, k, *self.potentials)
        return values, self.read(parts)


@dataclass(frozen=True)
class CompiledByCount:
    """The same, whose best outputs are listed by compiled passes over programs that have the same P scores.

    Attributes:
        plain: the same in torch.
        scores, counts: [B, P].
        groups: each program with its examples, int64 [B'], and the roots that these have, int64 [B'].
        outputs: outputs [B, K, ...] from the scores [B, K, M] that they use.
    """

    plain: ByCount
    scores: Tensor
    counts: Tensor
    groups: Sequence[tuple[Program, Tensor, Tensor]]
    outputs: Outputs

    @property
    def size(self) -> int:
        """C."""
        return self.plain.size

    def logsumexp(self) -> Tensor:
        """As for :class:`ByCount`."""
        return self.plain.logsumexp()

    def topk(self, k: int, choice: Choice) -> tuple[Tensor, Tensor]:
        """As for :class:`ByCount`."""
        scores = self.scores.detach()
        listed = [
            top_k_by_count(scores[rows], self.counts[rows], which, program.handle, k, self.size)
            for program, rows, which in self.groups
        ]
        longest, none = max(program.longest for program, *_ in self.groups), scores.shape[1]
        values = torch.cat([own for own, _ in listed])
        used = torch.cat([pad(own, (0, longest - own.shape[-1]), value=none) for _, own in listed])
        place = torch.cat([rows for _, rows, _ in self.groups]).argsort()
        chosen = choice(values[place])
        used = used[place].flatten(1, 2).gather(1, chosen.unsqueeze(2).expand(-1, -1, used.shape[-1]))
        allowed = values[place].flatten(1).gather(1, chosen) > -torch.inf
        each = pad(self.scores, (0, 1)).gather(1, used.flatten(1)).view(used.shape)
        total = torch.where(allowed.unsqueeze(2), each, 0.0).sum(2)
        return torch.where(allowed, total, -torch.inf), self.outputs(used)


def by_count(
    scores: Tensor, counts: Tensor, which: Tensor, program: Program, size: int, compiled: bool, outputs: Outputs
) -> ByCount | CompiledByCount:
    """The outputs of a program by their counts.

    Args:
        scores: [B, P].
        counts: int64 [B, P]; the sum of those of an output must not be negative.
        which: the roots [B] that examples have.
        program: the program.
        size: C; outputs of larger counts are left out.
        compiled: whether compiled passes list the best outputs.
        outputs: outputs [B, K, ...] from the scores [B, K, M] that they use.
    """

    def read(parts: tuple[Tensor, ...]) -> Tensor:
        return outputs(reference.listed(parts[0], program.longest))

    own = partial(recursion, counts=counts, which=which, program=program, size=size)
    plain = ByCount((scores,), own, size, read)
    rows = torch.arange(len(scores), device=scores.device)
    return CompiledByCount(plain, scores, counts, [(program, rows, which)], outputs) if compiled else plain


def _like_top_k(scores: Tensor, counts: Tensor, which: Tensor, handle: int, k: int, size: int) -> tuple[Tensor, Tensor]:
    shape = len(scores), size, k
    return scores.new_empty(shape, dtype=torch.float64), which.new_empty(*shape, program_of(handle).longest)


@operator("program_top_k_by_count", _like_top_k, device="cpu")
def top_k_by_count(
    scores: Tensor, counts: Tensor, which: Tensor, handle: int, k: int, size: int
) -> tuple[Tensor, Tensor]:
    """Values [B, C, k] and outputs [B, C, k, M] for sums of counts from 0 to C - 1."""
    from structsmooth.structures.programs import compiled_counters  # numba loads with the first oracle

    program, array, roots = operators.inputs(scores, which, handle)
    values = torch.full((len(scores), size, k), -torch.inf, dtype=torch.float64)
    used = torch.full((*values.shape, program.longest), program.scores)
    arrays = (program.arrays, program.depth, array, counts.contiguous().numpy(), roots, values.numpy(), used.numpy())
    loop = compiled_counters.batch_top_k_by_count
    over_batch(lambda *bounds: loop(*arrays, *bounds), len(scores), k * len(scores) * program.edges * size)
    return values, used
