"""Finite sums of structural hinges whose potentials are linear in the weights, and their dual in the space of parts."""

from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import replace
from functools import cached_property
from itertools import accumulate
from typing import Any

import torch
from torch import Tensor

from structsmooth.problems.affine import (
    AffineBatch,
    AffineProblem,
    BatchOutput,
    Parts,
    flat,
    inner,
    minus,
    pairing,
    shaped,
)
from structsmooth.problems.base import FullPass
from structsmooth.problems.bounds import conjugate
from structsmooth.problems.linear.blocks import FeatureMap, OracleOutput
from structsmooth.problems.reductions import all_reduced, mean_rows, rows
from structsmooth.smoothing import Max, Smoother


class LinearProblem(AffineProblem):
    """A finite sum of structural hinge losses with potentials θ_i = B_i w.

    Its dual is a concave function of the statistics m_i of blocks i, one for each example unless a subclass splits
    examples into several. It is D(m) = (1/n) Σ ⟨ℓ_i, m_i⟩ − λh*(v), where n is the number of examples,
    v = −(1/(λn)) Σ B_iᵀ(m_i − ν(y_i)), and h*(v) = ½‖v‖², or the conjugate of :mod:`structsmooth.problems.bounds` if
    there are ``bounds``. At the weights w = v, clipped to the bounds, F(w) − D(m) is the sum of the block gaps
    g_i = (1/n) max_s ⟨θ_i + ℓ_i, s − m_i⟩ (Osokin et al. 2016, section 2.3 and appendix H). Where examples have
    weights, their normalized weights take the place of 1/n throughout.

    A subclass has a feature map and gives, for each block, the oracle, the costs and the labels. The passes below are
    plain torch; a subclass may override them by faster ones that give the same numbers, away from ties. Steps are those
    of solvers, which may have faster loops for a kind of problem.

    Attributes:
        feature_map: the map from weights to potentials.
        blocks: number of blocks of the dual; n unless a subclass says otherwise.
    """

    feature_map: FeatureMap

    def start(self) -> Tensor:
        """Zeros, unless a subclass says otherwise: [dim]."""
        return torch.zeros(self.dim, dtype=torch.float64)

    @property
    def support(self) -> Tensor:
        """Which of all weights its vectors hold, int64 [dim]; empty for all, but for a problem from :meth:`compact`."""
        return torch.empty(0, dtype=torch.int64)

    def compact(self, support: Tensor | None = None) -> "LinearProblem":
        """The problem with vectors of the few weights that are not zero, for BCFW; itself if it has not that many.

        Args:
            support: which weights the vectors of an earlier run hold.
        """
        return self

    def grown(self, w: Tensor) -> Tensor:
        """A vector with zeros for the weights that the support lacked when it was made."""
        return w

    def expanded(self, w: Tensor) -> Tensor:
        """All weights of a vector."""
        return w

    @cached_property
    def blocks(self) -> int:
        """Number of blocks of the dual; may be set by a subclass."""
        return self.n

    def blocks_of(self, indices: Tensor) -> Sequence[int]:
        """The blocks of some examples."""
        return indices.tolist()

    @cached_property
    def block_weights(self) -> Tensor:
        """The weights of the examples that the blocks belong to: float64 [blocks]."""
        if self.blocks == self.n:
            return self.normalized_weights
        weights = self.normalized_weights.new_empty(self.blocks)
        for index in torch.arange(self.n).split(1):
            weights[list(self.blocks_of(index))] = self.normalized_weights[index]
        return weights

    def block_weight(self, block: int) -> float:
        """The normalized weight of the example that a block belongs to, 1/n if all count alike."""
        return float(self.block_weights[block])

    @abstractmethod
    def oracle(self, potentials: Parts, block: int, smoother: Smoother = Max()) -> OracleOutput:  # noqa: B008 - immutable
        """The max, top-K or exp oracle of a block under these potentials; see :func:`respond`."""

    @abstractmethod
    def parts(self, atom: Tensor, block: int) -> Parts:
        """Statistics of an atom of a block, ν(y) for an output, in the shapes of the potentials."""

    @abstractmethod
    def costs(self, block: int) -> Parts:
        """ℓ_i: the task loss of an output is the sum of these over its parts; in the shapes of the potentials."""

    @abstractmethod
    def label_atom(self, block: int) -> Tensor:
        """The atom of the labels y_i, [m_i]: every atom of the block has its size and kind."""

    def label_parts(self, block: int) -> Parts:
        """ν(y_i): the parts of the labels, in the shapes of the potentials."""
        return self.parts(self.label_atom(block), block)

    def atom_scores(self, potentials: Parts, atoms: Tensor, block: int) -> Tensor:
        """Scores ⟨potentials, ν⟩ of several atoms [c, m_i] of a block, c >= 1: [c]."""
        return torch.stack([inner(potentials, self.parts(atom, block)) for atom in atoms])

    def potentials(self, w: Tensor, block: int) -> Parts:
        """B_i w: the potentials of a block."""
        return self.feature_map.scores(w, block)

    def adjoint(self, statistics: Parts, block: int) -> Tensor:
        """B_iᵀ m: the vector [dim] with ⟨B_iᵀ m, w⟩ = ⟨m, B_i w⟩."""
        vector = torch.zeros_like(self.start())
        self.feature_map.add_adjoint(statistics, block, 1.0, vector)
        return vector

    def augmented(self, w: Tensor, block: int) -> Parts:
        """The cost-augmented potentials θ_i + ℓ_i of a block."""
        return tuple(p + c for p, c in zip(self.potentials(w, block), self.costs(block), strict=True))

    def call(self, potentials: Parts, block: int, smoother: Smoother = Max()) -> OracleOutput:  # noqa: B008 - immutable
        """The answer of the oracle of a block, which is counted."""
        self.oracle_calls += 1
        return self.oracle(potentials, block, smoother)

    def block_statistics(self, statistics: Tensor, block: int) -> Parts:
        """Views of the statistics of a block among those of all."""
        begin, end = self.part_offsets[block : block + 2]
        return shaped(statistics[begin:end], self.label_parts(block))

    @cached_property
    def atom_offsets(self) -> list[int]:
        """Where the atoms of each block begin, if one of each block stands behind the other: [blocks + 1]."""
        return list(accumulate((len(self.label_atom(block)) for block in range(self.blocks)), initial=0))

    @cached_property
    def part_offsets(self) -> list[int]:
        """Where the statistics of each block begin among those of all: [blocks + 1]."""
        sizes = (sum(part.numel() for part in self.label_parts(block)) for block in range(self.blocks))
        return list(accumulate(sizes, initial=0))

    @property
    def block_sizes(self) -> Tensor:
        """How many numbers the statistics of each block have, and its atoms: int64 [2, blocks]."""
        return torch.tensor([self.part_offsets, self.atom_offsets], dtype=torch.int64).diff()

    def statistics_of(self, statistics: Tensor, sizes: Tensor, blocks: range) -> Tensor:
        """The statistics of neighbouring ``blocks`` among those of blocks of these ``sizes`` [blocks], of any share.

        They may be packed. Then so is what :meth:`statistics_from` takes.
        """
        return statistics[int(sizes[: blocks.start].sum()) : int(sizes[: blocks.stop].sum())]

    def statistics_from(self, pieces: Sequence[Tensor]) -> Tensor:
        """The statistics of this problem from those of neighbouring blocks, which are all of its own, in order."""
        return self.packed(torch.cat(list(pieces)))

    def linearize(self, w: Tensor) -> "LinearProblem":
        """The problem itself, whose scores are linear."""
        return self

    def best_labels(self, w: Tensor) -> Any:
        """The labels of all examples that the max oracle gives at ``w``, with costs; for :meth:`relabelled`."""
        raise self._fixed_labels()

    def relabelled(self, labels: Any) -> "LinearProblem":
        """The same problem with other labels, and with the costs that it has."""
        raise self._fixed_labels()

    def _fixed_labels(self) -> NotImplementedError:
        name = type(self).__name__
        return NotImplementedError(f"{name} cannot exchange its labels; without a cost, or of chains, it can")

    def affine_batch(self, indices: Tensor) -> AffineBatch:
        """Some of the examples, block by block."""
        return BlockBatch(self, indices)

    def inferences(self, indices: Tensor) -> int:
        """Number of oracle calls that some examples take: one for each of their blocks."""
        return len(self.blocks_of(indices))

    def full_pass(
        self, w: Tensor, smoother: Smoother, *, with_loss: bool = False, with_statistics: bool = True
    ) -> FullPass:
        """As in :meth:`Problem.full_pass`, with the expected cost."""
        full = super().full_pass(w, smoother, with_loss=with_loss, with_statistics=with_statistics)
        return replace(full, expected_cost=self.objective_cost(full))

    def objective_cost(self, full: FullPass) -> float | None:
        """The expected cost of a pass, with the part of the problem's own smoother if the pass has that smoother."""
        if full.smoother != self.smoother or isinstance(self.smoother, Max):
            return full.expected_cost
        # h(θ + ℓ) = ⟨θ + ℓ, m⟩ − h*(m): the objective's own smoother h adds −h*(m) ≥ 0 to the cost.
        return full.smoothed_loss - float(full.weights @ full.gradient)

    def conjugate(self, v: Tensor) -> float:
        """h*(v) of the dual: ½⟨v, v⟩, or the conjugate of :mod:`structsmooth.problems.bounds`."""
        return float(v @ v) / 2 if self.bounds is None else conjugate(v, self.bounds)

    def label_statistics(self) -> Tensor:
        """Statistics of all blocks that are the parts of their labels: the tensors of each, end to end, [size]."""
        return torch.cat([flat(self.label_parts(block)) for block in range(self.blocks)])

    def packed(self, statistics: Tensor) -> Tensor:
        """Statistics as states of ``BCFW`` keep them: here one vector [size], in a subclass perhaps less memory.

        All methods that take statistics of this problem take packed ones too.
        """
        return self.unpacked(statistics)

    def packed_labels(self) -> Tensor:
        """The packed statistics of the labels."""
        return self.label_statistics()

    def unpacked(self, statistics: Tensor) -> Tensor:
        """Statistics as one vector [size], also if they are packed."""
        if not statistics.is_floating_point():
            raise TypeError(
                f"statistics must be floating point for a {type(self).__name__}, got {statistics.dtype}: packed ones "
                "of another problem, whose unpacked(statistics) gives the vector"
            )
        return statistics

    def expected_cost(self, statistics: Tensor) -> float:
        """The mean cost of the statistics: (1/n) Σ ⟨ℓ_i, m_i⟩."""
        statistics = self.unpacked(statistics)
        costs = torch.stack(
            [inner(self.costs(block), self.block_statistics(statistics, block)) for block in range(self.blocks)]
        )
        return float(self._shared(costs).sum())

    def dual_weights(self, statistics: Tensor, lam: float) -> Tensor:
        """v = −(1/(λn)) Σ B_iᵀ(m_i − ν(y_i)), [dim]; the weights of the dual iterate are these, within the bounds."""
        statistics, v = self.unpacked(statistics), torch.zeros_like(self.start())
        for block in range(self.blocks):
            change = minus(self.block_statistics(statistics, block), self.label_parts(block))
            self.feature_map.add_adjoint(change, block, -self.block_weight(block) / lam, v)
        return v

    @all_reduced(mean_rows)
    def block_gaps(self, w: Tensor, statistics: Tensor) -> Tensor:
        """The block gaps g_i, by one oracle call on each block: [blocks]."""
        statistics, gaps = self.unpacked(statistics), []
        for block in range(self.blocks):
            augmented = self.augmented(w, block)
            towards = self.call(augmented, block).statistics
            gaps.append(inner(augmented, minus(towards, self.block_statistics(statistics, block))))
        return self._shared(torch.stack(gaps))

    @all_reduced(mean_rows)
    def block_margins(self, w: Tensor, statistics: Tensor) -> Tensor:
        """(1/n) ⟨θ_i + ℓ_i, m_i − ν(y_i)⟩ of all blocks: [blocks]. With the block gaps they sum to (1/n) Σ f_i(w)."""
        statistics, margins = self.unpacked(statistics), []
        for block in range(self.blocks):
            m = self.block_statistics(statistics, block)
            margins.append(inner(self.augmented(w, block), minus(m, self.label_parts(block))))
        return self._shared(torch.stack(margins))

    @all_reduced(rows)
    def best_statistics(self, w: Tensor, smoother: Smoother = Max()) -> Tensor:  # noqa: B008 - immutable
        """Statistics of all blocks that the max oracle, or a smoothed one, gives at ``w``: [size]."""
        responses = (self.call(self.augmented(w, block), block, smoother) for block in range(self.blocks))
        return torch.cat([flat(response.statistics) for response in responses])

    def with_labels(self, statistics: Tensor, changed: Tensor) -> Tensor:
        """Statistics with those of the labels in the blocks that have changed, bool [blocks]: [size]."""
        sizes = torch.tensor(self.part_offsets).diff()
        labels = self.label_statistics()
        return torch.where(changed.repeat_interleave(sizes).to(labels.device), labels, self.unpacked(statistics))

    def label_sets(self, capacity: int) -> tuple[Tensor, Tensor, Tensor]:
        """Active sets of the labels alone, with empty caches: atoms [Σ m_i · capacity], weights and stamps.

        Integers are stored as int32, or smaller where they all fit, other atoms as they are.
        """
        atoms = torch.cat([self.label_atom(block).repeat(capacity) for block in range(self.blocks)])
        alphas = torch.zeros(self.blocks, capacity, dtype=torch.float64)
        alphas[:, 0] = 1
        return atoms if atoms.is_floating_point() else atoms.int(), alphas, alphas.int()

    def _shared(self, values: Tensor) -> Tensor:
        """Values of all blocks [blocks], times the weights of their examples."""
        return values * self.block_weights.to(values)


class BlockBatch(AffineBatch):
    """The blocks of some examples, one after the other."""

    def __init__(self, problem: LinearProblem, indices: Tensor) -> None:
        self.problem, self.indices, self.blocks = problem, indices, problem.blocks_of(indices)

    @property
    def trainable_potentials(self) -> Sequence[Tensor]:
        """All potentials, at zero: the costs have their shapes."""
        return [costs for block in self.blocks for costs in self.problem.costs(block)]

    def losses(self, w: Tensor, smoother: Smoother) -> Tensor:
        """Losses [b], differentiable once."""
        singles = (BlockBatch(self.problem, index) for index in self.indices.split(1))
        return torch.stack([_Loss.apply(w, single, smoother) for single in singles])

    def bounds(self, w: Tensor, smoother: Smoother) -> Tensor:
        """Upper bounds of the losses [b]."""
        sums = []
        for index in self.indices.split(1):
            answer = BlockBatch(self.problem, index).oracle(w.detach(), smoother)
            sums.append(answer.loss if answer.hinge is None else answer.hinge)
        return torch.stack(sums)

    def oracle(self, w: Tensor, smoother: Smoother, importances: Tensor | None = None) -> BatchOutput:
        """One oracle call on each block."""
        slack: list[Tensor] = []
        losses: list[Tensor] = []
        expected: list[Tensor] = []
        constants: list[Tensor] = []
        statistics: list[Tensor] = []
        for block in self.blocks:
            factor = 1.0 if importances is None else self.problem.n * self.problem.block_weight(block)
            problem, augmented = self.problem, self.problem.augmented(w, block)
            response = problem.oracle(augmented, block, smoother)
            labels, costs = problem.label_parts(block), problem.costs(block)
            cost = pairing(costs, response.statistics)
            if response.bound is not None:
                slack.append(factor * (response.bound - response.value))
            losses.append(factor * (response.value - pairing(augmented, labels) + pairing(costs, labels)))
            expected.append(factor * cost)
            constants.append(factor * (response.value - pairing(augmented, response.statistics) + cost))
            statistics += (factor * change for change in minus(response.statistics, labels))
        sums = (torch.stack(terms).sum() for terms in (losses, constants, expected))
        loss, constant, cost = sums
        hinge = loss + torch.stack(slack).sum() if slack else None
        return BatchOutput(loss, statistics, constant, False, hinge, cost)

    def adjoint(self, statistics: Sequence[Tensor]) -> Tensor:
        """Σ B_iᵀ m_i: [dim]."""
        vector, rest = torch.zeros_like(self.problem.start()), iter(statistics)
        for block in self.blocks:
            kinds = len(self.problem.costs(block))
            self.problem.feature_map.add_adjoint(tuple(next(rest) for _ in range(kinds)), block, 1.0, vector)
        return vector


class _Loss(torch.autograd.Function):
    """Σ f_i of a batch, whose gradient is the adjoint of the oracle's statistics."""

    @staticmethod
    def forward(ctx: Any, w: Tensor, batch: AffineBatch, smoother: Smoother) -> Tensor:
        answer = batch.oracle(w.detach(), smoother)
        ctx.batch, ctx.statistics = batch, answer.statistics
        return answer.loss

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None, None]:
        return grad * ctx.batch.adjoint(ctx.statistics), None, None
