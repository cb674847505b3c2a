"""Random numbers from a generator on any device."""

from collections.abc import Iterable

import torch
from torch import Generator, Tensor

_EULER = 0.5772156649015329  # the mean of the standard Gumbel distribution


def uniform_numbers(shape: Iterable[int], generator: Generator | None, device: torch.device) -> Tensor:
    """Numbers uniform on [0, 1), float64, drawn where the generator is."""
    source = device if generator is None else generator.device
    return torch.rand(tuple(shape), generator=generator, dtype=torch.float64, device=source).to(device)


def gumbel_noise(scores: Tensor, generator: Generator | None) -> Tensor:
    """Gumbel noise of mean zero in the shape of the scores, in at least float32."""
    uniform = uniform_numbers(scores.shape, generator, scores.device).clamp_min(torch.finfo(torch.float64).tiny)
    return (-(-uniform.log()).log() - _EULER).to(scores.to(torch.promote_types(scores.dtype, torch.float32)))
