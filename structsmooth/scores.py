"""Score modules: from an input to a structure bound to its potentials."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import embedding_bag

from structsmooth.sequences import SparseSequences, pad
from structsmooth.structures import LinearChain, Structure


class ScoreModule(nn.Module, ABC):
    """A score function φ(x, ·; w): ``forward`` maps a batch of inputs to a structure bound to their scores.

    Subclass it, return a structure from ``forward``, and every loss and solver can train it.

    Example:
        >>> class Emissions(ScoreModule):
        ...     def __init__(self):
        ...         super().__init__()
        ...         self.linear, self.transition = nn.Linear(4, 3), nn.Parameter(torch.zeros(3, 3))
        ...     def forward(self, x):
        ...         return LinearChain(self.linear(x), self.transition)
        >>> Emissions()(torch.zeros(2, 5, 4)).max()[1].shape
        torch.Size([2, 5])
    """

    @abstractmethod
    def forward(self, x: Any) -> Structure:
        """Structure over the outputs of the inputs ``x``."""


class LinearScore(ScoreModule):
    """Linear chain scores: features times weights, transitions, and scores of the first and the last label.

    Scores are linear in the parameters, so training is convex (the structural SVM, or the CRF). Parameters are zero
    at first, in the order ``rows`` [F, S], ``transition`` [S, S], ``ends`` [2, S] (first label, last label).

    Args:
        features: number F of features (or attributes) of a token.
        states: number S of labels.
        dtype: of the parameters; float64 is what the compiled solvers use.

    Reference:
        Pillutla et al. (2019), Example 5.
    """

    def __init__(self, features: int, states: int, dtype: torch.dtype = torch.float64) -> None:
        super().__init__()
        if features < 1 or states < 1:
            raise ValueError(f"features and states must be at least 1, got {features} and {states}")
        self.rows = nn.Parameter(torch.zeros(features, states, dtype=dtype))
        self.transition = nn.Parameter(torch.zeros(states, states, dtype=dtype))
        self.ends = nn.Parameter(torch.zeros(2, states, dtype=dtype))

    def forward(self, x: SparseSequences | Tensor | tuple[Tensor, Tensor]) -> LinearChain:
        """Chain over the labels of ``x``.

        Args:
            x: sparse sequences, or dense features [B, T, F], alone or with lengths [B].
        """
        return linear_chain(x, self.rows, self.transition, self.ends)


def linear_chain(
    x: SparseSequences | Tensor | tuple[Tensor, Tensor], rows: Tensor, transition: Tensor, ends: Tensor
) -> LinearChain:
    """The chain of :class:`LinearScore` for given parameters."""
    if isinstance(x, SparseSequences):
        offsets = x.token_offsets.to(x.attributes.dtype)
        tokens = embedding_bag(x.attributes, rows, offsets, mode="sum", include_last_offset=True)
        unary, lengths = pad(tokens, x.lengths), x.lengths
    else:
        dense, lengths = x if isinstance(x, tuple) else (x, x.new_full(x.shape[:1], x.shape[1], dtype=torch.int64))
        unary = dense @ rows
    position = torch.arange(unary.shape[1], device=unary.device)
    first, last = position == 0, position == (lengths - 1)[:, None]
    # Not a product with the masks: scores may be -inf.
    unary = unary + torch.where(first[:, None], ends[0], 0.0) + torch.where(last.unsqueeze(-1), ends[1], 0.0)
    return LinearChain(unary, transition, lengths)
