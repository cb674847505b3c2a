"""Oracles of programs as scans over positions, for graphs of plain torch whose sizes are left open.

Levels of a program are unrolled for given sizes. A structure with a recursion of its own over positions or widths
gives, by one scan forward and one back, the sum over all outputs and how much it uses each score: for the exp oracle
these are probabilities, for the max oracle the indicator of the best output.
"""

from collections.abc import Callable
from typing import NamedTuple, Protocol

import torch
from torch import Tensor

from structsmooth.structures.operators import with_gradients_of_scores
from structsmooth.structures.oracles import Traits
from structsmooth.structures.programs import reference
from structsmooth.structures.semirings import logsumexp, softmax


class Sums(NamedTuple):
    """How alternatives [...] along a dimension are summed, and the share of each in the sum: its derivative."""

    total: Callable[[Tensor, int], Tensor]
    shares: Callable[[Tensor, int], Tensor]


def _largest(values: Tensor, dim: int) -> Tensor:
    return values.amax(dim)


def _first_largest(values: Tensor, dim: int) -> Tensor:
    """1 at the first of the largest values, and 0 elsewhere; all 0 where all values are -inf."""
    best, place = values.max(dim, keepdim=True)
    places = torch.arange(values.shape[dim], device=values.device).view(-1, *[1] * (values.dim() - 1 - dim))
    return ((places == place) & (best > -torch.inf)).to(values.dtype)


LOG, MAX = Sums(logsumexp, softmax), Sums(_largest, _first_largest)


class Scanned(Protocol):
    """A structure whose program is a recursion over positions."""

    def sweep(self, sums: Sums, scores: Tensor) -> tuple[Tensor, Tensor]:
        """The sum [B] over all outputs at scores [B, P] of the program, and its derivatives, the uses [B, P]."""
        ...

    def outputs_of_uses(self, uses: Tensor) -> Tensor:
        """Outputs [B, ...] that use the scores with 1 in uses [B, P]."""
        ...


traits, smoothed_top_k, scores_of_outputs = Traits(differentiates_top_k=True), None, reference.scores_of_outputs


def as_argument(space: Scanned) -> Scanned:
    """What stands for the program of a structure: the structure itself."""
    return space


def sums(scores: Tensor, root_index: Tensor, space: Scanned) -> tuple[Tensor, Tensor]:
    """Log-partition function [B] and probabilities [B, P]."""
    return space.sweep(LOG, scores)


def log_partition(scores: Tensor, root_index: Tensor, space: Scanned) -> Tensor:
    """Log-partition function [B]."""
    return space.sweep(LOG, scores)[0]


def marginals(scores: Tensor, root_index: Tensor, space: Scanned) -> tuple[Tensor]:
    """Probabilities [B, P]."""
    return (space.sweep(LOG, scores)[1],)


def top_k(scores: Tensor, root_index: Tensor, space: Scanned, k: int) -> tuple[Tensor, Tensor]:
    """The largest value [B, 1], and the best output itself, [B, 1, ...]."""
    if k > 1:
        raise _missing(space, f"the {k} best outputs")
    value, uses = space.sweep(MAX, scores.detach())

    def score(scores: Tensor) -> Tensor:
        return torch.where(uses > 0, scores * uses, 0.0).sum(1, keepdim=True)

    return with_gradients_of_scores(value.unsqueeze(1), score, scores), space.outputs_of_uses(uses).unsqueeze(1)


def outputs(space: Scanned, found: Tensor) -> Tensor:
    """The outputs that :func:`top_k` has found."""
    return found


def max_marginals(scores: Tensor, root_index: Tensor, space: Scanned) -> Tensor:
    """There are none."""
    raise _missing(space, "max-marginals")


def sample(scores: Tensor, root_index: Tensor, space: Scanned, uniform: Tensor) -> Tensor:
    """There are none."""
    raise _missing(space, "samples")


def _missing(space: Scanned, what: str) -> NotImplementedError:
    return NotImplementedError(
        f"{type(space).__name__} exports max, logsumexp and marginals to plain torch, not {what}: export "
        'with backend="compiled", in which all oracles are operators of this library'
    )
