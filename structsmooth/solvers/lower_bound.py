"""Lower bounds on the optimum from primal passes."""

from dataclasses import dataclass

import torch
from torch import Tensor

from structsmooth.problems.base import FullPass


@dataclass
class DualPoint:
    """A feasible point of the dual of a linear problem, improved by every full pass.

    The statistics m_i of any full pass are dual feasible, with value D(m) = c − ‖g‖²/(2λ), where c = (1/n) Σ ⟨ℓ_i, m_i⟩
    and g = (1/n) Σ B_iᵀ(m_i − ν(y_i)). Both are linear in m, so the best point between the last one and a new pass is
    the maximum of a quadratic in one variable: no oracle is called, and only g and c are stored. D never decreases. If
    the objective has a smoother h of its own, c also contains −h*(m). That is concave: between two points D is no less
    than this quadratic.
    """

    gradient: Tensor  # g, [dim]; zeros for the labels themselves, m = ν(y), whose bound is 0
    cost: float = 0.0  # c

    def value(self, lam: float) -> float:
        """The bound D(m) ≤ min F."""
        return self.cost - float(self.gradient @ self.gradient) / (2 * lam)

    def improved(self, new: FullPass, lam: float) -> "DualPoint":
        """The best convex combination of this point and the statistics of a full pass."""
        assert new.expected_cost is not None
        direction, rise = new.gradient - self.gradient, new.expected_cost - self.cost
        curvature = float(direction @ direction)
        if curvature == 0:
            return self
        step = (lam * rise - float(self.gradient @ direction)) / curvature
        step = min(max(step, 0.0), 1.0)
        return DualPoint(torch.add(self.gradient, direction, alpha=step, out=direction), self.cost + step * rise)
