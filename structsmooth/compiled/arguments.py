"""What compiled loops take: arrays on the CPU, of numbers in float64 or in either precision, as they expect them."""

from dataclasses import fields, is_dataclass, replace
from typing import Any, TypeVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor


def in_either_precision(scores: Tensor) -> tuple[NDArray[np.float32], NDArray[np.float64]]:
    """Scores in float32 and in float64, of which one has no entries: so a loop is compiled once for both."""
    none = *scores.shape[:-1], 0
    if scores.dtype == torch.float64:
        return np.empty(none, np.float32), scores.numpy()
    return scores.numpy(), np.empty(none, np.float64)


def arrays(value: Any) -> Any:
    """A tuple with arrays of numpy in place of tensors; and anything else as it is."""
    if not isinstance(value, tuple):
        return value
    return tuple([x.numpy() if isinstance(x, Tensor) else x for x in value])


def for_loop(tensor: Tensor, narrow: bool = False) -> Tensor:
    """A contiguous tensor, in float64 if it is of floating point; or float32 if it may be narrow and is not wider."""
    if narrow and tensor.dtype.is_floating_point and tensor.dtype != torch.float64:
        return tensor.float().detach().contiguous()
    wide = tensor.double() if tensor.dtype.is_floating_point and tensor.dtype != torch.float64 else tensor
    return wide.detach() if wide.is_contiguous() else wide.detach().contiguous()


D = TypeVar("D")


def on_host(data: D) -> D:
    """A dataclass with its tensors, and those of dataclasses in it, on the CPU, where compiled passes read them."""
    values: dict[str, Any] = {f.name: getattr(data, f.name) for f in fields(data)}  # type: ignore[arg-type]
    found = {n: v.cpu() if isinstance(v, Tensor) else on_host(v) if is_dataclass(v) else v for n, v in values.items()}
    moved = {name: value for name, value in found.items() if value is not values[name]}
    return replace(data, **moved) if moved else data  # type: ignore[type-var]


def checked(name: str, tensor: Tensor, dtype: torch.dtype, *shape: int) -> Tensor:
    """A contiguous tensor, if it has what compiled code expects; a size of -1 stands for any."""
    if not isinstance(tensor, Tensor):
        raise TypeError(f"{name} must be a torch.Tensor, got {type(tensor).__name__}")
    if (tensor.dtype, tensor.device.type) != (dtype, "cpu"):
        raise TypeError(f"{name} must be {dtype} on the CPU, got {tensor.dtype} on {tensor.device}")
    if tensor.dim() != len(shape) or any(size not in (-1, got) for size, got in zip(shape, tensor.shape, strict=True)):
        raise ValueError(f"{name} must have shape {shape}, got {tuple(tensor.shape)}")
    return tensor.detach().contiguous()
