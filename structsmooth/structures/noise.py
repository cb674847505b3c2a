"""Random numbers from a generator on any device."""

from collections.abc import Iterable

import torch
from torch import Generator, Tensor

_TINY = torch.finfo(torch.float64).tiny
_EULER = 0.5772156649015329  # the mean of the standard Gumbel distribution


def uniform_numbers(shape: Iterable[int], generator: Generator | None, device: torch.device) -> Tensor:
    """Numbers uniform on [0, 1), float64, drawn where the generator is."""
    source = device if generator is None else generator.device
    return torch.rand(tuple(shape), generator=generator, dtype=torch.float64, device=source).to(device)


def gumbel_noise(scores: Tensor, generator: Generator | None, antithetic: bool = False) -> tuple[Tensor, ...]:
    """Gumbel noise of mean zero in the shape of the scores, in at least float32; an antithetic pair, or one tensor."""
    uniform = uniform_numbers(scores.shape, generator, scores.device)
    numbers = [u.clamp_min(_TINY) for u in ((uniform, 1 - uniform) if antithetic else (uniform,))]
    return tuple((-(-u.log()).clamp_min(_TINY).log() - _EULER).to(_accumulated(scores)) for u in numbers)


def gaussian_noise(scores: Tensor, generator: Generator | None, antithetic: bool = False) -> tuple[Tensor, ...]:
    """Standard normal noise in the shape of the scores, as :func:`gumbel_noise` gives its noise."""
    source = scores.device if generator is None else generator.device
    noise = torch.randn(scores.shape, generator=generator, dtype=torch.float64, device=source)
    pair = (noise, -noise) if antithetic else (noise,)
    return tuple(z.to(scores.device).to(_accumulated(scores)) for z in pair)


def gumbel_slope(noise: Tensor) -> Tensor:
    """Minus the derivative of the logarithm of the density of :func:`gumbel_noise`."""
    return 1 - (-noise - _EULER).exp()


def _accumulated(scores: Tensor) -> torch.dtype:
    return torch.promote_types(scores.dtype, torch.float32)
