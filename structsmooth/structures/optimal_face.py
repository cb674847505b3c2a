"""Directions of the faces of polytopes on which points lie, found by calls of a max oracle, for a batch."""

from collections.abc import Callable

import torch
from torch import Tensor

# Squared distance of a direction from the span of the others, relative to its own square, that counts as none.
_DEPENDENT = 1e-10
_LARGEST_STEP = 1e5  # of scores towards a random direction, in units of what counts as a tie
_SMALLER = 1e-2


class FaceDirections:
    """Bases of the differences of points of a face, one for each of B examples, orthonormal in the metric.

    Args:
        batch: B.
        metric: which of the D numbers of a point count in inner products, bool [D].

    Attributes:
        basis: [B, R, D], float64; zeros where an example has fewer directions.
    """

    def __init__(self, batch: int, metric: Tensor) -> None:
        self.metric = metric
        self.basis = torch.zeros(batch, 0, len(metric), dtype=torch.float64, device=metric.device)

    def add(self, rows: Tensor, differences: Tensor) -> Tensor:
        """Add differences [b, D] of points of some examples: bool [b], whether a basis lacked the direction."""
        left = differences
        for _ in range(2):  # the second time takes away what rounding has left
            left = left - self._combined(self._products(left * self.metric, rows), rows)
        square = (left.square() * self.metric).sum(1)
        lacked = square > _DEPENDENT * (differences.square() * self.metric).sum(1).clamp_min(1.0)
        if bool(lacked.any()):
            new = self.basis.new_zeros(len(self.basis), 1, len(self.metric))
            new[rows[lacked], 0] = left[lacked] / square[lacked].sqrt().unsqueeze(1)
            self.basis = torch.cat([self.basis, new], 1)
        return lacked

    def orthogonal(self, rows: Tensor, numbers: Tensor) -> Tensor:
        """What is left of numbers [b, D] in the metric if their components in these directions are taken away."""
        counted = numbers * self.metric
        return counted - self._combined(self._products(counted, rows), rows) * self.metric

    def project(self, numbers: Tensor) -> Tensor:
        """Components of numbers [B, D] in these directions: [B, D]; linear, and differentiable as such."""
        return self._combined(self._products(numbers))

    def complete(
        self,
        rows: Tensor,
        better: Callable[[Tensor, Tensor], tuple[Tensor, Tensor, Tensor]],
        most: int,
    ) -> Tensor:
        """Add directions until the bases of some examples span their faces, of which all points have the same score.

        A random direction, orthogonal to a basis, is constant on the face only if the basis is complete. Otherwise a
        step of the scores along it, or against it, leads the oracle to a point of the face in another direction, unless
        the step is so large that it leads off the face.

        Args:
            rows: the examples, [b].
            better: differences [c, D] between the points that are best for scores moved by [c, D] and a point of the
                face, for some examples [c]; how much lower than the face they are by the scores themselves, and
                how much of that is none, [c].
            most: limit on the rounds.

        Returns:
            The examples that have reached the limit.
        """
        generator = torch.Generator().manual_seed(0)
        shrink = torch.full((len(rows),), _LARGEST_STEP, dtype=torch.float64, device=rows.device)
        for _ in range(most):
            if not len(rows):
                break
            drawn = torch.randn(len(self.metric), generator=generator, dtype=torch.float64).to(rows.device)
            direction = self.orthogonal(rows, drawn.expand(len(rows), -1)) * shrink.unsqueeze(1)
            more, off = (torch.zeros_like(rows, dtype=torch.bool) for _ in range(2))
            for step in (direction, -direction):
                differences, lower, none = better(rows, step)
                on = lower <= none
                more[on.nonzero().squeeze(1)] |= self.add(rows[on], differences[on])
                off |= ~on
            shrink = torch.where(more, shrink, shrink * _SMALLER)
            going = more | (off & (shrink >= 1.0))
            rows, shrink = rows[going], shrink[going]
        return rows

    def _products(self, numbers: Tensor, rows: Tensor | None = None) -> Tensor:
        basis = self.basis if rows is None else self.basis[rows]
        return torch.einsum("brd,bd->br", basis, numbers)

    def _combined(self, amounts: Tensor, rows: Tensor | None = None) -> Tensor:
        basis = self.basis if rows is None else self.basis[rows]
        return torch.einsum("brd,br->bd", basis, amounts)
