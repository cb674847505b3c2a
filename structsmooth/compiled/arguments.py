"""What compiled loops take: arrays of numpy, of numbers in float64 or in either precision."""

from typing import Any

import torch
from torch import Tensor


def in_either_precision(scores: Tensor) -> tuple[Tensor, Tensor]:
    """Scores in float32 and in float64, of which one has no entries: so a loop is compiled once for both."""
    if scores.dtype == torch.float64:
        return scores.new_empty(*scores.shape[:-1], 0, dtype=torch.float32), scores
    return scores, scores.new_empty(*scores.shape[:-1], 0, dtype=torch.float64)


def arrays(value: Any) -> Any:
    """A tuple with arrays of numpy in place of tensors; and anything else as it is."""
    if not isinstance(value, tuple):
        return value
    return tuple([x.numpy() if isinstance(x, Tensor) else x for x in value])


def for_loop(tensor: Tensor, narrow: bool = False) -> Tensor:
    """A contiguous tensor, in float64 if it is of floating point; or float32 if it may be narrow and is not wider."""
    if narrow and tensor.dtype.is_floating_point and tensor.dtype != torch.float64:
        return tensor.float().detach().contiguous()
    return (tensor.double() if tensor.dtype.is_floating_point else tensor).detach().contiguous()
