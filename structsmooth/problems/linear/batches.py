"""Batches of linear problems as one structure, by automatic differentiation."""

from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from structsmooth.losses import StructuralHinge
from structsmooth.problems.affine import AffineBatch, BatchOutput, Parts, by_example, pairing
from structsmooth.problems.base import times
from structsmooth.problems.linear.constants import Constants
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
