"""Linear chains over dense features of tokens."""

from torch import Tensor

from structsmooth.costs import Cost, Hamming
from structsmooth.problems.bounds import Bounds
from structsmooth.problems.linear.chain.problem import ChainProblem
from structsmooth.problems.sharding import of_examples
from structsmooth.scores import TransitionMask
from structsmooth.sequences import DenseSequences
from structsmooth.smoothing import Max, Smoother


class DenseChainProblem(ChainProblem):
    """Structural hinge losses of :class:`~structsmooth.scores.LinearScore` over tokens with F numbers each.

    For features that a network or a kernel has computed (:class:`~structsmooth.KernelFeatures`). The passes and the
    order of the weights are those of :class:`SparseChainProblem`; a step costs T·F·S operations. Features may be
    float32, which takes half the memory; sums are float64 in any case.

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

    @of_examples
    def subset(self, indices: Tensor) -> "DenseChainProblem":
        """The same problem over some of its examples."""
        tokens = self.sequences.tokens(indices)
        examples = (self.sequences.features[tokens], self.labels[tokens], self.sequences.lengths[indices])
        cost, smoother, bounds, scale, mask = (
            self.cost_of(tokens),
            self.smoother,
            self.bounds,
            self.transition_scale,
            self.mask,
        )
        return DenseChainProblem(*examples, self.states, cost, smoother, bounds, scale, mask)
