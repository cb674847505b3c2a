"""Batches of linearized scores: products with Jacobians that are never formed."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import cached_property
from typing import Any

import torch
from torch import Tensor, nn

from structsmooth.losses import check_agreement
from structsmooth.problems.affine import AffineBatch, BatchOutput, by_example, pairing
from structsmooth.problems.base import times
from structsmooth.smoothing import Max, Smoother
from structsmooth.structures.base import Structure


class LinearizedBatch(AffineBatch):
    """Potentials of some examples at w_k, and products with their Jacobian J.

    Args:
        module: of the scores.
        structure: of the examples under weights w; differentiable.
        losses: those under a structure and a smoother and, if the same oracle call gives them, those without smoothing.
        center: w_k, [dim].
    """

    def __init__(
        self,
        module: nn.Module,
        structure: Callable[[Tensor], Structure],
        losses: Callable[[Structure, Smoother], tuple[Tensor, Tensor | None]],
        center: Tensor,
    ) -> None:
        self.module, self._losses, self.center = module, losses, center.clone().requires_grad_()
        with torch.enable_grad(), _twice_differentiable(module):
            self.structure, self.by_example = by_example(structure(self.center))
        self._trainable = [p for p in self.structure.potentials if p.requires_grad]

    @property
    def trainable_potentials(self) -> Sequence[Tensor]:
        """The potentials that depend on the weights, at w_k."""
        return self._trainable

    def losses(self, w: Tensor, smoother: Smoother) -> Tensor:
        """Losses [b]."""
        return self._moved_losses(_Tangents.apply(w - self.center.detach(), self), smoother)[0]

    def bounds(self, w: Tensor, smoother: Smoother) -> Tensor:
        """Upper bounds of the losses [b]."""
        losses, hinges = self._moved_losses(self.tangents(w - self.center.detach()), smoother)
        return hinges if isinstance(smoother, Max) and hinges is not None else losses

    def oracle(self, w: Tensor, smoother: Smoother, importances: Tensor | None = None) -> BatchOutput:
        """One oracle call on each example."""
        tangents = [tangent.requires_grad_() for tangent in self.tangents(w - self.center.detach())]
        losses, hinges = self._moved_losses(tangents, smoother)
        loss, hinge = times(losses, importances).sum(), None if hinges is None else times(hinges, importances).sum()
        statistics = torch.autograd.grad(loss, tangents)
        moved = [p + tangent for p, tangent in zip(self.trainable_potentials, tangents, strict=True)]
        loss = loss.detach()
        return BatchOutput(loss, statistics, loss - pairing(moved, statistics), self.by_example, hinge)

    def _moved_losses(self, tangents: Sequence[Tensor], smoother: Smoother) -> tuple[Tensor, Tensor | None]:
        """Losses [b] under potentials θ + tangents, and those without smoothing."""
        return self._losses(self._moved(tangents), smoother)

    def _moved(self, tangents: Sequence[Tensor]) -> Structure:
        """The structure with potentials θ + tangents."""
        rest = iter(tangents)
        moved = (p.detach() + next(rest) if p.requires_grad else p for p in self.structure.potentials)
        return self.structure.replace(*moved)

    def tangents(self, v: Tensor) -> tuple[Tensor, ...]:
        """J v: a tensor for each of the potentials that depend on the weights."""
        if not v.any():
            return tuple(map(torch.zeros_like, self.trainable_potentials))
        cotangents, transpose = self._transpose
        products: tuple[Tensor, ...] = torch.autograd.grad(
            transpose, cotangents, v, retain_graph=True, materialize_grads=True
        )
        return products

    @cached_property
    def _transpose(self) -> tuple[list[Tensor], Tensor]:
        """Any u, and Jᵀu as a function of it: linear, so that its derivative is J wherever u is."""
        cotangents = [torch.zeros_like(p, requires_grad=True) for p in self.trainable_potentials]
        with torch.enable_grad(), _twice_differentiable(self.module):
            (product,) = torch.autograd.grad(self.trainable_potentials, self.center, cotangents, create_graph=True)
        return cotangents, product

    def adjoint(self, statistics: Sequence[Tensor]) -> Tensor:
        """Σ J_iᵀ m_i: [dim]."""
        return torch.autograd.grad(self.trainable_potentials, self.center, statistics, retain_graph=True)[0]

    def plane(self, statistics: Sequence[Tensor]) -> tuple[Tensor, Tensor]:
        """As in :meth:`AffineBatch.plane`, where a_i = θ_i(w_k) − J w_k."""
        slope = self.adjoint(statistics)
        return slope, pairing(self.trainable_potentials, statistics) - slope @ self.center.detach()


class LinearizedPartialBatch(LinearizedBatch):
    """Examples with partial labels at w_k, with h_μ of the outputs that agree linearized in the potentials, too.

    It is convex in the potentials, so its tangent is below it: the losses are convex, and no less than those of
    :class:`~structsmooth.StructuralHinge` for the same potentials.

    Args:
        module: of the scores.
        structure: of the examples under weights w; differentiable.
        parted: a structure with the outputs that agree with the labels alone, and one with the costs of all others.
        center: w_k, [dim].
    """

    def __init__(
        self,
        module: nn.Module,
        structure: Callable[[Tensor], Structure],
        parted: Callable[[Structure], tuple[Structure, Structure]],
        center: Tensor,
    ) -> None:
        super().__init__(module, structure, lambda bound, smoother: (smoother(parted(bound)[1]), None), center)
        self._parted = parted
        self._tangent: tuple[Smoother, Tensor, list[Tensor]] | None = None

    def _moved_losses(self, tangents: Sequence[Tensor], smoother: Smoother) -> tuple[Tensor, Tensor | None]:
        values, _ = super()._moved_losses(tangents, smoother)
        scores, slopes = self._at_center(smoother)
        for slope, tangent in zip(slopes, tangents, strict=True):
            scores = scores + torch.where(slope != 0, slope * tangent, 0.0).flatten(1).sum(1)
        return values - scores, None

    def _at_center(self, smoother: Smoother) -> tuple[Tensor, list[Tensor]]:
        """h_μ of the outputs that agree, [b], and its statistics for each example, [b, ...], at w_k."""
        if self._tangent is None or self._tangent[0] != smoother:
            trained = [p.requires_grad for p in self.structure.potentials]
            leaves = [p.detach().requires_grad_() for p in self.structure.potentials]
            with torch.enable_grad():
                agreeing, _ = self._parted(self.structure.replace(*leaves))
                scores = smoother(agreeing)
            check_agreement(agreeing, scores)
            moving = [leaf for leaf, moves in zip(leaves, trained, strict=True) if moves]
            self._tangent = smoother, scores.detach(), _slopes(scores, moving, self.by_example)
        _, scores, slopes = self._tangent
        return scores, slopes


def _slopes(scores: Tensor, potentials: Sequence[Tensor], by_example: bool) -> list[Tensor]:
    """Derivatives of scores [b] in potentials: rows [b, ...] for each."""
    if by_example:
        return list(torch.autograd.grad(scores, potentials, torch.ones_like(scores), materialize_grads=True))
    of_each = {"retain_graph": True, "materialize_grads": True}
    rows = [torch.autograd.grad(scores, potentials, one, **of_each) for one in torch.eye(len(scores)).to(scores)]
    return list(map(torch.stack, zip(*rows, strict=True)))


class _Tangents(torch.autograd.Function):
    """J v, whose backward pass is Jᵀ."""

    @staticmethod
    def forward(ctx: Any, v: Tensor, batch: LinearizedBatch) -> tuple[Tensor, ...]:
        ctx.batch = batch
        return batch.tangents(v)

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, *u: Tensor) -> tuple[Tensor, None]:
        return ctx.batch.adjoint(u), None


@contextmanager
def _twice_differentiable(module: nn.Module) -> Iterator[None]:
    """Without cuDNN where it would run what it cannot differentiate twice."""
    if not any(isinstance(part, nn.RNNBase) for part in module.modules()):
        yield
        return
    with torch.backends.cudnn.flags(enabled=False):
        yield
