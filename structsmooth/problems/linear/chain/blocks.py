"""What linear problems of chains have in common: the data, and the oracle, costs and labels of each example."""

import math
from dataclasses import replace
from typing import ClassVar, TypeVar

import torch
from torch import Tensor
from torch.nn.functional import one_hot

from structsmooth.costs import Cost
from structsmooth.problems.affine import Parts
from structsmooth.problems.bounds import Bounds, checked_bounds
from structsmooth.problems.linear.arrays import checked
from structsmooth.problems.linear.base import LinearProblem
from structsmooth.problems.linear.batches import StructureBatch
from structsmooth.problems.linear.blocks import OracleOutput, respond
from structsmooth.problems.linear.chain.data import ChainData, checked_mask, smoothing
from structsmooth.problems.linear.chain.packed import unpacked
from structsmooth.scores import TransitionMask
from structsmooth.sequences import Sequences, check_labelled, pad
from structsmooth.smoothing import Max, Smoother
from structsmooth.structures import LinearChain
from structsmooth.structures.checks import ForbiddenLabelsError

C = TypeVar("C", bound="ChainBlocks")


class ChainBlocks(LinearProblem):
    """Linear chains over features of tokens, with a block for each example; passes are those of plain torch."""

    data_type: ClassVar[type[ChainData]] = ChainData

    def __init__(
        self,
        sequences: Sequences,
        labels: Tensor,
        features: int,
        states: int,
        cost: Cost | None,
        smoother: Smoother,
        bounds: Bounds | None,
        transition_scale: float,
        mask: TransitionMask | None,
    ) -> None:
        check_labelled(sequences, labels, features, states)
        smoothing(smoother)  # refuses what compiled passes do not know
        self.sequences, self.labels, self.cost, self.smoother = sequences, labels, cost, smoother
        self.features, self.states = features, states
        if not 0 < transition_scale < math.inf:
            raise ValueError(f"transition_scale must be positive and finite, got {transition_scale}")
        self.transition_scale = float(transition_scale)
        self.n, self.dim = len(sequences), (features + states + 2) * states
        self.bounds = checked_bounds(bounds, self.start())
        if cost is not None:
            cost.check_classes(states)
        lengths = torch.repeat_interleave(sequences.lengths, sequences.lengths)
        mistakes = torch.zeros(len(labels), dtype=torch.float64) if cost is None else cost.mistake_cost(labels, lengths)
        mistakes = checked("costs of mistakes", mistakes, torch.float64, len(labels))
        self.mask = checked_mask(mask, states)
        self.data = self.feature_map = self.data_type(
            sequences, labels, mistakes, features, states, self.transition_scale, self.shares, self.mask
        )
        wrong = self.data.forbidden_labels()
        if wrong is not None:
            raise ForbiddenLabelsError(wrong, "the problem")

    def weighted(self: C, sample_weight: Tensor) -> C:
        """The same problem with weights of examples, also for the compiled passes."""
        problem = super().weighted(sample_weight)
        problem.data = problem.feature_map = replace(self.data, shares=problem.shares)
        return problem

    def start(self) -> Tensor:
        """Zeros."""
        return torch.zeros(self.dim, dtype=torch.float64)

    def views(self, w: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """A vector [dim] as rows of features [F, S], transitions [S, S] and scores of the ends [2, S]."""
        return self.data.views(w)

    def structure(self, w: Tensor, indices: Tensor) -> LinearChain:
        """Chains of some examples under weights ``w``; differentiable."""
        return self.data.chain(w, self.sequences.select(indices), self.mask)

    def affine_batch(self, indices: Tensor) -> StructureBatch:
        """Some of the examples, padded, in plain torch."""
        labels = pad(self.labels[self.sequences.tokens(indices)], self.sequences.lengths[indices])
        return StructureBatch(lambda w: self.structure(w, indices), labels, self.cost, self.start())

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
        wrong = 1 - one_hot(self.labels[tokens], self.states)
        return self.data.costs[tokens, None] * wrong, torch.zeros(self.states, self.states, dtype=torch.float64)

    def label_atom(self, block: int) -> Tensor:
        """Labels of an example: int64 [T]."""
        return self.labels[self.data.tokens(block)]

    def label_sets(self, capacity: int) -> tuple[Tensor, Tensor, Tensor]:
        """As for any linear problem, without a loop over examples."""
        return self.data.label_sets(capacity)

    def parts(self, atom: Tensor, block: int) -> Parts:
        """Nodes [T, S] and summed edges [S, S] of one labelling."""
        node = one_hot(atom, self.states).double()
        return node, node[:-1].T @ node[1:]

    def label_statistics(self) -> Tensor:
        """Parts of the labels; T rows of S nodes, then S rows of summed edges for each example, flat."""
        return self.data.label_statistics()

    def unpacked(self, statistics: Tensor) -> Tensor:
        """Statistics as one vector [size], also if another problem of these sequences has packed them."""
        return unpacked(self.data, statistics)

    def expected_cost(self, statistics: Tensor) -> float:
        """(1/n) Σ ⟨ℓ_i, m_i⟩."""
        right = self.data.checked_statistics(statistics)[self.data.token_rows()[0], self.labels]
        by_token = self.shares.repeat_interleave(self.sequences.lengths)
        return float((by_token * self.data.costs) @ (1 - right))
