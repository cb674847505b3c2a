"""Linear chains over a kernel of tokens, by its Gram matrix alone (Zhang et al. 2014, section 4.3)."""

from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor

from structsmooth.costs import Cost, Hamming
from structsmooth.kernels import check_semidefinite, checked_gram
from structsmooth.problems.linear.arrays import checked
from structsmooth.problems.linear.chain.blocks import ChainBlocks
from structsmooth.problems.linear.chain.data import ChainData
from structsmooth.problems.sharding import of_examples
from structsmooth.scores import TransitionMask
from structsmooth.sequences import DenseSequences
from structsmooth.smoothing import Max
from structsmooth.structures import LinearChain


@dataclass(frozen=True)
class GramSequences(DenseSequences):
    """Sequences of training tokens, with rows of the Gram matrix, [tokens, all tokens], in place of features.

    Args:
        positions: of the tokens among all: int64 [tokens].
    """

    positions: Tensor

    def select(self, indices: Tensor) -> "GramSequences":
        """The sequences at ``indices``, in that order."""
        tokens, offsets = self._rows(indices)
        return GramSequences(self.features[tokens], offsets, self.positions[tokens])

    def scores(self, rows: Tensor) -> Tensor:
        """⟨φ_t, Σ_j φ_j c_j⟩ for coefficients c [all tokens, S]: [tokens, S]."""
        scores: Tensor = _Scores.apply(rows, self.features, self.positions)
        return scores

    def transposed(self, nodes: Tensor, tokens: slice) -> tuple[Tensor | slice, Tensor]:
        """Coefficients of Σ_t φ_t nodes_t: positions of the tokens, and ``nodes`` [T, S] themselves."""
        return self.positions[tokens], nodes


class _Scores(torch.autograd.Function):
    """Scores of tokens, with the gradient in the space of the features, as coefficients: not Kᵀm, but m."""

    @staticmethod
    def forward(ctx: Any, rows: Tensor, gram: Tensor, positions: Tensor) -> Tensor:
        ctx.positions, ctx.size = positions, len(rows)
        return gram @ rows

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None, None]:
        return grad.new_zeros(ctx.size, grad.shape[1]).index_add_(0, ctx.positions, grad), None, None


class GramData(ChainData):
    """Chains of training tokens; the norms of vectors are those of the features that the kernel has."""

    sequences: GramSequences

    def features_square(self, nodes: Tensor, tokens: slice) -> Tensor:
        """‖Σ_t φ_t nodes_t‖²: []."""
        gram = self.sequences.features[tokens][:, self.sequences.positions[tokens]]
        return (nodes * (gram @ nodes)).sum()


class GramChainProblem(ChainBlocks):
    """Structural hinge losses of linear chains whose token features φ_t are known by a kernel ⟨φ_t, φ_u⟩ alone.

    Weights of the features are sums w_s = Σ_t φ_t c_ts over all training tokens, and the vector [dim] of a solver holds
    the coefficients c [tokens, S], then transitions [S, S], then scores of the first and the last label [2, S]. Since
    gradients of the losses are such sums too, with marginals as coefficients, all iterates of ``BCFW``,
    ``ProximalBCFW`` and ``ExcessiveGap`` are, and these solvers take the problem; they know no products of weights but
    :meth:`~structsmooth.problems.Problem.inner`. Others refuse it.

    A pass costs tokens² · S operations, and memory is that of the Gram matrix. Objective, dual and scores are those of
    :class:`~structsmooth.DenseChainProblem` over :class:`~structsmooth.KernelFeatures`, which needs a factorization of
    the Gram matrix first, and then has compiled passes and all solvers. Passes here are plain torch.

    Args:
        gram: kernel values of all pairs of tokens, float64 [tokens, tokens].
        labels: label of every token: int64 [tokens], from 0 to states - 1.
        lengths: number of tokens of each of n sequences: int64 [n].
        states: number S of labels.
        cost: task loss; ``None`` for no margin.
        transition_scale: transitions score by their weights times c > 0, as in
            :class:`~structsmooth.SparseChainProblem`.
        mask: which labels may follow each other, begin and end, as in :class:`~structsmooth.SparseChainProblem`.

    Raises:
        TypeError: a matrix, labels or lengths of another dtype.
        ValueError: a matrix that is not square, finite, symmetric and positive semi-definite, up to rounding; and all
            that :class:`~structsmooth.DenseChainProblem` refuses.

    Reference:
        Zhang, Saha and Vishwanathan (2014), section 4.3 and Theorem 9.

    Example:
        >>> import torch
        >>> from structsmooth import BCFW, KernelFeatures
        >>> kernel = KernelFeatures("rbf", gamma=0.5).values
        >>> x = torch.tensor([[1.0, 0.5], [0.0, 2.0], [1.5, 0.0]])  # two sequences, of 1 and 2 tokens
        >>> problem = GramChainProblem(kernel(x, x), torch.tensor([0, 1, 0]), torch.tensor([1, 2]), states=2)
        >>> result = BCFW().solve(problem, lam=0.01, passes=20)
        >>> new = torch.tensor([[0.1, 1.9], [1.2, 0.1]])
        >>> problem.predictor(result.weights, kernel(new, x), torch.tensor([2])).max()[1]
        tensor([[1, 0]])
    """

    data_type: ClassVar[type[ChainData]] = GramData
    euclidean = False

    def __init__(
        self,
        gram: Tensor,
        labels: Tensor,
        lengths: Tensor,
        states: int,
        cost: Cost | None = Hamming(),  # noqa: B008 - immutable
        transition_scale: float = 1.0,
        mask: TransitionMask | None = None,
    ) -> None:
        checked("gram", gram, torch.float64, len(labels), len(labels))
        self.gram = checked_gram(gram)
        check_semidefinite(self.gram)
        offsets = DenseSequences.of(self.gram, lengths).offsets
        sequences = GramSequences(self.gram, offsets, torch.arange(len(gram)))
        super().__init__(sequences, labels, len(gram), states, cost, Max(), None, transition_scale, mask)

    def inner(self, a: Tensor, b: Tensor) -> float:
        """⟨a, b⟩ = Σ_tu k(t, u) ⟨a_t, b_u⟩, and the usual product of the other weights."""
        (own, *rest), (other, *others) = self.views(a), self.views(b)
        product = (own * (self.gram @ other)).sum()
        return float(product + sum((x * y).sum() for x, y in zip(rest, others, strict=True)))

    def predictor(self, w: Tensor, kernel: Tensor, lengths: Tensor) -> LinearChain:
        """Chains of new tokens under weights ``w`` [dim].

        Args:
            w: coefficients and other weights.
            kernel: kernel values of the new tokens with those of training, [new tokens, tokens].
            lengths: number of tokens of each new sequence: int64 [b].

        Raises:
            TypeError: a tensor of another dtype.
            ValueError: kernel values that are not finite or not of all training tokens, or lengths that do not sum to
                the number of new tokens.
        """
        sequences = DenseSequences.of(kernel, lengths)
        sequences.check_features(self.features)
        return self.data.chain(w, sequences, self.mask)

    @of_examples
    def subset(self, indices: Tensor) -> "GramChainProblem":
        """The same problem over some of its examples, with coefficients for the tokens of all."""
        part = object.__new__(GramChainProblem)
        part.gram = self.gram
        sequences = self.sequences.select(indices)
        labels = self.labels[self.sequences.tokens(indices)]
        settings = (self.features, self.states, self.cost, self.smoother, None, self.transition_scale, self.mask)
        ChainBlocks.__init__(part, sequences, labels, *settings)
        return part
