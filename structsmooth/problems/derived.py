"""Problems that are made of another one: in other coordinates, or with a linear function added."""

from abc import abstractmethod
from dataclasses import replace
from typing import Any, TypeVar

import torch
from torch import Tensor

from structsmooth.problems.base import FullPass, Problem
from structsmooth.smoothing import Smoother

D = TypeVar("D", bound="DerivedProblem")
M = TypeVar("M", bound="MovedProblem")


def _of_other(name: str) -> Any:
    """The attribute or method of this name that the other problem has."""
    return property(lambda problem: getattr(problem.problem, name))


class DerivedProblem(Problem):
    """A problem over the examples of another, with its sizes and bounds, whose oracle calls count as its own.

    Args:
        problem: the other one.
        settings: what a constructor of the class takes besides the problem.
    """

    def __init__(self, problem: Problem, *settings: Any) -> None:
        self.problem, self._settings = problem, settings
        self.n, self.dim, self.smoother, self.bounds = problem.n, problem.dim, problem.smoother, problem.bounds
        self.batch_size, self.chunk_size = problem.batch_size, problem.chunk_size
        self.sample_weight, self.origins = problem.sample_weight, problem.origins

    affine, affine_scores, partial = _of_other("affine"), _of_other("affine_scores"), _of_other("partial")
    inferences, load = _of_other("inferences"), _of_other("load")

    def weighted(self: D, sample_weight: Tensor) -> D:
        """The same problem with weights of examples, also for the passes of the other problem."""
        weighted = super().weighted(sample_weight)
        weighted.problem = self.problem.weighted(sample_weight)
        return weighted

    def to(self: D, device: torch.device | str) -> D:
        """The same problem, with that which it is made of on a device."""
        self.problem.to(device)
        return self

    def over(self: D, problem: Problem) -> D:
        """The same kind of derived problem, made of another problem."""
        return type(self)(problem, *self._settings)

    def subset(self: D, indices: Tensor) -> D:
        """The same problem over some of its examples."""
        return self.over(self.problem.subset(indices))

    @property
    def oracle_calls(self) -> int:
        """Oracle calls of the other problem."""
        return self.problem.oracle_calls

    @oracle_calls.setter
    def oracle_calls(self, calls: int) -> None:
        self.problem.oracle_calls = calls


class MovedProblem(DerivedProblem):
    """A problem whose passes are those of another, in other coordinates or with other values."""

    def inner(self, w: Tensor) -> Tensor:
        """The weights [dim] of the other problem for weights of this one."""
        return w

    @abstractmethod
    def moved(self, full: FullPass) -> FullPass:
        """A full pass of the other problem as one of this problem."""

    def start(self) -> Tensor:
        """The start of the other problem: [dim]."""
        return self.problem.start()

    def batch_losses(self, w: Tensor, indices: Tensor, smoother: Smoother) -> Tensor:
        """Losses of some examples: [b]."""
        return self.problem.batch_losses(self.inner(w), indices, smoother)

    def linearize(self: M, w: Tensor) -> M:
        """The linearization of the other problem, moved in the same way."""
        return self.over(self.problem.linearize(self.inner(w)))

    def loss(self, w: Tensor, smoother: Smoother | None = None) -> float:
        """(1/n) Σ f_i, by the pass of the other problem."""
        return self.problem.loss(self.inner(w), smoother)

    def full_pass(
        self, w: Tensor, smoother: Smoother, *, with_loss: bool = False, with_statistics: bool = True
    ) -> FullPass:
        """The full pass of the other problem, moved."""
        kept = {"with_loss": with_loss, "with_statistics": with_statistics}
        return replace(self.moved(self.problem.full_pass(self.inner(w), smoother, **kept)), weights=w.clone())


class ShiftedProblem(MovedProblem):
    """The losses of a problem at c + v, for weights v: the origin is moved to c, and so are bounds.

    So (1/n) Σ f_i(w) + (λ/2)‖w‖² + (κ/2)‖w − z‖² is, by completing the square, what solvers minimize: the loss of v
    plus (λ + κ)/2 ‖v‖² for c = κz/(λ + κ), and a constant, λκ/(λ + κ) ‖z‖²/2. See :meth:`proximal`.

    Args:
        problem: any.
        origin: c, [dim].
    """

    def __init__(self, problem: Problem, origin: Tensor) -> None:
        if origin.shape != (problem.dim,):
            raise ValueError(f"origin must have shape [dim] = {(problem.dim,)}, got {tuple(origin.shape)}")
        super().__init__(problem, origin)
        self.origin = origin.detach()
        if problem.bounds is not None:
            lower, upper = problem.bounds
            self.bounds = (lower - self.origin, upper - self.origin)

    @classmethod
    def proximal(cls, problem: Problem, lam: float, kappa: float, center: Tensor) -> "ShiftedProblem":
        """The problem that solvers have to minimize with λ + κ for (κ/2)‖w − center‖² to be added to F.

        Args:
            problem: any, of F.
            lam: λ ≥ 0.
            kappa: κ > 0.
            center: z, [dim].
        """
        return cls(problem, center * (kappa / (lam + kappa)))

    def start(self) -> Tensor:
        """The start of the problem: [dim]."""
        return self.problem.start() - self.origin

    def inner(self, w: Tensor) -> Tensor:
        """The weights c + w, [dim], of the problem that is shifted."""
        return self.origin + w

    def restrict(self, indices: Tensor, w: Tensor) -> "tuple[ShiftedProblem, Tensor]":
        """The same problem over some of its examples, without the weights that they do not use."""
        part, weights = self.problem.restrict(indices, self.origin + w)
        _, origin = self.problem.restrict(indices, self.origin)
        return ShiftedProblem(part, origin), weights - origin

    def moved(self, full: FullPass) -> FullPass:
        """A full pass of the problem, in these coordinates."""
        cost = full.expected_cost
        # The scores of the origin are constants now, as costs are.
        cost = None if cost is None else cost + float(self.origin @ full.gradient)
        return replace(full, weights=full.weights - self.origin, expected_cost=cost)


class TiltedProblem(MovedProblem):
    """The losses of a problem plus ⟨g, w⟩ + c, the same in all examples.

    Args:
        problem: any.
        slope: g, [dim].
        constant: c. Bounds of solvers take the losses to be non-negative with it.
    """

    def __init__(self, problem: Problem, slope: Tensor, constant: float) -> None:
        if slope.shape != (problem.dim,):
            raise ValueError(f"slope must have shape [dim] = {(problem.dim,)}, got {tuple(slope.shape)}")
        super().__init__(problem, slope, constant)
        self.slope, self.constant = slope.detach(), constant

    def batch_losses(self, w: Tensor, indices: Tensor, smoother: Smoother) -> Tensor:
        """Losses of some examples: [b]."""
        return super().batch_losses(w, indices, smoother) + self.slope @ w + self.constant

    def loss(self, w: Tensor, smoother: Smoother | None = None) -> float:
        """(1/n) Σ f_i, by the pass of the problem."""
        return super().loss(w, smoother) + self._tilt(w)

    def moved(self, full: FullPass) -> FullPass:
        """The full pass of the problem, tilted."""
        tilt, cost = self._tilt(full.weights), full.expected_cost
        return replace(
            full,
            smoothed_loss=full.smoothed_loss + tilt,
            gradient=full.gradient + self.slope,
            loss=None if full.loss is None else full.loss + tilt,
            expected_cost=None if cost is None else cost + self.constant,
        )

    def gradient_change(self, w: Tensor, snapshot: FullPass, indices: Tensor) -> Tensor:
        """That of the problem: a linear function has the same gradient everywhere."""
        return self.problem.gradient_change(w, snapshot, indices)

    def _tilt(self, w: Tensor) -> float:
        return float(self.slope @ w) + self.constant
