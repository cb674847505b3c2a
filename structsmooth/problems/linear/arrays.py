"""Tensors that compiled passes take."""

import torch
from torch import Tensor


def checked(name: str, tensor: Tensor, dtype: torch.dtype, *shape: int) -> Tensor:
    """A contiguous tensor, if it has what compiled code expects; a size of -1 stands for any."""
    if not isinstance(tensor, Tensor):
        raise TypeError(f"{name} must be a torch.Tensor, got {type(tensor).__name__}")
    if (tensor.dtype, tensor.device.type) != (dtype, "cpu"):
        raise TypeError(f"{name} must be {dtype} on the CPU, got {tensor.dtype} on {tensor.device}")
    if tensor.dim() != len(shape) or any(size not in (-1, got) for size, got in zip(shape, tensor.shape, strict=True)):
        raise ValueError(f"{name} must have shape {shape}, got {tuple(tensor.shape)}")
    return tensor.detach().contiguous()
