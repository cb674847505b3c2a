"""Log-sums over chains whose transitions factor, exp transition = exp left · exp right: products of matrices."""

from __future__ import annotations  # torch.compile of torch 2.5 does not trace those of nested functions

from typing import NamedTuple

import torch
from torch import Tensor

from structsmooth.structures import checks, semirings
from structsmooth.structures.scans import Tensors, scan

_RANGE = 600.0  # of scores whose exponentials float64 can hold together


class Factor(NamedTuple):
    """Scores [n, k] or [B, n, k] of a factor; or, where that is safe, their exponentials over that of the largest."""

    scores: Tensor
    largest: Tensor | None

    def after(self, sums: Tensor) -> Tensor:
        """Log-sums [..., k] over n of sums [..., n] plus scores."""
        if self.largest is None:
            pairs = sums.unsqueeze(-1) + self.scores
            return semirings.logsumexp(pairs, pairs.dim() - 2)
        top = sums.detach().amax(-1, keepdim=True)
        finite = top.isfinite()
        weights = torch.where(finite, sums - torch.where(finite, top, 0.0), 0.0).exp().unsqueeze(-2)
        return (
            torch.where(finite, (weights.to(self.scores.dtype) @ self.scores).squeeze(-2).log() + self.largest, 0.0)
            + top
        )


def factor(scores: Tensor, narrow: bool) -> Factor:
    """The factor of some scores; by exponentials if all scores are ``narrow``, as :func:`is_narrow` says."""
    if not narrow:
        return Factor(scores, None)
    largest = scores.detach().amax()
    return Factor((scores.double() - largest).exp(), largest)


def is_narrow(unary: Tensor, left: Tensor, right: Tensor) -> bool:
    """Whether no exponential of a difference of scores is zero; reads values, and is false away from the CPU."""
    if not checks.can_read_values() or unary.device.type != "cpu" or not unary.numel():
        return False
    unary, *factors = (scores.detach() for scores in (unary, left, right))
    least = torch.where(unary == -torch.inf, torch.inf, unary).amin(2)
    return float((unary.amax(2) - least).amax() + sum(f.amax() - f.amin() for f in factors)) < _RANGE


def log_partition(unary: Tensor, left: Tensor, right: Tensor, lengths: Tensor, narrow: bool) -> Tensor:
    """Log-partition functions [B] of unary scores [B, T, S] and factors [S, R] and [R, S], or with a row per example.

    Each step takes O(S R) operations; twice differentiable.
    """
    before, behind = factor(left, narrow), factor(right, narrow)
    unary = unary.double() if narrow else unary
    inside = torch.arange(unary.shape[1], device=unary.device) < lengths[:, None]

    def step(state: Tensors, given: Tensors) -> tuple[Tensors, Tensors]:
        (sums,), (scores, here) = state, given
        return (torch.where(here.unsqueeze(1), behind.after(before.after(sums)) + scores, sums),), ()

    (sums,), _ = scan(step, (unary[:, 0],), (unary[:, 1:], inside[:, 1:]))
    return torch.where(lengths > 0, semirings.logsumexp(sums, 1), 0.0)
