"""Matchings in which rows and columns may stay alone, as assignments of every row.

Every row has a dummy column of its own, at the score of the row without a partner. Scores of columns that no row takes
become part of the weights: the sum of c_j over the columns left is that over all columns, a constant, minus that over
the columns taken. A column that must be taken has a c_j so low that no matching without it can be the best.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from structsmooth.structures.base import widened
from structsmooth.structures.matching import operators


@dataclass
class Scores:
    """Weights [B, N, M], sizes [B, 2], and scores of rows [B, N] and columns [B, M] that stay alone, if they may.

    This is no named tuple, of which torch 2.5 traces no properties.
    """

    weights: Tensor
    sizes: Tensor
    rows: Tensor | None
    columns: Tensor | None

    @property
    def row_mask(self) -> Tensor:
        """[B, N]."""
        return operators.row_mask(self.sizes, self.weights.shape[1])

    @property
    def column_mask(self) -> Tensor:
        """[B, M]."""
        return operators.column_mask(self.sizes, self.weights.shape[2])

    @property
    def dummies(self) -> int:
        """Number of dummy columns, which come before the others."""
        return 0 if self.rows is None else self.weights.shape[1]


def top_k(scores: Scores, k: int) -> tuple[Tensor, Tensor]:
    """Whether there are so many assignments, bool [B, k], and their outputs [B, k, N], best first (Algorithm 10).

    Columns that must be taken may be left in the last of them.
    """
    weights, sizes, _, _ = _assignment(scores)
    values, y = operators.top_k(weights.detach(), sizes, k)
    y = (y - scores.dummies).clamp_min(-1)
    return values > -torch.inf, torch.where(scores.row_mask.unsqueeze(1), y, 0)


def max_marginals(scores: Scores) -> Tensor:
    """Max-marginals [B, N, M] of the pairs (Algorithm 12)."""
    weights, sizes, constant, least = _assignment(scores)
    values = operators.max_marginals(weights, sizes)[..., scores.dummies :] + constant.view(-1, 1, 1)
    values = torch.where(values >= least.view(-1, 1, 1), values, -torch.inf)
    return torch.where(scores.row_mask.unsqueeze(-1), values, 0.0).to(widened(scores.weights).dtype)


def _assignment(scores: Scores) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Weights and sizes of the assignment, float64, a constant to add [B], and a bound below all finite scores [B]."""
    weights, sizes = _wide(scores.weights), scores.sizes
    constant = weights.new_zeros(len(weights))
    least = torch.full_like(constant, -torch.inf)
    if scores.columns is not None:
        scale = _scale(scores)
        least = -2 * scale
        columns = torch.where(scores.column_mask, _wide(scores.columns), 0.0)
        columns = torch.where(columns > -torch.inf, columns, -4 * scale.unsqueeze(1))
        weights, constant = weights - columns.unsqueeze(1), columns.sum(1)
    if scores.rows is not None:
        own = torch.eye(scores.dummies, dtype=torch.bool, device=weights.device)
        alone = torch.where(own, _wide(scores.rows).unsqueeze(-1), -torch.inf)
        weights, sizes = torch.cat([alone, weights], 2), sizes + sizes.new_tensor([0, scores.dummies])
    return weights, sizes, constant, least


def _wide(scores: Tensor) -> Tensor:
    """Scores in float64; gradients pass through the dtype in which values are returned."""
    return widened(scores).double()


def _scale(scores: Scores) -> Tensor:
    """A bound [B] on the absolute values of all finite scores, positive."""
    rows, columns = scores.row_mask, scores.column_mask
    total = _size(scores.weights, rows.unsqueeze(2) & columns.unsqueeze(1)).amax(2).sum(1)
    if scores.rows is not None:
        total = total + _size(scores.rows, rows).sum(1)
    if scores.columns is not None:
        total = total + _size(scores.columns, columns).sum(1)
    return torch.where(total > 0, total, 1.0)


def _size(scores: Tensor, inside: Tensor) -> Tensor:
    """Absolute values, 0 at padding and where a part is forbidden."""
    scores = scores.detach().double()
    return torch.where(inside & (scores > -torch.inf), scores.abs(), 0.0)
