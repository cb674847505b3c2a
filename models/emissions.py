"""What hidden Markov models observe in their states: families of distributions, those of symbols and of counts."""

from __future__ import annotations

from abc import ABC, abstractmethod

import torch
from torch import Tensor, nn

from structsmooth.structures import checks
from structsmooth.structures.hidden_markov import emitted

Sums = tuple[Tensor, ...]
EMPTY = 1e-10  # a state with a smaller expected number of observations keeps its parameters


class Emissions(nn.Module, ABC):
    """A family of distributions of observations in each of S states, and how they are estimated.

    A family has parameters, ``forward``, ``sums`` and ``estimate``; ``expected`` and ``sample`` if models shall predict
    and draw observations. Parameters that do not require gradients are kept as they are by ``estimate``, too.

    Args:
        states: number S of states.
    """

    def __init__(self, states: int) -> None:
        super().__init__()
        self.states = checks.require_count("states", states)

    @abstractmethod
    def forward(self, x: Tensor) -> Tensor:
        """Scores [B, T, S] of observations ``x`` [B, T, ...]; 0 where one is missing."""

    @abstractmethod
    def sums(self, x: Tensor, weights: Tensor) -> Sums:
        """What an estimate needs of observations ``x`` [B, T, ...] with weights [B, T, S]."""

    def merge(self, one: Sums, other: Sums) -> Sums:
        """The sums of two batches together: they add up, unless a family says otherwise."""
        return tuple(old + new for old, new in zip(one, other, strict=True))

    @abstractmethod
    def estimate(self, sums: Sums) -> None:
        """Set the parameters to those of the largest likelihood; states without observations keep theirs."""

    @property
    def free(self) -> int:
        """The number of free parameters."""
        return sum(parameter.numel() for parameter in self.parameters())

    def expected(self) -> Tensor:
        """The expected observation in each state, [S, ...]; for symbols, their probabilities."""
        raise NotImplementedError(f"{type(self).__name__} has no expected(), which predictions need: define it")

    def sample(self, states: Tensor, generator: torch.Generator | None = None) -> Tensor:
        """Observations [n, ...] in ``states`` [n]."""
        raise NotImplementedError(f"{type(self).__name__} has no sample(): define it to draw observations")


class CategoricalEmissions(Emissions):
    """Symbols 0 to V - 1, or -1 where one is missing.

    Args:
        states: number S of states.
        symbols: number V of symbols.
        dtype: of the parameters.

    Attributes:
        logits: log-probabilities up to a constant for each state, [S, V]; random at first.
    """

    def __init__(self, states: int, symbols: int, dtype: torch.dtype = torch.float64) -> None:
        super().__init__(states)
        self.logits = nn.Parameter(torch.randn(states, checks.require_count("symbols", symbols), dtype=dtype))

    def forward(self, x: Tensor) -> Tensor:
        """Scores [B, T, S] of symbols [B, T]."""
        return emitted(self.logits.log_softmax(1), x)

    def sums(self, x: Tensor, weights: Tensor) -> Sums:
        """Expected numbers [S, V] of symbols in each state."""
        symbols, states = self.logits.shape[1], self.states
        # A first row for those that are missing; one dimension, since rows take longer than their numbers.
        rows = x.long().clamp_min(-1).unsqueeze(2) + 1
        places = rows * states + torch.arange(states, device=x.device)
        counts = weights.new_zeros((symbols + 1) * states).index_add(0, places.flatten(), weights.flatten())
        return (counts.view(-1, states)[1:].mT,)

    def estimate(self, sums: Sums) -> None:
        """Set the probabilities to the shares of symbols."""
        set_shares(self.logits, sums[0])

    @property
    def free(self) -> int:
        """S (V - 1)."""
        return self.logits.numel() - self.states

    def expected(self) -> Tensor:
        """Probabilities [S, V] of symbols."""
        return self.logits.softmax(1)

    def sample(self, states: Tensor, generator: torch.Generator | None = None) -> Tensor:
        """Symbols [n]."""
        return self.expected().detach()[states].multinomial(1, generator=generator)[:, 0]


class PoissonEmissions(Emissions):
    """Vectors of F counts, independent given the state and with a Poisson distribution each; NaN where one is missing.

    Args:
        states: number S of states.
        features: number F.
        dtype: of the parameters.

    Attributes:
        logs: logarithms [S, F] of the rates; random at first.
    """

    def __init__(self, states: int, features: int, dtype: torch.dtype = torch.float64) -> None:
        super().__init__(states)
        self.logs = nn.Parameter(torch.randn(states, checks.require_count("features", features), dtype=dtype))

    def forward(self, x: Tensor) -> Tensor:
        """Scores [B, T, S] of counts [B, T, F], floating point."""
        x, seen = without_missing(x)
        x, seen = x.unsqueeze(2), seen.unsqueeze(2)
        scores = torch.where(x > 0, x * self.logs, 0.0) - self.logs.exp() - (x + 1).lgamma()
        return torch.where(seen, scores, 0.0).sum(3)

    def sums(self, x: Tensor, weights: Tensor) -> Sums:
        """Expected numbers [S, F] of observations in each state, and the sums of their counts."""
        x, seen = without_missing(x)
        w = weights.flatten(0, 1).mT
        return w @ seen.flatten(0, 1).to(w.dtype), w @ x.flatten(0, 1)

    @torch.no_grad()
    def estimate(self, sums: Sums) -> None:
        """Set the rates to mean counts."""
        if self.logs.requires_grad:
            count, total = sums
            self.logs.copy_(torch.where(count < EMPTY, self.logs, (total / count.clamp_min(EMPTY)).log()))

    def expected(self) -> Tensor:
        """Rates [S, F]."""
        return self.logs.exp()

    def sample(self, states: Tensor, generator: torch.Generator | None = None) -> Tensor:
        """Counts [n, F]."""
        return torch.poisson(self.expected().detach()[states], generator)


def without_missing(x: Tensor) -> tuple[Tensor, Tensor]:
    """Numbers with 0 for those that are missing, and booleans: which are not."""
    seen = ~x.isnan()
    return torch.where(seen, x, 0.0), seen


@torch.no_grad()
def set_shares(logits: nn.Parameter, counts: Tensor) -> None:
    """Set log-probabilities [..., V] to those of shares of counts; those of rows without any stay."""
    if logits.requires_grad:
        total = counts.sum(-1, keepdim=True)
        logits.copy_(torch.where(total > 0, (counts / total).log(), logits))
