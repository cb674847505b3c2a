"""Directions of the faces of polytopes on which points lie, found by calls of a max oracle, for a batch."""

from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor

from structsmooth.structures.active_set import ActiveSets, inner_products, weighted_sum

# Squared distance of a direction from the span of the others, relative to its own square, that counts as none.
_DEPENDENT = 1e-10
# The same within a block, whose weaker directions are left to the next one, where they are told from rounding.
_WEAK = 1e-6
_LARGEST_STEP = 1e5  # of scores towards a random direction, in units of what counts as a tie
_NUMBERS = 2**24  # of a block


class Best(NamedTuple):
    """Best points for moved scores, one for each of b examples, beside a point of its face.

    Attributes:
        differences: from the point of the face, [b, D].
        gain: over the point of the face, by the scores that are not moved, [b].
        on_face: whether they are on the face, bool [b].
    """

    differences: Tensor
    gain: Tensor
    on_face: Tensor


class FaceDirections:
    """The directions of the faces of B points: those between the vertices of active sets, and others that these lack.

    The former are given by the vertices, which are sparse, and the inverse of the Gram matrix; the latter by bases
    [b, R, D], orthonormal in the metric and zero where there are fewer, of those examples ``rows`` [b] that have any.
    """

    def __init__(self, sets: ActiveSets) -> None:
        self.sets, self.metric, self.inverse = sets, sets.metric, sets.inverse()
        self.rows = torch.arange(0, device=self.metric.device)
        self.basis = self.inverse.new_zeros(0, 0, len(self.metric))

    def project(self, numbers: Tensor) -> Tensor:
        """The components of numbers [B, D] in these directions, [B, D]; differentiable."""
        index, values = self.sets.index, self.sets.values
        weights = torch.einsum("bij,bj->bi", self.inverse, inner_products(numbers, index, values))
        own = weighted_sum(weights, index, values, len(self.metric))
        return own.index_add(0, self.rows, _components(self.basis, numbers[self.rows].unsqueeze(1)).squeeze(1))

    def complete(self, rows: Tensor, unit: Tensor, best: Callable[[Tensor, Tensor], Best], most: int) -> Tensor:
        """Span the faces of some examples, and return those that lack more than so many directions.

        A random direction that is orthogonal to all these is constant on the face only if they span it. Otherwise,
        scores that are moved along it, or against it, lead the oracle to a point of the face in a new direction. So
        each block has as many random directions as the block before has found, and the last finds none.

        Args:
            rows: examples in ascending order, [b].
            unit: difference of scores that counts as a tie, [B].
            best: the best points of some examples [c] for scores moved by [c, D].
            most: limit on the directions of an example that the active set lacks.
        """
        generator, size = torch.Generator().manual_seed(0), len(self.metric)
        lacking, found = torch.full(unit.shape, most, device=rows.device), 1
        while len(rows):
            count = max(1, min(found, _NUMBERS // max(1, 2 * len(rows) * size)))
            drawn = torch.randn(count, size, generator=generator, dtype=torch.float64).to(rows.device)
            along = self._rest(rows, (drawn * self.metric).expand(len(rows), -1, -1)) * self.metric
            lines = torch.cat([along, -along], 1)
            ends = _ends(rows.repeat_interleave(2 * count), unit, lines.flatten(0, 1), best).view(lines.shape)
            further = ends.flatten(1).any(1)
            rows, left = rows[further], lacking[rows[further]]
            if not bool(left.any()):
                break
            new = self._add(rows, ends[further], left)
            lacking[rows] -= new
            rows, found = rows[(new > 0) | (left == 0)], int(new.max())
        return rows

    def _add(self, rows: Tensor, differences: Tensor, most: Tensor) -> Tensor:
        """Add at most so many directions [b] of differences [b, n, D] of points of faces; returns how many, [b]."""
        left = self._rest(rows, self._rest(rows, differences))  # the second time takes what rounding has left
        square, whole = ((own.square() * self.metric).sum(2, keepdim=True) for own in (left, differences))
        left = torch.where(square > _DEPENDENT * whole.clamp_min(1.0), left, 0.0)
        strengths, mixtures = (own.flip(-1) for own in torch.linalg.eigh(left * self.metric @ left.mT))
        strong = strengths > _WEAK * strengths[:, :1].clamp_min(_DEPENDENT)
        strong &= torch.arange(strong.shape[1], device=rows.device) < most.unsqueeze(1)
        count: Tensor = strong.sum(1)
        size = int(count.max())
        scales = torch.where(strong, strengths, torch.inf).rsqrt()[:, :size]
        if not len(self.rows):
            self.rows, self.basis = rows, self.basis.new_zeros(len(rows), 0, len(self.metric))
        added = self.basis.new_zeros(len(self.rows), size, len(self.metric))
        added[torch.searchsorted(self.rows, rows)] = scales.unsqueeze(2) * (mixtures[:, :, :size].mT @ left)
        self.basis = torch.cat([self.basis, added], 1)
        return count

    def _rest(self, rows: Tensor, numbers: Tensor) -> Tensor:
        """What numbers [b, n, D] of some examples have in other directions."""
        sets, count = self.sets, numbers.shape[1]
        index, values = (own[rows].repeat_interleave(count, 0) for own in (sets.index, sets.values))
        inner = inner_products((numbers * self.metric).flatten(0, 1), index, values).view(*numbers.shape[:2], -1)
        weights = (inner @ self.inverse[rows]).flatten(0, 1)
        rest = numbers - weighted_sum(weights, index, values, len(self.metric)).view(numbers.shape)
        if not len(self.rows):
            return rest
        return rest - _components(self.basis[torch.searchsorted(self.rows, rows)], rest * self.metric)


def _components(basis: Tensor, numbers: Tensor) -> Tensor:
    """The sums [b, n, D] of directions [b, R, D] times their inner products with numbers [b, n, D]."""
    return (numbers @ basis.mT) @ basis


def _ends(rows: Tensor, unit: Tensor, along: Tensor, best: Callable[[Tensor, Tensor], Best]) -> Tensor:
    """The points of faces that are furthest along directions [c, D]: differences [c, D], or 0 where none is further.

    What the best points for scores moved by a step gain over the point of the face is convex in the step, and without
    slope at zero if no point of the face is further. A best point off the face is left by Newton's step to where it
    gains nothing, until the best point is on the face, or none gains.
    """
    ends, step, unit = torch.zeros_like(along), _LARGEST_STEP * unit[rows], unit[rows]
    lines = torch.arange(len(rows), device=rows.device)
    while len(lines):
        found = best(rows[lines], step[lines].unsqueeze(1) * along[lines])
        rise = (found.differences * along[lines]).sum(1)
        gains = step[lines] * rise + found.gain > unit[lines]
        reached, beyond = gains & found.on_face, gains & ~found.on_face
        ends[lines[reached]] = found.differences[reached]
        lines = lines[beyond]
        step[lines] = (-found.gain / rise)[beyond]
    return ends
