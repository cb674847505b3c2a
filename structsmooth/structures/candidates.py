"""Candidates: one choice from a list of scored alternatives, such as classes or proposal boxes."""

from typing import ClassVar

import torch
from torch import Tensor

from structsmooth.structures import checks
from structsmooth.structures.base import Structure, check_k, widened
from structsmooth.structures.semirings import inverse_cdf, logsumexp, softmax


class Candidates(Structure):
    """The candidates of each example, bound to their scores; an output is the index of one.

    score(y) = scores[b, y]. An output is an int64 tensor [B]. All oracles read every candidate: O(M) per example,
    top-K O(M log M). They are plain torch on any device, in the dtype of the scores (float16 and bfloat16 in float32).
    Ties go to the lowest index. An example without any allowed candidate has value -inf, zero statistics and zero
    gradient.

    Args:
        scores: [B, M], floating point; -inf forbids a candidate.
        mask: [B, M], true at the candidates that examples have; all true if not given. Where it is false, scores may
            have any value and get no gradient.
        validate_args: whether to check values too: NaN, +inf, ranges of indices. Costs a reduction, and a
            synchronization on a GPU. Default: ``Structure.validate_args_default``.

    Raises:
        TypeError: a tensor of the wrong dtype.
        ValueError: wrong shapes or values, or tensors on different devices.

    Reference:
        Pillutla et al. (2019), section 7.1.2, where candidates are boxes proposed by selective search.

    Example:
        The multiclass support vector machine of Crammer and Singer is a structural hinge on classes:

        >>> from structsmooth import StructuralHinge
        >>> scores = torch.tensor([[2.0, 0.5, 1.5], [0.0, 3.0, 1.0]])
        >>> StructuralHinge(reduction="none")(Candidates(scores), torch.tensor([0, 1]))
        tensor([0.5000, 0.0000])
    """

    labels_are_classes = True
    potential_names = ("scores",)
    row_names: ClassVar[tuple[str, ...]] = ("mask",)

    def __init__(self, scores: Tensor, mask: Tensor | None = None, *, validate_args: bool | None = None) -> None:
        self.scores = scores
        self.check_shapes()
        if mask is None:
            mask = torch.ones_like(scores, dtype=torch.bool)
        mask = checks.as_mask("mask", mask)
        checks.require_shape("mask", mask, "[B, M]", tuple(scores.shape))
        checks.require_device("mask", mask, "scores", scores)
        self.mask = mask
        super().__init__(validate_args)

    def check_shapes(self) -> None:
        """Raise unless scores are [B, M]."""
        checks.require_scores("scores", self.scores)
        if self.scores.dim() != 2 or self.scores.shape[1] == 0:
            raise ValueError(f"scores must have shape [B, M] with M >= 1, got {tuple(self.scores.shape)}")

    def used_scores(self, name: str) -> Tensor:
        """Scores, zero where the mask is false."""
        return checks.inside(self.mask, self.scores)

    def batched(self) -> "Candidates":
        """The structure itself."""
        return self

    def score(self, y: Tensor) -> Tensor:
        """Score of the candidates ``y`` [B]: [B], differentiable; -inf where the mask is false."""
        return self._allowed().gather(1, self.checked_labels(y).unsqueeze(1)).squeeze(1)

    def parts(self, y: Tensor) -> tuple[Tensor]:
        """Indicators of the candidates: [B, M]."""
        y = self.checked_labels(y)
        return (torch.nn.functional.one_hot(y, self.scores.shape[1]).to(widened(self.scores).dtype),)

    def max(self) -> tuple[Tensor, Tensor]:
        """Max oracle: the largest score [B] and the index [B] of the first candidate that has it."""
        scores = self._allowed()
        best = scores.argmax(1)
        values = scores.gather(1, best.unsqueeze(1)).squeeze(1)
        return values, torch.where(values > -torch.inf, best, 0)

    def topk(self, k: int) -> tuple[Tensor, Tensor]:
        """Top-K oracle: values [B, k] in descending order and indices [B, k]; -inf and 0 beyond the last candidate."""
        k = check_k(k)
        values, order = self._allowed().sort(dim=1, descending=True, stable=True)
        missing = (0, max(k - values.shape[1], 0))
        values = torch.nn.functional.pad(values[:, :k], missing, value=-torch.inf)
        order = torch.nn.functional.pad(order[:, :k], missing)
        return values, torch.where(values > -torch.inf, order, 0)

    def logsumexp(self) -> Tensor:
        """Log-partition function [B]; twice differentiable."""
        return logsumexp(self._allowed(), 1)

    def marginals(self) -> tuple[Tensor]:
        """Probability [B, M] of each candidate; differentiable."""
        return (softmax(self._allowed(), 1),)

    def max_marginals(self) -> Tensor:
        """The scores [B, M] themselves, -inf where the mask is false, since there is only one variable."""
        return self._allowed()

    def _part_scores(self) -> tuple[Tensor]:
        return (self._allowed(),)

    def inverse_cdf(self, uniform: Tensor) -> Tensor:
        """Samples at uniform numbers, as in :class:`~structsmooth.structures.distribution.Distribution`."""
        return inverse_cdf(self._allowed().unsqueeze(1), uniform)

    def _allowed(self) -> Tensor:
        """Scores in the dtype that sums use; -inf where forbidden or masked, without gradient there."""
        return torch.where(self.mask & (self.scores != -torch.inf), widened(self.scores), -torch.inf)

    def checked_labels(self, y: Tensor) -> Tensor:
        """Indices as int64."""
        return checks.checked_classes(self, y, "[B]", self.scores.shape[1])


class BoxCandidates(Candidates):
    """Candidates that are boxes in images, such as proposals of selective search.

    :class:`~structsmooth.OneMinusIoU` is a cost of this structure.

    Args:
        scores: [B, M], floating point; -inf forbids a box.
        boxes: coordinates (xmin, ymin, xmax, ymax), floating point [B, M, 4]; arbitrary where the mask is false.
        mask: [B, M], true at the boxes that examples have; all true if not given.
        validate_args: see :class:`Candidates`.

    Raises:
        TypeError: a tensor of the wrong dtype.
        ValueError: wrong shapes or values, or tensors on different devices.

    Reference:
        Pillutla et al. (2019), section 7.1.2.

    Example:
        >>> boxes = BoxCandidates(torch.zeros(1, 2), torch.tensor([[[0.0, 0, 2, 1], [1, 0, 3, 1]]]))
        >>> boxes.overlaps(torch.tensor([0]))
        tensor([[1.0000, 0.3333]])
    """

    row_names = ("mask", "boxes")

    def __init__(
        self, scores: Tensor, boxes: Tensor, mask: Tensor | None = None, *, validate_args: bool | None = None
    ) -> None:
        super().__init__(scores, mask, validate_args=validate_args)
        checks.require_scores("boxes", boxes)
        checks.require_shape("boxes", boxes, "[B, M, 4]", (*scores.shape, 4))
        checks.require_device("boxes", boxes, "scores", scores)
        if self.validate_args and not bool((boxes[..., :2] <= boxes[..., 2:])[self.mask].all()):
            raise ValueError("boxes must have xmin <= xmax and ymin <= ymax")
        self.boxes = boxes

    def overlaps(self, y: Tensor) -> Tensor:
        """Intersection over union of all boxes with the boxes ``y`` [B]: [B, M]; 0 where the mask is false."""
        index = self.checked_labels(y).view(-1, 1, 1).expand(-1, 1, 4)
        return torch.where(self.mask, intersection_over_union(self.boxes, self.boxes.gather(1, index)), 0.0)


def intersection_over_union(a: Tensor, b: Tensor) -> Tensor:
    """Intersection over union of boxes [..., 4] that broadcast to each other: [...]; 0 for two boxes without area."""
    corner, opposite = torch.maximum(a[..., :2], b[..., :2]), torch.minimum(a[..., 2:], b[..., 2:])
    intersection = (opposite - corner).clamp_min(0).prod(-1)
    union = (a[..., 2:] - a[..., :2]).prod(-1) + (b[..., 2:] - b[..., :2]).prod(-1) - intersection
    return torch.where(union > 0, intersection / union.clamp_min(torch.finfo(union.dtype).tiny), 0.0)
