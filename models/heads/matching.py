"""Matchings of two sets: products of their features."""

from typing import TYPE_CHECKING

from torch import Tensor, nn

from structsmooth.models.heads.inputs import positions
from structsmooth.scores import ScoreModule
from structsmooth.structures import Matching


class MatchingHead(ScoreModule):
    """Scores of pairs of two sets: products of projected features, and of what stays without a partner.

    Args:
        rows: size of the features of rows.
        columns: size of the features of columns.
        hidden: size of the projections.
        unmatched: whether rows may stay without a partner, for a score that is linear in their features.

    Example:
        >>> import torch
        >>> head = MatchingHead(rows=8, columns=6)
        >>> matching = head((torch.randn(2, 3, 8), torch.randn(2, 4, 6)))
        >>> matching.max()[1].shape
        torch.Size([2, 3])
    """

    def __init__(self, rows: int, columns: int, *, hidden: int = 64, unmatched: bool = False) -> None:
        super().__init__()
        self.rows, self.columns = nn.Linear(rows, hidden), nn.Linear(columns, hidden)
        self.unmatched = nn.Linear(rows, 1) if unmatched else None
        self.scale = hidden**-0.5

    if TYPE_CHECKING:

        def __call__(self, x: tuple[Tensor, Tensor] | tuple[Tensor, Tensor, Tensor]) -> Matching:
            """As :meth:`forward`."""

    def forward(self, x: tuple[Tensor, Tensor] | tuple[Tensor, Tensor, Tensor]) -> Matching:
        """Matchings of features of rows [B, N, D] with those of columns [B, M, E], alone or with sizes [B, 2]."""
        row_features, column_features, *sizes = x
        counts = sizes[0].unbind(1) if sizes else (None, None)
        rows, _ = positions(row_features, counts[0], self.rows.in_features)
        columns, _ = positions(column_features, counts[1], self.columns.in_features)
        weights = self.scale * self.rows(rows) @ self.columns(columns).mT
        unmatched = None if self.unmatched is None else self.unmatched(rows).squeeze(2)
        return Matching(weights, *sizes, unmatched_rows=unmatched)
