"""Finite sums whose potentials are affine in the weights: their passes keep the statistics of every example."""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import torch
from torch import Tensor

from structsmooth.problems.base import FullPass, Problem, total
from structsmooth.problems.reductions import all_reduced, shared_mean
from structsmooth.smoothing import Max, Smoother
from structsmooth.structures.base import Structure
from structsmooth.structures.checks import numbered

Parts = tuple[Tensor, ...]
"""A tensor for each kind of part: potentials, part costs, statistics."""


@dataclass(frozen=True)
class StatisticsPass(FullPass):
    """A full pass that keeps the statistics of every example, so that steps do not ask for them again."""

    statistics: list[Parts] | None = field(kw_only=True)
    """Gradient of each loss in its potentials, padded as its batch was; ``None`` if examples share potentials."""

    per_example = ("statistics",)

    def batch(self, indices: Tensor, like: Sequence[Tensor]) -> Sequence[Tensor] | None:
        """Statistics of some examples in the shapes of ``like``; batches differ only in their padding, which is 0."""
        if self.statistics is None:
            return None
        batch = [torch.zeros_like(tensor) for tensor in like]
        for b, i in enumerate(indices.tolist()):
            for target, row in zip(batch, self.statistics[i], strict=True):
                common = tuple(slice(0, size) for size in map(min, row.shape, target.shape[1:]))
                target[b][common] = row[common]
        return batch


@dataclass(frozen=True)
class BatchOutput:
    """The oracle's answer for a batch."""

    loss: Tensor  # Σ f_i, []
    statistics: Sequence[Tensor]  # gradients of Σ f_i in the potentials that depend on the weights
    constant: Tensor  # Σ f_i less ⟨potentials, statistics⟩: costs, and scores that do not depend on the weights, []
    by_example: bool  # whether each of the statistics has a row for each example
    hinge: Tensor | None = None  # Σ of upper bounds of f_i without smoothing, [], if the same call gives them
    cost: Tensor | None = None  # Σ ⟨ℓ_i, m_i⟩, [], m_i the statistics of the outputs; linear problems only


class AffineBatch(ABC):
    """Some examples, with potentials a_i + B_i w."""

    @property
    @abstractmethod
    def trainable_potentials(self) -> Sequence[Tensor]:
        """The potentials that depend on the weights, at some weights: statistics have their shapes."""

    @abstractmethod
    def losses(self, w: Tensor, smoother: Smoother) -> Tensor:
        """Losses of the examples: [b], differentiable once at least."""

    def bounds(self, w: Tensor, smoother: Smoother) -> Tensor:
        """Upper bounds of the losses: [b]."""
        return self.losses(w, smoother)

    @abstractmethod
    def oracle(self, w: Tensor, smoother: Smoother, importances: Tensor | None = None) -> BatchOutput:
        """One oracle call on each example, whose losses count by their importances [b] if there are any."""

    @abstractmethod
    def adjoint(self, statistics: Sequence[Tensor]) -> Tensor:
        """Σ B_iᵀ m_i: [dim]; once, before or after an answer."""

    def plane(self, statistics: Sequence[Tensor]) -> tuple[Tensor, Tensor]:
        """Slope [dim] and constant [] of Σ ⟨a_i + B_i w, m_i⟩ as a function of w; once, like the adjoint.

        Here for a_i = 0.
        """
        slope = self.adjoint(statistics)
        return slope, slope.new_zeros(())


class AffineProblem(Problem):
    """A finite sum with potentials a_i + B_i w.

    The gradient of a loss is B_iᵀ times its statistics: those of the outputs minus those of the labels. A full pass
    keeps them, so the steps of an epoch call the oracle at their own weights alone.
    """

    affine = True

    @abstractmethod
    def affine_batch(self, indices: Tensor) -> AffineBatch:
        """A batch of examples whose scores are affine in the weights."""

    def batch_losses(self, w: Tensor, indices: Tensor, smoother: Smoother) -> Tensor:
        """Losses of some examples: [b], differentiable once at least."""
        return self.affine_batch(indices).losses(w, smoother)

    def batch_bounds(self, w: Tensor, indices: Tensor, smoother: Smoother) -> Tensor:
        """Upper bounds of the losses of some examples: [b]."""
        return self.affine_batch(indices).bounds(w, smoother)

    @all_reduced(FullPass.all_reduced)
    def full_pass(
        self, w: Tensor, smoother: Smoother, *, with_loss: bool = False, with_statistics: bool = True
    ) -> FullPass:
        """As in :meth:`Problem.full_pass`."""
        gradient = torch.zeros_like(w)
        answers: list[BatchOutput] = []
        rows: list[Parts] = []
        for indices in self.chunks():
            batch = self.affine_batch(indices)
            answer = self.answer(batch, w, indices, smoother)
            gradient += batch.adjoint(answer.statistics)
            answers.append(replace(answer, statistics=()))
            if with_statistics and answer.by_example:
                rows += zip(*answer.statistics, strict=True)
        smoothed = total([answer.loss for answer in answers]) / self.n
        loss: float | None
        hinges = [answer.hinge for answer in answers if answer.hinge is not None]
        costs = [answer.cost for answer in answers if answer.cost is not None]
        seen = hinges if with_loss and isinstance(self.smoother, Max) else []
        loss = total(seen) / self.n if seen else self.objective_loss(w, smoother, smoothed, with_loss)
        cost = total(costs) / self.n if costs else None
        return StatisticsPass(w.clone(), smoother, smoothed, gradient / self.n, loss, cost, statistics=rows or None)

    def gradient_change(self, w: Tensor, snapshot: FullPass, indices: Tensor) -> Tensor:
        """As in :meth:`Problem.gradient_change`; one oracle call per example if the snapshot keeps statistics."""

        def mean_change(examples: Tensor) -> tuple[Tensor]:
            batch = self.affine_batch(examples)
            now = self.answer(batch, w, examples, snapshot.smoother).statistics
            then = snapshot.batch(examples, now) if isinstance(snapshot, StatisticsPass) else None
            if then is None:
                then = self.answer(batch, snapshot.weights, examples, snapshot.smoother).statistics
            return (batch.adjoint([a - b for a, b in zip(now, then, strict=True)]) / len(examples),)

        return shared_mean(self, indices, mean_change)[0]

    def answer(self, batch: AffineBatch, w: Tensor, indices: Tensor, smoother: Smoother) -> BatchOutput:
        """One oracle call on each example of a batch, counted."""
        self.oracle_calls += self.inferences(indices)
        with numbered(self.numbers(indices)):
            return batch.oracle(w, smoother, self.importances(indices))


def by_example(structure: Structure) -> tuple[Structure, bool]:
    """The structure with separate potentials for each example, if it has such a form; and whether it has."""
    batched = structure.batched()
    return (structure, False) if batched is None else (batched, True)


def pairing(potentials: Sequence[Tensor], statistics: Sequence[Tensor]) -> Tensor:
    """⟨θ, m⟩, []; forbidden parts have no statistics, so their −inf does not count."""
    products = (torch.where(m != 0, p.detach() * m, 0.0).sum() for p, m in zip(potentials, statistics, strict=True))
    return sum(products, torch.zeros(()))


def inner(a: Parts, b: Parts) -> Tensor:
    """⟨a, b⟩ of two tuples of the same shapes."""
    return torch.stack([(x * y).sum() for x, y in zip(a, b, strict=True)]).sum()


def flat(parts: Parts) -> Tensor:
    """The tensors end to end: a vector."""
    return torch.cat([part.flatten() for part in parts])


def shaped(vector: Tensor, like: Parts) -> Parts:
    """Views of a vector in the shapes of other tensors: the inverse of :func:`flat`."""
    pieces = vector.split([part.numel() for part in like])
    return tuple(piece.view(part.shape) for piece, part in zip(pieces, like, strict=True))


def minus(a: Parts, b: Parts) -> Parts:
    """a − b of two tuples of the same shapes."""
    return tuple(x - y for x, y in zip(a, b, strict=True))
