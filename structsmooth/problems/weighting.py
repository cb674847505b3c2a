"""Weights of the examples of a finite sum."""

import copy
from functools import cached_property
from typing import TypeVar

import torch
from torch import Tensor

W = TypeVar("W", bound="WeightedExamples")


class WeightedExamples:
    """What the weights of examples change in a finite sum: Σ shares_i f_i(w) takes the place of (1/n) Σ f_i(w).

    Attributes:
        n: number of examples.
        sample_weight: positive weights s_i of the examples, float64 [n]; ``None`` if all count alike.
    """

    n: int
    sample_weight: Tensor | None = None

    def weighted(self: W, sample_weight: Tensor) -> W:
        """The same problem with weights of examples: an example of weight 2 counts as if it were there twice.

        All that is (1/n) Σ elsewhere is then a weighted mean, (1/Σs) Σ s_i: the objective, its gradient, gaps and
        bounds. So λ is relative to the sum of the weights; see :attr:`mass`.

        Args:
            sample_weight: s_i > 0, [n]. Leave examples without weight out, by ``subset``.

        Returns:
            A shallow copy.

        Raises:
            ValueError: another number of weights than of examples, or weights that are not positive and finite.

        Example:
            >>> import torch
            >>> from structsmooth import DenseChainProblem
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
        for known in ("shares", "block_shares"):
            problem.__dict__.pop(known, None)
        problem.sample_weight = weights
        return problem

    @property
    def total_weight(self) -> float:
        """Σ s_i: the number n of examples if all count alike."""
        return float(self.n) if self.sample_weight is None else float(self.sample_weight.sum())

    @cached_property
    def shares(self) -> Tensor:
        """s_i/Σs, by which the examples count: float64 [n], 1/n each if all count alike."""
        if self.sample_weight is None:
            return torch.full((self.n,), 1 / self.n, dtype=torch.float64)
        return self.sample_weight / self.sample_weight.sum()

    def importances(self, indices: Tensor) -> Tensor | None:
        """n · shares_i of some examples, [b], of mean one over all; ``None`` if all count alike."""
        return None if self.sample_weight is None else self.n * self.shares[indices.cpu()]


def times(values: Tensor, importances: Tensor | None) -> Tensor:
    """Rows of values, each times the importance of its example."""
    if importances is None:
        return values
    return values * importances.to(values).view(-1, *[1] * (values.dim() - 1))
