"""Stochastic dual coordinate ascent on smoothed losses in plain torch, for any linear problem."""

from dataclasses import dataclass

from torch import Tensor

from structsmooth.problems.affine import inner, minus
from structsmooth.problems.linear.blocks import BlockProblem
from structsmooth.smoothing import Smoother


@dataclass(frozen=True)
class SmoothedIterate:
    """A point of the dual of a smoothed objective, and its weights.

    The answer s of a smoothed oracle h_μ at potentials θ gives a lower bound of h_μ, the plane
    ⟨·, s⟩ + (h_μ(θ) − ⟨θ, s⟩). What it has beyond the score of s is the surplus, 0 ≤ surplus ≤ μ·const. Convex
    combinations of such planes are lower bounds too, and the statistics and surplus of a block are one.

    Attributes:
        weights: minimizer of the planes with their regularizer, [dim].
        statistics: m_i of all blocks, see :meth:`LinearProblem.label_statistics`.
        surplus: of all blocks, [blocks].
    """

    weights: Tensor
    statistics: Tensor
    surplus: Tensor


def ascend(problem: BlockProblem, point: SmoothedIterate, block: int, lam: float, smoother: Smoother) -> None:
    """One step on a block, in place."""
    own, augmented = problem.block_statistics(point.statistics, block), problem.augmented(point.weights, block)
    response = problem.call(augmented, block, smoother)
    direction = minus(response.statistics, own)
    # From the plane of the block to the smoothed loss, both at these weights.
    gain = float(response.value - inner(augmented, own) - point.surplus[block])
    if gain <= 0:
        return
    scale = problem.block_share(block) / lam
    curvature = problem.feature_map.squared_norm(direction, block) * scale
    size = 1.0 if gain >= curvature else gain / curvature
    problem.feature_map.add_adjoint(direction, block, -size * scale, point.weights)
    for m, d in zip(own, direction, strict=True):
        m += size * d
    point.surplus[block].lerp_(response.value - inner(augmented, response.statistics), size)
