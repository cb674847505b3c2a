"""Tags of a sequence: a linear layer under a chain."""

from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn

from structsmooth.models.heads.inputs import Features, positions_of, zeros
from structsmooth.scores import ScoreModule
from structsmooth.structures import LinearChain


class TaggingHead(ScoreModule):
    """Scores of tags from features of positions, and of pairs of neighbouring tags, which are zero at first.

    At the short steps of a pretrained encoder, scores of pairs would hardly move: give ``head.transitions()`` a longer
    step size of its own in the optimizer.

    Args:
        features: size D of the features.
        tags: number S of tags.

    Example:
        >>> import torch
        >>> chain = TaggingHead(features=8, tags=3)((torch.randn(2, 7, 8), torch.tensor([7, 4])))
        >>> chain.max()[1].shape
        torch.Size([2, 7])
    """

    affine = True

    def __init__(self, features: int, tags: int) -> None:
        super().__init__()
        self.linear = nn.Linear(features, tags)
        self.transition, self.start, self.stop = zeros(tags, tags), zeros(tags), zeros(tags)

    if TYPE_CHECKING:

        def __call__(self, x: Features, mask: Tensor | None = None) -> LinearChain:
            """As :meth:`forward`."""

    def transitions(self) -> list[nn.Parameter]:
        """The scores of pairs of tags, and of the first and the last tag."""
        return [self.transition, self.start, self.stop]

    def forward(self, x: Features, mask: Tensor | None = None) -> LinearChain:
        """Chain over the tags of features [B, T, D], alone or with lengths [B].

        A mask [B, T] leaves positions out wherever they stand, such as all but the
        :func:`~structsmooth.models.subwords.first_subwords` of words; it takes the place of lengths.
        """
        if mask is not None:
            x = torch.where(mask.bool().unsqueeze(2), x[0] if isinstance(x, tuple) else x, 0.0)
        features, lengths = positions_of(x, self.linear.in_features)
        prefix = lengths if mask is None else None
        return LinearChain(self.linear(features), self.transition, prefix, mask=mask, start=self.start, stop=self.stop)
