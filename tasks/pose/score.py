"""The score of poses: filters over cells, and springs between joints."""

import torch
from torch import Tensor, nn

from structsmooth.problems.bounds import Bounds
from structsmooth.scores import ScoreModule
from structsmooth.structures import DeformableTree
from structsmooth.tasks.pose.features import FEATURES
from structsmooth.tasks.pose.skeleton import Skeleton

# Of displacements, so that the features of poses that are far from the mean do not drown those of filters.
_WEIGHT = 0.1
# Least weight of a square.
_LEAST_SQUARE = 0.01


class PoseScore(ScoreModule):
    """score(y) = Σ_v ⟨filter_v, window at y_v⟩ − Σ_v ⟨spring_v, (dx, dx², dy, dy²)⟩, linear in filters and springs.

    Displacements are those from the mean, in standard deviations; their features are multiplied by 0.1.
    There is no bias of a joint: every pose has it once, so that it would change no pose. Parameters are ``filters``
    [N, window² · FEATURES] and ``springs`` [N − 1, 4].

    Args:
        skeleton: the joints.
        window: width and height of the filters in cells.
    """

    scales: Tensor
    parents: Tensor
    anchors: Tensor

    def __init__(self, skeleton: Skeleton, window: int) -> None:
        super().__init__()
        nodes, self.window = len(skeleton.names), window
        self.filters = nn.Parameter(torch.zeros(nodes, window**2 * FEATURES, dtype=torch.float64))
        self.springs = nn.Parameter(torch.zeros(nodes - 1, 4, dtype=torch.float64))
        scales = torch.tensor(skeleton.scales, dtype=torch.float64)[1:]
        self.register_buffer("scales", torch.stack([scales, scales.square()], -1).flatten(1))
        self.register_buffer("parents", torch.tensor(skeleton.parents))
        self.register_buffer("anchors", torch.tensor(skeleton.anchors, dtype=torch.float64))

    def forward(self, x: Tensor) -> DeformableTree:
        """The poses in images of one size: features [B, H + window − 1, W + window − 1, FEATURES]."""
        windows = x.unfold(1, self.window, 1).unfold(2, self.window, 1).flatten(3)
        unary = (windows @ self.filters.mT).movedim(3, 1)
        root = self.springs.new_zeros(1, 4)
        return DeformableTree(
            unary,
            torch.cat([root, _WEIGHT * self.springs / self.scales]),
            self.parents,
            self.anchors,
            validate_args=False,
        )

    def bounds(self) -> Bounds:
        """Of the weights: squares have a weight of 0.01 or more."""
        lower = torch.full_like(self.springs, -torch.inf)
        lower[:, 1::2] = _LEAST_SQUARE
        lower = torch.cat([torch.full_like(self.filters, -torch.inf).flatten(), lower.flatten()]).detach()
        return lower, torch.full_like(lower, torch.inf)
