"""Structural hinge losses of linear chains over features of tokens, sparse or dense, compiled."""

import torch
from torch import Tensor

from structsmooth import sparse_vectors
from structsmooth.costs import Cost, Hamming
from structsmooth.problems.bounds import Bounds
from structsmooth.problems.linear.chain.compact import CompactChainProblem
from structsmooth.problems.linear.chain.problem import ChainProblem
from structsmooth.problems.sharding import of_examples
from structsmooth.scores import TransitionMask
from structsmooth.sequences import DenseSequences, MixedSequences, SparseSequences
from structsmooth.smoothing import Max, Smoother


class SparseChainProblem(ChainProblem):
    """Structural hinge losses of :class:`~structsmooth.scores.LinearScore` over sparse sequences.

    The passes are compiled: a step costs one oracle call and the example's nonzeros. The statistics of the snapshot
    are stored, T·S + S² numbers for each example, and dense terms reach a row of weights when it is next touched.
    Weights are one row of S numbers per attribute, then transitions [S, S], then scores of the first and the last
    label. The passes take float64 vectors [dim] and int64 orders [steps, b], and refuse all others.

    Args:
        sequences: attributes of the tokens of n sequences, alone or beside a block of numbers.
        labels: label of every token: int64 [tokens], from 0 to states - 1.
        features: number of attributes, whose ids are below it, and of numbers beside them.
        states: number S of labels.
        cost: task loss; ``None`` for no margin; or what a wrong label of each token costs: float64 [tokens].
        smoother: smoother of the objective; see :class:`~structsmooth.problems.Problem`. A conditional random field has
            ``cost=None`` and ``smoother=Entropy(1.0)``.
        bounds: lower and upper bounds of the weights, [dim] each; steps within bounds are plain torch.
        transition_scale: transitions score by their weights times c > 0. The larger c, the less they are regularized:
            λ‖w‖² = (λ/c²)‖c·w‖².
        mask: which labels may follow each other, begin and end, such as that of
            :func:`~structsmooth.text.schemes.transition_mask`; all if not given. No other labelling is an output, in
            training as in prediction.

    Raises:
        TypeError: labels that are not int64.
        ValueError: no sequences, labels or attribute ids out of range, another number of labels than of tokens, a cost
            for another number of states, bounds that leave no weights, a scale that is not positive, or labels that the
            mask forbids.
    """

    sequences: SparseSequences | MixedSequences

    @property
    def sparse(self) -> SparseSequences:
        """The attributes of all tokens, without what stands beside them."""
        return self.sequences.sparse if isinstance(self.sequences, MixedSequences) else self.sequences

    def compact(self, support: Tensor | None = None) -> ChainProblem:
        """The problem with compact vectors if it has many weights, no bounds, and no other processes to agree with."""
        if self.dim < sparse_vectors.MANY or not self._packs:
            return self
        return CompactChainProblem(self, support)

    @of_examples
    def restrict(self, indices: Tensor, w: Tensor) -> "tuple[SparseChainProblem, Tensor]":
        """The same problem over some of its examples and the attributes that occur there, with their weights."""
        sequences, used = self.sequences.restricted(indices)
        bounds = self.bounds and (self._rows(self.bounds[0], used), self._rows(self.bounds[1], used))
        return self._over(indices, sequences, len(used), bounds), self._rows(w, used)

    def _rows(self, w: Tensor, features: Tensor) -> Tensor:
        """The part of a vector [dim] that belongs to some features, or to none."""
        unary, transition, ends = self.views(w)
        return torch.cat([unary[features], transition, ends]).flatten()


class DenseChainProblem(ChainProblem):
    """Structural hinge losses of :class:`~structsmooth.scores.LinearScore` over tokens with F numbers each.

    For features that a network or a kernel has computed (:class:`~structsmooth.problems.KernelFeatures`). The passes
    and the order of the weights are those of :class:`SparseChainProblem`; a step costs T·F·S operations. Features may
    be float32, which takes half the memory; sums are float64 in any case.

    Args:
        features: rows of the tokens of all sequences in order: float32 or float64 [tokens, F].
        labels: label of every token: int64 [tokens], from 0 to states - 1.
        lengths: number of tokens of each of n sequences: int64 [n].
        states: number S of labels.
        cost: task loss; ``None`` for no margin; or what a wrong label of each token costs: float64 [tokens].
        smoother: smoother of the objective; see :class:`~structsmooth.problems.Problem`.
        bounds: lower and upper bounds of the weights, [dim] each; steps within bounds are plain torch.
        transition_scale: transitions score by their weights times c > 0, as in :class:`SparseChainProblem`.
        mask: which labels may follow each other, begin and end, as in :class:`SparseChainProblem`.

    Raises:
        TypeError: features, labels or lengths of another dtype.
        ValueError: features that are not finite, lengths that are not positive or do not sum to the number of tokens,
            and all that :class:`SparseChainProblem` refuses.

    Example:
        >>> import torch
        >>> x = torch.tensor([[1.0, 0.5], [0.0, 2.0], [1.5, 0.0]])  # two sequences, of 1 and 2 tokens
        >>> problem = DenseChainProblem(x, torch.tensor([0, 1, 0]), torch.tensor([1, 2]), states=2)
        >>> problem.loss(problem.start())
        1.5
    """

    sequences: DenseSequences

    def __init__(
        self,
        features: Tensor,
        labels: Tensor,
        lengths: Tensor,
        states: int,
        cost: Cost | Tensor | None = Hamming(),  # noqa: B008 - immutable
        smoother: Smoother = Max(),  # noqa: B008 - immutable
        bounds: Bounds | None = None,
        transition_scale: float = 1.0,
        mask: TransitionMask | None = None,
    ) -> None:
        sequences = DenseSequences.of(features, lengths)
        width = sequences.features.shape[1]
        super().__init__(sequences, labels, width, states, cost, smoother, bounds, transition_scale, mask)
