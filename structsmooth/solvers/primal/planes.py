"""Planes of blocks of examples, of which each of several processes may have its own part."""

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from structsmooth import processes

# Planes that are cast from how they are stored at the same time.
_AT_ONCE = 64


@dataclass
class Planes:
    """A plane c_i + ⟨g_i, w⟩ for each block i.

    All gradients may be here, or in each of several processes those of its :func:`~structsmooth.processes.share` of the
    blocks. Then all processes must call the methods together, with the same arguments.

    Attributes:
        gradients: g_i as they are stored, [own blocks, dim].
        constants: c_i, [blocks].
        shares: of the blocks in the examples, [blocks].
    """

    gradients: Tensor
    constants: Tensor
    shares: Tensor

    def __len__(self) -> int:
        return len(self.constants)

    def copy(self) -> "Planes":
        """Planes that may change while these stay."""
        return Planes(self.gradients.clone(), self.constants.clone(), self.shares)

    def gradient(self, i: int) -> Tensor:
        """g_i, [dim], in the type of the constants."""
        own = self._own
        row = self.gradients[i - own.start] if i in own else self.gradients.new_empty(self.gradients.shape[1])
        row = row.to(self.constants.dtype)
        return processes.from_one(row, processes.owner(i, len(self))) if self._spread else row

    def move(self, i: int, gradient: Tensor, constant: Tensor) -> None:
        """Give block i another plane."""
        self.constants[i] = constant
        if i in self._own:
            self.gradients[i - self._own.start] = gradient

    def mean(self) -> tuple[Tensor, float]:
        """Gradient [dim] and constant of the mean over all examples."""
        return self._mean(lambda gradients: gradients), float(self.constants @ self.shares)

    def mean_square(self) -> Tensor:
        """Mean of the squared gradients over all examples: [dim]."""
        return self._mean(torch.square)

    def _mean(self, function: Callable[[Tensor], Tensor]) -> Tensor:
        shares = self.shares[self._own.start : self._own.stop]
        total = torch.zeros(self.gradients.shape[1], dtype=shares.dtype, device=shares.device)
        for some, of_them in zip(self.gradients.split(_AT_ONCE), shares.split(_AT_ONCE), strict=True):
            total += of_them @ function(some.to(shares.dtype))
        return processes.summed(total) if self._spread else total

    @property
    def _spread(self) -> bool:
        return len(self.gradients) < len(self)

    @property
    def _own(self) -> range:
        return processes.share(len(self)) if self._spread else range(len(self))
