"""Oracles of programs as scans over positions, for graphs of plain torch whose sizes are left open.

Levels of a program are unrolled for given sizes. A structure with a recursion of its own over positions or widths
gives, by one scan forward and one back, the sum over all outputs and how much it uses each score: for the exp oracle
these are probabilities, for the max oracle the indicator of the best output.
"""

from collections.abc import Callable
from typing import NamedTuple, Protocol

import torch
from torch import Tensor

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


class Scans:
    """The oracles of a structure, with the signatures of the other backends."""

    scores_of_outputs = staticmethod(reference.scores_of_outputs)

    def __init__(self, structure: Scanned) -> None:
        self.structure = structure

    def log_partition(self, scores: Tensor, root_index: Tensor, handle: int) -> Tensor:
        """Log-partition function [B]."""
        return self.structure.sweep(LOG, scores)[0]

    def probabilities(self, scores: Tensor, root_index: Tensor, handle: int) -> Tensor:
        """Probabilities [B, P]."""
        return self.structure.sweep(LOG, scores)[1]

    def top_k(self, scores: Tensor, root_index: Tensor, handle: int, k: int) -> tuple[Tensor, Tensor]:
        """The largest value [B, 1], and the best output itself, [B, 1, ...]; without gradient."""
        if k > 1:
            raise self._missing(f"the {k} best outputs")
        value, uses = self.structure.sweep(MAX, scores)
        return value.unsqueeze(1), self.structure.outputs_of_uses(uses).unsqueeze(1)

    def max_marginals(self, scores: Tensor, root_index: Tensor, handle: int) -> Tensor:
        """There are none."""
        raise self._missing("max-marginals")

    def sample(self, scores: Tensor, root_index: Tensor, handle: int, uniform: Tensor) -> Tensor:
        """There are none."""
        raise self._missing("samples")

    def _missing(self, what: str) -> NotImplementedError:
        return NotImplementedError(
            f"{type(self.structure).__name__} exports max, logsumexp and marginals to plain torch, not {what}: export "
            'with backend="compiled", in which all oracles are operators of this library'
        )
