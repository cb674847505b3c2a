"""Linear chains with more weights than memory has room for, of which vectors hold those alone that are not zero.

Of the weights of many labels, few are ever needed: those of an attribute with a label that it occurs with, or that was
once a wrong best one. They are found as compiled passes write them. In between, a vector has a number for each of them.
"""

from dataclasses import dataclass, field, fields
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import pad

from structsmooth.compiled.arguments import checked
from structsmooth.problems.linear.chain.data import ChainData
from structsmooth.problems.linear.chain.problem import ChainProblem
from structsmooth.sparse_vectors import places, spread


class Support:
    """Which of all weights vectors hold, in the order in which they were first needed.

    Args:
        numbers: of the weights, int64 [k]. More are added at the end, so a vector that was made before lacks zeros.
        dim: number of all weights.
    """

    def __init__(self, numbers: Tensor, dim: int) -> None:
        self.numbers, self.dim = numbers, dim

    def expanded(self, w: Tensor) -> Tensor:
        """All weights [dim] of a vector."""
        return spread(w, self.numbers[: len(w)], self.dim)

    def collected(self, whole: Tensor) -> Tensor:
        """The vector of all weights [dim], which become zero; those that it lacked are added."""
        known = whole[self.numbers]
        whole[self.numbers] = 0.0
        added = places(whole)
        self.numbers = torch.cat([self.numbers, added])
        return torch.cat([known, whole[added]])


@dataclass(frozen=True)
class CompactData(ChainData):
    """Chains whose vectors have a support; compiled passes see matrices of all weights."""

    support: Support = field(kw_only=True)

    def matrix(self, w: Tensor) -> Any:
        """A vector as a new array of rows [F + S + 2, S]."""
        return super().matrix(self.support.expanded(w) if w.dim() == 1 and len(w) else w)

    def vector(self, matrix: Any) -> Tensor:
        """The vector of an array of rows, which become zero."""
        return self.support.collected(super().vector(matrix)) if len(matrix) else super().vector(matrix)

    def views(self, w: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """A vector as rows of features, transitions and scores of the ends, to read."""
        return super().views(self.support.expanded(w))

    def checked_vector(self, name: str, w: Tensor) -> Tensor:
        """A vector of float64 [k]."""
        return checked(name, w, torch.float64, len(self.support.numbers))


class CompactChainProblem(ChainProblem):
    """A problem of chains as :class:`~structsmooth.BCFW` needs it, with vectors of the weights that are not zero.

    Its ``dim`` is their number, which grows with the dual vectors that it makes. ``grown`` gives an older vector its
    present length, and ``expanded`` all weights of the problem that it was made from.

    Args:
        problem: without bounds.
        numbers: of the weights that vectors of an earlier run had; those of first and last labels if not given.

    Raises:
        TypeError: numbers that are not int64.
        ValueError: numbers of the weights of another problem.
    """

    data: CompactData

    def __init__(self, problem: ChainProblem, numbers: Tensor | None = None) -> None:
        vars(self).update({name: value for name, value in vars(problem).items() if name != "dim"})
        ends = torch.arange(problem.dim - 2 * problem.states, problem.dim)
        numbers = ends if numbers is None else checked("support", numbers, torch.int64, -1)
        different = numbers[numbers >= 0].unique()
        if len(different) < len(numbers) or not torch.equal(numbers[numbers >= ends[0]], ends):
            raise ValueError(f"support must hold numbers of {problem.dim} weights, once each: it is of another problem")
        data: dict[str, Any] = {f.name: getattr(problem.data, f.name) for f in fields(problem.data)}
        self.data = self.feature_map = CompactData(**data, support=Support(numbers, problem.dim))

    @property
    def dim(self) -> int:  # type: ignore[override]
        """Number of weights that vectors hold."""
        return len(self.support)

    @property
    def support(self) -> Tensor:
        """Numbers of these weights, int64 [dim]."""
        return self.data.support.numbers

    def grown(self, w: Tensor) -> Tensor:
        """A vector, with zeros for weights that were added since it was made."""
        return pad(w, (0, self.dim - len(w)))

    def expanded(self, w: Tensor) -> Tensor:
        """All weights of a vector."""
        return self.data.support.expanded(w)
