"""Finite sums of differences of convex losses: linear scores with partial labels."""

from collections.abc import Iterable, Iterator
from contextlib import contextmanager

import torch
from torch import Tensor

from structsmooth.problems.base import FullPass, Problem
from structsmooth.problems.derived import DerivedProblem, TiltedProblem
from structsmooth.problems.linear.base import LinearProblem
from structsmooth.smoothing import L2, Entropy, Max, Smoother

# Outputs among which losses are smoothed where not all can be.
_BEST = 10


class DifferenceProblem(DerivedProblem):
    """Losses h_μ(θ_i + ℓ_i) − h_μ(θ_i of the outputs that agree with what is known of the labels), θ_i = B_i w.

    These are the losses of :class:`~structsmooth.StructuralHinge` for partial labels. Each is the difference of two
    convex functions, a loss among all outputs and one among those that agree, both with the same labels: any that
    agree. Its :meth:`linearize` gives the convex problem in which the second one is replaced by its tangent. That is an
    upper bound which touches the losses, and for hinges a problem of the first kind, with the best labels that agree.

    ``SparseChainProblem(...).with_unknown(unknown)`` makes one, and so do ``DenseChainProblem``,
    ``ProgramProblem(...).with_allowed(allowed)`` and, for a module over any structure,
    ``LinearModuleProblem.of_partial_labels(module, dataset)``.

    Args:
        problem: of the first losses; a :class:`~structsmooth.problems.LinearProblem`.
        agreeing: of the second ones, with the same examples and labels.

    Reference:
        Yuille and Rangarajan (2003), "The concave-convex procedure"; Yu and Joachims (2009).
    """

    oracle_calls = 0  # of both problems together
    affine, partial = False, True  # a linearization changes the losses

    def __init__(self, problem: Problem, agreeing: Problem) -> None:
        super().__init__(problem)
        self.agreeing = agreeing

    def inferences(self, indices: Tensor) -> int:
        """Number of oracle calls that some examples take, in both problems together."""
        return self.problem.inferences(indices) + self.agreeing.inferences(indices)

    def weighted(self, sample_weight: Tensor) -> "DifferenceProblem":
        """The same problem with weights of examples."""
        return DifferenceProblem(self.problem.weighted(sample_weight), self.agreeing.weighted(sample_weight))

    def to(self, device: torch.device | str) -> "DifferenceProblem":
        """The same problem, with both that it is the difference of on a device."""
        self.agreeing.to(device)
        return super().to(device)

    def start(self) -> Tensor:
        """The start of the problem: [dim]."""
        return self.problem.start()

    def batch_losses(self, w: Tensor, indices: Tensor, smoother: Smoother) -> Tensor:
        """Losses of some examples: [b]."""
        return self.problem.batch_losses(w, indices, smoother) - self.agreeing.batch_losses(w, indices, smoother)

    def subset(self, indices: Tensor) -> "DifferenceProblem":
        """The same problem over some of its examples."""
        return DifferenceProblem(self.problem.subset(indices), self.agreeing.subset(indices))

    def restrict(self, indices: Tensor, w: Tensor) -> "tuple[DifferenceProblem, Tensor]":
        """The same problem over some of its examples, without the weights that they do not use."""
        part, weights = self.problem.restrict(indices, w)
        return DifferenceProblem(part, self.agreeing.restrict(indices, w)[0]), weights

    def loss(self, w: Tensor, smoother: Smoother | None = None) -> float:
        """(1/n) Σ f_i, by the passes of both problems."""
        with self._counted():
            return self.problem.loss(w, smoother) - self.agreeing.loss(w, smoother)

    def full_pass(
        self, w: Tensor, smoother: Smoother, *, with_loss: bool = False, with_statistics: bool = True
    ) -> FullPass:
        """The difference of the full passes of both problems."""
        settings = {"with_loss": with_loss, "with_statistics": False}
        with self._counted():
            one, other = (p.full_pass(w, smoother, **settings) for p in (self.problem, self.agreeing))
        loss = None if one.loss is None or other.loss is None else one.loss - other.loss
        return FullPass(
            one.weights, smoother, one.smoothed_loss - other.smoothed_loss, one.gradient - other.gradient, loss
        )

    def losses_and_grads(
        self, w: Tensor, batches: Iterable[Tensor], smoother: Smoother
    ) -> Iterator[tuple[Tensor, Tensor]]:
        """As in :meth:`Problem.losses_and_grads`, by those of both problems."""
        taken = list(batches)
        pairs = zip(*(p.losses_and_grads(w, taken, smoother) for p in (self.problem, self.agreeing)), strict=True)
        for _ in taken:
            with self._counted():
                (loss, gradient), (other, change) = next(pairs)
            yield loss - other, gradient - change

    def linearize(self, w: Tensor) -> Problem:
        """The convex problem with the loss among the outputs that agree linearized at ``w``.

        Hinges have many tangents at zero weights, where all outputs are equally good. Taken is that of the labels which
        are best after a step along the negative gradient of the smoothed losses: what is unknown has no part in it.
        """
        if isinstance(self.smoother, Max):
            convex, agreeing = self.problem, self.agreeing
            assert isinstance(convex, LinearProblem)
            assert isinstance(agreeing, LinearProblem)
            if not w.any():
                w = -self._smoothed_gradient(w)
            with self._counted():
                labels = agreeing.best_labels(w)
            return convex.relabelled(labels)
        with self._counted():
            tangent = self.agreeing.full_pass(w, self.smoother, with_statistics=False)
        return TiltedProblem(self.problem, -tangent.gradient, float(tangent.gradient @ w) - tangent.smoothed_loss)

    def _smoothed_gradient(self, w: Tensor) -> Tensor:
        """The gradient of smoothed losses: of all outputs if there is an exp oracle, or else of the best ones."""
        try:
            return self.full_pass(w, Entropy(1.0), with_statistics=False).gradient
        except NotImplementedError:
            return self.full_pass(w, L2(1.0, _BEST), with_statistics=False).gradient

    def agreeing_statistics(self, w: Tensor) -> Tensor:
        """Statistics of all examples among the outputs that agree with the labels, under the smoother: [size]."""
        agreeing = self.agreeing
        assert isinstance(agreeing, LinearProblem)
        with self._counted():
            statistics: Tensor = agreeing.best_statistics(w, self.smoother)
        return statistics

    @contextmanager
    def _counted(self) -> Iterator[None]:
        """Count the oracle calls of both problems."""
        before = self.problem.oracle_calls + self.agreeing.oracle_calls
        yield
        self.oracle_calls += self.problem.oracle_calls + self.agreeing.oracle_calls - before
