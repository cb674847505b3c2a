"""Linear chains over sparse attributes, with compiled passes in the space of parts (CPU, float64)."""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch import Tensor

from structsmooth.costs import Cost, Hamming
from structsmooth.losses import StructuralHinge
from structsmooth.problems.base import FullPass, Problem
from structsmooth.scores import linear_chain
from structsmooth.sequences import SparseSequences, pad
from structsmooth.smoothing import L2, Entropy, Max, Smoother
from structsmooth.structures import LinearChain


@dataclass(frozen=True)
class ChainPass(FullPass):
    """A full pass that keeps the statistics of every example."""

    node: Tensor = field(kw_only=True)
    """Marginals of all tokens: [tokens, S]."""
    edge: Tensor = field(kw_only=True)
    """Marginals of neighbouring pairs, summed over each sequence: [n, S, S]."""


class SparseChainProblem(Problem):
    """Structural hinge losses of :class:`~structsmooth.scores.LinearScore` over sparse sequences.

    The passes are compiled: a step costs one oracle call and the example's nonzeros. The statistics of the snapshot
    are stored, T·S + S² numbers an example, and dense terms reach a row of weights when it is next touched. Weights
    are one row of S numbers per attribute, then transitions [S, S], then scores of the first and the last label.

    Args:
        sequences: attributes of the tokens of n sequences.
        labels: label of every token: int64 [tokens], from 0 to states - 1.
        features: number of attributes; ids are below it.
        states: number S of labels.
        cost: task loss; ``None`` for no margin.

    Raises:
        TypeError: labels that are not int64.
        ValueError: labels or attribute ids out of range, or not as many labels as tokens.
    """

    def __init__(
        self,
        sequences: SparseSequences,
        labels: Tensor,
        features: int,
        states: int,
        cost: Cost | None = Hamming(),  # noqa: B008 - immutable
    ) -> None:
        tokens = int(sequences.offsets[-1])
        if labels.dtype != torch.int64:
            raise TypeError(f"labels must be int64, got {labels.dtype}")
        if labels.shape != (tokens,):
            raise ValueError(f"labels must have shape [tokens] = {(tokens,)}, got {tuple(labels.shape)}")
        for name, ids, size in (("labels", labels, states), ("attributes", sequences.attributes, features)):
            if len(ids) and not 0 <= int(ids.min()) <= int(ids.max()) < size:
                raise ValueError(f"{name} must be from 0 to {size - 1}, got {int(ids.min())} to {int(ids.max())}")
        self.sequences, self.labels, self.cost = sequences, labels, cost
        self.features, self.states = features, states
        self.n, self.dim = len(sequences), (features + states + 2) * states
        lengths = torch.repeat_interleave(sequences.lengths, sequences.lengths)
        self._costs = torch.zeros(tokens, dtype=torch.float64) if cost is None else cost.mistake_cost(labels, lengths)

    def start(self) -> Tensor:
        """Zeros."""
        return torch.zeros(self.dim, dtype=torch.float64)

    def views(self, w: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """A vector [dim] as attribute rows [F, S], transitions [S, S] and scores of the ends [2, S]."""
        rows, rest = w.split([self.features * self.states, (self.states + 2) * self.states])
        transition, ends = rest.view(-1, self.states).split([self.states, 2])
        return rows.view(-1, self.states), transition, ends

    def structure(self, w: Tensor, indices: Tensor) -> LinearChain:
        """Chains of some examples under weights ``w``; differentiable."""
        return linear_chain(self.sequences.select(indices), *self.views(w))

    def batch_losses(self, w: Tensor, indices: Tensor, smoother: Smoother) -> Tensor:
        """Losses of some examples, in plain torch: [b]."""
        y = pad(self.labels[self.sequences.tokens(indices)], self.sequences.lengths[indices])
        losses: Tensor = StructuralHinge(smoother, self.cost, "none")(self.structure(w, indices), y)
        return losses

    def potentials(self, w: Tensor, i: int) -> tuple[Tensor, Tensor]:
        """B_i w: unary potentials [T, S] and transitions [S, S] of example i."""
        unary, transition = self.structure(w, torch.tensor([i])).potentials
        return unary[0], transition

    def adjoint(self, statistics: tuple[Tensor, Tensor], i: int) -> Tensor:
        """B_iᵀ m: the vector [dim] with ⟨B_iᵀ m, w⟩ = ⟨m, B_i w⟩, for statistics [T, S] and summed edges [S, S]."""
        w = self.start().requires_grad_()
        return torch.autograd.grad(self.potentials(w, i), w, statistics)[0]

    def subset(self, indices: Tensor) -> SparseChainProblem:
        """The same problem over some of its examples."""
        labels = self.labels[self.sequences.tokens(indices)]
        return SparseChainProblem(self.sequences.select(indices), labels, self.features, self.states, self.cost)

    def restrict(self, indices: Tensor, w: Tensor) -> tuple[SparseChainProblem, Tensor]:
        """The same problem over some of its examples and the attributes that occur there, with their weights."""
        subset = self.subset(indices)
        used, attributes = subset.sequences.attributes.unique(return_inverse=True)
        sequences = replace(subset.sequences, attributes=attributes.to(torch.int32))
        rows, transition, ends = self.views(w)
        part = SparseChainProblem(sequences, subset.labels, len(used), self.states, self.cost)
        return part, torch.cat([rows[used], transition, ends]).flatten()

    def loss(self, w: Tensor, smoother: Smoother = Max()) -> float:  # noqa: B008 - immutable
        """(1/n) Σ f_i(w), without the regularizer."""
        return self.full_pass(w, smoother).smoothed_loss

    def full_pass(self, w: Tensor, smoother: Smoother, *, with_loss: bool = False) -> ChainPass:
        """One oracle call on every example; the loss without smoothing comes with it."""
        from structsmooth.kernels import sparse_chain as kernels  # numba loads with the first pass

        gradient = torch.zeros_like(w)
        node = w.new_empty(len(self.labels), self.states)
        edge = w.new_empty(self.n, self.states, self.states)
        smoothed, loss, cost = kernels.full_pass(
            self._data, self._matrix(w), _smoothing(smoother), node.numpy(), edge.numpy(), self._matrix(gradient)
        )
        self.oracle_calls += self.n
        return ChainPass(w.clone(), smoother, smoothed, gradient, loss, cost, node=node, edge=edge)

    def svrg_epoch(
        self,
        snapshot: FullPass,
        order: Tensor,
        *,
        step_size: float,
        lam: float,
        kappa: float = 0.0,
        center: Tensor | None = None,
        average: bool = True,
    ) -> Tensor:
        """The epoch of :meth:`Problem.svrg_epoch`, compiled for steps of one example."""
        shrink = step_size * (lam + kappa)
        if order.shape[1] > 1 or not isinstance(snapshot, ChainPass):
            return super().svrg_epoch(
                snapshot, order, step_size=step_size, lam=lam, kappa=kappa, center=center, average=average
            )
        from structsmooth.kernels import sparse_chain as kernels

        steps, sums = len(order), _power_sums(shrink, len(order))
        w, total = snapshot.weights.clone(), torch.zeros_like(snapshot.weights)
        drift = snapshot.gradient if center is None else torch.sub(snapshot.gradient, center, alpha=kappa)
        kernels.svrg_epoch(
            order[:, 0].numpy(),
            self._data,
            self._matrix(w),
            self._matrix(drift),
            self._matrix(total),
            _smoothing(snapshot.smoother),
            snapshot.node.numpy(),
            snapshot.edge.numpy(),
            (float(step_size), float(shrink), sums.numpy()),
        )
        self.oracle_calls += steps
        if not average:
            return w
        # The dense terms of the sum of the iterates, in closed form.
        total.add_(snapshot.weights, alpha=float(sums[steps + 1] - 1))
        total.sub_(drift, alpha=step_size * float(sums.sum() - sums[-1]))
        return total.div_(steps)

    def sgd_epoch(
        self, w: Tensor, order: Tensor, *, step_sizes: Tensor, lam: float, smoother: Smoother, shares: Tensor
    ) -> tuple[Tensor, Tensor]:
        """The epoch of :meth:`Problem.sgd_epoch`, compiled for steps of one example."""
        if order.shape[1] > 1:
            return super().sgd_epoch(w, order, step_sizes=step_sizes, lam=lam, smoother=smoother, shares=shares)
        from structsmooth.kernels import sparse_chain as kernels

        w, total = w.clone(), torch.zeros_like(w)
        vectors = (self._matrix(w), self._matrix(total))
        steps = (lam, step_sizes.numpy(), shares.numpy())
        kernels.sgd_epoch(order[:, 0].numpy(), self._data, *vectors, _smoothing(smoother), *steps)
        self.oracle_calls += len(order)
        return w, total

    @property
    def _data(self) -> tuple[Any, ...]:
        s = self.sequences
        tensors = (s.attributes, s.token_offsets, s.offsets, self.labels, self._costs)
        return tuple(tensor.contiguous().numpy() for tensor in tensors)

    def _matrix(self, w: Tensor) -> Any:
        return w.view(-1, self.states).numpy()


def _smoothing(smoother: Smoother) -> tuple[float, int]:
    """Level and kind of smoothing as the kernels have it."""
    if isinstance(smoother, Entropy):
        return float(smoother.mu), 0
    if isinstance(smoother, L2):
        return float(smoother.mu), smoother.k
    if isinstance(smoother, Max):
        return 1.0, 1
    raise TypeError(f"compiled chain passes know Max, L2 and Entropy, got {type(smoother).__name__}")


def _power_sums(shrink: float, steps: int) -> Tensor:
    """1 + c + ... + c^(g-1) for c = 1 - shrink and g = 0, ..., steps + 1; also where c is 1 to rounding."""
    if not 0 <= shrink < 1:
        raise ValueError(f"step_size * (lam + kappa) must be in [0, 1), got {shrink}")
    g = torch.arange(steps + 2, dtype=torch.float64)
    return -torch.expm1(g * math.log1p(-shrink)) / shrink if shrink > 0 else g
