"""Semirings over torch tensors: one recursion, many oracles.

Values have a trailing axis of R slots (the K best, or one). Multiplication is always the addition of scores; a semiring
is defined by how it embeds a score and how it sums.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import TypeVar

import torch
from torch import Tensor

R = TypeVar("R")


class Semiring(ABC):
    """How scores of alternatives are summed."""

    def embed(self, scores: Tensor) -> Tensor:
        """Scores [...] as values [..., R]."""
        return scores.unsqueeze(-1)

    @abstractmethod
    def sum(self, values: Tensor, dim: int) -> Tensor:
        """Reduce values [..., R] over the non-negative dimension ``dim``."""

    def product(self, left: Tensor, right: Tensor) -> Tensor:
        """Values [..., R] of pairs of independent alternatives; ties go to the first slots of ``left``."""
        return self.sum(left.unsqueeze(-1) + right.unsqueeze(-2), left.dim() - 1)


class Log(Semiring):
    """Sums are log-sum-exp: the exp oracle."""

    def sum(self, values: Tensor, dim: int) -> Tensor:
        """Log-sum-exp over ``dim``."""
        return logsumexp(values, dim)


class TopK(Semiring):
    """Sums keep the k largest in descending order, -inf where there are fewer: the top-K oracle, or max for k = 1."""

    def __init__(self, k: int) -> None:
        self.k = k

    def embed(self, scores: Tensor) -> Tensor:
        """The score itself, followed by k - 1 times -inf."""
        rest = scores.new_full((*scores.shape, self.k - 1), -torch.inf)
        return torch.cat([scores.unsqueeze(-1), rest], -1)

    def sum(self, values: Tensor, dim: int) -> Tensor:
        """The k largest over ``dim`` and the slots; a stable sort, so that ties go to the lowest index."""
        return _sorted(values.movedim(dim, -2)).values[..., : self.k]

    def find(self, values: Tensor, ranks: Tensor) -> tuple[Tensor, Tensor]:
        """Where :meth:`sum` took the values of the given ranks from: the way back along the best alternatives.

        Args:
            values: [..., A, R], with leading dimensions that broadcast to those of the ranks.
            ranks: int64 [...], of a value in the sum over A.

        Returns:
            Indices of alternatives [...], and slots [...].
        """
        order = _sorted(values).indices.expand(*ranks.shape, -1)
        place = order.gather(-1, ranks.unsqueeze(-1)).squeeze(-1)
        return place // values.shape[-1], place % values.shape[-1]


def _sorted(values: Tensor) -> torch.return_types.sort:
    """All values [..., A, R] of each list in descending order."""
    return values.flatten(-2).sort(dim=-1, descending=True, stable=True)


# Semiring sum [B, R] of the scores of all outputs, from potentials of nodes and edges.
Recursion = Callable[[Semiring, Tensor, Tensor], Tensor]


def marginals(recursion: Recursion, unary: Tensor, edges: Tensor) -> tuple[Tensor, Tensor]:
    """Marginals in the shapes of both potentials, differentiable: the gradient of the log-partition function."""

    def gradient(unary: Tensor, edges: Tensor) -> tuple[Tensor, Tensor]:
        def log_partition(node: Tensor, edge: Tensor) -> Tensor:
            return recursion(Log(), unary + node, edges + edge).sum()

        node, edge = torch.func.grad(log_partition, (0, 1))(torch.zeros_like(unary), torch.zeros_like(edges))
        return node, edge

    return outside_inference_mode(gradient, unary, edges)


def top_k(recursion: Recursion, unary: Tensor, edges: Tensor, k: int) -> tuple[Tensor, Tensor]:
    """Values [B, k] and outputs [B, k, N] for unary scores [B, N, S]; outputs are read off the gradients of values."""
    values = recursion(TopK(k), unary, edges)
    values = torch.where(values > -torch.inf, values, -torch.inf)

    def outputs(unary: Tensor, edges: Tensor) -> Tensor:
        def totals(node: Tensor) -> Tensor:
            return recursion(TopK(k), unary + node, edges).sum(0)

        pullback = torch.func.vjp(totals, torch.zeros_like(unary))[1]
        slots = torch.eye(k, dtype=unary.dtype, device=unary.device)
        return torch.stack([pullback(slot)[0].argmax(-1) for slot in slots], 1)

    y = outside_inference_mode(outputs, unary.detach(), edges.detach())
    return values, torch.where(values.unsqueeze(-1) > -torch.inf, y, 0)


def inverse_cdf(scores: Tensor, uniform: Tensor) -> Tensor:
    """Indices [...] at which the cumulative sums of exp(scores) [..., S] exceed the fractions ``uniform`` of the total.

    Never an index of score -inf, unless all are: then 0.
    """
    largest = scores.amax(-1, keepdim=True)
    weights = (scores - torch.where(largest > -torch.inf, largest, 0.0)).exp().double()
    # Sums in parallel may differ by rounding where a weight is zero.
    cumulative = torch.where(weights > 0, weights.cumsum(-1), 0.0)
    reached = cumulative > uniform.unsqueeze(-1) * cumulative.amax(-1, keepdim=True)
    return reached.to(torch.uint8).argmax(-1)


def outside_inference_mode(function: Callable[..., R], *tensors: Tensor) -> R:
    """A function that differentiates, called on tensors: under ``torch.inference_mode``, on copies without it.

    Transforms of ``torch.func`` return zeros there in torch 2.4.
    """
    if torch.compiler.is_compiling() or not torch.is_inference_mode_enabled():
        return function(*tensors)
    with torch.inference_mode(False):
        return function(*(tensor.clone() for tensor in tensors))


def softmax(scores: Tensor, dim: int) -> Tensor:
    """``torch.softmax`` with zeros instead of NaN, and without gradient, where every score is -inf."""
    possible = (scores > -torch.inf).any(dim, keepdim=True)
    return torch.where(possible, torch.where(possible, scores, 0.0).softmax(dim), 0.0)


def logsumexp(values: Tensor, dim: int) -> Tensor:
    """``torch.logsumexp`` with zero instead of NaN gradients where every value is -inf; twice differentiable."""
    largest = values.detach().amax(dim, keepdim=True)
    largest = torch.where(largest.isfinite(), largest, 0.0)
    total = (values - largest).exp().sum(dim)
    empty = total == 0
    return torch.where(empty, -torch.inf, torch.where(empty, 1.0, total).log() + largest.squeeze(dim))
