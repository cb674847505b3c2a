"""Catalyst: parameters of accelerated proximal points (Lin et al. 2018; Pillutla et al. 2019, Algorithm 4)."""

import math
from typing import NamedTuple

from torch import Tensor

from structsmooth.problems.base import FullPass


class Level(NamedTuple):
    """Parameters of outer iteration k: proximal strength κ_k, relative accuracy δ_k."""

    kappa: float
    delta: float


def next_alpha(alpha: float, kappa: float, next_kappa: float, lam: float) -> float:
    """α_k from α_{k-1}: the root of (27), α_k²(κ_{k+1} + λ) = (1 − α_k) α_{k-1}²(κ_k + λ) + α_k λ."""
    a, c = next_kappa + lam, alpha**2 * (kappa + lam)
    b = c - lam
    return (math.sqrt(b * b + 4 * a * c) - b) / (2 * a)


def extrapolation(alpha: float, next_alpha: float, kappa: float, next_kappa: float, lam: float) -> float:
    """β_k of (29) from α_{k-1} and α_k."""
    scaled = alpha * (1 - alpha) * (kappa + lam)
    return scaled / (alpha**2 * (kappa + lam) + next_alpha * (next_kappa + lam))


def accurate(snapshot: FullPass, level: Level, lam: float, center: Tensor) -> bool:
    """Whether the gradient is so small that (26) holds: ‖∇‖² ≤ (λ + κ) δ κ ‖w − z‖²."""
    offset = snapshot.weights - center
    gradient = snapshot.gradient + lam * snapshot.weights + level.kappa * offset
    bound = (lam + level.kappa) * level.delta * level.kappa * float(offset.square().sum())
    return float(gradient.square().sum()) <= bound
