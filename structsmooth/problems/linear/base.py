"""Finite sums of structural hinges whose potentials are linear in the weights, and their dual in the space of parts."""

from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from structsmooth.problems.affine import AffineBatch, flat, inner, minus
from structsmooth.problems.base import FullPass
from structsmooth.problems.bounds import conjugate
from structsmooth.problems.linear.batches import BlockBatch
from structsmooth.problems.linear.blocks import BlockProblem
from structsmooth.problems.sharding import all_reduced, mean_rows, rows
from structsmooth.smoothing import Max, Smoother


class LinearProblem(BlockProblem):
    """A finite sum of structural hinge losses with potentials θ_i = B_i w.

    Its dual is a concave function of the statistics m_i of blocks i, one for each example unless a subclass splits
    examples into several. It is D(m) = (1/n) Σ ⟨ℓ_i, m_i⟩ − λh*(v), where n is the number of examples,
    v = −(1/(λn)) Σ B_iᵀ(m_i − ν(y_i)), and h*(v) = ½‖v‖², or the conjugate of :mod:`structsmooth.problems.bounds` if
    there are ``bounds``. At the weights w = v, clipped to the bounds, F(w) − D(m) is the sum of the block gaps
    g_i = (1/n) max_s ⟨θ_i + ℓ_i, s − m_i⟩ (Osokin et al. 2016, section 2.3 and appendix H). Where examples have
    weights, their shares take the place of 1/n throughout.

    A subclass has a feature map and gives, for each block, the oracle, the costs and the labels. The passes below are
    plain torch; a subclass may override them by faster ones that give the same numbers, away from ties. Steps are those
    of solvers, which may have faster loops for a kind of problem.

    Attributes:
        feature_map: the map from weights to potentials.
        blocks: number of blocks of the dual; n unless a subclass says otherwise.
    """

    def linearize(self, w: Tensor) -> "LinearProblem":
        """The problem itself."""
        return self

    def best_labels(self, w: Tensor) -> Any:
        """The labels of all examples that the max oracle gives at ``w``, with costs; for :meth:`relabelled`."""
        raise self._fixed_labels()

    def relabelled(self, labels: Any) -> "LinearProblem":
        """The same problem with other labels, and with the costs that it has."""
        raise self._fixed_labels()

    def _fixed_labels(self) -> NotImplementedError:
        return NotImplementedError(f"{type(self).__name__} cannot exchange its labels; a SparseChainProblem can")

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
        return replace(full, expected_cost=self.own_cost(full))

    def own_cost(self, full: FullPass) -> float | None:
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
        """(1/n) Σ ⟨ℓ_i, m_i⟩."""
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
            self.feature_map.add_adjoint(change, block, -self.block_share(block) / lam, v)
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
            own = self.block_statistics(statistics, block)
            margins.append(inner(self.augmented(w, block), minus(own, self.label_parts(block))))
        return self._shared(torch.stack(margins))

    @all_reduced(rows)
    def best_statistics(self, w: Tensor) -> Tensor:
        """Statistics of all blocks that the max oracle gives at ``w``: [size]."""
        responses = (self.call(self.augmented(w, block), block) for block in range(self.blocks))
        return torch.cat([flat(response.statistics) for response in responses])

    def label_sets(self, capacity: int) -> tuple[Tensor, Tensor, Tensor]:
        """Active sets of the labels alone, with empty caches: atoms [Σ m_i · capacity], weights and stamps.

        Integers are stored as int32, or smaller where they all fit, other atoms as they are.
        """
        atoms = torch.cat([self.label_atom(block).repeat(capacity) for block in range(self.blocks)])
        alphas = torch.zeros(self.blocks, capacity, dtype=torch.float64)
        alphas[:, 0] = 1
        return atoms if atoms.is_floating_point() else atoms.int(), alphas, alphas.int()

    def _shared(self, values: Tensor) -> Tensor:
        """Values of all blocks [blocks], times the shares of their examples."""
        return values * self.block_shares.to(values)
