"""Planes of blocks of examples, dense or sparse, of which each of several processes may have its own part."""

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from structsmooth import processes
from structsmooth.solvers.state import empty

# Planes that are cast from how they are stored at the same time.
_AT_ONCE = 64

# What selects coordinates of a vector: all of them, or those of an index [m].
Where = slice | Tensor


class Packed(NamedTuple):
    """Gradients of blocks as tensors, for a state.

    Attributes:
        gradients: dense ones, [blocks, dim]; or the nonzeros of sparse ones, end to end, [nonzeros].
        columns: the coordinates of these nonzeros, int32, [nonzeros]; empty for dense ones.
        sizes: how many of them are a block's, [blocks]; empty for dense ones.
    """

    gradients: Tensor
    columns: Tensor
    sizes: Tensor

    def unpacked(self, dim: int) -> "Gradients":
        """The gradients, of so many weights."""
        if self.gradients.ndim == 2:
            return DenseGradients(self.gradients)
        sizes = self.sizes.tolist()
        return SparseGradients([*self.gradients.split(sizes)], [*self.columns.split(sizes)], dim)


class Gradients(ABC):
    """A vector g_i of dim numbers for each of some blocks i, in a type that may have fewer bits than the weights."""

    @property
    @abstractmethod
    def dtype(self) -> torch.dtype:
        """How numbers are stored."""

    @abstractmethod
    def __len__(self) -> int:
        """Number of blocks."""

    @abstractmethod
    def copy(self) -> "Gradients":
        """Gradients that may change while these stay."""

    @abstractmethod
    def alone(self, vector: Tensor) -> "Gradients":
        """A vector [dim] as the gradient of a single block, stored like these, but in its own type."""

    @abstractmethod
    def vector(self, i: int, dtype: torch.dtype) -> Tensor:
        """g_i, [dim], in some type."""

    @abstractmethod
    def part(self, i: int, other: Tensor) -> tuple[Where, Tensor]:
        """Coordinates outside of which g_i and another vector [dim] are zero, and g_i there, in the type of the other.

        g_i may share memory with what is stored.
        """

    @abstractmethod
    def put(self, i: int, where: Where, values: Tensor) -> None:
        """Make g_i these values at some coordinates, and zero elsewhere."""

    @abstractmethod
    def total(self, block_weights: Tensor, function: Callable[[Tensor], Tensor]) -> Tensor:
        """Σ v_i function(g_i), [dim], with the weights v of blocks, for a function of each number that maps 0 to 0."""

    @abstractmethod
    def packed(self) -> Packed:
        """The same as tensors."""


@dataclass
class DenseGradients(Gradients):
    """All numbers of all gradients.

    Attributes:
        rows: [blocks, dim].
    """

    rows: Tensor

    @staticmethod
    def memory(blocks: int, dim: int, dtype: torch.dtype) -> int:
        """Bytes that a pass takes: a copy from before it, and one that it changes."""
        return 2 * blocks * dim * dtype.itemsize

    @classmethod
    def zeros(cls, blocks: int, weights: Tensor, dtype: torch.dtype) -> "DenseGradients":
        """Zero gradients with respect to some weights [dim]."""
        return cls(weights.new_zeros(blocks, len(weights), dtype=dtype))

    @property
    def dtype(self) -> torch.dtype:
        """How numbers are stored."""
        return self.rows.dtype

    def __len__(self) -> int:
        return len(self.rows)

    def copy(self) -> "DenseGradients":
        """Gradients that may change while these stay."""
        return DenseGradients(self.rows.clone())

    def alone(self, vector: Tensor) -> "DenseGradients":
        """A vector [dim] as the gradient of a single block."""
        return DenseGradients(vector[None])

    def vector(self, i: int, dtype: torch.dtype) -> Tensor:
        """g_i, [dim], in some type."""
        return self.rows[i].to(dtype)

    def part(self, i: int, other: Tensor) -> tuple[Where, Tensor]:
        """All coordinates, and g_i."""
        return slice(None), self.vector(i, other.dtype)

    def put(self, i: int, where: Where, values: Tensor) -> None:
        """Make g_i these values; they are for all coordinates."""
        self.rows[i] = values

    def total(self, block_weights: Tensor, function: Callable[[Tensor], Tensor]) -> Tensor:
        """Σ shares_i function(g_i), [dim]."""
        total = torch.zeros(self.rows.shape[1], dtype=block_weights.dtype, device=block_weights.device)
        for some, of_them in zip(self.rows.split(_AT_ONCE), block_weights.split(_AT_ONCE), strict=True):
            total += of_them @ function(some.to(block_weights.dtype))
        return total

    def packed(self) -> Packed:
        """The same as tensors."""
        return Packed(self.rows, empty(), empty())


@dataclass
class SparseGradients(Gradients):
    """The nonzeros of each gradient, and where they are. Its tensors are never changed, but replaced.

    Attributes:
        values: the nonzeros of each block, [m_i].
        columns: their coordinates, int32 in any order, [m_i].
        dim: number of all coordinates.
    """

    values: list[Tensor]
    columns: list[Tensor]
    dim: int

    @staticmethod
    def memory(blocks: int, nonzeros: float, dtype: torch.dtype) -> float:
        """Bytes that a pass takes: a copy from before it, one that it changes, and this one once more, packed."""
        return 3 * blocks * nonzeros * (dtype.itemsize + torch.int32.itemsize)

    @classmethod
    def zeros(cls, blocks: int, weights: Tensor, dtype: torch.dtype) -> "SparseGradients":
        """Zero gradients with respect to some weights [dim]."""
        values, columns = weights.new_zeros(0, dtype=dtype), weights.new_zeros(0, dtype=torch.int32)
        return cls([values] * blocks, [columns] * blocks, len(weights))

    @property
    def dtype(self) -> torch.dtype:
        """How numbers are stored."""
        return self.values[0].dtype

    def __len__(self) -> int:
        return len(self.values)

    def copy(self) -> "SparseGradients":
        """Gradients that may change while these stay."""
        return SparseGradients([*self.values], [*self.columns], self.dim)

    def alone(self, vector: Tensor) -> "SparseGradients":
        """A vector [dim] as the gradient of a single block."""
        (columns,) = vector.nonzero(as_tuple=True)
        return SparseGradients([vector[columns]], [columns.int()], self.dim)

    def vector(self, i: int, dtype: torch.dtype) -> Tensor:
        """g_i, [dim], in some type."""
        values = self.values[i].to(dtype)
        return values.new_zeros(self.dim).index_copy_(0, self.columns[i].long(), values)

    def part(self, i: int, other: Tensor) -> tuple[Where, Tensor]:
        """Coordinates where g_i or another vector [dim] is not zero, and g_i there, in the type of the other."""
        values, columns = self.values[i].to(other.dtype), self.columns[i].long()
        # Most often there are none.
        (added,) = other.bool().index_fill_(0, columns, False).nonzero(as_tuple=True)
        return torch.cat([columns, added]), torch.cat([values, values.new_zeros(len(added))])

    def put(self, i: int, where: Where, values: Tensor) -> None:
        """Make g_i these values at some coordinates, and zero elsewhere."""
        assert isinstance(where, Tensor)
        values = values.to(self.dtype)
        (kept,) = values.nonzero(as_tuple=True)
        self.values[i], self.columns[i] = values[kept], where[kept].int()

    def total(self, block_weights: Tensor, function: Callable[[Tensor], Tensor]) -> Tensor:
        """Σ shares_i function(g_i), [dim]."""
        total = block_weights.new_zeros(self.dim)
        for start in range(0, len(self), _AT_ONCE):
            some = slice(start, start + _AT_ONCE)
            sizes = torch.tensor([len(values) for values in self.values[some]], device=block_weights.device)
            values = function(torch.cat(self.values[some]).to(block_weights.dtype))
            total.index_add_(
                0, torch.cat(self.columns[some]), values.mul_(block_weights[some].repeat_interleave(sizes))
            )
        return total

    def packed(self) -> Packed:
        """The same as tensors."""
        sizes = torch.tensor([len(values) for values in self.values])
        return Packed(torch.cat(self.values), torch.cat(self.columns), sizes)


@dataclass
class Planes:
    """A plane c_i + ⟨g_i, w⟩ for each block i.

    All gradients may be here, or in each of several processes those of its :func:`~structsmooth.processes.share` of the
    blocks. Then all processes must call the methods together, with the same arguments.

    Attributes:
        gradients: g_i of the own blocks.
        constants: c_i, [blocks].
        block_weights: parts of all examples that are in each block, [blocks].
    """

    gradients: Gradients
    constants: Tensor
    block_weights: Tensor

    def __len__(self) -> int:
        return len(self.constants)

    def copy(self) -> "Planes":
        """Planes that may change while these stay."""
        return Planes(self.gradients.copy(), self.constants.clone(), self.block_weights)

    def part(self, i: int, other: Tensor) -> tuple[Where, Tensor]:
        """Coordinates outside of which g_i and another vector [dim] are zero, and g_i there, in the type of the other.

        g_i may share memory with what is stored.
        """
        if not self._spread:
            return self.gradients.part(i, other)
        own = i in self._own
        row = self.gradients.vector(i - self._own.start, other.dtype) if own else torch.empty_like(other)
        return self.gradients.alone(processes.from_one(row, processes.owner(i, len(self)))).part(0, other)

    def move(self, i: int, where: Where, gradient: Tensor, constant: Tensor) -> None:
        """Give block i another plane, whose gradient has these values at some coordinates, and is zero elsewhere."""
        self.constants[i] = constant
        if i in self._own:
            self.gradients.put(i - self._own.start, where, gradient)

    def mean(self) -> tuple[Tensor, float]:
        """Gradient [dim] and constant of the mean over all examples."""
        return self._mean(lambda gradients: gradients), float(self.constants @ self.block_weights)

    def mean_square(self) -> Tensor:
        """Mean of the squared gradients over all examples: [dim]."""
        return self._mean(torch.square)

    def _mean(self, function: Callable[[Tensor], Tensor]) -> Tensor:
        total = self.gradients.total(self.block_weights[self._own.start : self._own.stop], function)
        return processes.summed(total) if self._spread else total

    @property
    def _spread(self) -> bool:
        return len(self.gradients) < len(self)

    @property
    def _own(self) -> range:
        return processes.share(len(self)) if self._spread else range(len(self))
