"""Scores of candidate boxes from the feature maps of their crops."""

import copy
from abc import abstractmethod
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import pad_sequence

from structsmooth.models.backbones import PRETRAINED, AlexNetConv4
from structsmooth.scores import ScoreModule
from structsmooth.structures import Candidates


class BoxScore(ScoreModule):
    """A score of each candidate box of an image, from the feature map of its crop.

    Inputs are crops, for a backbone, or feature maps that :meth:`feature_maps` computed in advance, which pays while
    the backbone is frozen. A subclass defines :meth:`score_maps`.

    Args:
        shape: channels, height and width C, H, W of a feature map.
        backbone: maps crops [N, 3, h, w] to feature maps [N, C, H, W]; ``None`` if inputs are feature maps already.
        freeze: keep a copy of the backbone that is not trained, in ``eval()`` mode; otherwise train the backbone.
    """

    def __init__(self, shape: tuple[int, int, int], backbone: nn.Module | None = None, freeze: bool = True) -> None:
        super().__init__()
        self.shape, self.frozen = tuple(shape), freeze
        if backbone is not None and freeze:
            backbone = copy.deepcopy(backbone).requires_grad_(False).eval()
        self.backbone = backbone

    @abstractmethod
    def score_maps(self, maps: Tensor) -> Tensor:
        """Scores [N] of feature maps [N, C, H, W]."""

    def forward(self, x: Tensor | Sequence[Tensor]) -> Candidates:
        """Candidates with a score for each box.

        Args:
            x: feature maps [B, M, C, H, W] or crops [B, M, 3, h, w], alone or with the number of candidates of each
                example, int64 [B]; the rest is padding, which may have any finite values.

        Raises:
            ValueError: other shapes, or crops without a backbone.
        """
        images, counts = (x, None) if isinstance(x, Tensor) else x
        if images.dim() != 5:
            raise ValueError(f"x must have shape [B, M, C, H, W], got {tuple(images.shape)}")
        scores = self.score_maps(self.feature_maps(images.flatten(0, 1))).view(images.shape[:2])
        if counts is None:
            return Candidates(scores)
        if counts.shape != images.shape[:1]:
            raise ValueError(f"counts must have shape [B] = {tuple(images.shape[:1])}, got {tuple(counts.shape)}")
        return Candidates(scores, torch.arange(images.shape[1], device=counts.device) < counts[:, None])

    def feature_maps(self, images: Tensor) -> Tensor:
        """Feature maps [N, C, H, W], given or of crops [N, 3, h, w], in the dtype of the weights and channels last.

        Raises:
            ValueError: neither feature maps nor crops, or crops without a backbone.
        """
        dtype = next(self.parameters()).dtype
        if tuple(images.shape[1:]) == self.shape:
            return images.to(dtype, memory_format=torch.channels_last)
        if self.backbone is None:
            found = tuple(images.shape)
            raise ValueError(f"feature maps must have shape [..., {self.shape}], got {found}: no backbone")
        with torch.set_grad_enabled(torch.is_grad_enabled() and not self.frozen):
            maps: Tensor = self.backbone(images)
        if tuple(maps.shape[1:]) != self.shape:
            raise ValueError(f"the backbone must give maps of shape {self.shape}, got {tuple(maps.shape[1:])}")
        return maps.to(dtype, memory_format=torch.channels_last)

    def train(self, mode: bool = True) -> "BoxScore":
        """Set the mode; a frozen backbone stays in ``eval()`` mode."""
        super().train(mode)
        if self.backbone is not None and self.frozen:
            self.backbone.eval()
        return self


class BoxLinear(BoxScore):
    """φ(x, y; w) = ⟨w, Φ(x, y)⟩, linear in the feature map Φ of box y; zero at first.

    Arguments are those of :class:`BoxScore`. The score is affine in the weights only if the backbone is frozen.

    Reference:
        Pillutla et al. (2019), section 7.1.2.

    Example:
        >>> module = BoxLinear((256, 3, 3))
        >>> maps, counts = torch.randn(2, 5, 256, 3, 3), torch.tensor([5, 3])
        >>> module((maps, counts)).mask.sum(1)
        tensor([5, 3])
    """

    def __init__(self, shape: tuple[int, int, int], backbone: nn.Module | None = None, freeze: bool = True) -> None:
        super().__init__(shape, backbone, freeze)
        self.weight = nn.Parameter(torch.zeros(self.shape))
        self.affine = backbone is None or freeze

    def score_maps(self, maps: Tensor) -> Tensor:
        """Inner products [N]."""
        # In the order of the memory, so that no map is copied.
        return maps.permute(0, 2, 3, 1).flatten(1) @ self.weight.permute(1, 2, 0).flatten()


class BoxELU(BoxScore):
    """φ(x, y; w) = ⟨v, σ(Φ(x, y) ⋆ u)⟩: a 1 × 1 convolution u, the exponential linear unit σ, and a linear map v.

    The other arguments are those of :class:`BoxScore`.

    Args:
        hidden: number of channels after the convolution.

    Reference:
        Pillutla et al. (2019), section 7.1.2.
    """

    def __init__(
        self, shape: tuple[int, int, int], backbone: nn.Module | None = None, freeze: bool = True, hidden: int = 16
    ) -> None:
        super().__init__(shape, backbone, freeze)
        if hidden < 1:
            raise ValueError(f"hidden must be at least 1, got {hidden}")
        channels, height, width = shape
        self.convolution = nn.Conv2d(channels, hidden, 1, bias=False)
        self.linear = nn.Linear(hidden * height * width, 1, bias=False)

    def score_maps(self, maps: Tensor) -> Tensor:
        """Scores [N]."""
        scores: Tensor = self.linear(nn.functional.elu(self.convolution(maps)).flatten(1))
        return scores.squeeze(1)


class AlexNetConv4Linear(BoxLinear):
    """The linear score of the paper: :class:`BoxLinear` on :class:`AlexNetConv4`.

    Args:
        weights: of AlexNet, see :class:`Backbone`.
        freeze: whether AlexNet stays as it is, untrained.
    """

    def __init__(self, weights: str | Path | None = PRETRAINED, freeze: bool = True) -> None:
        super().__init__(AlexNetConv4.shape, AlexNetConv4(weights), freeze)


class AlexNetConv4ELU(BoxELU):
    """The nonlinear score of the paper: :class:`BoxELU` on :class:`AlexNetConv4`; see :class:`AlexNetConv4Linear`."""

    def __init__(self, weights: str | Path | None = PRETRAINED, freeze: bool = True) -> None:
        super().__init__(AlexNetConv4.shape, AlexNetConv4(weights), freeze)


def collate_boxes(examples: list[tuple[Tensor, Any]]) -> tuple[tuple[Tensor, Tensor], Any]:
    """A batch of images with different numbers of candidate boxes, for a :class:`BoxScore`.

    Args:
        examples: feature maps or crops [M_i, C, H, W] of each image with the index of the correct box; or with a pair
            of this index and the costs [M_i] of all boxes, such as 1 − IoU.

    Returns:
        ((images [B, M, C, H, W], counts [B]), y [B]), or with (y, costs [B, M]) in place of y; padded with zeros.
    """
    images, labels = zip(*examples, strict=True)
    counts = torch.tensor([len(image) for image in images])
    x = (pad_sequence(list(images), batch_first=True), counts)
    if not isinstance(labels[0], (tuple, list)):
        return x, torch.as_tensor(labels)
    y, costs = zip(*labels, strict=True)
    return x, (torch.as_tensor(y), pad_sequence(list(costs), batch_first=True))
