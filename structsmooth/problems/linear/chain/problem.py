"""Linear chains over features of tokens, with compiled passes in the space of parts (CPU, float64)."""

import copy
import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import TypeVar

import torch
from torch import Tensor
from torch.nn.functional import one_hot

from structsmooth.compiled import threads
from structsmooth.compiled.arguments import checked, on_host
from structsmooth.costs import Cost, Hamming
from structsmooth.lazy import LazyModule
from structsmooth.problems.affine import Parts
from structsmooth.problems.base import FullPass
from structsmooth.problems.bounds import Bounds, checked_bounds
from structsmooth.problems.linear.base import LinearProblem
from structsmooth.problems.linear.batches import StructureBatch
from structsmooth.problems.linear.blocks import OracleOutput, respond
from structsmooth.problems.linear.chain.data import ChainData, Part, agreeing_labels, checked_mask, smoothing, summed
from structsmooth.problems.linear.chain.packed import joined, packed, packed_labels, piece, unpacked
from structsmooth.problems.linear.difference import DifferenceProblem
from structsmooth.problems.reductions import all_reduced, mean, mean_rows, rows
from structsmooth.problems.sharding import of_examples
from structsmooth.scores import TransitionMask
from structsmooth.sequences import Sequences, check_labelled, pad
from structsmooth.smoothing import Max, Smoother
from structsmooth.structures import LinearChain
from structsmooth.structures.checks import ForbiddenLabelsError

compiled_dual = LazyModule("structsmooth.problems.linear.chain.compiled_dual")
compiled_primal = LazyModule("structsmooth.problems.linear.chain.compiled_primal")

C = TypeVar("C", bound="ChainProblem")
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


class ChainProblem(LinearProblem):
    """Structural hinge losses of linear chains over features of tokens, with a block for each example.

    What it takes is documented with its two kinds, :class:`~structsmooth.problems.SparseChainProblem` and
    :class:`~structsmooth.problems.DenseChainProblem`, which differ in their features alone.
    """

    def __init__(
        self,
        sequences: Sequences,
        labels: Tensor,
        features: int,
        states: int,
        cost: Cost | Tensor | None = Hamming(),  # noqa: B008 - immutable
        smoother: Smoother = Max(),  # noqa: B008 - immutable
        bounds: Bounds | None = None,
        transition_scale: float = 1.0,
        mask: TransitionMask | None = None,
    ) -> None:
        check_labelled(sequences, labels, features, states)
        smoothing(smoother)  # refuses what compiled passes do not know
        sequences, labels = on_host(sequences), labels.cpu()
        cost = cost.cpu() if isinstance(cost, Tensor) else cost
        self.sequences, self.labels, self.cost, self.smoother = sequences, labels, cost, smoother
        self.features, self.states = features, states
        if not 0 < transition_scale < math.inf:
            raise ValueError(f"transition_scale must be positive and finite, got {transition_scale}")
        self.transition_scale = float(transition_scale)
        self.n, self.dim = len(sequences), (features + states + 2) * states
        self.bounds = None if bounds is None else checked_bounds(bounds, self.start())
        mistakes = checked("costs of mistakes", self._mistakes(), torch.float64, len(labels))
        self.mask = checked_mask(mask, states)
        self.data = self.feature_map = ChainData(
            sequences, labels, mistakes, features, states, self.transition_scale, self.normalized_weights, self.mask
        )
        wrong = self.data.forbidden_labels()
        if wrong is not None:
            raise ForbiddenLabelsError(wrong[0], "the problem", wrong[1])

    def _mistakes(self) -> Tensor:
        """What a wrong label of each token costs: [tokens]."""
        if isinstance(self.cost, Tensor):
            return self.cost
        if self.cost is None:
            return torch.zeros(len(self.labels), dtype=torch.float64)
        self.cost.check_classes(self.states)
        lengths = self.sequences.lengths
        return self.cost.mistake_cost(self.labels, torch.repeat_interleave(lengths, lengths))

    def weighted(self: C, sample_weight: Tensor) -> C:
        """The same problem with weights of examples, also for the compiled passes."""
        problem = super().weighted(sample_weight)
        problem.data = problem.feature_map = replace(self.data, normalized_weights=problem.normalized_weights)
        return problem

    def with_unknown(self: C, unknown: Tensor) -> DifferenceProblem:
        """The problem of partial labels: those of some tokens are unknown, and cost nothing.

        Args:
            unknown: bool [tokens]; the labels of these tokens do not matter.

        Raises:
            TypeError: not a tensor of bool.
            ValueError: another number of tokens.

        Example:
            >>> import torch
            >>> from structsmooth.problems import DenseChainProblem
            >>> from structsmooth.solvers import ConvexConcave
            >>> x, y = torch.eye(2).repeat(4, 1), torch.tensor([0, 1]).repeat(4)
            >>> problem = DenseChainProblem(x, y, torch.tensor([4, 4]), states=2)
            >>> partial = problem.with_unknown(torch.tensor([False, False, True, True]).repeat(2))
            >>> result = ConvexConcave().solve(partial, lam=0.1, passes=50)
            >>> partial.agreeing.best_labels(result.weights)
            tensor([0, 1, 0, 1, 0, 1, 0, 1])
        """
        labels = agreeing_labels(self.labels, unknown, self.sequences.lengths, self.states, self.mask)
        known = torch.where(unknown, 0.0, self.data.costs), torch.where(unknown, 0.0, -torch.inf).double()
        return DifferenceProblem(*(self.relabelled(labels, costs) for costs in known))

    def relabelled(self: C, labels: Tensor, costs: Tensor | None = None) -> C:
        """The same problem with other labels, int64 [tokens], and their costs, float64 [tokens], if these change."""
        problem = copy.copy(self)
        problem.labels, problem.cost = labels, self.data.costs if costs is None else costs
        problem.data = problem.feature_map = replace(self.data, labels=labels, costs=problem.cost)
        problem.oracle_calls = 0
        return problem

    def best_labels(self, w: Tensor) -> Tensor:
        """The labels of all tokens that the max oracle gives at ``w``, with costs: int64 [tokens]."""
        rows = self.best_statistics(w).view(-1, self.states)  # T of nodes, then S of edges for each sequence
        return rows[self.data.token_rows()[0]].argmax(1)

    def views(self, w: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """A vector [dim] as rows of features [F, S], transitions [S, S] and scores of the ends [2, S]."""
        return self.data.views(w)

    def structure(self, w: Tensor, indices: Tensor) -> LinearChain:
        """Chains of some examples under weights ``w``; differentiable."""
        return self.data.chain(w, self.sequences.select(indices), self.mask)

    def affine_batch(self, indices: Tensor) -> StructureBatch:
        """Some of the examples, padded, in plain torch."""
        tokens, lengths = self.sequences.tokens(indices), self.sequences.lengths[indices]
        labels, cost = pad(self.labels[tokens], lengths), self.cost
        if isinstance(cost, Tensor):
            wrong = torch.arange(self.states) != labels.unsqueeze(-1)
            cost = torch.where(wrong, pad(cost[tokens], lengths).unsqueeze(-1), 0.0)
        return StructureBatch(lambda w: self.structure(w, indices), labels, cost, self.start())

    def oracle(self, potentials: Parts, block: int, smoother: Smoother = Max()) -> OracleOutput:  # noqa: B008 - immutable
        """The oracle of :class:`~structsmooth.structures.LinearChain`."""
        unary, transition = potentials
        chain = LinearChain(unary[None], transition)
        if self.mask is not None:
            allowed, start, stop = self.mask
            chain = LinearChain(unary[None], transition + allowed, start=start, stop=stop)
        response = respond(chain, smoother)
        nodes, edges = response.statistics
        return replace(response, statistics=(nodes[0], edges))

    def costs(self, block: int) -> Parts:
        """ℓ_i: costs of labels [T, S], and of transitions [S, S], which are zero."""
        tokens = self.data.tokens(block)
        right = one_hot(self.labels[tokens], self.states) > 0
        costs = torch.where(right, 0.0, self.data.costs[tokens, None])
        return costs, torch.zeros(self.states, self.states, dtype=torch.float64)

    def label_atom(self, block: int) -> Tensor:
        """Labels of an example: int64 [T]."""
        return self.labels[self.data.tokens(block)]

    def label_sets(self, capacity: int) -> tuple[Tensor, Tensor, Tensor]:
        """As for any linear problem; labels are stored in the smallest type that will do."""
        labels = self.labels.to(self.data.label_type).split(self.sequences.lengths.tolist())
        alphas = torch.zeros(self.n, capacity, dtype=torch.float64)
        alphas[:, 0] = 1
        return torch.cat([y.repeat(capacity) for y in labels]), alphas, alphas.int()

    def parts(self, atom: Tensor, block: int) -> Parts:
        """Nodes [T, S] and summed edges [S, S] of one labelling."""
        node = one_hot(atom, self.states).double()
        return node, node[:-1].T @ node[1:]

    def label_statistics(self) -> Tensor:
        """Parts of the labels; T rows of S nodes, then S rows of summed edges for each example, flat."""
        return unpacked(self.data, packed_labels(self.data).words)

    def unpacked(self, statistics: Tensor) -> Tensor:
        """Statistics as one vector [size], also if another problem of these sequences has packed them."""
        return unpacked(self.data, statistics)

    @of_examples
    def subset(self: C, indices: Tensor) -> C:
        """The same problem over some of its examples."""
        return self._over(indices, self.sequences.select(indices), self.features, self.bounds)

    def _over(self: C, indices: Tensor, sequences: Sequences, features: int, bounds: Bounds | None) -> C:
        """The same problem over other features of some of its examples."""
        problem = type(self).__new__(type(self))  # whose own constructor may take other arguments
        tokens = self.sequences.tokens(indices)
        cost = self.cost[tokens] if isinstance(self.cost, Tensor) else self.cost
        settings = (cost, self.smoother, bounds)
        scores = (self.transition_scale, self.mask)
        # That of the base takes any sequences.
        ChainProblem.__init__(problem, sequences, self.labels[tokens], features, self.states, *settings, *scores)
        return problem

    @property
    def block_sizes(self) -> Tensor:
        """As for any linear problem: T rows of nodes and S of summed edges, and T labels."""
        lengths = self.sequences.lengths
        return torch.stack([(lengths + self.states) * self.states, lengths])

    def statistics_of(self, statistics: Tensor, sizes: Tensor, blocks: range) -> Tensor:
        """As for any linear problem; of packed ones, packed."""
        if statistics.is_floating_point():
            return super().statistics_of(statistics, sizes, blocks)
        return piece(statistics, sizes // self.states, blocks)

    def statistics_from(self, pieces: Sequence[Tensor]) -> Tensor:
        """As for any linear problem."""
        if all(statistics.is_floating_point() for statistics in pieces):
            return super().statistics_from(pieces)
        return self.packed(joined(self.data, pieces).words)

    def packed(self, statistics: Tensor) -> Tensor:
        """Statistics in less memory, without loss, where the steps on them are compiled."""
        return packed(self.data, statistics).words if self._packs else self.unpacked(statistics)

    def packed_labels(self) -> Tensor:
        """The packed statistics of the labels."""
        return packed_labels(self.data).words if self._packs else self.label_statistics()

    @property
    def _packs(self) -> bool:
        """Whether statistics are packed; processes that share passes exchange them as vectors."""
        return self.bounds is None and self.shard is None

    def expected_cost(self, statistics: Tensor) -> float:
        """(1/n) Σ ⟨ℓ_i, m_i⟩, compiled."""
        m = packed(self.data, statistics)

        def cost_of(part: Part) -> float:
            cost: float = compiled_dual.expected_cost(part.arrays, self.states, m.part(part))
            return cost

        return sum(self._over_parts(cost_of))

    def dual_weights(self, statistics: Tensor, lam: float) -> Tensor:
        """v = −(1/(λn)) Σ B_iᵀ(m_i − ν(y_i)), [dim], compiled."""
        data, m = self.data, packed(self.data, statistics)

        def weights_of(part: Part) -> Tensor:
            v = data.matrix(self.start())
            compiled_dual.dual_weights(part.arrays, m.part(part), -1 / lam, v)
            return data.vector(v)

        return summed(self._over_parts(weights_of))

    @all_reduced(mean_rows)
    def block_gaps(self, w: Tensor, statistics: Tensor) -> Tensor:
        """The block gaps g_i of all examples, by one oracle call on each: [n], compiled."""
        self.oracle_calls += self.n
        return self._block_values(w, statistics, from_labels=False)

    @all_reduced(mean_rows)
    def block_margins(self, w: Tensor, statistics: Tensor) -> Tensor:
        """(1/n) ⟨θ_i + ℓ_i, m_i − ν(y_i)⟩ of all examples: [n], compiled."""
        return self._block_values(w, statistics, from_labels=True)

    @all_reduced(rows)
    def best_statistics(self, w: Tensor, smoother: Smoother = Max()) -> Tensor:  # noqa: B008 - immutable
        """Statistics of all examples that the max oracle, or a smoothed one, gives at ``w``: [size], compiled."""
        full = self.full_pass(w, smoother)
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
        loss = hinge if isinstance(self.smoother, Max) else self.objective_loss(w, smoother, smoothed, wanted)
        full = FullPass(w.clone(), smoother, smoothed, gradient, loss, cost)
        full = replace(full, expected_cost=self.objective_cost(full))
        return ChainPass(**vars(full), node=node, edge=edge) if with_statistics else full

    def losses_and_grads(
        self, w: Tensor, batches: Iterable[Tensor], smoother: Smoother
    ) -> Iterator[tuple[Tensor, Tensor]]:
        """As in :meth:`Problem.losses_and_grads`, compiled for batches of one example."""
        # Weights of examples are over n; a batch of one counts as its example alone.
        data, w = (
            replace(self.data, normalized_weights=self.n * self.normalized_weights),
            self.data.checked_vector("w", w),
        )
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
        passes = self._over_parts(lambda part: _pass_over(part, w, smoother, node, edge, gradient))
        means, gradients = zip(*passes, strict=True)
        self.oracle_calls += self.n
        smoothed, hinge, cost = map(sum, zip(*means, strict=True))
        return (smoothed, hinge, cost), summed(gradients)

    def _block_values(self, w: Tensor, statistics: Tensor, *, from_labels: bool) -> Tensor:
        """Block gaps, or margins of the statistics from the labels: [n]."""
        w, m, values = self.data.checked_vector("w", w), packed(self.data, statistics), w.new_empty(self.n)

        def fill(part: Part) -> None:
            arrays = (part.arrays, self.data.matrix(w), m.part(part))
            compiled_dual.block_values(*arrays, from_labels, part.examples(values))

        self._over_parts(fill)
        return values

    def _over_parts(self, of: Callable[[Part], R]) -> list[R]:
        """What a compiled pass gives for parts of the examples, as many as threads share it."""
        parts = self.data.parts(threads.of_passes())
        return threads.on_threads(lambda k: of(parts[k]), len(parts))


def _pass_over(
    part: Part, w: Tensor, smoother: Smoother, node: Tensor, edge: Tensor, gradient: Tensor
) -> tuple[Means, Tensor]:
    """Means of the smoothed loss, the loss and the cost over some examples, and the gradient, if it has an array.

    Statistics go to ``node`` and ``edge``, if these have rows. The gradient is a new tensor shaped as ``gradient``.
    """
    matrix = part.data.matrix(torch.zeros_like(gradient))
    outputs = (node.numpy(), part.examples(edge), matrix)
    means: Means = compiled_primal.full_pass(part.arrays, part.data.matrix(w), smoothing(smoother), *outputs)
    return means, part.data.vector(matrix)
