"""Matchings in which rows and columns may stay alone, as assignments of every row.

Every row has a dummy column of its own, at the score of the row without a partner. Scores of columns that no row takes
become part of the weights: the sum of c_j over the columns left is that over all columns, a constant, minus that over
the columns taken. A column that must be taken has a c_j so low that no matching without it can be the best.
"""

from typing import TYPE_CHECKING

import torch
from torch import Tensor

from structsmooth.structures.base import widened
from structsmooth.structures.best_max_marginal_first import sorted_downwards
from structsmooth.structures.matching import operators

if TYPE_CHECKING:
    from structsmooth.structures.matching import Matching


def top_k(matching: "Matching", k: int) -> tuple[Tensor, Tensor]:
    """Values [B, k], differentiable, and outputs [B, k, N] (Algorithm 10)."""
    matching = matching.replace(
        *map(widened, matching.potentials)
    )  # once, so that gradients are summed before rounding
    weights, sizes, _, _ = _assignment(matching)
    found, y = operators.top_k(weights.detach(), sizes, k)
    y = y - _dummies(matching)
    y = torch.where(matching.mask.unsqueeze(1), y.clamp_min(-1), 0)
    scores = torch.stack([matching.score(y[:, i]) for i in range(k)], 1)
    # The scores are exact, and -inf where a column is left that must be taken.
    possible = (found > -torch.inf) & (scores > -torch.inf)
    values, y = sorted_downwards(torch.where(possible, scores, -torch.inf), y)
    return values, torch.where((values > -torch.inf).unsqueeze(-1), y, 0)


def max_marginals(matching: "Matching") -> Tensor:
    """Max-marginals [B, N, M] of the pairs (Algorithm 12)."""
    weights, sizes, constant, least = _assignment(matching)
    values = operators.max_marginals(weights, sizes)[..., _dummies(matching) :] + constant.view(-1, 1, 1)
    values = torch.where(values >= least.view(-1, 1, 1), values, -torch.inf)
    return torch.where(matching.mask.unsqueeze(-1), values, 0.0).to(widened(matching.weights).dtype)


def _dummies(matching: "Matching") -> int:
    """Number of dummy columns, which come before the others."""
    return 0 if matching.unmatched_rows is None else matching.weights.shape[1]


def _assignment(matching: "Matching") -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Weights and sizes of the assignment, float64, a constant to add [B], and a bound below all finite scores [B]."""
    weights, sizes = _wide(matching.weights), matching.sizes
    constant = weights.new_zeros(len(weights))
    least = torch.full_like(constant, -torch.inf)
    if matching.unmatched_columns is not None:
        scale = _scale(matching)
        least = -2 * scale
        columns = torch.where(matching.column_mask, _wide(matching.unmatched_columns), 0.0)
        columns = torch.where(columns > -torch.inf, columns, -4 * scale.unsqueeze(1))
        weights, constant = weights - columns.unsqueeze(1), columns.sum(1)
    if matching.unmatched_rows is not None:
        rows = weights.shape[1]
        own = torch.eye(rows, dtype=torch.bool, device=weights.device)
        alone = torch.where(own, _wide(matching.unmatched_rows).unsqueeze(-1), -torch.inf)
        weights, sizes = torch.cat([alone, weights], 2), sizes + sizes.new_tensor([0, rows])
    return weights, sizes, constant, least


def _wide(scores: Tensor) -> Tensor:
    """Scores in float64; gradients pass through the dtype in which values are returned."""
    return widened(scores).double()


def _scale(matching: "Matching") -> Tensor:
    """A bound [B] on the absolute values of all finite scores, positive."""
    inside = matching.mask.unsqueeze(2) & matching.column_mask.unsqueeze(1)
    total = _size(matching.weights, inside).amax(2).sum(1)
    if matching.unmatched_rows is not None:
        total = total + _size(matching.unmatched_rows, matching.mask).sum(1)
    if matching.unmatched_columns is not None:
        total = total + _size(matching.unmatched_columns, matching.column_mask).sum(1)
    return torch.where(total > 0, total, 1.0)


def _size(scores: Tensor, inside: Tensor) -> Tensor:
    """Absolute values, 0 at padding and where a part is forbidden."""
    scores = scores.detach().double()
    return torch.where(inside & (scores > -torch.inf), scores.abs(), 0.0)
