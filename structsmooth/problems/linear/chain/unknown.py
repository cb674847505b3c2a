"""Labels of chains in the place of unknown ones."""

import torch
from torch import Tensor

from structsmooth.scores import TransitionMask
from structsmooth.sequences import pad
from structsmooth.structures import LinearChain
from structsmooth.structures.checks import ForbiddenLabelsError


def agreeing_labels(
    labels: Tensor, unknown: Tensor, lengths: Tensor, states: int, mask: TransitionMask | None = None
) -> Tensor:
    """Labels with others in the place of unknown ones, such that the mask allows them.

    Args:
        labels: label of every token, int64 [tokens], with any values where they are unknown.
        unknown: bool [tokens].
        lengths: number of tokens of each of n sequences, int64 [n].
        states: number S of labels.
        mask: which labels may follow each other, begin and end; all if not given.

    Raises:
        TypeError: ``unknown`` is no tensor of bool.
        ValueError: another number of labels; or no labels that the mask allows agree with those of a sequence, which is
            named.
    """
    if not isinstance(unknown, Tensor) or unknown.dtype != torch.bool:
        found = unknown.dtype if isinstance(unknown, Tensor) else type(unknown).__name__
        raise TypeError(f"unknown must be a tensor of torch.bool, got {found}")
    if unknown.shape != labels.shape:
        raise ValueError(f"unknown must have shape [tokens] = {tuple(labels.shape)}, got {tuple(unknown.shape)}")
    completed = labels.masked_fill(unknown, 0)
    if mask is None:
        return completed
    ends = lengths.cumsum(0)
    for part in torch.arange(len(lengths)).split(_CHUNK):
        tokens = slice(int(ends[part[0]] - lengths[part[0]]), int(ends[part[-1]]))
        y, free = pad(labels[tokens], lengths[part]), pad(unknown[tokens], lengths[part])
        allowed = free.unsqueeze(-1) | (torch.arange(states) == y.unsqueeze(-1))
        unary = torch.where(allowed, 0.0, -torch.inf).to(mask.transition)
        chain = LinearChain(unary, mask.transition, lengths[part], start=mask.start, stop=mask.stop)
        values, best = chain.max()
        if bool((values == -torch.inf).any()):
            raise ForbiddenLabelsError(int(part[values == -torch.inf][0]), "the problem")
        completed[tokens] = best[torch.arange(best.shape[1]) < lengths[part, None]]
    return completed


# Sequences that are completed together.
_CHUNK = 512
