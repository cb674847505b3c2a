"""Planes of blocks of examples, dense or sparse, of which each of several processes may have its own part."""

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from structsmooth import processes

# What selects coordinates of a vector: all of them, or those of an index [m].
Where = slice | Tensor


@dataclass
class Gradients:
    """A vector g_i of dim numbers for each of some blocks i, in a type that may have fewer bits than the weights.

    Its tensors are never changed, but replaced.

    Attributes:
        values: the numbers of each block: all, [dim], or those that are not zero, [m_i].
        columns: the coordinates of these nonzeros, int32 in any order, [m_i]; an empty list for dense gradients.
        dim: number of all coordinates.
    """

    values: list[Tensor]
    columns: list[Tensor]
    dim: int

    @staticmethod
    def memory(blocks: int, numbers: float, dtype: torch.dtype, *, sparse: bool) -> float:
        """Bytes that a pass takes for so many numbers of each block: a copy from before it, and one that it makes."""
        return 2 * blocks * numbers * (dtype.itemsize + (torch.int32.itemsize if sparse else 0))

    @classmethod
    def zeros(cls, blocks: int, weights: Tensor, dtype: torch.dtype, *, sparse: bool) -> "Gradients":
        """Zero gradients with respect to some weights [dim]."""
        values = weights.new_zeros(0 if sparse else len(weights), dtype=dtype)
        columns = [weights.new_zeros(0, dtype=torch.int32)] * blocks if sparse else []
        return cls([values] * blocks, columns, len(weights))

    @property
    def dtype(self) -> torch.dtype:
        """The type in which numbers are stored."""
        return self.values[0].dtype

    @property
    def is_sparse(self) -> bool:
        """Whether only nonzeros are stored."""
        return bool(self.columns)

    def __len__(self) -> int:
        return len(self.values)

    def copy(self) -> "Gradients":
        """Gradients that may change while these stay."""
        return Gradients([*self.values], [*self.columns], self.dim)

    def alone(self, vector: Tensor) -> "Gradients":
        """A vector [dim] as the gradient of a single block, stored like these, but in its own type."""
        if not self.is_sparse:
            return Gradients([vector], [], self.dim)
        (columns,) = vector.nonzero(as_tuple=True)
        return Gradients([vector[columns]], [columns.int()], self.dim)

    def vector(self, i: int, dtype: torch.dtype) -> Tensor:
        """The vector g_i, [dim], in a type that is given."""
        values = self.values[i].to(dtype)
        return values.new_zeros(self.dim).index_copy_(0, self.columns[i].long(), values) if self.is_sparse else values

    def part(self, i: int, other: Tensor) -> tuple[Where, Tensor]:
        """Coordinates outside of which g_i and another vector [dim] are zero, and g_i there, in the type of the other.

        g_i may share memory with what is stored.
        """
        values = self.values[i].to(other.dtype)
        if not self.is_sparse:
            return slice(None), values
        columns = self.columns[i].long()
        # Most often there are none.
        (added,) = other.bool().index_fill_(0, columns, False).nonzero(as_tuple=True)
        return torch.cat([columns, added]), torch.cat([values, values.new_zeros(len(added))])

    def put(self, i: int, where: Where, values: Tensor) -> None:
        """Make g_i these values at some coordinates, and zero elsewhere."""
        self.values[i] = values.to(self.dtype)
        if isinstance(where, Tensor):
            (kept,) = self.values[i].nonzero(as_tuple=True)
            self.values[i], self.columns[i] = self.values[i][kept], where[kept].int()

    def total(self, block_weights: Tensor, function: Callable[[Tensor], Tensor]) -> Tensor:
        """Σ v_i function(g_i), [dim], with the weights v of blocks, for a function of each number that maps 0 to 0."""
        total = block_weights.new_zeros(self.dim)
        for i, weight in enumerate(block_weights.tolist()):
            values = function(self.values[i].to(total.dtype))
            if self.is_sparse:
                total.index_add_(0, self.columns[i], values, alpha=weight)
            else:
                total.add_(values, alpha=weight)
        return total


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
        is_local = i in self._local
        row = self.gradients.vector(i - self._local.start, other.dtype) if is_local else torch.empty_like(other)
        return self.gradients.alone(processes.from_one(row, processes.owner(i, len(self)))).part(0, other)

    def move(self, i: int, where: Where, gradient: Tensor, constant: Tensor) -> None:
        """Give block i another plane, whose gradient has these values at some coordinates, and is zero elsewhere."""
        self.constants[i] = constant
        if i in self._local:
            self.gradients.put(i - self._local.start, where, gradient)

    def mean(self) -> tuple[Tensor, float]:
        """Gradient [dim] and constant of the mean over all examples."""
        return self._mean(lambda gradients: gradients), float(self.constants @ self.block_weights)

    def mean_square(self) -> Tensor:
        """Mean of the squared gradients over all examples: [dim]."""
        return self._mean(torch.square)

    def _mean(self, function: Callable[[Tensor], Tensor]) -> Tensor:
        total = self.gradients.total(self.block_weights[self._local.start : self._local.stop], function)
        return processes.summed(total) if self._spread else total

    @property
    def _spread(self) -> bool:
        return len(self.gradients) < len(self)

    @property
    def _local(self) -> range:
        return processes.share(len(self)) if self._spread else range(len(self))
