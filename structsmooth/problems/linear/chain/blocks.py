"""What linear problems of chains have in common: the data, and the oracle, costs and labels of each example."""

import copy
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
from structsmooth.problems.linear.chain.unknown import agreeing_labels
from structsmooth.problems.linear.difference import DifferenceProblem
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
        cost: Cost | Tensor | None,
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
        mistakes = checked("costs of mistakes", self._mistakes(), torch.float64, len(labels))
        self.mask = checked_mask(mask, states)
        self.data = self.feature_map = self.data_type(
            sequences, labels, mistakes, features, states, self.transition_scale, self.shares, self.mask
        )
        wrong = self.data.forbidden_labels()
        if wrong is not None:
            raise ForbiddenLabelsError(wrong, "the problem")

    def _mistakes(self) -> Tensor:
        """What a wrong label of each token costs: [tokens]."""
        if isinstance(self.cost, Tensor):
            return self.cost
        if self.cost is None:
            return torch.zeros(len(self.labels), dtype=torch.float64)
        self.cost.check_classes(self.states)
        lengths = self.sequences.lengths
        return self.cost.mistake_cost(self.labels, torch.repeat_interleave(lengths, lengths))

    def cost_of(self, tokens: Tensor) -> Cost | Tensor | None:
        """The cost for a problem over some of the tokens."""
        return self.cost[tokens] if isinstance(self.cost, Tensor) else self.cost

    def weighted(self: C, sample_weight: Tensor) -> C:
        """The same problem with weights of examples, also for the compiled passes."""
        problem = super().weighted(sample_weight)
        problem.data = problem.feature_map = replace(self.data, shares=problem.shares)
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
            >>> from structsmooth import ConvexConcave, DenseChainProblem
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
