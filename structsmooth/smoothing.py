"""Smoothers: the max over outputs and its smooth surrogates (Pillutla et al. 2019, sections 2.2 and 2.3)."""

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import TypeVar

import torch
from torch import Tensor

from structsmooth.settings import PositiveInt, check_settings
from structsmooth.structures.base import Structure, widened
from structsmooth.structures.checks import Mu
from structsmooth.structures.distribution import by_example
from structsmooth.structures.operators import smoothed_maximum
from structsmooth.structures.sparse_marginals import RegularizedParts, SparseSolution, sparse_map

T = TypeVar("T", bound="Smoother")


class Smoother(ABC):
    """A smoothed max h_μ: called on a structure, it returns h_μ(θ), [B], whose gradient is the oracle's statistics.

    It is -inf, with gradient zero, for examples that have no output, or that use a score of NaN or +inf and are not
    checked; see :meth:`~structsmooth.Structure.without_wrong`.
    """

    @abstractmethod
    def __call__(self, structure: Structure) -> Tensor:
        """h_μ of the scores of all outputs: [B], differentiable."""

    def with_max(self, structure: Structure) -> tuple[Tensor, Tensor | None]:
        """h_μ(θ) and, if the same oracle call gives it, the largest score, without gradient: [B] each.

        Losses call it, of structures in which no example is wrong.
        """
        return self(structure), None

    def penalty(self, structure: Structure, y: Tensor | tuple[Tensor, ...]) -> Tensor | None:
        """What smoothing takes from outputs ``y`` [B, ...], or statistics, by themselves: [B]; ``None`` for nothing."""
        return None

    def with_mu(self: T, mu: float) -> T:
        """The same smoother with another level of smoothing; ``Max``, which has none, returns itself."""
        return self


@dataclass(frozen=True)
class Max(Smoother):
    """No smoothing, μ = 0: the max oracle. The gradient is a subgradient."""

    def __call__(self, structure: Structure) -> Tensor:
        """The largest score [B]: h_μ for μ = 0."""
        return structure.without_wrong().max()[0]

    def with_max(self, structure: Structure) -> tuple[Tensor, Tensor | None]:
        """The largest score, and the bound on it that there is."""
        return structure.max_with_bound()


@dataclass(frozen=True)
class L2(Smoother):
    """ℓ₂ smoothing by the top-K strategy: max over u in the simplex of ⟨u, z⟩ − (μ/2)(‖u‖² − 1), z the K best scores.

    0 ≤ h_μ − h ≤ μ/2. The projection onto the simplex is sparse. If at most K outputs would get weight, the top-K
    strategy is exact; see :meth:`is_exact`. Values are twice differentiable, where the K best outputs and the support
    of the projection are unique.

    Args:
        mu: level of smoothing, > 0, in units of the score.
        k: number of outputs, >= 1.

    Reference:
        Section 2.3, Propositions 3 and 4; Algorithm 6 in the form that projects z/μ.

    Example:
        >>> from structsmooth import LinearChain
        >>> chain = LinearChain(torch.tensor([[[1.0, 0.5]]]), torch.zeros(2, 2))
        >>> L2(mu=1.0, k=2)(chain)
        tensor([1.0625])
    """

    mu: Mu = 1.0
    k: PositiveInt = 5

    def __post_init__(self) -> None:
        check_settings(self)

    def __call__(self, structure: Structure) -> Tensor:
        """h_μ of the K best scores."""
        return self.with_max(structure.without_wrong())[0]

    def with_max(self, structure: Structure) -> tuple[Tensor, Tensor | None]:
        """h_μ of the K best scores, and the best of them."""
        if (found := structure.smoothed_top_k(self.mu, self.k)) is not None:
            return found
        values, _ = structure.topk(self.k)
        return smoothed_maximum(values, self.mu)[0], values.detach()[:, 0]

    def is_exact(self, structure: Structure) -> Tensor:
        """Whether the top-K strategy equals full ℓ₂ smoothing (Proposition 4): bool [B]."""
        values = structure.topk(self.k + 1)[0].detach()
        gaps = values[:, :-1] - values[:, -1:]
        exact = gaps.sum(-1) >= self.mu
        # If 𝒴 has at most K outputs, none is left out.
        return exact | (values[:, -1] == -torch.inf)

    def with_mu(self, mu: float) -> "L2":
        """The same smoother with another level of smoothing."""
        return L2(mu, self.k)


@dataclass(frozen=True)
class Entropy(Smoother):
    """Entropy smoothing: μ log Σ exp(z/μ), the exp oracle. 0 ≤ h_μ − h ≤ μ log|𝒴|.

    Args:
        mu: level of smoothing, > 0, in units of the score (the temperature).

    Reference:
        Section 2.3 and Proposition 9; Algorithm 3.
    """

    mu: Mu = 1.0

    def __post_init__(self) -> None:
        check_settings(self)

    def __call__(self, structure: Structure) -> Tensor:
        """μ times the log-partition function of θ/μ."""
        return self.with_max(structure.without_wrong())[0]

    def with_max(self, structure: Structure) -> tuple[Tensor, Tensor | None]:
        """h_μ alone."""
        if self.mu == 1:
            return structure.logsumexp(), None
        scaled = structure.replace(*(widened(potentials) / self.mu for potentials in structure.potentials))
        return self.mu * scaled.logsumexp(), None

    def with_mu(self, mu: float) -> "Entropy":
        """The same smoother with another level of smoothing."""
        return Entropy(mu)


@dataclass(frozen=True)
class SparseMAP(Smoother):
    """ℓ₂ smoothing in the space of parts: max of ⟨θ, m⟩ − (μ/2)‖m‖² over the convex hull of the outputs' parts ν(y).

    It is exact for every structure with a max oracle, by an active set of outputs; see :func:`sparse_map`. Values are
    twice differentiable almost everywhere. The largest score is at least h_μ, and more by at most (μ/2) max ‖ν(y)‖²: an
    output by itself loses (μ/2)‖ν(y)‖², which losses take from the score of the labels, too.

    Args:
        mu: level of smoothing, > 0, in units of the score.
        parts: which parts count in the norm: ``"all"``, or the ``"first"`` kind alone, such as the labels of variables,
            as in the paper. ``BinaryGraph`` and ``DeformableTree`` need ``"first"``.

    Reference:
        Niculae et al. (2018).

    Example:
        >>> from structsmooth import LinearChain
        >>> chain = LinearChain(torch.tensor([[[1.0, 0.5]]]), torch.zeros(2, 2))
        >>> SparseMAP(mu=1.0)(chain)  # 0.75 · 1 + 0.25 · 0.5 − (0.75² + 0.25²) / 2
        tensor([0.5625])
    """

    mu: Mu = 1.0
    parts: RegularizedParts = "all"

    def __post_init__(self) -> None:
        check_settings(self)

    def __call__(self, structure: Structure) -> Tensor:
        """h_μ by the active set."""
        return self.solve(structure).value

    def with_max(self, structure: Structure) -> tuple[Tensor, Tensor | None]:
        """h_μ, and the answer of the first oracle call."""
        solution = self.solve(structure)
        return solution.value, solution.largest

    def penalty(self, structure: Structure, y: Tensor | tuple[Tensor, ...]) -> Tensor:
        """(μ/2)‖ν(y)‖² [B] of outputs ``y``, or of statistics m in place of ν(y)."""
        statistics = y if isinstance(y, tuple) else structure.parts(y)
        counted = statistics if self.parts == "all" else statistics[:1]
        return self.mu / 2 * torch.stack([by_example(p.square()) for p in counted]).sum(0)

    def solve(self, structure: Structure, start: Tensor | None = None) -> SparseSolution:
        """The distribution over few outputs that attains h_μ; arguments as for :func:`sparse_map`."""
        return sparse_map(structure, self.mu, self.parts, start=start)

    def with_mu(self, mu: float) -> "SparseMAP":
        """The same smoother with another level of smoothing."""
        return SparseMAP(mu, self.parts)


def simplex_projection(z: Tensor, dim: int = -1) -> Tensor:
    """Euclidean projection onto the probability simplex along ``dim``; differentiable.

    Entries of -inf are projected to zero; if all entries are -inf, all are.

    Args:
        z: a floating point tensor of any shape.
        dim: the dimension to project along.

    Reference:
        Proposition 3; Held et al. (1974).

    Example:
        >>> simplex_projection(torch.tensor([1.0, 0.5, -1.0]))
        tensor([0.7500, 0.2500, 0.0000])
    """
    z = z.movedim(dim, -1)
    largest = z.detach().amax(-1, keepdim=True)
    feasible = largest != -torch.inf
    # Entries more than 1 below the largest get no weight, so clamping them is exact and removes infinities.
    shifted = torch.where(feasible, z - torch.where(feasible, largest, 0.0), 0.0).clamp_min(-2.0)
    ordered = shifted.sort(dim=-1, descending=True).values
    counts = torch.arange(1, z.shape[-1] + 1, device=z.device, dtype=z.dtype)
    excess = ordered.cumsum(-1) - 1
    support = (ordered * counts > excess).sum(-1, keepdim=True).clamp_min(1)
    threshold = excess.gather(-1, support - 1) / support
    projected = torch.where(feasible, (shifted - threshold).clamp_min(0.0), 0.0)
    return projected.movedim(-1, dim)
