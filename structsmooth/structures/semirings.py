"""Semirings over torch tensors: one recursion, many oracles.

Values have a trailing axis of R slots (the K best, or one). Multiplication is always the addition of scores; a semiring
is defined by how it embeds a score and how it sums.
"""

from __future__ import annotations  # torch.compile of torch 2.5 does not trace those of nested functions

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import torch
from torch import Tensor

from structsmooth.structures.checks import is_exporting
from structsmooth.structures.derivatives import apart_from_hooks, outside_inference_mode, pullbacks


class Semiring(ABC):
    """How a recursion sums the scores of alternatives, and so which oracle it becomes."""

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
        self.k, self._largest = k, _by_rounds if is_exporting() else _by_sorting

    def embed(self, scores: Tensor) -> Tensor:
        """The score itself, followed by k - 1 times -inf."""
        rest = scores.new_full((*scores.shape, self.k - 1), -torch.inf)
        return torch.cat([scores.unsqueeze(-1), rest], -1)

    def sum(self, values: Tensor, dim: int) -> Tensor:
        """The k largest over ``dim`` and the slots; ties go to the lowest index."""
        return self._largest(values.movedim(dim, -2).flatten(-2), self.k)[0]

    def find(self, values: Tensor, ranks: Tensor) -> tuple[Tensor, Tensor]:
        """Where :meth:`sum` took the values of the given ranks from: the way back along the best alternatives.

        Args:
            values: [..., A, R], with leading dimensions that broadcast to those of the ranks.
            ranks: int64 [...], of a value in the sum over A.

        Returns:
            Indices of alternatives [...], and slots [...].
        """
        order = self._largest(values.flatten(-2), self.k)[1].expand(*ranks.shape, -1)
        place = order.gather(-1, ranks.unsqueeze(-1)).squeeze(-1)
        return place // values.shape[-1], place % values.shape[-1]


def _by_sorting(values: Tensor, k: int) -> tuple[Tensor, Tensor]:
    """The k largest of each list in values [..., A], best first, and where they are."""
    if k == 1:
        return values.max(-1, keepdim=True)
    found = values.sort(dim=-1, descending=True, stable=True)
    return found.values[..., :k], found.indices[..., :k]


def _by_rounds(values: Tensor, k: int) -> tuple[Tensor, Tensor]:
    """The same by k maxima, since ONNX has no stable sort."""
    rounds, place = [], torch.arange(values.shape[-1], device=values.device)
    for _ in range(k):
        rounds.append(values.max(-1, keepdim=True))
        values = torch.where(place == rounds[-1][1], -torch.inf, values)
    found, places = zip(*rounds, strict=True)
    return torch.cat(found, -1), torch.cat(places, -1)


class Draw(Semiring):
    """Sums are log-sum-exp, and their gradient goes to one alternative, drawn with its probability.

    So the gradient of the sum over all outputs is the indicator of a sample, if an output uses each value at most once.

    Args:
        generator: source of random numbers; torch's global one if not given.
    """

    def __init__(self, generator: torch.Generator | None = None) -> None:
        self.generator = generator

    def sum(self, values: Tensor, dim: int) -> Tensor:
        """Log-sum-exp over ``dim``."""
        total: Tensor = _Drawn.apply(values, dim, self.generator)
        return total


class _Drawn(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, values: Tensor, dim: int, generator: torch.Generator | None) -> Tensor:
        ctx.save_for_backward(values)
        ctx.dim, ctx.generator = dim, generator
        return logsumexp(values, dim)

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None, None]:
        (values,), dim, generator = ctx.saved_tensors, ctx.dim, ctx.generator
        source = values.device if generator is None else generator.device
        uniform = torch.rand(grad.shape, generator=generator, dtype=torch.float64, device=source).to(values.device)
        drawn = inverse_cdf(values.movedim(dim, -1), uniform)
        return torch.zeros_like(values).scatter(dim, drawn.unsqueeze(dim), grad.unsqueeze(dim)), None, None


# Semiring sum [B, R] of the scores of all outputs, from a semiring and potentials, [B, ...] each.
Recursion = Callable[..., Tensor]


def log_partition(recursion: Recursion, *potentials: Tensor) -> Tensor:
    """The exp oracle of a recursion: log Σ exp score, [B]; twice differentiable.

    Args:
        recursion: ``recursion(semiring, *potentials)``, the semiring sum [B, R] of the scores of all outputs.
        potentials: θ, [B, ...] each.
    """
    return recursion(Log(), *potentials).squeeze(-1)


def marginals(recursion: Recursion, *potentials: Tensor) -> tuple[Tensor, ...]:
    """Marginals in the shapes of the potentials, differentiable: the gradient of the log-partition function.

    Args:
        recursion: as for :func:`log_partition`.
        potentials: θ, [B, ...] each.
    """

    def total(*arguments: Tensor) -> Tensor:
        return log_partition(recursion, *_shifted(arguments))

    ones = potentials[0].new_ones(potentials[0].shape[0])
    return pullbacks(total, [ones], _zeros(potentials), *potentials)[0]


def top_k(recursion: Recursion, k: int, *potentials: Tensor) -> tuple[Tensor, tuple[Tensor, ...]]:
    """The top-K oracle of a recursion, and its max oracle for k = 1.

    Args:
        recursion: as for :func:`log_partition`.
        k: number of outputs.
        potentials: θ, [B, ...] each.

    Returns:
        Scores [B, k] of the best outputs, best first, differentiable; -inf where there are fewer. And the indicators
        of their parts, a tensor [B, k, ...] for each of the potentials: the gradients of the scores. They are zero
        where there is no output.
    """
    values = recursion(TopK(k), *potentials)
    values = torch.where(values > -torch.inf, values, -torch.inf)

    def totals(*arguments: Tensor) -> Tensor:
        return recursion(TopK(k), *_shifted(arguments)).sum(0)

    slots = torch.eye(values.shape[1], dtype=values.dtype, device=values.device)
    found = pullbacks(totals, slots, _zeros(potentials), *(potential.detach() for potential in potentials))
    parts = [torch.stack(gradients, 1) for gradients in zip(*found, strict=True)]
    return values, _where_possible(values.detach(), parts)


def sample(
    recursion: Recursion, n: int, *potentials: Tensor, generator: torch.Generator | None = None
) -> tuple[Tensor, ...]:
    """Exact, independent samples of the Gibbs distribution: one pass forward, and one back for each sample.

    Args:
        recursion: as for :func:`log_partition`; an output uses each of the values that it sums at most once, as where
            parts are put together in one way.
        n: number of samples of each example.
        potentials: θ, [B, ...] each.
        generator: source of random numbers; torch's global one if not given.

    Returns:
        The indicators of their parts, a tensor [B, n, ...] for each of the potentials; zero for examples without
        outputs.
    """

    def indicators(*potentials: Tensor) -> tuple[Tensor, ...]:
        with torch.enable_grad(), apart_from_hooks():
            shifts = [zero.requires_grad_() for zero in _zeros(potentials)]
            total = recursion(Draw(generator), *_shifted((*shifts, *potentials))).squeeze(-1)
            draws = [torch.autograd.grad(total.sum(), shifts, retain_graph=True) for _ in range(n)]
        parts = tuple(torch.stack(gradients, 1) for gradients in zip(*draws, strict=True))
        return _where_possible(total.detach().unsqueeze(1), parts)

    return outside_inference_mode(indicators, *(potential.detach() for potential in potentials))


def _zeros(potentials: Iterable[Tensor]) -> list[Tensor]:
    return list(map(torch.zeros_like, potentials))


def _shifted(arguments: Sequence[Tensor]) -> list[Tensor]:
    """Potentials with shifts, which come first."""
    count = len(arguments) // 2
    return [potential + shift for shift, potential in zip(arguments[:count], arguments[count:], strict=True)]


def _where_possible(values: Tensor, parts: Iterable[Tensor]) -> tuple[Tensor, ...]:
    """Indicators [B, K, ...], or zeros where values [B, K or 1] are -inf."""
    possible = values > -torch.inf
    return tuple(torch.where(possible.view(*possible.shape, *[1] * (part.dim() - 2)), part, 0.0) for part in parts)


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


def softmax(scores: Tensor, dim: int) -> Tensor:
    """``torch.softmax`` with zeros, and without gradient, where every score is -inf, or one is NaN or +inf."""
    possible = scores.detach().amax(dim, keepdim=True).isfinite()
    return torch.where(possible, torch.where(possible, scores, 0.0).softmax(dim), 0.0)


def logsumexp(values: Tensor, dim: int) -> Tensor:
    """``torch.logsumexp``, but with zero gradients where it is no finite number; twice differentiable."""
    largest = values.detach().amax(dim, keepdim=True)
    finite = largest.isfinite()
    total = torch.where(finite, values - torch.where(finite, largest, 0.0), 0.0).exp().sum(dim)
    return torch.where(finite.squeeze(dim), total.log(), 0.0) + largest.squeeze(dim)
