"""Outputs by their number of mistakes: what the structures that can count them share."""

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from structsmooth.structures import semirings
from structsmooth.structures.semirings import Recursion, Semiring

# Of the scores [B, N + 1, k] of the k best outputs for each number of mistakes, the indices [B, k] of those to keep.
Choice = Callable[[Tensor], Tensor]


@dataclass(frozen=True)
class ByMistakes:
    """The outputs of a batch of structures by their number of mistakes, 0 to N.

    Attributes:
        unary: scores [B, N, S].
        edges: scores of pairs.
        recursion: semiring sums [B, N + 1, R] of such scores, one for each number of mistakes.
    """

    unary: Tensor
    edges: Tensor
    recursion: Recursion

    def logsumexp(self) -> Tensor:
        """Log-partition functions [B, N + 1] of the outputs with each number of mistakes."""
        return semirings.log_partition(self.recursion, self.unary, self.edges)

    def topk(self, k: int, choice: Choice) -> tuple[Tensor, Tensor]:
        """Scores [B, k] and labels [B, k, N] of chosen outputs."""

        def chosen(semiring: Semiring, unary: Tensor, edges: Tensor) -> Tensor:
            scores = self.recursion(semiring, unary, edges)
            return scores.flatten(1).gather(1, choice(scores.detach()))

        values, (labels, _) = semirings.top_k(chosen, k, self.unary, self.edges)
        return values, labels.argmax(-1)


def counted(values: Tensor, wrong: Tensor, most: int) -> Tensor:
    """Values [..., R] by number of mistakes, 0 to ``most``: [..., most + 1, R]; one where ``wrong`` [...], or none."""
    none = values.new_full((*values.shape[:-1], most, values.shape[-1]), -torch.inf)
    return one_more(torch.cat([values.unsqueeze(-2), none], -2), wrong)


def one_more(values: Tensor, wrong: Tensor) -> Tensor:
    """Values by number of mistakes, [..., most + 1, R], with a further mistake where ``wrong`` [...]."""
    impossible = values.new_full((*values.shape[:-2], 1, values.shape[-1]), -torch.inf)
    return torch.where(wrong[..., None, None], torch.cat([impossible, values[..., :-1, :]], -2), values)
