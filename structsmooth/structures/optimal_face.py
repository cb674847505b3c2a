"""Directions of the faces of polytopes on which points lie, found by calls of a max oracle, for a batch."""

from collections.abc import Callable

import torch
from torch import Tensor

# Squared distance of a direction from the span of the others, relative to its own square, that counts as none.
_DEPENDENT = 1e-10
_LARGEST_STEP, _SMALLER = 1e5, 1e-2  # of scores towards a random direction, in units of what counts as a tie


class FaceDirections:
    """Bases [B, R, D] of differences of points of B faces, orthonormal in those of the D numbers that count, [D]."""

    def __init__(self, batch: int, metric: Tensor) -> None:
        self.metric = metric
        self.basis = torch.zeros(batch, 0, len(metric), dtype=torch.float64, device=metric.device)

    def project(self, numbers: Tensor) -> Tensor:
        """The components of numbers [B, D] in these directions, [B, D]; differentiable."""
        return torch.einsum("brd,br->bd", self.basis, torch.einsum("brd,bd->br", self.basis, numbers))

    def add(self, rows: Tensor, differences: Tensor) -> Tensor:
        """Add differences [b, D] of points of some faces: bool [b], whether their directions are new."""
        left = self._rest(rows, self._rest(rows, differences))  # the second time takes what rounding has left
        square, whole = ((own.square() * self.metric).sum(1) for own in (left, differences))
        new = square > _DEPENDENT * whole.clamp_min(1.0)
        if bool(new.any()):
            self.basis = torch.nn.functional.pad(self.basis, (0, 0, 0, 1))
            self.basis[rows[new], -1] = left[new] / square[new].sqrt().unsqueeze(1)
        return new

    def complete(self, rows: Tensor, best: Callable[[Tensor, Tensor], tuple[Tensor, Tensor]], rounds: int) -> Tensor:
        """Span some faces [b], and return those for which so many rounds are too few.

        A random direction that is orthogonal to a basis is constant on the face only if the basis spans it. Otherwise,
        scores that are moved along it, or against it, lead the oracle to a point of the face in a new direction, or off
        the face if they are moved too far. ``best`` returns the differences [b, D] between the best points for scores
        moved by [b, D] and a point of the face, and whether they are on the face.
        """
        generator, step = torch.Generator().manual_seed(0), torch.full(rows.shape, _LARGEST_STEP, device=rows.device)
        for _ in range(rounds):
            if not len(rows):
                break
            drawn = torch.randn(len(self.metric), generator=generator, dtype=torch.float64).to(rows.device)
            along = self._rest(rows, (drawn * self.metric).expand(len(rows), -1)) * self.metric * step.unsqueeze(1)
            new, off = (torch.zeros_like(rows, dtype=torch.bool) for _ in range(2))
            for moved in (along, -along):
                differences, on = best(rows, moved)
                new[on.nonzero().squeeze(1)] |= self.add(rows[on], differences[on])
                off |= ~on
            step = torch.where(new, step, step * _SMALLER)
            going = new | (off & (step >= 1.0))
            rows, step = rows[going], step[going]
        return rows

    def _rest(self, rows: Tensor, numbers: Tensor) -> Tensor:
        """What numbers [b, D] have in other directions."""
        basis = self.basis[rows]
        return numbers - torch.einsum("brd,br->bd", basis, torch.einsum("brd,bd->br", basis, numbers * self.metric))
