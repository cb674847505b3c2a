"""Subwindows: all boxes in an image, bound to a map of scores that is summed over a box."""

import torch
from torch import Tensor

from structsmooth.structures import checks
from structsmooth.structures.base import Structure, check_k, widened
from structsmooth.structures.subwindows import operators


class Subwindows(Structure):
    """All boxes in images, bound to maps of scores; the score of a box is the sum over the pixels it covers.

    score(y) = Σ scores[b, y1:y2, x1:x2]. An output is an int64 tensor [B, 4] of x1, y1, x2, y2 as in torchvision, with
    0 <= x1 < x2 <= W and 0 <= y1 < y2 <= H: x2 and y2 are one past the last column and row, and no box is empty. Scores
    of points, such as visual words, can be added up in the map at their pixels. A cost is a tensor of costs of pixels.

    The max and top-K oracles search best first (efficient subwindow search), compiled and in float64, on every core
    that torch may use. Scores on other devices are copied to the CPU; results and gradients are copied back. Bounds are
    exact along columns: until the first box is found, at most H² bounds of O(W) each are computed, and usually a small
    fraction of them. There is no exp oracle.

    Sums are exact to about 1e-12 (float64), or 1e-6 (float32) relative to the sum of the magnitudes in the map.
    Ties go to the lowest x1, then y1, x2, y2. A forbidden pixel (-inf) forbids every box that covers it; use -inf to
    pad images to one size. Values are differentiable, and their gradient is the indicator of the box. An image without
    any allowed box has value -inf and zero gradient.

    Args:
        scores: [B, H, W], floating point; -inf forbids a pixel.
        validate_args: whether to check values too: NaN, +inf, coordinates of boxes. Costs a reduction, and a
            synchronization on a GPU. Default: ``Structure.validate_args_default``.
        max_sets: largest number of sets of boxes, of 40 bytes each, that the search may hold at a time.

    Raises:
        TypeError: a tensor of the wrong dtype.
        ValueError: wrong shapes or values, or tensors on different devices.
        MemoryError: the search would hold more than ``max_sets`` sets.

    Reference:
        Lampert, Blaschko and Hofmann (2008); the scan along one axis is that of An, Peursum, Liu and Venkatesh (2009).
        Pillutla et al. (2019), Algorithm 13.

    Example:
        >>> scores = torch.full((1, 4, 6), -1.0)
        >>> scores[0, 1:3, 2:5] = 2.0
        >>> Subwindows(scores).max()
        (tensor([12.]), tensor([[2, 1, 5, 3]]))
    """

    potential_names = ("scores",)
    field_names = ("max_sets",)

    def __init__(self, scores: Tensor, *, validate_args: bool | None = None, max_sets: int = 10_000_000) -> None:
        self.scores = scores
        self.check_shapes()
        super().__init__(validate_args=validate_args)
        self.max_sets = checks.require_count("max_sets", max_sets)

    def check_shapes(self) -> None:
        """Raise unless scores are [B, H, W]."""
        checks.require_scores("scores", self.scores)
        if self.scores.dim() != 3 or 0 in self.scores.shape[1:]:
            raise ValueError(f"scores must have shape [B, H, W] with H, W >= 1, got {tuple(self.scores.shape)}")

    def batched(self) -> "Subwindows":
        """The structure itself."""
        return self

    def score(self, y: Tensor) -> Tensor:
        """Score of the boxes ``y`` [B, 4]: [B], differentiable."""
        return torch.where(self._covered(y), widened(self.scores), 0.0).sum((1, 2))

    def parts(self, y: Tensor) -> tuple[Tensor]:
        """Indicators of the pixels that boxes cover: [B, H, W]."""
        return (self._covered(y).to(widened(self.scores).dtype),)

    def topk(self, k: int) -> tuple[Tensor, Tensor]:
        """Top-K oracle: values [B, k] in descending order and distinct boxes [B, k, 4] (Algorithm 13).

        Values are -inf, and boxes 0, where fewer than k boxes have a finite score.
        """
        return self.with_gradients(*operators.top_k(widened(self.scores), check_k(k), self.max_sets))

    def as_classes(self, y: Tensor) -> tuple[Tensor, int]:
        """Raise ``TypeError``: boxes are no labels."""
        raise TypeError("cost must be a tensor of costs of pixels, [B, H, W]: outputs are boxes, not labels")

    def checked_labels(self, y: Tensor) -> Tensor:
        """Coordinates as int64."""
        checks.require_integers("y", y, "hold integer coordinates")
        batch, height, width = self.scores.shape
        checks.require_shape("y", y, "[B, 4]", (batch, 4))
        checks.require_device("y", y, "scores", self.scores)
        if self.validate_args:
            _check_boxes(y, height, width)
        return y.to(torch.int64)

    def _covered(self, y: Tensor) -> Tensor:
        """Which pixels the boxes cover: [B, H, W]."""
        rows, columns = operators.covered(self.checked_labels(y), *self.scores.shape[1:])
        return rows.unsqueeze(2) & columns.unsqueeze(1)


def _check_boxes(y: Tensor, height: int, width: int) -> None:
    x1, y1, x2, y2 = y.unbind(1)
    wrong = (x1 < 0) | (x1 >= x2) | (x2 > width) | (y1 < 0) | (y1 >= y2) | (y2 > height)
    if bool(wrong.any()):
        raise ValueError(
            f"y must hold boxes 0 <= x1 < x2 <= {width}, 0 <= y1 < y2 <= {height}, got {y[wrong][0].tolist()}"
        )
