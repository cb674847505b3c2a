"""Linear chains over sparse attributes of tokens."""

from dataclasses import replace

import torch
from torch import Tensor

from structsmooth.costs import Cost, Hamming
from structsmooth.problems.bounds import Bounds
from structsmooth.problems.linear.chain.problem import ChainProblem
from structsmooth.problems.sharding import of_examples
from structsmooth.scores import TransitionMask
from structsmooth.sequences import SparseSequences
from structsmooth.smoothing import Max, Smoother


class SparseChainProblem(ChainProblem):
    """Structural hinge losses of :class:`~structsmooth.scores.LinearScore` over sparse sequences.

    The passes are compiled: a step costs one oracle call and the example's nonzeros. The statistics of the snapshot
    are stored, T·S + S² numbers for each example, and dense terms reach a row of weights when it is next touched.
    Weights are one row of S numbers per attribute, then transitions [S, S], then scores of the first and the last
    label. The passes take float64 vectors [dim] and int64 orders [steps, b], and refuse all others.

    Args:
        sequences: attributes of the tokens of n sequences.
        labels: label of every token: int64 [tokens], from 0 to states - 1.
        features: number of attributes; ids are below it.
        states: number S of labels.
        cost: task loss; ``None`` for no margin; or what a wrong label of each token costs: float64 [tokens].
        smoother: smoother of the objective; see :class:`~structsmooth.problems.Problem`. A conditional random field has
            ``cost=None`` and ``smoother=Entropy(1.0)``.
        bounds: lower and upper bounds of the weights, [dim] each; steps within bounds are plain torch.
        transition_scale: transitions score by their weights times c > 0. The larger c, the less they are regularized:
            λ‖w‖² = (λ/c²)‖c·w‖².
        mask: which labels may follow each other, begin and end, such as that of :func:`~structsmooth.transition_mask`;
            all if not given. No other labelling is an output, in training as in prediction.

    Raises:
        TypeError: labels that are not int64.
        ValueError: no sequences, labels or attribute ids out of range, another number of labels than of tokens, a cost
            for another number of states, bounds that leave no weights, a scale that is not positive, or labels that the
            mask forbids.
    """

    sequences: SparseSequences

    def __init__(
        self,
        sequences: SparseSequences,
        labels: Tensor,
        features: int,
        states: int,
        cost: Cost | Tensor | None = Hamming(),  # noqa: B008 - immutable
        smoother: Smoother = Max(),  # noqa: B008 - immutable
        bounds: Bounds | None = None,
        transition_scale: float = 1.0,
        mask: TransitionMask | None = None,
    ) -> None:
        super().__init__(sequences, labels, features, states, cost, smoother, bounds, transition_scale, mask)

    @of_examples
    def subset(self, indices: Tensor) -> "SparseChainProblem":
        """The same problem over some of its examples."""
        return self._over(indices, self.sequences.select(indices), self.features, self.bounds)

    @of_examples
    def restrict(self, indices: Tensor, w: Tensor) -> "tuple[SparseChainProblem, Tensor]":
        """The same problem over some of its examples and the attributes that occur there, with their weights."""
        sequences = self.sequences.select(indices)
        used, attributes = sequences.attributes.unique(return_inverse=True)
        sequences = replace(sequences, attributes=attributes.to(torch.int32))
        bounds = self.bounds and (self._rows(self.bounds[0], used), self._rows(self.bounds[1], used))
        return self._over(indices, sequences, len(used), bounds), self._rows(w, used)

    def _over(
        self, indices: Tensor, sequences: SparseSequences, features: int, bounds: Bounds | None
    ) -> "SparseChainProblem":
        """The same problem over other attributes of some of its examples."""
        tokens, settings_of_scores = self.sequences.tokens(indices), (self.transition_scale, self.mask)
        settings = (self.cost_of(tokens), self.smoother, bounds, *settings_of_scores)
        return SparseChainProblem(sequences, self.labels[tokens], features, self.states, *settings)

    def _rows(self, w: Tensor, attributes: Tensor) -> Tensor:
        """The part of a vector [dim] that belongs to some attributes, or to none."""
        own, transition, ends = self.views(w)
        return torch.cat([own[attributes], transition, ends]).flatten()
