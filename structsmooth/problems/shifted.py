"""A finite sum in other coordinates, which turns a proximal term into part of the regularizer."""

from dataclasses import replace

from torch import Tensor

from structsmooth.problems.base import FullPass, Problem
from structsmooth.problems.derived import DerivedProblem
from structsmooth.smoothing import Smoother


class ShiftedProblem(DerivedProblem):
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
        super().__init__(problem)
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

    def batch_losses(self, w: Tensor, indices: Tensor, smoother: Smoother) -> Tensor:
        """Losses of some examples: [b]."""
        return self.problem.batch_losses(self.origin + w, indices, smoother)

    def linearize(self, w: Tensor) -> "ShiftedProblem":
        """The linearized problem, shifted likewise."""
        return ShiftedProblem(self.problem.linearize(self.origin + w), self.origin)

    def subset(self, indices: Tensor) -> "ShiftedProblem":
        """The same problem over some of its examples."""
        return ShiftedProblem(self.problem.subset(indices), self.origin)

    def restrict(self, indices: Tensor, w: Tensor) -> "tuple[ShiftedProblem, Tensor]":
        """The same problem over some of its examples, without the weights that they do not use."""
        part, weights = self.problem.restrict(indices, self.origin + w)
        _, origin = self.problem.restrict(indices, self.origin)
        return ShiftedProblem(part, origin), weights - origin

    def loss(self, w: Tensor, smoother: Smoother | None = None) -> float:
        """(1/n) Σ f_i, by the pass of the problem."""
        return self.problem.loss(self.origin + w, smoother)

    def full_pass(
        self, w: Tensor, smoother: Smoother, *, with_loss: bool = False, with_statistics: bool = True
    ) -> FullPass:
        """The full pass of the problem, in these coordinates."""
        kept = {"with_loss": with_loss, "with_statistics": with_statistics}
        full = self.moved(self.problem.full_pass(self.origin + w, smoother, **kept))
        return replace(full, weights=w.clone())

    def moved(self, full: FullPass) -> FullPass:
        """A full pass of the problem, in these coordinates."""
        cost = full.expected_cost
        # The scores of the origin are constants now, as costs are.
        cost = None if cost is None else cost + float(self.origin @ full.gradient)
        return replace(full, weights=full.weights - self.origin, expected_cost=cost)
