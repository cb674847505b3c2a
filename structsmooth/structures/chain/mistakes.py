"""Outputs of the linear chain by number of mistakes: the recursion of :mod:`.reference` over polynomials in the number.

Shapes: unary [B, T, S], edges [B, T-1, S, S], mask [B, T], true on the first ``length`` positions, wrong [B, T, S].
The compiled pass does for chains what :mod:`~structsmooth.structures.programs.compiled_counters` does for all programs,
in half of the time.
"""

from __future__ import annotations  # torch.compile of torch 2.5 does not trace those of nested functions

from functools import partial

import torch
from torch import Tensor

from structsmooth.lazy import LazyLoops
from structsmooth.structures.chain import LinearChain, operators, reference
from structsmooth.structures.operators import compiled_operator
from structsmooth.structures.programs.counters import ByCount, Listing, Polynomials
from structsmooth.structures.semirings import Semiring

compiled_mistakes = LazyLoops("structsmooth.structures.chain.compiled_mistakes")


def by_mistakes(chain: LinearChain, y: Tensor) -> ByCount:
    """The outputs of a chain by the number of labels in which they differ from ``y`` [B, T]."""
    mask, labels = chain._compact_mask, chain._compact(chain.checked_labels(y))
    potentials = reference.masked(*chain._accumulated(), mask)
    wrong = torch.arange(chain.unary.shape[2], device=y.device) != labels.unsqueeze(-1)

    def read(parts: tuple[Tensor, ...]) -> Tensor:
        return chain._spread_labels(parts[0].argmax(-1) * mask.unsqueeze(1))

    size = 1 + chain.unary.shape[1]
    by_count = partial(recursion, mask=mask, wrong=wrong.long(), size=size)
    listing = _listing(chain, labels) if chain.oracles is LinearChain.oracles.cpu else None
    return ByCount(potentials, by_count, size, read, listing)


def _listing(chain: LinearChain, labels: Tensor) -> Listing:
    """The compiled pass, which lists labels without holes [B, T]."""
    unary, transition, lengths = chain._arguments()
    return Listing(
        partial(top_k_by_mistakes, unary.detach(), transition.detach(), lengths, labels),
        partial(operators.scores, unary, transition, lengths),
        lambda y: chain._spread_labels(y * chain._compact_mask.unsqueeze(1)),
    )


def recursion(semiring: Semiring, unary: Tensor, edges: Tensor, mask: Tensor, wrong: Tensor, size: int) -> Tensor:
    """Semiring sums [B, C, R] of the scores of all outputs with 0 to C - 1 wrong labels."""
    polynomials = Polynomials(semiring, size)
    message = polynomials.shifted(polynomials.embed(unary[:, 0]), wrong[:, 0])
    for t in range(1, unary.shape[1]):
        extended = polynomials.sum(message.unsqueeze(2) + edges[:, t - 1].unsqueeze(-1), 1)
        following = polynomials.shifted(extended + unary[:, t].unsqueeze(-1), wrong[:, t])
        message = torch.where(mask[:, t, None, None], following, message)
    return polynomials.split(polynomials.sum(message, 1))


def _no_lists(unary: Tensor, transition: Tensor, lengths: Tensor, correct: Tensor, k: int) -> tuple[Tensor, Tensor]:
    batch, steps, _ = unary.shape
    return unary.new_empty(batch, steps + 1, k), correct.new_zeros(batch, steps + 1, k, steps)


top_k_by_mistakes = compiled_operator(
    "chain_top_k_by_mistakes(Tensor unary, Tensor transition, Tensor lengths, Tensor correct, SymInt k)"
    " -> (Tensor, Tensor)",
    results=_no_lists,
    loop=compiled_mistakes.batch_top_k_by_mistakes,
    reads=lambda *arguments: (*operators.checked_inputs(*arguments), arguments[-1]),
    operations=lambda unary, transition, lengths, correct, k: unary.shape[1] * unary.numel() * unary.shape[2] * k // 2,
)
"""Values [B, T + 1, k] and outputs [B, T + 1, k, T], with 0 to T labels that are not ``correct`` [B, T]."""
