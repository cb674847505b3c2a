"""Outputs of the linear chain by number of mistakes: the recursion of :mod:`.reference` over polynomials in the number.

Shapes: unary [B, T, S], edges [B, T-1, S, S], mask [B, T], true on the first ``length`` positions, wrong [B, T, S].
The compiled pass does for chains what :mod:`~structsmooth.structures.programs.compiled_counters` does for all programs,
in half of the time.
"""

from __future__ import annotations  # torch.compile of torch 2.5 does not trace those of nested functions

from dataclasses import dataclass
from functools import partial

import torch
from torch import Tensor

from structsmooth.compiled.threads import over_batch
from structsmooth.structures.chain import LinearChain, operators, reference
from structsmooth.structures.operators import cpu_operator
from structsmooth.structures.programs.counters import ByCount, Choice, Polynomials
from structsmooth.structures.semirings import Semiring


def by_mistakes(chain: LinearChain, y: Tensor) -> ByCount:
    """The outputs of a chain by the number of labels in which they differ from ``y`` [B, T]."""
    mask, labels = chain._compact_mask, chain._compact(chain.checked_labels(y))
    potentials = reference.masked(*chain._accumulated(), mask)
    wrong = torch.arange(chain.unary.shape[2], device=y.device) != labels.unsqueeze(-1)

    def read(parts: tuple[Tensor, ...]) -> Tensor:
        return chain._spread_labels(parts[0].argmax(-1) * mask.unsqueeze(1))

    size = 1 + chain.unary.shape[1]
    own = partial(recursion, mask=mask, wrong=wrong.long(), size=size)
    return ChainByMistakes(potentials, own, size, read, chain, labels)


def recursion(semiring: Semiring, unary: Tensor, edges: Tensor, mask: Tensor, wrong: Tensor, size: int) -> Tensor:
    """Semiring sums [B, C, R] of the scores of all outputs with 0 to C - 1 wrong labels."""
    polynomials = Polynomials(semiring, size)
    message = polynomials.shifted(polynomials.embed(unary[:, 0]), wrong[:, 0])
    for t in range(1, unary.shape[1]):
        extended = polynomials.sum(message.unsqueeze(2) + edges[:, t - 1].unsqueeze(-1), 1)
        following = polynomials.shifted(extended + unary[:, t].unsqueeze(-1), wrong[:, t])
        message = torch.where(mask[:, t, None, None], following, message)
    return polynomials.split(polynomials.sum(message, 1))


@dataclass(frozen=True)
class ChainByMistakes(ByCount):
    """The outputs of chains, whose best ones a compiled pass lists where it can.

    Attributes:
        chain: the chains.
        labels: without holes, [B, T].
    """

    chain: LinearChain
    labels: Tensor

    def topk(self, k: int, choice: Choice) -> tuple[Tensor, Tensor]:
        """As for :class:`ByCount`."""
        if not self.chain._compiled:
            return super().topk(k, choice)
        unary, transition = self.chain._accumulated()
        lengths = self.chain._compact_lengths
        values, listed = top_k_by_mistakes(unary.detach(), transition.detach(), lengths, self.labels, k)
        chosen = choice(values)
        y = listed.flatten(1, 2).gather(1, chosen.unsqueeze(-1).expand(-1, -1, listed.shape[-1]))
        allowed = values.flatten(1).gather(1, chosen) > -torch.inf
        scores = operators.scores(unary, transition, lengths, y)
        y = self.chain._spread_labels(y * self.chain._compact_mask.unsqueeze(1))
        return torch.where(allowed, scores, -torch.inf), y


def _like_top_k(unary: Tensor, transition: Tensor, lengths: Tensor, correct: Tensor, k: int) -> tuple[Tensor, Tensor]:
    batch, steps, _ = unary.shape
    return (
        unary.new_empty(batch, steps + 1, k, dtype=torch.float64),
        unary.new_empty(batch, steps + 1, k, steps, dtype=torch.int64),
    )


@cpu_operator("chain_top_k_by_mistakes", _like_top_k)
def top_k_by_mistakes(
    unary: Tensor, transition: Tensor, lengths: Tensor, correct: Tensor, k: int
) -> tuple[Tensor, Tensor]:
    """Values [B, T + 1, k] and outputs [B, T + 1, k, T], with 0 to T labels that are not ``correct`` [B, T]."""
    from structsmooth.structures.chain import compiled_mistakes  # numba loads with the first oracle

    batch, steps, states = unary.shape
    reference.check_lengths(lengths, steps)
    values, y = _like_top_k(unary, transition, lengths, correct, k)
    tensors = (unary.double(), transition.double(), lengths, correct)
    arrays = (*(tensor.contiguous().numpy() for tensor in tensors), k, values.numpy(), y.zero_().numpy())
    operations = batch * steps**2 * states**2 * k // 2
    over_batch(lambda *bounds: compiled_mistakes.batch_top_k_by_mistakes(*arrays, *bounds), batch, operations)
    return values, y
