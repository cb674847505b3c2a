"""Outputs of the linear chain by number of mistakes: the recursion of :mod:`.reference` over (label, mistakes so far).

Shapes: unary [B, T, S], edges [B, T-1, S, S], mask [B, T], true on the first ``length`` positions, wrong [B, T, S].
"""

from dataclasses import dataclass
from functools import partial

import torch
from torch import Tensor

from structsmooth.compiled.threads import over_batch
from structsmooth.structures.chain import LinearChain, operators, reference
from structsmooth.structures.mistakes import ByMistakes, Choice, counted, one_more
from structsmooth.structures.operators import cpu_operator
from structsmooth.structures.semirings import Semiring


def by_mistakes(chain: LinearChain, y: Tensor) -> ByMistakes:
    """The outputs of a chain by the number of labels in which they differ from ``y`` [B, T]."""
    mask, labels = chain._compact_mask, chain._compact(chain.checked_labels(y))
    unary, edges = reference.masked(*chain._accumulated(), mask)
    wrong = torch.arange(unary.shape[2], device=unary.device) != labels.unsqueeze(-1)
    return ChainByMistakes(unary, edges, partial(recursion, mask=mask, wrong=wrong), chain, labels)


def recursion(semiring: Semiring, unary: Tensor, edges: Tensor, mask: Tensor, wrong: Tensor) -> Tensor:
    """Semiring sums [B, T + 1, R] of the scores of all outputs with 0 to T wrong labels."""
    steps = unary.shape[1]
    message = counted(semiring.embed(unary[:, 0]), wrong[:, 0], steps)  # [B, S, T + 1, R]
    for t in range(1, steps):
        extended = message.unsqueeze(2) + edges[:, t - 1, ..., None, None]
        following = one_more(semiring.sum(extended, 1) + unary[:, t, :, None, None], wrong[:, t])
        message = torch.where(mask[:, t, None, None, None], following, message)
    return semiring.sum(message, 1)


@dataclass(frozen=True)
class ChainByMistakes(ByMistakes):
    """The outputs of chains, whose best ones a compiled pass lists where it can.

    Attributes:
        chain: the chains.
        labels: without holes, [B, T].
    """

    chain: LinearChain
    labels: Tensor

    def topk(self, k: int, choice: Choice) -> tuple[Tensor, Tensor]:
        """Scores [B, k] and labels [B, k, T] of chosen outputs."""
        scores, y = self._compiled(k, choice) if self.chain._compiled else super().topk(k, choice)
        return scores, self.chain._spread_labels(y * self.chain._compact_mask.unsqueeze(1))

    def _compiled(self, k: int, choice: Choice) -> tuple[Tensor, Tensor]:
        unary, transition = self.chain._accumulated()
        lengths = self.chain._compact_lengths
        values, listed = top_k_by_mistakes(unary.detach(), transition.detach(), lengths, self.labels, k)
        chosen = choice(values)
        y = listed.flatten(1, 2).gather(1, chosen.unsqueeze(-1).expand(-1, -1, listed.shape[-1]))
        allowed = values.flatten(1).gather(1, chosen) > -torch.inf
        scores = operators.scores(unary, transition, lengths, y)
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
