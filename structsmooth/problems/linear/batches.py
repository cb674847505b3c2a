"""Batches of linear problems as one structure, by automatic differentiation; constants among potentials."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from structsmooth.losses import StructuralHinge
from structsmooth.problems.affine import AffineBatch, BatchOutput, Parts, by_example, pairing
from structsmooth.problems.base import times
from structsmooth.smoothing import Max, Smoother
from structsmooth.structures.base import PartCosts, Structure


class StructureBatch(AffineBatch):
    """Some examples as one structure with potentials that are affine in the weights, by automatic differentiation.

    Args:
        structure: of the examples under weights w; differentiable.
        y: their labels.
        cost: task loss or part costs; ``None`` for no margin.
        start: any weights.
        offsets: finite constants of the potentials, see :func:`offsets_of`.
    """

    def __init__(
        self,
        structure: Callable[[Tensor], Structure],
        y: Tensor,
        cost: PartCosts | Tensor | Parts | None,
        start: Tensor,
        offsets: Parts | None = None,
    ) -> None:
        self.structure, self.y, self.cost, self.w, self.offsets = structure, y, cost, start, offsets
        self._trainable: list[Tensor] | None = None

    @property
    def trainable_potentials(self) -> Sequence[Tensor]:
        """The potentials that depend on the weights, at those of the last answer or else at the start."""
        if self._trainable is None:
            self._at(self.w)
        assert self._trainable is not None
        return self._trainable

    def losses(self, w: Tensor, smoother: Smoother) -> Tensor:
        """Losses [b]."""
        losses: Tensor = StructuralHinge(smoother, self.cost, "none")(self.structure(w), self.y)
        return losses

    def bounds(self, w: Tensor, smoother: Smoother) -> Tensor:
        """Upper bounds of the losses [b]."""
        losses, hinges = StructuralHinge(smoother, self.cost, "none").with_hinge(self.structure(w), self.y)
        return hinges if isinstance(smoother, Max) and hinges is not None else losses

    def oracle(self, w: Tensor, smoother: Smoother, importances: Tensor | None = None) -> BatchOutput:
        """One oracle call on each example."""
        bound, has_rows = self._at(w)
        # Leaves, so that there is a gradient in the potentials as well.
        structure = bound.replace(*(p.detach().requires_grad_() if p.requires_grad else p for p in bound.potentials))
        leaves = [p for p in structure.potentials if p.requires_grad]
        # Scaled costs: the derivative in the scale is their mean under the statistics.
        scale = torch.ones_like(w[0]).requires_grad_()
        costs = self.cost(structure, self.y) if callable(self.cost) else self.cost
        if costs is not None:
            costs = scale * costs if isinstance(costs, Tensor) else tuple(scale * part for part in costs)
        if self.offsets is not None:  # they count as costs do, and for the labels too
            structure = structure.replace(
                *(p + (scale - 1) * offset for p, offset in zip(structure.potentials, self.offsets, strict=True))
            )
        losses, hinges = StructuralHinge(smoother, costs, "none").with_hinge(structure, self.y)
        loss, hinge = times(losses, importances).sum(), None if hinges is None else times(hinges, importances).sum()
        *statistics, cost = torch.autograd.grad(loss, (*leaves, scale), materialize_grads=True)
        loss = loss.detach()
        return BatchOutput(loss, statistics, loss - pairing(leaves, statistics), has_rows, hinge, cost)

    def adjoint(self, statistics: Sequence[Tensor]) -> Tensor:
        """Σ B_iᵀ m_i: [dim]."""
        if not self.trainable_potentials:
            return torch.zeros_like(self.w)
        return torch.autograd.grad(self.trainable_potentials, self.w, statistics)[0]

    def plane(self, statistics: Sequence[Tensor]) -> tuple[Tensor, Tensor]:
        """As in :meth:`AffineBatch.plane`; a_i are the constants of the potentials that depend on the weights."""
        if self.offsets is None:
            return super().plane(statistics)
        if self._trainable is None:
            self._at(self.w)
        offsets = [offset for offset, moves in zip(self.offsets, self._moves, strict=True) if moves]
        return self.adjoint(statistics), pairing(offsets, statistics).to(self.w)

    def _at(self, w: Tensor) -> tuple[Structure, bool]:
        """The structure under weights, with separate potentials for each example if it has such a form."""
        self.w = w.detach().requires_grad_()
        with torch.enable_grad():
            structure, has_rows = by_example(self.structure(self.w))
        self._moves = [p.requires_grad for p in structure.potentials]
        self._trainable = [p for p in structure.potentials if p.requires_grad]
        return structure, has_rows


def offsets_of(structure: Structure) -> Parts | None:
    """Finite potentials of a structure whose weights are all zero, with rows for examples if it has such a form."""
    return Constants.of(tuple(p.detach() for p in by_example(structure)[0].potentials)).offsets


@dataclass(frozen=True)
class Constants:
    """The potentials of some examples with all weights zero; the others differ from them by B w.

    A forbidden part belongs to the output space: it has potential 0 in the dual, where statistics of it are 0 too, and
    −inf where the oracle is called. Finite constants are an offset of the scores, and are added to the costs.

    Attributes:
        offsets: finite potentials, and 0 for all others; ``None`` if all are 0.
        barriers: potentials that are not finite, and 0 for all others; ``None`` if all are finite.
    """

    offsets: Parts | None
    barriers: Parts | None

    @classmethod
    def of(cls, potentials: Parts) -> "Constants":
        """The constants among potentials with all weights zero."""
        finite = [p.isfinite() for p in potentials]
        offsets = tuple(torch.where(mask, p, 0.0) for mask, p in zip(finite, potentials, strict=True))
        barriers = tuple(torch.where(mask, 0.0, p) for mask, p in zip(finite, potentials, strict=True))
        return cls(
            offsets if any(bool(offset.any()) for offset in offsets) else None,
            None if all(bool(mask.all()) for mask in finite) else barriers,
        )

    def without(self, potentials: Parts) -> Parts:
        """Potentials less what is constant: B w, and 0 for forbidden parts; differentiable."""
        if self.offsets is not None:
            potentials = tuple(p - offset for p, offset in zip(potentials, self.offsets, strict=True))
        if self.barriers is None:
            return potentials
        return tuple(torch.where(barrier == 0, p, 0.0) for p, barrier in zip(potentials, self.barriers, strict=True))

    def with_barriers(self, potentials: Parts) -> Parts:
        """Finite potentials as the oracle takes them: −inf for forbidden parts."""
        if self.barriers is None:
            return potentials
        return tuple(p + barrier for p, barrier in zip(potentials, self.barriers, strict=True))

    def has_barriers_of(self, potentials: Parts) -> bool:
        """Whether the same potentials are not finite."""
        barriers = self.barriers or tuple(map(torch.zeros_like, potentials))
        return all(torch.equal(p.isfinite(), barrier == 0) for p, barrier in zip(potentials, barriers, strict=True))

    def forbid(self, parts: Parts) -> bool:
        """Whether one of the parts that an output has is forbidden."""
        if self.barriers is None:
            return False
        return any(bool(((m > 0) & (b == -torch.inf)).any()) for m, b in zip(parts, self.barriers, strict=True))

    def score(self, parts: Parts) -> float:
        """⟨offsets, m⟩, the score that no weight changes, of the parts of an output."""
        if self.offsets is None:
            return 0.0
        return sum(float((offset * m).sum()) for offset, m in zip(self.offsets, parts, strict=True))
