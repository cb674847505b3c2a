"""A finite sum with scores linearized at some weights: the convex model of the prox-linear algorithm."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from structsmooth.problems.base import FullPass, Problem
from structsmooth.problems.derived import DerivedProblem
from structsmooth.smoothing import Smoother
from structsmooth.structures.base import Structure

# Labels of a batch, alone or with part costs.
Labels = Tensor | tuple[Tensor, Tensor]


@dataclass(frozen=True)
class StatisticsPass(FullPass):
    """A full pass that keeps the statistics of every example, so that steps do not ask for them again."""

    statistics: list[tuple[Tensor, ...]] | None = field(kw_only=True)
    """Gradient of each loss in its potentials, padded as its batch was; none if examples share potentials."""

    per_example: ClassVar[tuple[str, ...]] = ("statistics",)

    def batch(self, indices: Tensor, like: Sequence[Tensor]) -> Sequence[Tensor] | None:
        """Statistics of some examples in the shapes of ``like``: other batches have other padding, which has none."""
        if self.statistics is None:
            return None
        batch = [torch.zeros_like(tensor) for tensor in like]
        for b, i in enumerate(indices.tolist()):
            for target, row in zip(batch, self.statistics[i], strict=True):
                common = tuple(slice(0, size) for size in map(min, row.shape, target.shape[1:]))
                target[b][common] = row[common]
        return batch


class BatchedProblem(Problem):
    """What linearization asks of a problem: batches, the scores of a module, and losses of structures."""

    module: nn.Module

    @abstractmethod
    def batch(self, indices: Tensor) -> tuple[Any, Labels]:
        """Inputs and labels of some examples."""

    @abstractmethod
    def structure(self, w: Tensor, x: Any) -> Structure:
        """The structure of a batch of inputs under weights ``w``; differentiable."""

    @abstractmethod
    def structured_losses(self, structure: Structure, y: Labels, smoother: Smoother) -> Tensor:
        """Losses [b] of labels under a structure."""

    @abstractmethod
    def subset(self, indices: Tensor) -> BatchedProblem:
        """The same problem over some of its examples."""


class LinearizedProblem(DerivedProblem):
    """The losses of a module problem with potentials θ_i(w_k) + J_i · (w − w_k), J_i the Jacobian of θ_i at w_k.

    Convex in w, on the module's device. J_i is never formed: each batch makes one forward pass of the module at w_k
    and one backward pass that can be differentiated, which give products with J_i and its transpose. So the module
    needs second derivatives (not of its own scores, but of its operators), as for a gradient penalty. Recurrent
    modules are run without cuDNN, which has none; for attention take PyTorch's math kernel.

    Args:
        problem: with any scores.
        w: w_k, [dim].

    Reference:
        Pillutla et al. (2019), section 6.1.
    """

    problem: BatchedProblem

    def __init__(self, problem: BatchedProblem, w: Tensor) -> None:
        super().__init__(problem)
        self.center = w.detach().clone()

    def start(self) -> Tensor:
        """w_k: [dim]."""
        return self.center.clone()

    def batch_losses(self, w: Tensor, indices: Tensor, smoother: Smoother) -> Tensor:
        """Losses of some examples: [b], differentiable once."""
        scores, y = self._linearized(indices)
        structure = scores.structure_with(_Tangents.apply(w - self.center, scores))
        return self.problem.structured_losses(structure, y, smoother)

    def full_pass(self, w: Tensor, smoother: Smoother, *, with_loss: bool = False) -> StatisticsPass:
        """As in :meth:`Problem.full_pass`; keeps the statistics of every example."""
        gradient, total = torch.zeros_like(w), torch.zeros((), dtype=torch.float64, device=w.device)
        rows: list[tuple[Tensor, ...]] = []
        for indices in self._chunks():
            scores, y = self._linearized(indices)
            losses, statistics = self._oracle(scores, y, w, smoother)
            total += losses.sum()
            gradient += scores.vjp(statistics)
            rows += zip(*statistics, strict=True) if scores.batched else ()
        smoothed = float(total) / self.n
        loss = None if not with_loss else smoothed if smoother == self.smoother else self.loss(w)
        return StatisticsPass(w.clone(), smoother, smoothed, gradient / self.n, loss, statistics=rows or None)

    def gradient_change(self, w: Tensor, snapshot: FullPass, indices: Tensor) -> Tensor:
        """As in :meth:`Problem.gradient_change`: one oracle call an example, where the snapshot keeps statistics."""
        scores, y = self._linearized(indices)
        _, now = self._oracle(scores, y, w, snapshot.smoother)
        then = snapshot.batch(indices, now) if isinstance(snapshot, StatisticsPass) else None
        if then is None:
            then = self._oracle(scores, y, snapshot.weights, snapshot.smoother)[1]
        return scores.vjp([a - b for a, b in zip(now, then, strict=True)]) / len(indices)

    def linearize(self, w: Tensor) -> LinearizedProblem:
        """The problem itself."""
        return self

    def subset(self, indices: Tensor) -> LinearizedProblem:
        """The same problem over some of its examples."""
        return LinearizedProblem(self.problem.subset(indices), self.center)

    def _linearized(self, indices: Tensor) -> tuple[_Linearization, Labels]:
        x, y = self.problem.batch(indices)
        w = self.center.clone().requires_grad_()
        with torch.enable_grad(), _twice_differentiable(self.problem.module):
            return _Linearization(self.problem.structure(w, x), w), y

    def _oracle(
        self, scores: _Linearization, y: Labels, w: Tensor, smoother: Smoother
    ) -> tuple[Tensor, Sequence[Tensor]]:
        """Losses of a batch, and the gradients of their sum in the potentials that depend on the weights."""
        self.oracle_calls += len(y if isinstance(y, Tensor) else y[0])
        tangents = [tangent.requires_grad_() for tangent in scores.jvp(w - self.center)]
        losses = self.problem.structured_losses(scores.structure_with(tangents), y, smoother)
        return losses.detach(), torch.autograd.grad(losses.sum(), tangents)


class _Linearization:
    """Potentials of a batch at w_k and products with their Jacobian J.

    Attributes:
        batched: whether each of the potentials has a row for each example.
    """

    def __init__(self, structure: Structure, w: Tensor) -> None:
        batched = structure.batched()
        self.batched = batched is not None
        self.structure, self.w = batched or structure, w
        self.moving = [p for p in self.structure.potentials if p.requires_grad]
        self.cotangents = [torch.zeros_like(p, requires_grad=True) for p in self.moving]
        # Jᵀu as a function of u: linear, so that its derivative is J wherever u is.
        (self.adjoint,) = torch.autograd.grad(self.moving, w, self.cotangents, create_graph=True)

    def jvp(self, v: Tensor) -> tuple[Tensor, ...]:
        """J v: a tensor for each of the potentials that depend on the weights."""
        products: tuple[Tensor, ...] = torch.autograd.grad(
            self.adjoint, self.cotangents, v, retain_graph=True, materialize_grads=True
        )
        return products

    def vjp(self, u: Sequence[Tensor]) -> Tensor:
        """Jᵀu: [dim]."""
        return torch.autograd.grad(self.moving, self.w, u, retain_graph=True)[0]

    def structure_with(self, tangents: Sequence[Tensor]) -> Structure:
        """The structure with potentials θ + tangents."""
        rest = iter(tangents)
        moved = (p.detach() + next(rest) if p.requires_grad else p for p in self.structure.potentials)
        return self.structure.replace(*moved)


class _Tangents(torch.autograd.Function):
    """J v, whose backward pass is Jᵀ."""

    @staticmethod
    def forward(ctx: Any, v: Tensor, scores: _Linearization) -> tuple[Tensor, ...]:
        ctx.scores = scores
        return scores.jvp(v)

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, *u: Tensor) -> tuple[Tensor, None]:
        return ctx.scores.vjp(u), None


@contextmanager
def _twice_differentiable(module: nn.Module) -> Iterator[None]:
    """Without cuDNN where it would run what it cannot differentiate twice."""
    if not any(isinstance(part, nn.RNNBase) for part in module.modules()):
        yield
        return
    with torch.backends.cudnn.flags(enabled=False):
        yield
