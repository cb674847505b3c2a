"""Finite sums F(w) = (1/n) Σ f_i(w) + (λ/2)‖w‖²: what solvers see of a learning problem."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from structsmooth.problems.bounds import Bounds, clip
from structsmooth.smoothing import Max, Smoother


@dataclass(frozen=True)
class FullPass:
    """One oracle call on every example, at some weights.

    Attributes:
        weights: where, [dim].
        smoother: with what.
        smoothed_loss: (1/n) Σ f_i under the smoother.
        gradient: its gradient, [dim].
        loss: (1/n) Σ f_i under the problem's own smoother, if it was asked for.
        expected_cost: (1/n) Σ ⟨ℓ_i, m_i⟩, m_i the statistics of example i, and what the problem's own smoother adds to
            it; linear problems only. With the gradient it makes a dual feasible point.
    """

    weights: Tensor
    smoother: Smoother
    smoothed_loss: float
    gradient: Tensor
    loss: float | None = None
    expected_cost: float | None = None

    per_example: ClassVar[tuple[str, ...]] = ()
    """Names of attributes that have rows of every example, in the order of the examples."""


class Problem(ABC):
    """A finite sum of n losses in a weight vector w: 1-D, ``dim`` long.

    A problem owns the passes over the data, a solver the schedule. A subclass gives ``n``, ``dim``, ``start`` and
    ``batch_losses``; the passes below are plain torch and may be overridden by faster ones that give the same
    iterates. Every inference on one example adds one to ``oracle_calls``.

    Attributes:
        n: number of examples.
        dim: number of weights.
        batch_size: examples per step that suit this problem.
        chunk_size: examples per batch in passes over all of them, if steps do not have more.
        smoother: of the objective. ``Max()`` for hinges, which solvers smooth as they need; an objective with another,
            such as ``Entropy(1.0)`` for the likelihood of a CRF, is smooth, and solvers minimize it as it is.
        bounds: lower and upper bounds of the weights, [dim] each, infinite for none; no box constraints if not given.
        oracle_calls: inferences so far.
    """

    n: int
    dim: int
    batch_size: int = 1
    chunk_size: int = 32
    smoother: Smoother = Max()
    bounds: Bounds | None = None
    oracle_calls: int = 0

    @abstractmethod
    def start(self) -> Tensor:
        """Weights to start from: [dim]."""

    @abstractmethod
    def batch_losses(self, w: Tensor, indices: Tensor, smoother: Smoother) -> Tensor:
        """Losses f_i(w) of the examples ``indices`` [b]: [b], differentiable with respect to ``w``."""

    @abstractmethod
    def subset(self, indices: Tensor) -> Problem:
        """The same problem over some of its examples."""

    def share(self, indices: Tensor) -> Problem:
        """As :meth:`subset`, for a large part of the examples: those are read when they are needed."""
        return self.subset(indices)

    def restrict(self, indices: Tensor, w: Tensor) -> tuple[Problem, Tensor]:
        """The same problem over some of its examples, and ``w`` for it; without the weights that they do not use.

        The losses are those of :meth:`subset`. Override it if steps take longer the more weights there are.
        """
        return self.subset(indices), w

    def linearize(self, w: Tensor) -> Problem:
        """The convex problem with scores linearized at ``w``: θ_i(w) + J_i · (u − w) for weights u.

        A problem whose scores are affine in the weights is its own linearization.

        Reference:
            Pillutla et al. (2019), section 6.1.
        """
        raise NotImplementedError(f"{type(self).__name__} has no linearization")

    def within_bounds(self, v: Tensor) -> Tensor:
        """The weights within the bounds that are next to ``v``: [dim]."""
        return clip(v, self.bounds)

    def surrogate(self, smoother: Smoother) -> Smoother:
        """The smoother of what a solver minimizes that smooths by ``smoother`` where the objective is not smooth."""
        return smoother if isinstance(self.smoother, Max) else self.smoother

    def loss(self, w: Tensor, smoother: Smoother | None = None) -> float:
        """(1/n) Σ f_i(w), without the regularizer; under the problem's own smoother, if no other is given."""
        used = smoother or self.smoother
        with torch.no_grad():
            sums = [self._losses(w, batch, used).sum() for batch in self._chunks()]
        return total(sums) / self.n

    def loss_and_grad(self, w: Tensor, smoother: Smoother) -> tuple[float, Tensor]:
        """(1/n) Σ f_i(w) and its gradient [dim]: one full pass."""
        result = self.full_pass(w, smoother)
        return result.smoothed_loss, result.gradient

    def full_pass(self, w: Tensor, smoother: Smoother, *, with_loss: bool = False) -> FullPass:
        """One oracle call on every example; ``with_loss`` also gives the loss under the problem's own smoother."""
        gradient, sums = torch.zeros_like(w), []
        for batch in self._chunks():
            value, batch_gradient = self.batch_loss_and_grad(w, batch, smoother)
            sums.append(value * len(batch))
            gradient += batch_gradient * (len(batch) / self.n)
        smoothed = total(sums) / self.n
        loss = None if not with_loss else smoothed if smoother == self.smoother else self.loss(w)
        return FullPass(w.clone(), smoother, smoothed, gradient, loss)

    def batch_loss_and_grad(self, w: Tensor, indices: Tensor, smoother: Smoother) -> tuple[Tensor, Tensor]:
        """Mean loss over some examples [] and its gradient [dim], without waiting for the device."""
        w = w.detach().requires_grad_()
        mean = self._losses(w, indices, smoother).mean()
        (gradient,) = torch.autograd.grad(mean, w)
        return mean.detach(), gradient

    def gradient_change(self, w: Tensor, snapshot: FullPass, indices: Tensor) -> Tensor:
        """Gradient at ``w`` less that at the snapshot, of the mean loss over some examples under its smoother: [dim].

        Override it if the two have something to share.
        """
        _, gradient = self.batch_loss_and_grad(w, indices, snapshot.smoother)
        return gradient - self.batch_loss_and_grad(snapshot.weights, indices, snapshot.smoother)[1]

    def svrg_epoch(
        self,
        snapshot: FullPass,
        order: Tensor,
        *,
        step_size: float,
        lam: float,
        kappa: float = 0.0,
        center: Tensor | None = None,
    ) -> tuple[Tensor, Tensor]:
        """SVRG on F_μ(w) + (κ/2)‖w − center‖², from ``snapshot.weights`` (Johnson and Zhang 2013).

        Returns the last iterate and the mean of all.

        Args:
            snapshot: a full pass of this problem; its weights are the start, its gradient the control variate.
            order: indices of the examples of each step, [steps, b].
            step_size: η.
            lam: λ of the problem.
            kappa: κ, the strength of the proximal term.
            center: where that is centred, [dim].
        """
        w, total = snapshot.weights.clone(), torch.zeros_like(snapshot.weights)
        drift = snapshot.gradient if center is None else snapshot.gradient - kappa * center
        for batch in order:
            w = w - step_size * (self.gradient_change(w, snapshot, batch) + drift + (lam + kappa) * w)
            total += w
        return w, total / len(order)

    def sgd_epoch(
        self, w: Tensor, order: Tensor, *, step_sizes: Tensor, lam: float, smoother: Smoother, shares: Tensor
    ) -> tuple[Tensor, Tensor]:
        """Stochastic (sub)gradient steps; returns the last iterate and Σ_t shares[t] · w_t.

        Args:
            w: start, [dim].
            order: indices of the examples of each step, [steps, b].
            step_sizes: step size of each step, float64 [steps].
            lam: λ of the problem.
            smoother: ``Max()`` for subgradients of the problem itself.
            shares: weight of each iterate in the sum, float64 [steps].
        """
        total = torch.zeros_like(w)
        for batch, step_size, share in zip(order, step_sizes.tolist(), shares.tolist(), strict=True):
            _, gradient = self.batch_loss_and_grad(w, batch, smoother)
            w = (1 - step_size * lam) * w - step_size * gradient
            total += share * w
        return w, total

    def _losses(self, w: Tensor, indices: Tensor, smoother: Smoother) -> Tensor:
        self.oracle_calls += len(indices)
        return self.batch_losses(w, indices, smoother)

    def _chunks(self) -> Iterator[Tensor]:
        """All indices in batches."""
        return iter(torch.arange(self.n).split(max(self.batch_size, self.chunk_size)))


def total(sums: list[Tensor]) -> float:
    """Sum in double precision, read from the device at once."""
    return float(sum(torch.stack(sums).tolist()))
