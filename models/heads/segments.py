"""Segments of a sequence: scores of positions, durations, boundaries and neighbours."""

from typing import TYPE_CHECKING

from torch import nn
from torch.nn.functional import pad

from structsmooth.models.heads.inputs import Features, positions_of, zeros
from structsmooth.scores import ScoreModule
from structsmooth.structures import SemiMarkov


class SegmentHead(ScoreModule):
    """Scores of labelled segments: of their positions, of where they begin and end, their duration, and neighbours.

    The scores of a batch take O(B T longest hidden) memory.

    Args:
        features: size D of the features of positions.
        labels: number S of labels.
        longest: the largest number of positions of a segment.
        hidden: size of a pair of ends; without ends if 0, so that scores are linear.

    Reference:
        Sarawagi and Cohen (2004); Kong et al. (2016), "Segmental Recurrent Neural Networks".

    Example:
        >>> import torch
        >>> segments = SegmentHead(features=8, labels=3, longest=4)((torch.randn(2, 9, 8), torch.tensor([9, 5])))
        >>> segments.max()[1].shape
        torch.Size([2, 9])
    """

    def __init__(self, features: int, labels: int, longest: int, *, hidden: int = 64) -> None:
        super().__init__()
        self.longest, self.affine = longest, hidden == 0
        self.linear = nn.Linear(features, labels)
        self.transition, self.durations = zeros(labels, labels), zeros(longest, labels)
        self.ends = None
        if hidden:
            self.first, self.last = nn.Linear(features, hidden), nn.Linear(features, hidden, bias=False)
            self.ends = nn.Sequential(nn.ELU(), nn.Linear(hidden, labels, bias=False))

    if TYPE_CHECKING:

        def __call__(self, x: Features) -> SemiMarkov:
            """As :meth:`forward`."""

    def forward(self, x: Features) -> SemiMarkov:
        """Segments of features [B, T, D], alone or with lengths [B]."""
        features, lengths = positions_of(x, self.linear.in_features)
        segments = None
        if self.ends is not None:
            # The ends of the segments from each position on: [B, T, longest, hidden].
            last = pad(self.last(features), (0, 0, 0, self.longest - 1)).unfold(1, self.longest, 1).mT
            segments = self.ends(self.first(features).unsqueeze(2) + last)
        return SemiMarkov(self.linear(features), self.transition, self.durations, segments, lengths)
