"""Finite sums F(w) = (1/n) Σ f_i(w) + (λ/2)‖w‖²: what solvers see of a learning problem."""

import copy
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, ClassVar, TypeVar

import torch
from torch import Tensor

from structsmooth import processes
from structsmooth.problems.bounds import Bounds, clip
from structsmooth.problems.reductions import Shard, all_reduced, mean, shared_mean
from structsmooth.smoothing import Max, Smoother
from structsmooth.structures.checks import numbered

P = TypeVar("P", bound="Problem")


@dataclass(frozen=True)
class FullPass:
    """The result of one oracle call on every example.

    Attributes:
        weights: the weights w of the pass, [dim].
        smoother: the smoother of the pass.
        smoothed_loss: (1/n) Σ f_i(w) under this smoother.
        gradient: its gradient, [dim].
        loss: (1/n) Σ f_i(w) under the problem's own smoother, if the caller asked for it.
        expected_cost: (1/n) Σ ⟨ℓ_i, m_i⟩, with m_i the statistics of example i, plus the part of the problem's own
            smoother; linear problems only. Together with the gradient it is a feasible point of the dual.
    """

    weights: Tensor
    smoother: Smoother
    smoothed_loss: float
    gradient: Tensor
    loss: float | None = None
    expected_cost: float | None = None

    per_example: ClassVar[tuple[str, ...]] = ()
    """Names of attributes with rows for every example, in the order of the examples."""

    def all_reduced(self, share: float) -> "FullPass":
        """The pass over the examples of all processes, if this one is over a ``share`` of them."""
        means = {name: getattr(self, name) for name in ("smoothed_loss", "loss", "expected_cost")}
        changes: dict[str, Any] = {name: mean(value, share) for name, value in means.items() if value is not None}
        changes |= {name: _of_all(getattr(self, name)) for name in self.per_example}
        return replace(self, gradient=processes.summed(self.gradient * share), **changes)


class Problem(ABC):
    """A finite sum of n losses in a weight vector w: 1-D, ``dim`` long.

    Where examples have weights, Σ v_i f_i(w) takes the place of (1/n) Σ f_i(w).

    A problem owns the data and the passes over it, a solver its steps. A subclass gives ``n``, ``dim``, ``start``,
    ``batch_losses`` and ``subset``. The passes below are plain torch; a subclass may override them by faster ones that
    give the same iterates, up to rounding and to ties between outputs. Every inference on one example adds one to
    ``oracle_calls``.

    Attributes:
        n: number of examples.
        sample_weight: positive weights s_i of the examples, float64 [n]; ``None`` if all count alike.
        dim: number of weights.
        batch_size: default number of examples per step.
        chunk_size: number of examples per batch in passes over all of them, unless steps take more.
        smoother: smoother of the objective. ``Max()`` for hinges, which solvers smooth as they need; an objective with
            another smoother, such as ``Entropy(1.0)`` for the likelihood of a CRF, is smooth, and solvers minimize it
            as it is.
        bounds: lower and upper bounds of the weights, [dim] each, infinite where there is none; ``None`` without box
            constraints.
        oracle_calls: number of inferences so far.
        origins: numbers of the examples in the problem that this is a part of; ``None`` if it is none.
        shard: the part of this process, where processes share passes; see :func:`~structsmooth.problems.sharded`.
    """

    n: int
    sample_weight: Tensor | None = None
    dim: int
    batch_size: int = 1
    chunk_size: int = 32
    smoother: Smoother = Max()
    bounds: Bounds | None = None
    oracle_calls: int = 0
    origins: Tensor | None = None
    shard: Shard | None = None

    def weighted(self: P, sample_weight: Tensor) -> P:
        """The same problem with weights of examples: an example of weight 2 counts as if it were there twice.

        All that is (1/n) Σ elsewhere is then a weighted mean, (1/Σs) Σ s_i: the objective, its gradient, gaps and
        bounds. So λ is relative to the sum of the weights; see :attr:`total_weight`.

        Args:
            sample_weight: s_i > 0, [n]. Leave examples without weight out, by ``subset``.

        Returns:
            A shallow copy.

        Raises:
            ValueError: another number of weights than of examples, or weights that are not positive and finite.

        Example:
            >>> import torch
            >>> from structsmooth.problems import DenseChainProblem
            >>> x, y = torch.tensor([[1.0], [0.0], [1.5]]), torch.tensor([0, 1, 0])
            >>> problem = DenseChainProblem(x, y, torch.tensor([1, 2]), states=2)
            >>> twice = problem.subset(torch.tensor([0, 0, 1]))
            >>> w = torch.linspace(-1, 1, problem.dim, dtype=torch.float64)
            >>> abs(problem.weighted(torch.tensor([2.0, 1.0])).loss(w) - twice.loss(w)) < 1e-12
            True
        """
        weights = torch.as_tensor(sample_weight, dtype=torch.float64, device="cpu").detach().clone()
        if weights.shape != (self.n,):
            raise ValueError(f"sample_weight must have shape [n] = {(self.n,)}, got {tuple(weights.shape)}")
        if not bool(((weights > 0) & weights.isfinite()).all()):
            raise ValueError("sample_weight must be positive and finite; leave examples without weight out")
        problem = copy.copy(self)
        for known in ("normalized_weights", "block_weights"):
            problem.__dict__.pop(known, None)
        problem.sample_weight = weights
        return problem

    @property
    def total_weight(self) -> float:
        """Σ s_i: the number n of examples if all count alike."""
        return float(self.n) if self.sample_weight is None else float(self.sample_weight.sum())

    @cached_property
    def normalized_weights(self) -> Tensor:
        """s_i/Σs, by which the examples count: float64 [n], 1/n each if all count alike."""
        if self.sample_weight is None:
            return torch.full((self.n,), 1 / self.n, dtype=torch.float64)
        return self.sample_weight / self.sample_weight.sum()

    def importances(self, indices: Tensor) -> Tensor | None:
        """n · v_i of some examples, [b], of mean one over all; ``None`` if all count alike."""
        return None if self.sample_weight is None else self.n * self.normalized_weights[indices.cpu()]

    @abstractmethod
    def start(self) -> Tensor:
        """Weights to start from: [dim]."""

    @abstractmethod
    def batch_losses(self, w: Tensor, indices: Tensor, smoother: Smoother) -> Tensor:
        """Losses f_i(w) of the examples ``indices`` [b]: [b], differentiable; without the weights of the examples."""

    def batch_bounds(self, w: Tensor, indices: Tensor, smoother: Smoother) -> Tensor:
        """Upper bounds of these losses [b], of which objectives are made: the losses themselves, here.

        Override it if the max oracle may stop before the optimum, and knows how far above it is at most.
        """
        return self.batch_losses(w, indices, smoother)

    def load(self, w: Tensor) -> None:
        """Put weights into the module that scores are of.

        Raises:
            TypeError: the problem has none.
        """
        raise TypeError(f"{type(self).__name__} has no module to load weights into")

    def to(self: P, device: torch.device | str) -> P:
        """The problem itself, with its module, and so its passes, on a device.

        Raises:
            TypeError: another device than the CPU, for a problem whose passes are compiled, or that has no module.
        """
        if torch.device(device).type != "cpu":
            raise TypeError(f"a {type(self).__name__} runs on the CPU alone, got {device}")
        return self

    @abstractmethod
    def subset(self, indices: Tensor) -> "Problem":
        """The same problem over some of its examples; ``structsmooth.problems.of_examples`` keeps their weights."""

    def lazy_subset(self, indices: Tensor) -> "Problem":
        """The same problem over a large part of its examples, which are read when they are needed."""
        return self.subset(indices)

    def restrict(self, indices: Tensor, w: Tensor) -> "tuple[Problem, Tensor]":
        """The same problem over some of its examples, without the weights that they do not use, and ``w`` for it.

        The losses equal those of :meth:`subset`. Override it if steps take longer the more weights there are.
        """
        return self.subset(indices), w

    @property
    def affine(self) -> bool:
        """Whether scores are known to be affine in the weights, so that linearizing them changes nothing."""
        return False

    @property
    def affine_scores(self) -> bool:
        """Whether scores are known to be affine in the weights, whatever the losses are."""
        return self.affine

    @property
    def partial(self) -> bool:
        """Whether labels are partial, so that losses are not convex in the scores."""
        return False

    def linearize(self, w: Tensor) -> "Problem":
        """The convex problem with scores linearized at ``w``: θ_i(w) + J_i · (u − w) for weights u.

        A problem whose scores are affine in the weights is its own linearization, unless labels are partial: then the
        score of the outputs that agree with them, which is subtracted, is linearized at ``w``, too.

        Reference:
            Pillutla et al. (2019), section 6.1.
        """
        raise NotImplementedError(f"{type(self).__name__} has no linearization")

    def within_bounds(self, v: Tensor) -> Tensor:
        """The weights within the bounds that are nearest to ``v``: [dim]."""
        return clip(v, self.bounds)

    def inferences(self, indices: Tensor) -> int:
        """Number of oracle calls that some examples take: one each."""
        return len(indices)

    def numbers(self, indices: Tensor) -> Tensor:
        """Numbers of some examples for messages: those in the problem that this may be a part of."""
        return indices if self.origins is None else self.origins[indices.cpu()]

    def effective_smoother(self, smoother: Smoother) -> Smoother:
        """The smoother that solvers take: ``smoother`` for hinges, the problem's own where the objective is smooth."""
        return smoother if isinstance(self.smoother, Max) else self.smoother

    @all_reduced(mean)
    def loss(self, w: Tensor, smoother: Smoother | None = None) -> float:
        """(1/n) Σ f_i(w), without the regularizer; under the problem's own smoother if none is given."""
        used = smoother or self.smoother
        with torch.no_grad():
            sums = [self._losses_of(self.batch_bounds, w, batch, used).sum() for batch in self.chunks()]
        return total(sums) / self.n

    def loss_and_grad(self, w: Tensor, smoother: Smoother) -> tuple[float, Tensor]:
        """(1/n) Σ f_i(w) and its gradient [dim]: one full pass."""
        result = self.full_pass(w, smoother)
        return result.smoothed_loss, result.gradient

    @all_reduced(FullPass.all_reduced)
    def full_pass(
        self, w: Tensor, smoother: Smoother, *, with_loss: bool = False, with_statistics: bool = True
    ) -> FullPass:
        """One oracle call on every example.

        Args:
            w: weights, [dim].
            smoother: of the losses.
            with_loss: also give the loss under the problem's own smoother.
            with_statistics: keep the statistics of every example, where the problem does, for an epoch that starts
                from this pass.
        """
        gradient, sums = torch.zeros_like(w), []
        for batch in self.chunks():
            value, batch_gradient = self.batch_loss_and_grad(w, batch, smoother)
            sums.append(value * len(batch))
            gradient += batch_gradient * (len(batch) / self.n)
        smoothed = total(sums) / self.n
        return FullPass(w.clone(), smoother, smoothed, gradient, self.objective_loss(w, smoother, smoothed, with_loss))

    def objective_loss(self, w: Tensor, smoother: Smoother, smoothed: float, wanted: bool) -> float | None:
        """The loss under the problem's own smoother if it is wanted: ``smoothed`` if the pass has this smoother."""
        if not wanted:
            return None
        return smoothed if smoother == self.smoother else self.loss(w)

    def batch_loss_and_grad(self, w: Tensor, indices: Tensor, smoother: Smoother) -> tuple[Tensor, Tensor]:
        """Mean loss over some examples [] and its gradient [dim], without waiting for the device."""
        w = w.detach().requires_grad_()

        def means(examples: Tensor) -> tuple[Tensor, Tensor]:
            mean = self._losses_of(self.batch_losses, w, examples, smoother).mean()
            (gradient,) = torch.autograd.grad(mean, w)
            return mean.detach(), gradient

        loss, gradient = shared_mean(self, indices, means)
        return loss, gradient

    def losses_and_grads(
        self, w: Tensor, batches: Iterable[Tensor], smoother: Smoother
    ) -> Iterator[tuple[Tensor, Tensor]]:
        """What :meth:`batch_loss_and_grad` gives for each of several batches, one after the other."""
        return (self.batch_loss_and_grad(w, batch, smoother) for batch in batches)

    def gradient_change(self, w: Tensor, snapshot: FullPass, indices: Tensor) -> Tensor:
        """Change of the gradient from the snapshot to ``w``: [dim]; of the mean loss over some examples.

        Override it if the two gradients can share work.
        """
        _, gradient = self.batch_loss_and_grad(w, indices, snapshot.smoother)
        return gradient - self.batch_loss_and_grad(snapshot.weights, indices, snapshot.smoother)[1]

    def check_threads(self, count: int) -> None:
        """Refuse several threads for the steps of an epoch, which need compiled ones."""
        if count > 1:
            raise ValueError(
                f"threads must be 1 for a {type(self).__name__}, got {count}: only the steps of a SparseChainProblem "
                "or a DenseChainProblem are compiled for several"
            )

    def _losses_of(
        self, losses_of: Callable[[Tensor, Tensor, Smoother], Tensor], w: Tensor, indices: Tensor, smoother: Smoother
    ) -> Tensor:
        with numbered(self.numbers(indices)):
            losses = times(losses_of(w, indices, smoother), self.importances(indices))
        self.oracle_calls += self.inferences(indices)
        return losses

    def chunks(self) -> Iterator[Tensor]:
        """The indices of all examples in batches."""
        return iter(torch.arange(self.n).split(max(self.batch_size, self.chunk_size)))


def times(values: Tensor, importances: Tensor | None) -> Tensor:
    """Rows of values, each times the importance of its example."""
    if importances is None:
        return values
    return values * importances.to(values).view(-1, *[1] * (values.dim() - 1))


def total(sums: list[Tensor]) -> float:
    """Sum in double precision, read from the device once."""
    return float(sum(torch.stack(sums).tolist()))


def _of_all(rows: Tensor | list[Any] | None) -> Tensor | list[Any] | None:
    """Rows of the examples of all processes."""
    if isinstance(rows, Tensor):
        return processes.stacked_rows(rows)
    return None if rows is None else processes.concatenated(rows)
