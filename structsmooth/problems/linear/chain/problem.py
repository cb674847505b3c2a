"""Linear chains over features of tokens, with compiled passes in the space of parts (CPU, float64)."""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field, replace
from typing import TypeVar

import torch
from torch import Tensor

from structsmooth.compiled import threads
from structsmooth.problems.base import FullPass
from structsmooth.problems.linear.chain.blocks import ChainBlocks
from structsmooth.problems.linear.chain.data import Part, smoothing, summed
from structsmooth.problems.linear.chain.packed import packed, packed_labels
from structsmooth.problems.sharding import all_reduced, mean, mean_rows, rows
from structsmooth.smoothing import Max, Smoother

R = TypeVar("R")
Means = tuple[float, float, float]


@dataclass(frozen=True)
class ChainPass(FullPass):
    """A full pass that keeps the statistics of every example."""

    node: Tensor = field(kw_only=True)
    """Marginals of all tokens: [tokens, S]."""
    edge: Tensor = field(kw_only=True)
    """Marginals of neighbouring pairs, summed over each sequence: [n, S, S]."""

    per_example = ("node", "edge")


class ChainProblem(ChainBlocks):
    """What the problems of linear chains over features of tokens have in common.

    The passes are compiled: a step costs one oracle call and the example's nonzeros. The statistics of the snapshot
    are stored, T·S + S² numbers for each example, and dense terms reach a row of weights when it is next touched.
    Weights are one row of S numbers per feature, then transitions [S, S], then scores of the first and the last
    label. The passes take float64 vectors [dim] and int64 orders [steps, b], and refuse all others.
    """

    def packed(self, statistics: Tensor) -> Tensor:
        """Statistics in less memory, without loss, where the steps on them are compiled."""
        return packed(self.data, statistics).words if self._packs else self.unpacked(statistics)

    def packed_labels(self) -> Tensor:
        """Those of the labels."""
        return packed_labels(self.data).words if self._packs else self.label_statistics()

    @property
    def _packs(self) -> bool:
        """Processes exchange statistics as vectors."""
        return self.bounds is None and self.shard is None

    def expected_cost(self, statistics: Tensor) -> float:
        """(1/n) Σ ⟨ℓ_i, m_i⟩, compiled."""
        from structsmooth.problems.linear.chain import compiled_dual

        own = packed(self.data, statistics)

        def of(part: Part) -> float:
            cost: float = compiled_dual.expected_cost(part.arrays, self.states, own.part(part))
            return cost

        return sum(self._over_parts(of))

    def dual_weights(self, statistics: Tensor, lam: float) -> Tensor:
        """v = −(1/(λn)) Σ B_iᵀ(m_i − ν(y_i)), [dim], compiled."""
        from structsmooth.problems.linear.chain import compiled_dual

        data, own = self.data, packed(self.data, statistics)

        def of(part: Part) -> Tensor:
            v = self.start()
            compiled_dual.dual_weights(part.arrays, own.part(part), -1 / lam, data.matrix(v))
            return v

        return summed(self._over_parts(of))

    @all_reduced(mean_rows)
    def block_gaps(self, w: Tensor, statistics: Tensor) -> Tensor:
        """The block gaps g_i of all examples, by one oracle call on each: [n], compiled."""
        from structsmooth.problems.linear.chain import compiled_dual

        self.oracle_calls += self.n
        return self._block_values(compiled_dual.block_gaps, w, statistics)

    @all_reduced(mean_rows)
    def block_margins(self, w: Tensor, statistics: Tensor) -> Tensor:
        """(1/n) ⟨θ_i + ℓ_i, m_i − ν(y_i)⟩ of all examples: [n], compiled."""
        from structsmooth.problems.linear.chain import compiled_dual

        return self._block_values(compiled_dual.block_margins, w, statistics)

    @all_reduced(rows)
    def best_statistics(self, w: Tensor) -> Tensor:
        """Statistics of all examples that the max oracle gives at ``w``: [size], compiled."""
        full = self.full_pass(w, Max())
        assert isinstance(full, ChainPass)
        pieces = zip(full.node.split(self.sequences.lengths.tolist()), full.edge, strict=True)
        return torch.cat([part for piece in pieces for part in piece]).view(-1)

    def check_threads(self, count: int) -> None:
        """Refuse several threads within bounds, and in several processes."""
        if count == 1:
            return
        if self.bounds is not None:
            raise ValueError(f"threads must be 1 for a problem with bounds, got {count}: its steps are not compiled")
        if self.shard is not None:
            raise ValueError(
                f"threads must be 1 in several processes, got {count}: these have to make the same steps; "
                "take one process with more threads"
            )

    @all_reduced(mean)
    def loss(self, w: Tensor, smoother: Smoother | None = None) -> float:
        """(1/n) Σ f_i(w), without the regularizer; under the problem's own smoother if none is given."""
        w = self.data.checked_vector("w", w)
        none = w.new_empty(0, self.states)
        (smoothed, _, _), _ = self._passed(w, smoother or self.smoother, none, none[:, :, None], none)
        return smoothed

    @all_reduced(FullPass.all_reduced)
    def full_pass(
        self, w: Tensor, smoother: Smoother, *, with_loss: bool = False, with_statistics: bool = True
    ) -> FullPass:
        """As in :meth:`Problem.full_pass`; a loss without smoothing comes with it."""
        w = self.data.checked_vector("w", w)
        kept = (len(self.labels), self.n) if with_statistics else (0, 0)
        node, edge = w.new_empty(kept[0], self.states), w.new_empty(kept[1], self.states, self.states)
        (smoothed, hinge, cost), gradient = self._passed(w, smoother, node, edge, w)
        wanted = with_loss or smoother == self.smoother
        loss = hinge if isinstance(self.smoother, Max) else self.own_loss(w, smoother, smoothed, wanted)
        full = FullPass(w.clone(), smoother, smoothed, gradient, loss, cost)
        full = replace(full, expected_cost=self.own_cost(full))
        return ChainPass(**vars(full), node=node, edge=edge) if with_statistics else full

    def losses_and_grads(
        self, w: Tensor, batches: Iterable[Tensor], smoother: Smoother
    ) -> Iterator[tuple[Tensor, Tensor]]:
        """As in :meth:`Problem.losses_and_grads`, compiled for batches of one example."""
        data, w = replace(self.data, shares=self.n * self.shares), self.data.checked_vector("w", w)
        none = w.new_empty(0, self.states)
        for batch in batches:
            if len(batch) > 1:
                yield self.batch_loss_and_grad(w, batch, smoother)
            else:
                example = Part(data, int(batch), int(batch) + 1)
                (loss, _, _), gradient = _pass_over(example, w, smoother, none, none[:, :, None], w)
                self.oracle_calls += 1
                yield w.new_tensor(loss), gradient

    def _passed(
        self, w: Tensor, smoother: Smoother, node: Tensor, edge: Tensor, gradient: Tensor
    ) -> tuple[Means, Tensor]:
        """Means over all examples, and the gradient; see :func:`_pass_over`."""
        own = self._over_parts(lambda part: _pass_over(part, w, smoother, node, edge, gradient))
        means, gradients = zip(*own, strict=True)
        self.oracle_calls += self.n
        smoothed, hinge, cost = map(sum, zip(*means, strict=True))
        return (smoothed, hinge, cost), summed(gradients)

    def _block_values(self, loop: Callable[..., None], w: Tensor, statistics: Tensor) -> Tensor:
        """What a compiled loop over examples computes of weights and statistics: [n]."""
        w, own, values = self.data.checked_vector("w", w), packed(self.data, statistics), w.new_empty(self.n)

        def of(part: Part) -> None:
            loop(part.arrays, self.data.matrix(w), own.part(part), part.examples(values))

        self._over_parts(of)
        return values

    def _over_parts(self, of: Callable[[Part], R]) -> list[R]:
        """What a compiled pass gives for parts of the examples, as many as threads share it."""
        parts = self.data.parts(threads.of_passes())
        return threads.on_threads(lambda k: of(parts[k]), len(parts))


def _pass_over(
    part: Part, w: Tensor, smoother: Smoother, node: Tensor, edge: Tensor, gradient: Tensor
) -> tuple[Means, Tensor]:
    """Means of the smoothed loss, the loss and the cost over some examples, and the gradient, if there is room for it.

    Statistics go to ``node`` and ``edge``, if these have rows. The gradient is a new tensor shaped as ``gradient``.
    """
    from structsmooth.problems.linear.chain import compiled_primal

    gradient = torch.zeros_like(gradient)
    outputs = (node.numpy(), part.examples(edge), part.data.matrix(gradient))
    means: Means = compiled_primal.full_pass(part.arrays, part.data.matrix(w), smoothing(smoother), *outputs)
    return means, gradient
