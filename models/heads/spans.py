"""Nested spans of a sequence: scores from the first and the last position."""

from typing import TYPE_CHECKING

from torch import nn

from structsmooth.models.heads.inputs import Features, positions_of
from structsmooth.scores import ScoreModule
from structsmooth.structures import Constituents


class SpanHead(ScoreModule):
    """Scores of labelled spans, from the features of where they begin and end: constituents, or nested entities.

    The scores of a batch take O(B n² hidden) memory.

    Args:
        features: size D of the features of words.
        labels: number L of labels of spans.
        hidden: size of a span.
        binary: whether outputs are binary trees, as in :class:`~structsmooth.Constituents`.

    Reference:
        Stern et al. (2017), "A Minimal Span-Based Neural Constituency Parser", with features of ends in place of
        differences.

    Example:
        >>> import torch
        >>> spans = SpanHead(features=8, labels=3)(torch.randn(2, 6, 8))
        >>> spans.max()[1].shape
        torch.Size([2, 6, 6])
    """

    def __init__(self, features: int, labels: int, *, hidden: int = 128, binary: bool = False) -> None:
        super().__init__()
        self.binary = binary
        self.first, self.last = nn.Linear(features, hidden), nn.Linear(features, hidden, bias=False)
        self.score = nn.Sequential(nn.ELU(), nn.Linear(hidden, labels))

    if TYPE_CHECKING:

        def __call__(self, x: Features) -> Constituents:
            """As :meth:`forward`."""

    def forward(self, x: Features) -> Constituents:
        """Spans of features [B, n, D], alone or with lengths [B]."""
        words, lengths = positions_of(x, self.first.in_features)
        both = self.first(words).unsqueeze(2) + self.last(words).unsqueeze(1)
        return Constituents(self.score(both), lengths, binary=self.binary)
