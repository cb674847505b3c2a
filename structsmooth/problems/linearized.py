"""A finite sum with scores linearized at some weights: the convex model of the prox-linear algorithm."""

from abc import abstractmethod
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn

from structsmooth.problems.affine import AffineBatch, AffineProblem, Answer, by_example
from structsmooth.problems.base import Problem
from structsmooth.problems.derived import DerivedProblem
from structsmooth.problems.sharding import Shard
from structsmooth.smoothing import Smoother
from structsmooth.structures.base import Structure

# Labels of a batch, alone or with part costs.
Labels = Tensor | tuple[Tensor, Tensor]


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
    def subset(self, indices: Tensor) -> "BatchedProblem":
        """The same problem over some of its examples."""


class LinearizedProblem(DerivedProblem, AffineProblem):
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
        if problem.shard is not None:
            self.shard = Shard(problem.shard.own.linearize(self.center))

    def start(self) -> Tensor:
        """w_k: [dim]."""
        return self.center.clone()

    def batch_losses(self, w: Tensor, indices: Tensor, smoother: Smoother) -> Tensor:
        """Losses of some examples: [b], differentiable once."""
        batch = self.affine_batch(indices)
        return batch.losses(_Tangents.apply(w - self.center, batch), smoother)

    def affine_batch(self, indices: Tensor) -> "_LinearizedBatch":
        """Some of the examples."""
        return _LinearizedBatch(self.problem, self.center, indices)

    def linearize(self, w: Tensor) -> "LinearizedProblem":
        """The problem itself."""
        return self

    def subset(self, indices: Tensor) -> "LinearizedProblem":
        """The same problem over some of its examples."""
        return LinearizedProblem(self.problem.subset(indices), self.center)


class _LinearizedBatch(AffineBatch):
    """Potentials of some examples at w_k, and products with their Jacobian J."""

    def __init__(self, problem: BatchedProblem, center: Tensor, indices: Tensor) -> None:
        self.problem, self.center = problem, center.clone().requires_grad_()
        x, self.y = problem.batch(indices)
        with torch.enable_grad(), _twice_differentiable(problem.module):
            self.structure, self.by_example = by_example(problem.structure(self.center, x))
            self.moving = [p for p in self.structure.potentials if p.requires_grad]
            self.cotangents = [torch.zeros_like(p, requires_grad=True) for p in self.moving]
            # Jᵀu as a function of u: linear, so that its derivative is J wherever u is.
            (self.transpose,) = torch.autograd.grad(self.moving, self.center, self.cotangents, create_graph=True)

    def oracle(self, w: Tensor, smoother: Smoother) -> Answer:
        """One oracle call on each example."""
        tangents = [tangent.requires_grad_() for tangent in self.tangents(w - self.center.detach())]
        loss = self.losses(tangents, smoother).sum()
        return Answer(loss.detach(), torch.autograd.grad(loss, tangents), self.by_example)

    def losses(self, tangents: Sequence[Tensor], smoother: Smoother) -> Tensor:
        """Losses [b] under potentials θ + tangents."""
        rest = iter(tangents)
        moved = (p.detach() + next(rest) if p.requires_grad else p for p in self.structure.potentials)
        return self.problem.structured_losses(self.structure.replace(*moved), self.y, smoother)

    def tangents(self, v: Tensor) -> tuple[Tensor, ...]:
        """J v: a tensor for each of the potentials that depend on the weights."""
        products: tuple[Tensor, ...] = torch.autograd.grad(
            self.transpose, self.cotangents, v, retain_graph=True, materialize_grads=True
        )
        return products

    def adjoint(self, statistics: Sequence[Tensor]) -> Tensor:
        """Jᵀu: [dim]."""
        return torch.autograd.grad(self.moving, self.center, statistics, retain_graph=True)[0]


class _Tangents(torch.autograd.Function):
    """J v, whose backward pass is Jᵀ."""

    @staticmethod
    def forward(ctx: Any, v: Tensor, batch: _LinearizedBatch) -> tuple[Tensor, ...]:
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
