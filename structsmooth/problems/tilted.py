"""A finite sum with a linear function added."""

from dataclasses import replace

from torch import Tensor

from structsmooth.problems.base import FullPass, Problem
from structsmooth.problems.derived import DerivedProblem
from structsmooth.smoothing import Smoother


class TiltedProblem(DerivedProblem):
    """The losses of a problem plus ⟨g, w⟩ + c, the same in all examples.

    Args:
        problem: any.
        slope: g, [dim].
        constant: c. Bounds of solvers take the losses to be non-negative with it.
    """

    def __init__(self, problem: Problem, slope: Tensor, constant: float) -> None:
        if slope.shape != (problem.dim,):
            raise ValueError(f"slope must have shape [dim] = {(problem.dim,)}, got {tuple(slope.shape)}")
        super().__init__(problem)
        self.slope, self.constant = slope.detach(), constant

    def start(self) -> Tensor:
        """The start of the problem: [dim]."""
        return self.problem.start()

    def batch_losses(self, w: Tensor, indices: Tensor, smoother: Smoother) -> Tensor:
        """Losses of some examples: [b]."""
        return self.problem.batch_losses(w, indices, smoother) + self.slope @ w + self.constant

    def linearize(self, w: Tensor) -> "TiltedProblem":
        """The linearized problem, tilted likewise."""
        return TiltedProblem(self.problem.linearize(w), self.slope, self.constant)

    def subset(self, indices: Tensor) -> "TiltedProblem":
        """The same problem over some of its examples."""
        return TiltedProblem(self.problem.subset(indices), self.slope, self.constant)

    def loss(self, w: Tensor, smoother: Smoother | None = None) -> float:
        """(1/n) Σ f_i, by the pass of the problem."""
        return self.problem.loss(w, smoother) + self._tilt(w)

    def full_pass(
        self, w: Tensor, smoother: Smoother, *, with_loss: bool = False, with_statistics: bool = True
    ) -> FullPass:
        """The full pass of the problem, tilted."""
        full = self.problem.full_pass(w, smoother, with_loss=with_loss, with_statistics=with_statistics)
        tilt, cost = self._tilt(w), full.expected_cost
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
