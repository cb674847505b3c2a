"""Lower bounds on the optimum from any points of the dual."""

from dataclasses import dataclass

import torch
from torch import Tensor

from structsmooth.problems.bounds import Bounds, clip, conjugate, line_search, step_length
from structsmooth.solvers.state import State


@dataclass
class DualPoint:
    """A feasible point of the dual of a linear problem, as much of it as its bound needs.

    Statistics m_i have the bound D(m) = c − λh*(−g/λ), where c = (1/n) Σ ⟨ℓ_i, m_i⟩ and g = (1/n) Σ B_iᵀ(m_i − ν(y_i)).
    Without bounds of the weights it is c − ‖g‖²/(2λ). Both g and c are linear in m, so the best combination of several
    points is the maximum of a quadratic in a few variables: no oracle is called, and only g and c are stored. If the
    objective has a smoother h of its own, c also contains −h*(m). That is concave: between two points D is no less than
    this quadratic.
    """

    gradient: Tensor  # g, [dim]; zeros for the labels themselves, m = ν(y), whose bound is 0
    cost: float = 0.0  # c

    def value(self, lam: float, bounds: Bounds | None = None) -> float:
        """The bound D(m) ≤ min F."""
        return self.cost - lam * conjugate(self.gradient / -lam, bounds)

    def towards(self, other: "DualPoint", share: float) -> "DualPoint":
        """The convex combination with another point that this share is of."""
        cost = self.cost + share * (other.cost - self.cost)
        return DualPoint(torch.lerp(self.gradient, other.gradient, share), cost)

    def improved(self, new: "DualPoint", lam: float, bounds: Bounds | None = None) -> "DualPoint":
        """The best convex combination of this point, a new one and the labels, which is no worse than any.

        Within bounds of the weights it is nearly the best.
        """
        share, new_share = self._shares(new, lam, bounds)
        gradient = (share * self.gradient).add_(new.gradient, alpha=new_share)
        return DualPoint(gradient, share * self.cost + new_share * new.cost)

    def _shares(self, new: "DualPoint", lam: float, bounds: Bounds | None) -> tuple[float, float]:
        """Shares of this point and of a new one in their best combination with the labels."""
        a, b = self.gradient, new.gradient
        if bounds is None:
            products = float(a @ a) / lam, float(a @ b) / lam, float(b @ b) / lam
            return best_mixture((self.cost, new.cost), products)
        u, v = a / -lam, b / -lam
        scale = _search(torch.zeros_like(v), v, new.cost / lam, bounds)
        share = _search(u, scale * v, (scale * new.cost - self.cost) / lam, bounds)
        return 1 - share, share * scale


@dataclass
class BoundedState(State):
    """Adds a :class:`DualPoint`, which is improved during a run; its value is the lower bound of the state."""

    dual_point: DualPoint | None = None

    def raise_bound(self, new: DualPoint, lam: float) -> None:
        """Improve the lower bound by a point of the dual."""
        self.dual_point = (self.dual_point or DualPoint(torch.zeros_like(new.gradient))).improved(new, lam)
        self.dual = self.dual_point.value(lam)


def _search(begin: Tensor, end: Tensor, rise: float, bounds: Bounds) -> float:
    """Share of ``end`` where the dual is largest between two v = −g/λ, given the rise of the cost over λ."""
    towards = end - begin
    return line_search(rise - float(clip(begin, bounds) @ towards), begin, towards, 1.0, bounds)


def best_mixture(costs: tuple[float, float], products: tuple[float, float, float]) -> tuple[float, float]:
    """The largest s c₁ + t c₂ − ½(s² p₁₁ + 2st p₁₂ + t² p₂₂) with s, t ≥ 0 and s + t ≤ 1: where it is, (s, t).

    Args:
        costs: c₁ and c₂.
        products: p₁₁, p₁₂ and p₂₂.
    """
    (first, second), (p11, p12, p22) = costs, products

    def value(mixture: tuple[float, float]) -> float:
        s, t = mixture
        return s * first + t * second - (s * s * p11 + 2 * s * t * p12 + t * t * p22) / 2

    # The maxima of the sides, and that of the plane if it is inside.
    along = step_length(second - first + p11 - p12, p11 - 2 * p12 + p22)
    mixtures = [(1 - along, along), (step_length(first, p11), 0.0), (0.0, step_length(second, p22))]
    determinant = p11 * p22 - p12 * p12
    if determinant > 0:
        s, t = (first * p22 - second * p12) / determinant, (second * p11 - first * p12) / determinant
        if s > 0 and t > 0 and s + t < 1:
            mixtures.append((s, t))
    return max(mixtures, key=value)
