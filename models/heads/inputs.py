"""What heads share: features of positions with lengths, and layers whose scores are small at first."""

from typing import NamedTuple, TypeAlias

import torch
from torch import Tensor, nn
from torch.nn.functional import pad

Features: TypeAlias = Tensor | tuple[Tensor, Tensor]
"""Features of positions [B, T, D], alone or with lengths [B] from 1 to T."""


class Positions(NamedTuple):
    """Features [B, T, D] that are zero at padding, and lengths [B]."""

    features: Tensor
    lengths: Tensor


def positions_of(x: Features, size: int) -> Positions:
    """The positions of an input, as :func:`positions` gives them."""
    features, lengths = x if isinstance(x, tuple) else (x, None)
    return positions(features, lengths, size)


def positions(features: Tensor, lengths: Tensor | None, size: int) -> Positions:
    """Features and lengths; what stands at padding, NaN too, is set to zero.

    Raises:
        ValueError: features of another shape or size, or lengths of another shape.
    """
    if features.dim() != 3 or features.shape[2] != size:
        raise ValueError(f"features must have shape [B, T, D] with D = {size}, got {tuple(features.shape)}")
    if lengths is None:
        lengths = torch.full(features.shape[:1], features.shape[1], device=features.device)
    if lengths.shape != features.shape[:1]:
        raise ValueError(f"lengths must have shape [B] = {tuple(features.shape[:1])}, got {tuple(lengths.shape)}")
    inside = torch.arange(features.shape[1], device=features.device) < lengths.unsqueeze(1)
    return Positions(torch.where(inside.unsqueeze(2), features, 0.0), lengths)


def projection(features: int, hidden: int) -> nn.Sequential:
    """A layer of ``hidden`` features with a smooth nonlinearity, as prox-linear steps want it."""
    return nn.Sequential(nn.Linear(features, hidden), nn.ELU())


def with_one(features: Tensor) -> Tensor:
    """Features and a constant one behind them: [..., D + 1]."""
    return pad(features, (0, 1), value=1.0)


def zeros(*shape: int) -> nn.Parameter:
    """Weights that are zero at first, so that all outputs are equally good."""
    return nn.Parameter(torch.zeros(shape))
