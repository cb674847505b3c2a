"""Smoothing by noise on the scores: perturbed maxima, their statistics, and implicit maximum likelihood."""

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import Annotated, Any, Literal

import torch
from torch import Generator, Tensor
from torch.autograd.function import once_differentiable

from structsmooth.settings import Interval, Positive, PositiveInt, check_settings
from structsmooth.smoothing import Smoother
from structsmooth.structures.base import Structure, widened
from structsmooth.structures.checks import require_feasible
from structsmooth.structures.derivatives import apart_from_hooks
from structsmooth.structures.distribution import by_example
from structsmooth.structures.noise import gaussian_noise, gumbel_noise, gumbel_slope

Noise = Literal["gaussian", "gumbel"]


@dataclass(frozen=True)
class Perturbation:
    """How scores are perturbed: n draws of noise of mean zero, times σ, on each entry of the first potentials.

    Args:
        sigma: level of the noise, > 0, in units of the score.
        n: number of draws; each takes one call of the max oracle.
        noise: ``"gaussian"``, or ``"gumbel"``, whose perturbed maxima of independent outputs are Gibbs samples.
        antithetic: draw noise in pairs, z and −z, or for Gumbel noise u and 1 − u of the uniform number that it is made
            of; n must be even. The variance of what is nearly linear in the noise is less.
        seed: the same noise in every call for scores of a shape, so that a loss is a function of the scores alone.
        generator: source of new noise in every call, if there is no seed; torch's global one if not given.
    """

    sigma: Annotated[float, Interval(above=True, remedy="; for no noise use Max()")] = 1.0
    n: PositiveInt = 8
    noise: Noise = "gaussian"
    antithetic: bool = False
    seed: int | None = None
    generator: Generator | None = field(default=None, compare=False)

    def __post_init__(self) -> None:
        check_settings(self)
        if self.antithetic and self.n % 2:
            raise ValueError(f"antithetic noise comes in pairs, so n must be even, got {self.n}")

    def draws(self, scores: Tensor) -> Iterator[Tensor]:
        """Standard noise in the shape of the scores, n times."""
        generator = self.generator if self.seed is None else torch.Generator().manual_seed(self.seed)
        draw = gaussian_noise if self.noise == "gaussian" else gumbel_noise
        for _ in range(self.n // 2 if self.antithetic else self.n):
            yield from draw(scores, generator, self.antithetic)


@dataclass(frozen=True)
class Perturbed(Perturbation, Smoother):
    """E max over y of ⟨θ + σZ, ν(y)⟩, the expected maximum under noise Z of mean zero, as a mean over n draws.

    Smooth for every structure with a max oracle. The gradient is the expected statistics of the perturbed maxima, so
    that the loss with no cost is the Fenchel-Young loss of the noise (``StructuralHinge.perturbed``). For
    :class:`~structsmooth.Candidates` and Gumbel noise, the value is ``Entropy(sigma)`` in expectation.

    From each draw, the noise on the parts of the best output without noise is taken away. This changes no expectation
    and no gradient, is less noisy, and makes every single value at least the largest score: losses are non-negative.
    It takes one more oracle call. The noise is on the first potentials alone, such as the scores of labels or of edges.

    Second derivatives of single values are zero; :meth:`marginals` has first derivatives of the statistics.

    Arguments are those of :class:`Perturbation`.

    Reference:
        Berthet et al. (2020), Propositions 2.2 and 3.1; Papandreou and Yuille (2011).

    Example:
        >>> from structsmooth import Candidates, Entropy
        >>> scores = Candidates(torch.tensor([[1.0, 0.5]]))
        >>> abs(Perturbed(0.5, 4000, "gumbel", seed=0)(scores) - Entropy(0.5)(scores)) < 0.02
        tensor([True])
    """

    def __call__(self, structure: Structure) -> Tensor:
        """The mean of the perturbed maxima: [B]."""
        return self.with_max(structure)[0]

    def with_max(self, structure: Structure) -> tuple[Tensor, Tensor | None]:
        """The mean of the perturbed maxima, and the largest score without noise."""
        structure = structure.without_wrong()
        first, best = _first(structure), structure.detach()
        largest, y = best.max()
        require_feasible(best, largest)
        indicators = best.parts(y)[0]
        values = [
            _moved(structure, first + self.sigma * z).max()[0] - self.sigma * by_example(z * indicators)
            for z in self.draws(first)
        ]
        feasible = largest > -torch.inf
        return torch.where(feasible, torch.stack(values).mean(0), -torch.inf), largest

    def marginals(self, structure: Structure) -> tuple[Tensor, ...]:
        """Mean statistics of the perturbed maxima, shaped as :meth:`Structure.parts`: a differentiable layer.

        Their Jacobian is the estimate E (ν(y) − ν(y*)) s(Z)ᵀ / σ, unbiased, with −s the derivative of the logarithm of
        the density of the noise, and y* the best output without noise.

        Raises:
            NotImplementedError: further potentials that need a gradient, but have no noise.

        Reference:
            Berthet et al. (2020), Eq. (6) of Proposition 3.1; Abernethy et al. (2016).
        """
        if torch.is_grad_enabled() and any(p.requires_grad for p in structure.potentials[1:]):
            name = structure.potential_names[0]
            raise NotImplementedError(
                f"the noise is on {name} alone, so statistics have no derivative with respect to the other potentials: "
                "detach them, or take structure.sparse_marginals(mu)"
            )
        structure = structure.without_wrong()
        first, best = _first(structure), structure.detach()
        center = _statistics(best)
        slope = gumbel_slope if self.noise == "gumbel" else (lambda z: z)
        usable = torch.where(first.isfinite(), first, 0.0)
        sums = [torch.zeros_like(statistic) for statistic in center]
        for z in self.draws(first):
            perturbed = _moved(best, first.detach() + self.sigma * z)
            found = _statistics(perturbed)
            weight = by_example(slope(z) * (usable - usable.detach())) / self.sigma
            for i, (statistic, middle) in enumerate(zip(found, center, strict=True)):
                sums[i] = sums[i] + statistic + weight.view(-1, *[1] * (statistic.dim() - 1)) * (statistic - middle)
        return tuple(total / self.n for total in sums)

    def with_mu(self, mu: float) -> "Perturbed":
        """The same noise at another level σ."""
        return replace(self, sigma=mu)


@dataclass(frozen=True)
class IMLE(Perturbation):
    """Implicit maximum likelihood: statistics of perturbed maxima, with a gradient by a target distribution.

    Called on a structure, it returns the mean statistics of the first kind of parts under noise, for any loss of them.
    Backward, from the gradient g of that loss, it moves the scores to θ − λg under the same noise, and returns the
    difference of the statistics there and here, divided by λ: 2n oracle calls in all. For λ → 0 this is, in
    expectation, the derivative of the perturbed maximum; a larger λ has more bias and less variance.

    Further arguments are those of :class:`Perturbation`.

    Args:
        step: λ, > 0.

    Reference:
        Niepert, Minervini and Franceschi (2021), Algorithm 1; with n = 1 and little noise, Vlastelica et al. (2020).

    Example:
        >>> from structsmooth import Matching
        >>> weights = torch.tensor([[[1.0, 0.0], [0.0, 1.0]]], requires_grad=True)
        >>> plan = IMLE(sigma=2.0, n=16, step=2.0, seed=0)(Matching(weights))
        >>> plan[0, 0, 1].backward()
        >>> bool(weights.grad[0, 0, 1] > 0), bool(weights.grad[0, 0, 0] < 0)
        (True, True)
    """

    step: Positive = 1.0

    def __call__(self, structure: Structure) -> Tensor:
        """Mean statistics of the first kind of parts."""
        structure = structure.without_wrong()
        noises = torch.stack(list(self.draws(_first(structure))))
        found: Tensor = _ImplicitMaximum.apply(self, structure.detach(), noises, *structure.potentials)
        return found


class _ImplicitMaximum(torch.autograd.Function):
    """Statistics forward; backward the difference to those for the scores that the gradient asks for."""

    @staticmethod
    def forward(ctx: Any, imle: IMLE, structure: Structure, noises: Tensor, *potentials: Tensor) -> Tensor:
        ctx.imle, ctx.structure, ctx.noises = imle, structure, noises
        first = _first(structure)
        perturbed = [_moved(structure, first + imle.sigma * z) for z in noises]
        return torch.stack([_statistics(p)[0] for p in perturbed]).mean(0)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        imle, structure = ctx.imle, ctx.structure
        with torch.enable_grad(), apart_from_hooks():
            structure = structure.replace(*(p.detach().requires_grad_() for p in structure.potentials))
            first = _first(structure)
            total = torch.zeros((), dtype=first.dtype, device=first.device)
            for z in ctx.noises:
                here, there = (_moved(structure, first + imle.sigma * z - by) for by in (0.0, imle.step * gradient))
                for sign, perturbed in ((1.0, here), (-1.0, there)):
                    values = perturbed.max()[0]
                    total = total + sign * torch.where(values > -torch.inf, values, 0.0).sum()
            found = torch.autograd.grad(total, structure.potentials, materialize_grads=True)
        return (None, None, None, *(g / (imle.step * imle.n) for g in found))


def _first(structure: Structure) -> Tensor:
    """The potentials that noise is added to, at least in float32."""
    return widened(structure.potentials[0])


def _statistics(structure: Structure) -> list[Tensor]:
    """Parts of the best outputs; where there is none, zero without ``validate_args``."""
    value, y = structure.max()
    require_feasible(structure, value)
    feasible = value > -torch.inf
    return [indicator * feasible.view(-1, *[1] * (indicator.dim() - 1)) for indicator in structure.parts(y)]


def _moved(structure: Structure, first: Tensor) -> Structure:
    """The structure with its first potentials replaced, those that noise is added to."""
    return structure.replace(first, *structure.potentials[1:])
