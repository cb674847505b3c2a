"""The blocks of a linear problem: a map from weights to potentials, an oracle, costs and labels for each."""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import accumulate
from typing import Protocol

import torch
from torch import Tensor

from structsmooth.problems.affine import AffineProblem, Parts, flat, inner, shaped
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
    """

    value: Tensor
    statistics: Parts
    atom: Tensor | None = None


def respond(structure: Structure, smoother: Smoother) -> OracleOutput:
    """The oracle of a structure for a batch of one: max, top-K or exp, as the smoother says.

    The atom of a fractional structure is its statistics.
    """
    with torch.enable_grad():
        structure = structure.replace(*(p.detach().requires_grad_() for p in structure.potentials))
        value, y = structure.max() if isinstance(smoother, Max) else (smoother(structure), None)
        statistics = torch.autograd.grad(value.sum(), structure.potentials, materialize_grads=True)
    if y is not None:
        y = flat(statistics) if structure.is_fractional else y.flatten()
    return OracleOutput(value.detach()[0], statistics, y)


class BlockProblem(AffineProblem):
    """What a linear problem has for each block of its dual; see :class:`LinearProblem`."""

    feature_map: FeatureMap

    @cached_property
    def blocks(self) -> int:
        """Number of blocks of the dual; may be set by a subclass."""
        return self.n

    def blocks_of(self, indices: Tensor) -> Sequence[int]:
        """The blocks of some examples."""
        return indices.tolist()

    @cached_property
    def block_shares(self) -> Tensor:
        """The shares of the examples that the blocks belong to: float64 [blocks]."""
        if self.blocks == self.n:
            return self.shares
        shares = self.shares.new_empty(self.blocks)
        for index in torch.arange(self.n).split(1):
            shares[list(self.blocks_of(index))] = self.shares[index]
        return shares

    def block_share(self, block: int) -> float:
        """The share of the example that a block belongs to, 1/n if all count alike."""
        return float(self.block_shares[block])

    @abstractmethod
    def oracle(self, potentials: Parts, block: int, smoother: Smoother = Max()) -> OracleOutput:  # noqa: B008 - immutable
        """The max, top-K or exp oracle of a block under these potentials; see :func:`respond`."""

    @abstractmethod
    def parts(self, atom: Tensor, block: int) -> Parts:
        """Statistics of an atom of a block, ν(y) for an output, in the shapes of the potentials."""

    @abstractmethod
    def costs(self, block: int) -> Parts:
        """ℓ_i: the task loss of an output is the sum of these over its parts; in the shapes of the potentials."""

    @abstractmethod
    def label_atom(self, block: int) -> Tensor:
        """The atom of the labels y_i, [m_i]: every atom of the block has its size and kind."""

    def label_parts(self, block: int) -> Parts:
        """ν(y_i): the parts of the labels, in the shapes of the potentials."""
        return self.parts(self.label_atom(block), block)

    def atom_scores(self, potentials: Parts, atoms: Tensor, block: int) -> Tensor:
        """Scores ⟨potentials, ν⟩ of several atoms [c, m_i] of a block, c >= 1: [c]."""
        return torch.stack([inner(potentials, self.parts(atom, block)) for atom in atoms])

    def potentials(self, w: Tensor, block: int) -> Parts:
        """B_i w: the potentials of a block."""
        return self.feature_map.scores(w, block)

    def adjoint(self, statistics: Parts, block: int) -> Tensor:
        """B_iᵀ m: the vector [dim] with ⟨B_iᵀ m, w⟩ = ⟨m, B_i w⟩."""
        vector = torch.zeros_like(self.start())
        self.feature_map.add_adjoint(statistics, block, 1.0, vector)
        return vector

    def augmented(self, w: Tensor, block: int) -> Parts:
        """θ_i + ℓ_i."""
        return tuple(p + c for p, c in zip(self.potentials(w, block), self.costs(block), strict=True))

    def call(self, potentials: Parts, block: int, smoother: Smoother = Max()) -> OracleOutput:  # noqa: B008 - immutable
        """The oracle, counted."""
        self.oracle_calls += 1
        return self.oracle(potentials, block, smoother)

    def block_statistics(self, statistics: Tensor, block: int) -> Parts:
        """Views of the statistics of a block among those of all."""
        begin, end = self.part_offsets[block : block + 2]
        return shaped(statistics[begin:end], self.label_parts(block))

    @cached_property
    def atom_offsets(self) -> list[int]:
        """Where the atoms of each block begin, if one of each block stands behind the other: [blocks + 1]."""
        return list(accumulate((len(self.label_atom(block)) for block in range(self.blocks)), initial=0))

    @cached_property
    def part_offsets(self) -> list[int]:
        """Where the statistics of each block begin among those of all: [blocks + 1]."""
        sizes = (sum(part.numel() for part in self.label_parts(block)) for block in range(self.blocks))
        return list(accumulate(sizes, initial=0))
