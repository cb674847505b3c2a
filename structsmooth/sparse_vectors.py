"""Vectors of which few numbers are not zero, and what memory they take."""

import mmap

import torch
from torch import Tensor

MANY = 1 << 24
"""Below so many numbers, 128 MB, dense vectors are as good."""

# Numbers that are looked at together: what is asked of all of a vector takes as much memory as the vector.
_PART = 1 << 22


def places(vector: Tensor) -> Tensor:
    """Where a vector is not zero: int64 [k]."""
    parts = range(0, len(vector), _PART)
    return torch.cat([begin + vector[begin : begin + _PART].nonzero().flatten() for begin in parts])


def spread(values: Tensor, places: Tensor, size: int) -> Tensor:
    """The vector [size] with some values at their places.

    The system provides memory for the pages that are written, and no others. What a forked process writes is its own.
    """
    memory = mmap.mmap(-1, size * values.element_size(), access=mmap.ACCESS_COPY)
    vector = torch.frombuffer(memory, dtype=values.dtype)
    vector[places] = values
    return vector
