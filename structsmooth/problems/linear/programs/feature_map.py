"""The map from weights to the scores of parts."""

from typing import Any

import torch
from torch import Tensor

from structsmooth.problems.affine import Parts
from structsmooth.problems.linear.programs.features import PartFeatures
from structsmooth.problems.linear.programs.parts import ProgramParts


class SparseMap:
    """Scores of parts as sums of the weights of their features."""

    def __init__(self, parts: ProgramParts, features: PartFeatures) -> None:
        self.program_parts, self.features, self.most = parts, features, features.most
        self._sums: Any = None

    def scores(self, w: Tensor, block: int) -> Parts:
        """Scores [P] of the parts of an example."""
        from structsmooth.problems.linear.programs import compiled

        own = self.program_parts.of(block)
        scores = torch.empty(own.stop - own.start, dtype=torch.float64)
        compiled.part_scores(self.features.arrays, self.most, own.start, w.detach().numpy(), scores.numpy())
        return (scores,)

    def add_adjoint(self, m: Parts, block: int, scale: float, w: Tensor) -> None:
        """w += scale · B_iᵀm in place."""
        from structsmooth.problems.linear.programs import compiled

        begin, direction = self.program_parts.of(block).start, m[0].detach().contiguous().numpy()
        compiled.add_adjoint(self.features.arrays, self.most, begin, direction, float(scale), w.numpy())

    def squared_norm(self, m: Parts, block: int) -> float:
        """‖B_iᵀm‖²."""
        from structsmooth.problems.linear.programs import compiled

        if self._sums is None:
            self._sums = torch.zeros(self.features.features, dtype=torch.float64)
        begin, direction = self.program_parts.of(block).start, m[0].detach().contiguous().numpy()
        norm: float = compiled.norm_of_adjoint(self.features.arrays, self.most, begin, direction, self._sums.numpy())
        return norm
