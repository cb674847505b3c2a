"""Lower bounds on the optimum from any points of the dual."""

from dataclasses import dataclass, field

import torch
from torch import Tensor

from structsmooth.problems.bounds import step_length
from structsmooth.solvers.state import State, empty


@dataclass
class DualPoint:
    """A feasible point of the dual of a linear problem, as much of it as its bound needs.

    Statistics m_i have the bound D(m) = c − ‖g‖²/(2λ), where c = (1/n) Σ ⟨ℓ_i, m_i⟩ and g = (1/n) Σ B_iᵀ(m_i − ν(y_i)).
    Both are linear in m, so the best combination of several points is the maximum of a quadratic in a few variables: no
    oracle is called, and only g and c are stored. If the objective has a smoother h of its own, c also contains
    −h*(m). That is concave: between two points D is no less than this quadratic.
    """

    gradient: Tensor  # g, [dim]; zeros for the labels themselves, m = ν(y), whose bound is 0
    cost: float = 0.0  # c

    def value(self, lam: float) -> float:
        """The bound D(m) ≤ min F."""
        return self.cost - float(self.gradient @ self.gradient) / (2 * lam)

    def improved(self, new: "DualPoint", lam: float) -> "DualPoint":
        """The best convex combination of this point, a new one and the labels, which is no worse than any."""
        a, b = self.gradient, new.gradient
        products = float(a @ a) / lam, float(a @ b) / lam, float(b @ b) / lam
        own, other = best_mixture((self.cost, new.cost), products)
        return DualPoint((own * a).add_(b, alpha=other), own * self.cost + other * new.cost)


@dataclass
class BoundedState(State):
    """Adds a :class:`DualPoint`, which is improved during a run; its value is the lower bound of the state."""

    dual_gradient: Tensor = field(default_factory=empty)  # empty without a dual
    dual_cost: float = 0.0

    def raise_bound(self, new: DualPoint, lam: float) -> None:
        """Improve the lower bound by a point of the dual."""
        gradient = self.dual_gradient if len(self.dual_gradient) else torch.zeros_like(new.gradient)
        point = DualPoint(gradient, self.dual_cost).improved(new, lam)
        self.dual_gradient, self.dual_cost, self.dual = point.gradient, point.cost, point.value(lam)


def best_mixture(costs: tuple[float, float], products: tuple[float, float, float]) -> tuple[float, float]:
    """The largest s c₁ + t c₂ − ½(s² p₁₁ + 2st p₁₂ + t² p₂₂) with s, t ≥ 0 and s + t ≤ 1: where it is, (s, t).

    Args:
        costs: c₁ and c₂.
        products: p₁₁, p₁₂ and p₂₂.
    """
    (first, second), (own, mixed, other) = costs, products

    def value(mixture: tuple[float, float]) -> float:
        s, t = mixture
        return s * first + t * second - (s * s * own + 2 * s * t * mixed + t * t * other) / 2

    # The maxima of the sides, and that of the plane if it is inside.
    along = step_length(second - first + own - mixed, own - 2 * mixed + other)
    mixtures = [(1 - along, along), (step_length(first, own), 0.0), (0.0, step_length(second, other))]
    determinant = own * other - mixed * mixed
    if determinant > 0:
        s, t = (first * other - second * mixed) / determinant, (second * own - first * mixed) / determinant
        if s > 0 and t > 0 and s + t < 1:
            mixtures.append((s, t))
    return max(mixtures, key=value)
