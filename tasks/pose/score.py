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
    [N, F · window²] and ``springs`` [N − 1, 4].

    Args:
        skeleton: the joints.
        window: width and height of the filters in cells.
        features: number F of features of a cell.
    """

    scales: Tensor
    parents: Tensor
    anchors: Tensor

    def __init__(self, skeleton: Skeleton, window: int, features: int = FEATURES) -> None:
        super().__init__()
        nodes, self.window, self.features = len(skeleton.names), window, features
        self.filters = nn.Parameter(torch.zeros(nodes, features * window**2, dtype=torch.float64))
        self.springs = nn.Parameter(torch.zeros(nodes - 1, 4, dtype=torch.float64))
        scales = torch.tensor(skeleton.scales, dtype=torch.float64)[1:]
        self.register_buffer("scales", torch.stack([scales, scales.square()], -1).flatten(1))
        self.register_buffer("parents", torch.tensor(skeleton.parents))
        self.register_buffer("anchors", torch.tensor(skeleton.anchors, dtype=torch.float64))

    def forward(self, x: Tensor) -> DeformableTree:
        """The poses in images of one size: features [B, H + window − 1, W + window − 1, F]."""
        unary, deformation = self.potentials(self.filters, self.springs, self.strips(x))
        return DeformableTree(unary, deformation, self.parents, self.anchors, validate_args=False)

    def strips(self, x: Tensor) -> Tensor:
        """The rows of all windows: [B, H + window − 1, W, window · F]."""
        return x.to(self.filters.dtype).unfold(2, self.window, 1).mT.flatten(3)

    def potentials(self, filters: Tensor, springs: Tensor, strips: Tensor) -> tuple[Tensor, Tensor]:
        """Scores of positions [B, N, H, W] and weights of displacements [N, 4].

        One product gives the response of every row of every filter to every strip; each filter adds up those of its
        rows. A product with the windows themselves would have to copy each strip once for each row.
        """
        batch, high, width, _ = strips.shape
        height, nodes = high - self.window + 1, len(filters)
        responses = (self._rows(filters) @ strips.flatten(1, 2).mT).view(batch, self.window, nodes, high, width)
        # [B, N, W, H, window]: those of row r of a filter, from strip r on.
        of_rows = responses.unfold(3, height, 1).diagonal(0, 1, 3)
        unary = of_rows.transpose(2, 3).sum(-1)
        return unary, torch.cat([springs.new_zeros(1, 4), _WEIGHT * springs / self.scales])

    def adjoint(self, unary: Tensor, deformation: Tensor, strips: Tensor) -> Tensor:
        """The vector a with ⟨a, parameters⟩ = ⟨unary, scores⟩ + ⟨deformation, weights⟩, for a batch of one.

        Args:
            unary: [1, N, H, W], zero at most positions.
            deformation: [N, 4].
            strips: of the image.
        """
        joints, rows = unary.flatten(2)[0], strips[0].flatten(0, 1)
        positions = joints.any(0).nonzero()
        of_windows = positions + strips.shape[2] * torch.arange(self.window, device=positions.device)
        windows = rows.index_select(0, of_windows.flatten()).view(-1, self.window * rows.shape[1])
        filters = joints.index_select(1, positions[:, 0]) @ windows
        filters = filters.view(-1, self.window, self.window, self.features).movedim(3, 1)  # as numbers are in strips
        return torch.cat([filters.flatten(), (_WEIGHT * deformation[1:] / self.scales).flatten()])

    def bounds(self) -> Bounds:
        """Bounds of the weights: squares have a weight of 0.01 or more."""
        lower = torch.full_like(self.springs, -torch.inf)
        lower[:, 1::2] = _LEAST_SQUARE
        lower = torch.cat([torch.full_like(self.filters, -torch.inf).flatten(), lower.flatten()]).detach()
        return lower, torch.full_like(lower, torch.inf)

    def _rows(self, filters: Tensor) -> Tensor:
        """The rows of the filters as strips: [window · N, window · F], the first rows of all filters first."""
        features, rows, columns = self.features, self.window, self.window
        return filters.view(-1, features, rows, columns).permute(2, 0, 3, 1).reshape(-1, columns * features)
