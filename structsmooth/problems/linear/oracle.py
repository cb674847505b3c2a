"""What a linear problem has for each block: a map from weights to potentials, and an oracle that answers."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor

from structsmooth.problems.affine import Parts
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


@dataclass(frozen=True)
class Response:
    """What the oracle of a block answers.

    Attributes:
        value: h_μ(θ), [].
        statistics: m, the gradient of the value in the potentials, in their shapes.
        atom: what to hold the answer by: the integers of an output, [m_i]; for a vertex that is no output, its
            statistics themselves, flat; ``None`` where no active set or cache can hold it, as for smoothed answers.
    """

    value: Tensor
    statistics: Parts
    atom: Tensor | None = None


def respond(structure: Structure, smoother: Smoother) -> Response:
    """The oracle of a structure for a batch of one: max, top-K or exp, as the smoother says."""
    with torch.enable_grad():
        structure = structure.replace(*(p.detach().requires_grad_() for p in structure.potentials))
        value, y = structure.max() if isinstance(smoother, Max) else (smoother(structure), None)
        statistics = torch.autograd.grad(value.sum(), structure.potentials, materialize_grads=True)
    return Response(value.detach()[0], statistics, None if y is None else y.flatten())
