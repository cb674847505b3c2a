"""Vectors that hidden Markov models observe in their states: normal distributions, and mixtures of these."""

from __future__ import annotations

import math
from typing import Literal

import torch
from torch import Tensor, nn

from structsmooth.models.emissions import EMPTY, Emissions, Sums, set_shares, without_missing
from structsmooth.structures import checks
from structsmooth.structures.semirings import logsumexp, softmax


class GaussianEmissions(Emissions):
    """Vectors of F numbers with a normal distribution in each state; NaN where a number is missing.

    Missing numbers are integrated out: with diagonal covariances any may be, with full ones whole vectors.

    Args:
        states: number S of states.
        features: number F.
        covariance: ``"diag"`` or ``"full"``.
        least: no variance is estimated below this, in the squared units of the vectors; or a tensor [F], for each of
            their numbers. Full covariances are at least the diagonal matrix of these.
        dtype: of the parameters.

    Attributes:
        means: [S, F]; random at first.
        scale: logarithms of standard deviations [S, F]; for full covariances, Cholesky factors [S, F, F] with the
            logarithm of their diagonal, whose upper triangle is not used.
        least: [F], a buffer.

    Raises:
        ValueError: another ``covariance``, or ``least`` that is not positive.
    """

    least: Tensor

    def __init__(
        self,
        states: int,
        features: int,
        covariance: Literal["diag", "full"] = "diag",
        least: float | Tensor = 1e-6,
        dtype: torch.dtype = torch.float64,
    ) -> None:
        super().__init__(states)
        if covariance not in ("diag", "full"):
            raise ValueError(f'covariance must be "diag" or "full", got {covariance!r}')
        self.covariance = covariance
        bound = torch.as_tensor(least, dtype=dtype).expand(checks.require_count("features", features)).clone()
        if not bool((bound > 0).all()):
            raise ValueError(f"least must be > 0, got {least}")
        self.register_buffer("least", bound, persistent=False)
        self._place((states, features), dtype)

    def _place(self, shape: tuple[int, ...], dtype: torch.dtype) -> None:
        """Make parameters for means of a shape [..., F]."""
        self.means = nn.Parameter(torch.randn(shape, dtype=dtype))
        self.scale = nn.Parameter(torch.zeros((*shape, *shape[-1:] * (self.covariance == "full")), dtype=dtype))

    @property
    def factors(self) -> Tensor:
        """Cholesky factors [..., F, F] of covariances."""
        if self.covariance == "diag":
            return self.scale.exp().diag_embed()
        return self.scale.tril(-1) + self.scale.diagonal(dim1=-2, dim2=-1).exp().diag_embed()

    @property
    def covariances(self) -> Tensor:
        """Variances [S, F], or covariances [S, F, F]."""
        return (2 * self.scale).exp() if self.covariance == "diag" else self.factors @ self.factors.mT

    def scales(self, covariances: Tensor) -> Tensor:
        """The ``scale`` of variances [S, F], or covariances [S, F, F].

        Raises:
            ValueError: some that are not positive, or not symmetric and positive definite.
        """
        is_diagonal = self.covariance == "diag"
        factors, failed = (
            (covariances.sqrt(), covariances <= 0) if is_diagonal else torch.linalg.cholesky_ex(covariances)
        )
        near = 1e-8 * float(covariances.detach().abs().max())
        is_symmetric = is_diagonal or torch.allclose(covariances, covariances.mT, atol=near)
        if bool(failed.any()) or bool(factors.isnan().any()) or not is_symmetric:
            raise ValueError("covariances must be positive, and symmetric and positive definite if they are full")
        logs = factors if is_diagonal else factors.diagonal(dim1=-2, dim2=-1)
        return logs.log() if is_diagonal else factors.tril(-1) + logs.log().diag_embed()

    @torch.no_grad()
    def set_covariances(self, covariances: Tensor) -> None:
        """Set variances [S, F], or covariances [S, F, F], which :meth:`scales` may refuse."""
        self.scale.copy_(self.scales(covariances))

    @property
    def at_least(self) -> Tensor:
        """Booleans [S]: whether a variance of the state is the least one."""
        found = self.covariances.detach()
        if self.covariance == "full":
            found = torch.linalg.eigvalsh(found / self._bound) * self.least
        return (found <= self.least * (1 + 1e-6)).any(-1)

    @property
    def _bound(self) -> Tensor:
        """What full covariances are divided by for their least eigenvalue to be one, [F, F]."""
        return torch.outer(self.least.sqrt(), self.least.sqrt())

    def forward(self, x: Tensor) -> Tensor:
        """Scores [B, T, S] of vectors [B, T, F]."""
        x, seen = self._vectors(x)
        features = x.shape[2]
        away = x.unsqueeze(2) - self.means.view(-1, features)  # [B, T, S, F]
        if self.covariance == "diag":
            scale = self.scale.view(-1, features)
            terms = (away * (-scale).exp()).square() + 2 * scale + math.log(2 * math.pi)
            return -torch.where(seen.unsqueeze(2), terms, 0.0).sum(3) / 2
        factors = self.factors.view(-1, features, features)
        solved = torch.linalg.solve_triangular(factors, away.unsqueeze(4), upper=False).squeeze(4)
        logs = 2 * factors.diagonal(dim1=1, dim2=2).log().sum(1) + features * math.log(2 * math.pi)
        return -torch.where(seen[..., :1], solved.square().sum(3) + logs, 0.0) / 2

    def _vectors(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Vectors without missing numbers, and which are not: all or none of a vector where covariances are full."""
        x, seen = without_missing(x)
        if self.covariance == "full" and checks.can_read_values() and bool((seen.any(2) & ~seen.all(2)).any()):
            raise ValueError('x must be missing as a whole vector with covariance="full", got one in part')
        return x, seen

    def sums(self, x: Tensor, weights: Tensor) -> Sums:
        """Expected numbers [S, F] of values in each state, their means [S, F], and scatter about these.

        Scatter is [S, F], or [S, F, F] for full covariances. Each state has its own centre: about a common one, the
        variances of states that are far apart would be lost to rounding.
        """
        x, seen = (values.flatten(0, 1) for values in self._vectors(x))
        w, inside = weights.flatten(0, 1).mT, seen.to(weights.dtype)
        count = w @ inside
        mean, scatter = w @ x / count.clamp_min(EMPTY), []
        for state, row in enumerate(w):
            away = (x - mean[state]) * inside
            weighted = row.unsqueeze(1) * away
            mean[state] += weighted.sum(0) / count[state].clamp_min(EMPTY)  # what rounding left
            scatter.append((weighted * away).sum(0) if self.covariance == "diag" else weighted.mT @ away)
        return count, mean, torch.stack(scatter)

    def merge(self, one: Sums, other: Sums) -> Sums:
        """Numbers and scatter add up, the latter with that of the means."""
        (n, mean, scatter), (m, other_mean, other_scatter) = one[:3], other[:3]
        share, away = m / (n + m).clamp_min(EMPTY), other_mean - mean
        return n + m, mean + away * share, scatter + other_scatter + self._moved(n * share, away)

    def _moved(self, count: Tensor, away: Tensor) -> Tensor:
        """The scatter that values gain by a mean that is ``away`` from their own."""
        if self.covariance == "diag":
            return count * away.square()
        return count[:, :1, None] * away.unsqueeze(2) * away.unsqueeze(1)

    @torch.no_grad()
    def estimate(self, sums: Sums) -> None:
        """Set means, and covariances that are not below the least ones."""
        count, mean, scatter = sums[:3]
        if not self.means.requires_grad:
            kept = self.means.view_as(mean)
            mean, scatter = kept, scatter + self._moved(count, mean - kept)
        empty, one = count < EMPTY, count.clamp_min(EMPTY)
        if self.scale.requires_grad:
            if self.covariance == "diag":
                kept, found = empty, torch.maximum(scatter / one, self.least)
            else:
                kept, relative = empty[:, :1, None], scatter / one[:, :1, None] / self._bound
                values, vectors = torch.linalg.eigh(relative)
                found = vectors * values.clamp_min(1.0).unsqueeze(1) @ vectors.mT * self._bound
            old = self.covariances
            self.set_covariances(torch.where(kept, old.view_as(found), found).view_as(old))
        if self.means.requires_grad:
            self.means.copy_(torch.where(empty, self.means.view_as(mean), mean).view_as(self.means))

    @property
    def free(self) -> int:
        """S F, and S F or S F (F + 1) / 2 of covariances."""
        vectors, features = self.means.numel(), self.means.shape[-1]
        return vectors + (vectors if self.covariance == "diag" else vectors * (features + 1) // 2)

    def expected(self) -> Tensor:
        """Means [S, F]."""
        return self.means

    @torch.no_grad()
    def sample(self, states: Tensor, generator: torch.Generator | None = None) -> Tensor:
        """Vectors [n, F]."""
        return self._drawn((states,), generator)

    def _drawn(self, places: tuple[Tensor, ...], generator: torch.Generator | None) -> Tensor:
        """Vectors [n, F] of the normal distributions at indices into means."""
        means = self.means[places]
        noise = torch.randn(means.shape, generator=generator, dtype=means.dtype, device=means.device)
        if self.covariance == "diag":
            return means + self.scale[places].exp() * noise
        return means + (self.factors[places] @ noise.unsqueeze(2)).squeeze(2)


class GaussianMixtureEmissions(GaussianEmissions):
    """Vectors of F numbers with a mixture of K normal distributions in each state; NaN as in the base class.

    Args:
        states: number S of states.
        components: number K of normal distributions in each.
        features: number F.
        covariance: as for :class:`GaussianEmissions`.
        least: as for :class:`GaussianEmissions`.
        dtype: of the parameters.

    Attributes:
        means: [S, K, F]; random at first.
        scale: as for :class:`GaussianEmissions`, [S, K, F] or [S, K, F, F].
        logits: log-probabilities [S, K] of the components of a state, up to a constant.
    """

    def __init__(
        self,
        states: int,
        components: int,
        features: int,
        covariance: Literal["diag", "full"] = "diag",
        least: float | Tensor = 1e-6,
        dtype: torch.dtype = torch.float64,
    ) -> None:
        super().__init__(states, features, covariance, least, dtype)
        self._place((states, checks.require_count("components", components), features), dtype)
        self.logits = nn.Parameter(torch.zeros(states, components, dtype=dtype))

    def forward(self, x: Tensor) -> Tensor:
        """Scores [B, T, S] of vectors [B, T, F]."""
        return logsumexp(self._joint(x), 3)

    def _joint(self, x: Tensor) -> Tensor:
        """Scores [B, T, S, K] of vectors together with their components."""
        scores: Tensor = super().forward(x).unflatten(2, self.logits.shape)
        return scores + self.logits.log_softmax(1)

    def sums(self, x: Tensor, weights: Tensor) -> Sums:
        """Those of normal distributions, and expected numbers [S, K] of components."""
        weights = weights.unsqueeze(3) * softmax(self._joint(x), 3)
        known = ~x.isnan().all(2)
        return *super().sums(x, weights.flatten(2)), weights[known].sum(0)

    def merge(self, one: Sums, other: Sums) -> Sums:
        """As for normal distributions; numbers of components add up."""
        return *super().merge(one, other), one[3] + other[3]

    @torch.no_grad()
    def estimate(self, sums: Sums) -> None:
        """Set means and covariances, and the probabilities of components to their shares."""
        super().estimate(sums)
        set_shares(self.logits, sums[3])

    @property
    def free(self) -> int:
        """That of S K normal distributions, and S (K - 1)."""
        return super().free + self.logits.numel() - self.states

    def expected(self) -> Tensor:
        """Means [S, F] of mixtures."""
        return (self.logits.softmax(1).unsqueeze(2) * self.means).sum(1)

    @torch.no_grad()
    def sample(self, states: Tensor, generator: torch.Generator | None = None) -> Tensor:
        """Vectors [n, F]."""
        components = self.logits.softmax(1)[states].multinomial(1, generator=generator)[:, 0]
        return self._drawn((states, components), generator)
