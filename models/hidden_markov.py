"""Hidden Markov models with their parameters: gradients, expectation maximization and training by best paths."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import TYPE_CHECKING, Literal

import torch
from torch import Tensor, nn

from structsmooth.scores import ScoreModule
from structsmooth.structures import HiddenMarkov, checks
from structsmooth.structures.hidden_markov import emitted

Sums = tuple[Tensor, ...]


class Emissions(nn.Module, ABC):
    """Log-probabilities of observations in each of S states, and how they are estimated from weighted observations.

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
        """What an estimate needs of observations ``x`` [B, T, ...] with weights [B, T, S]; sums of batches add up."""

    @abstractmethod
    def estimate(self, sums: Sums) -> None:
        """Set the parameters to those of the largest likelihood; states without observations keep theirs."""


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
        seen = (x >= 0).flatten()
        counts = weights.new_zeros(self.logits.shape[1], self.states)
        return (counts.index_add(0, x.flatten()[seen], weights.flatten(0, 1)[seen]).mT,)

    def estimate(self, sums: Sums) -> None:
        """Set the probabilities to the shares of symbols."""
        _set_shares(self.logits, sums[0])


class GaussianEmissions(Emissions):
    """Vectors of F numbers with a normal distribution in each state; NaN where a number is missing.

    Missing numbers are integrated out: with diagonal covariances any may be, with full ones whole vectors.

    Args:
        states: number S of states.
        features: number F.
        covariance: ``"diag"`` or ``"full"``.
        least: no variance is estimated below this; with full covariances, no eigenvalue.
        dtype: of the parameters.

    Attributes:
        means: [S, F]; random at first.
        scale: logarithms of standard deviations [S, F]; for full covariances, Cholesky factors [S, F, F] with the
            logarithm of their diagonal, whose upper triangle is not used.
    """

    def __init__(
        self,
        states: int,
        features: int,
        covariance: Literal["diag", "full"] = "diag",
        least: float = 1e-3,
        dtype: torch.dtype = torch.float64,
    ) -> None:
        super().__init__(states)
        if covariance not in ("diag", "full"):
            raise ValueError(f'covariance must be "diag" or "full", got {covariance!r}')
        shape = (states, checks.require_count("features", features))
        self.covariance, self.least = covariance, least
        self.means = nn.Parameter(torch.randn(shape, dtype=dtype))
        self.scale = nn.Parameter(torch.zeros(shape if covariance == "diag" else (*shape, features), dtype=dtype))

    @property
    def factors(self) -> Tensor:
        """Cholesky factors [S, F, F] of full covariances."""
        return self.scale.tril(-1) + self.scale.diagonal(dim1=1, dim2=2).exp().diag_embed()

    @property
    def covariances(self) -> Tensor:
        """Variances [S, F], or covariances [S, F, F]."""
        return (2 * self.scale).exp() if self.covariance == "diag" else self.factors @ self.factors.mT

    @torch.no_grad()
    def set_covariances(self, covariances: Tensor) -> None:
        """Set variances [S, F], or covariances [S, F, F]; raises ``ValueError`` if they are not positive (definite)."""
        is_diagonal = self.covariance == "diag"
        factors, failed = (
            (covariances.sqrt(), covariances <= 0) if is_diagonal else torch.linalg.cholesky_ex(covariances)
        )
        is_symmetric = is_diagonal or torch.allclose(covariances, covariances.mT)
        if bool(failed.any()) or bool(factors.isnan().any()) or not is_symmetric:
            raise ValueError("covariances must be positive, and symmetric and positive definite if they are full")
        logs = factors if is_diagonal else factors.diagonal(dim1=1, dim2=2)
        self.scale.copy_(logs.log() if is_diagonal else factors.tril(-1) + logs.log().diag_embed())

    def forward(self, x: Tensor) -> Tensor:
        """Scores [B, T, S] of vectors [B, T, F]."""
        x, seen = self._seen(x)
        away = x.unsqueeze(2) - self.means  # [B, T, S, F]
        if self.covariance == "diag":
            terms = (away * (-self.scale).exp()).square() + 2 * self.scale + math.log(2 * math.pi)
            return -torch.where(seen.unsqueeze(2), terms, 0.0).sum(3) / 2
        solved = torch.linalg.solve_triangular(self.factors, away.unsqueeze(4), upper=False).squeeze(4)
        logs = 2 * self.scale.diagonal(dim1=1, dim2=2).sum(1) + x.shape[2] * math.log(2 * math.pi)
        return -torch.where(seen[..., :1], solved.square().sum(3) + logs, 0.0) / 2

    def _seen(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Vectors with 0 for what is missing, and booleans [B, T, F]: what is not."""
        seen = ~x.isnan()
        if self.covariance == "full" and checks.can_read_values() and bool((seen.any(2) & ~seen.all(2)).any()):
            raise ValueError('x must be missing as a whole vector with covariance="full", got one in part')
        return torch.where(seen, x, 0.0), seen

    def sums(self, x: Tensor, weights: Tensor) -> Sums:
        """Expected numbers [S, F] of values in each state, and their first and second moments about the mean of means.

        The second ones are [S, F], or [S, F, F] for full covariances.
        """
        x, seen = self._seen(x)
        w, seen = weights.flatten(0, 1).mT, seen.flatten(0, 1).to(weights.dtype)
        away = (x - self.means.mean(0)).flatten(0, 1) * seen
        second = w @ away.square() if self.covariance == "diag" else torch.einsum("sn,nf,ng->sfg", w, away, away)
        return w @ seen, w @ away, second

    @torch.no_grad()
    def estimate(self, sums: Sums) -> None:
        """Set means, and covariances that are not below the least ones."""
        count, first, second = sums
        empty, one = count < 1e-10, count.clamp_min(1e-10)
        mean = first / one
        if self.covariance == "diag":
            found = (second / one - mean.square()).clamp_min(self.least)
            kept = empty
        else:
            values, vectors = torch.linalg.eigh(second / one[:, :1, None] - mean.unsqueeze(2) * mean.unsqueeze(1))
            found = vectors * values.clamp_min(self.least).unsqueeze(1) @ vectors.mT
            kept = empty[:, :1, None]
        self.set_covariances(torch.where(kept, self.covariances, found))
        self.means.copy_(torch.where(empty, self.means, mean + self.means.mean(0)))


class HMM(ScoreModule):
    """A hidden Markov model: the structure over the states of sequences of observations, and its training.

    The log-likelihood of sequences is ``model(x).logsumexp()``, which gradients maximize as any other layer's;
    :meth:`em_step` is a step of Baum and Welch, which never lowers it.

    Args:
        emissions: of the S states: :class:`CategoricalEmissions`, :class:`GaussianEmissions` or others.

    Attributes:
        start: log-probabilities [S] of first states, up to a constant.
        transition: log-probabilities [S, S] of each state after each other one, up to a constant for each row.

    Reference:
        Baum, Petrie, Soules and Weiss (1970), "A maximization technique occurring in the statistical analysis of
        probabilistic functions of Markov chains"; Juang and Rabiner (1990), on training by best paths.

    Example:
        >>> symbols = torch.tensor([[0, 0, 0, 1, 1, 1, 0, 0, 0], [1, 1, 0, 0, 0, -1, 0, 1, 1]])
        >>> torch.manual_seed(0)  # doctest: +ELLIPSIS
        <torch...>
        >>> model = HMM(CategoricalEmissions(2, 2))
        >>> likelihoods = [model.em_step([(symbols, torch.tensor([9, 9]))]) for _ in range(20)]
        >>> all(after > before for before, after in zip(likelihoods, likelihoods[1:]))
        True
        >>> model(symbols).max()[1][0].diff().nonzero().flatten().tolist()  # changes after the third and the sixth
        [2, 5]
    """

    def __init__(self, emissions: Emissions) -> None:
        super().__init__()
        self.emissions, states = emissions, emissions.states
        dtype = next((p.dtype for p in emissions.parameters()), torch.float64)
        self.start = nn.Parameter(torch.zeros(states, dtype=dtype))
        self.transition = nn.Parameter(torch.zeros(states, states, dtype=dtype))

    if TYPE_CHECKING:

        def __call__(self, x: Tensor | tuple[Tensor, Tensor]) -> HiddenMarkov:
            """As :meth:`forward`."""

    def forward(self, x: Tensor | tuple[Tensor, Tensor]) -> HiddenMarkov:
        """The structure over the states of observations ``x`` [B, T, ...], alone or with lengths [B]."""
        x, lengths = x if isinstance(x, tuple) else (x, None)
        start, transition = self.start.log_softmax(0), self.transition.log_softmax(1)
        return HiddenMarkov(start, transition, self.emissions(x), lengths=lengths)

    def em_step(self, batches: Sequence[tuple[Tensor, Tensor]], *, viterbi: bool = False) -> float:
        """Estimate all parameters from expected states, and return the log-likelihood before the step.

        Args:
            batches: observations [B, T, ...] with their lengths [B]; all of the data.
            viterbi: take the best path of each sequence for its states: then the value is the sum of their scores,
                which never falls.

        Raises:
            ValueError: no batch, or a sequence that the model makes impossible.
        """
        if not batches:
            raise ValueError("batches must not be empty")
        value, totals = 0.0, None
        for x, lengths in batches:
            with torch.no_grad():
                inputs = self.start.log_softmax(0), self.transition.log_softmax(1), self.emissions(x)
            start, transition, scores = (tensor.requires_grad_() for tensor in inputs)
            with torch.enable_grad():
                structure = HiddenMarkov(start, transition, scores, lengths=lengths)
                best = structure.max()[0] if viterbi else structure.logsumexp()
                checks.require_feasible(structure, best)
                counts = torch.autograd.grad(best.sum(), (start, transition, scores))
            with torch.no_grad():
                found = [*counts[:2], *self.emissions.sums(x, counts[2])]
                totals = found if totals is None else [old + new for old, new in zip(totals, found, strict=True)]
            value += float(best.detach().sum())
        assert totals is not None
        _set_shares(self.start, totals[0])
        _set_shares(self.transition, totals[1])
        self.emissions.estimate(tuple(totals[2:]))
        return value


@torch.no_grad()
def _set_shares(logits: Tensor, counts: Tensor) -> None:
    """Set log-probabilities [..., V] to those of shares of counts; those of rows without any stay."""
    total = counts.sum(-1, keepdim=True)
    logits.copy_(torch.where(total > 0, (counts / total).log(), logits))
