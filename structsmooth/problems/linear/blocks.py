"""What linear problems have for each block of their dual: a map from weights to potentials, and an oracle."""

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor

from structsmooth.problems.affine import Parts, flat
from structsmooth.smoothing import Max, Smoother
from structsmooth.structures.base import Structure


class FeatureMap(Protocol):
    """The linear maps B_i from weights to the potentials of blocks: dense, sparse, or by automatic differentiation."""

    def scores(self, w: Tensor, block: int) -> Parts:
        """B_i w: the potentials of a block."""
        ...

    def add_adjoint(self, m: Parts, block: int, scale: float, w: Tensor) -> None:
        """w += scale · B_iᵀm in place, for m in the shapes of the potentials; touches the block's nonzeros alone."""
        ...

    def squared_norm(self, m: Parts, block: int) -> float:
        """‖B_iᵀm‖²."""
        ...


class VectorMap(ABC):
    """A feature map whose adjoints are dense vectors; it keeps the last: a step asks for its norm, then adds it."""

    last: tuple[Parts, int, Tensor] | None = None

    @abstractmethod
    def scores(self, w: Tensor, block: int) -> Parts:
        """B_i w: the potentials of a block."""

    @abstractmethod
    def vector(self, m: Parts, block: int) -> Tensor:
        """B_iᵀm: [dim]."""

    def add_adjoint(self, m: Parts, block: int, scale: float, w: Tensor) -> None:
        """w += scale · B_iᵀm in place."""
        w.add_(self._kept(m, block), alpha=scale)

    def squared_norm(self, m: Parts, block: int) -> float:
        """‖B_iᵀm‖²."""
        vector = self._kept(m, block)
        return float(vector @ vector)

    def _kept(self, m: Parts, block: int) -> Tensor:
        if self.last is None or self.last[0] is not m or self.last[1] != block:
            self.last = (m, block, self.vector(m, block))
        return self.last[2]


@dataclass(frozen=True)
class OracleOutput:
    """What the oracle of a block answers.

    Attributes:
        value: h_μ(θ), [].
        statistics: m, the gradient of the value in the potentials, in their shapes.
        atom: what to hold the answer by: the integers of an output, [m_i]; for a vertex that is no output, its
            statistics themselves, flat; ``None`` where no active set or cache can hold it, as for smoothed answers.
        bound: what no value exceeds, []; ``None`` if that is the value itself, as it is unless a relaxation was not
            solved to the end.
    """

    value: Tensor
    statistics: Parts
    atom: Tensor | None = None
    bound: Tensor | None = None


def respond(structure: Structure, smoother: Smoother) -> OracleOutput:
    """The oracle of a structure for a batch of one: max, top-K or exp, as the smoother says.

    The atom of a fractional structure is its statistics.
    """
    bound, y = None, None
    with torch.enable_grad():
        structure = structure.replace(*(p.detach().requires_grad_() for p in structure.potentials))
        if not isinstance(smoother, Max):
            value = smoother(structure)
        elif structure.is_fractional:
            value, bound = structure.max_with_bound()
        else:
            value, y = structure.max()
        statistics = torch.autograd.grad(value.sum(), structure.potentials, materialize_grads=True)
    if bound is not None:
        return OracleOutput(value.detach()[0], statistics, flat(statistics), bound[0])
    return OracleOutput(value.detach()[0], statistics, None if y is None else y.flatten())
