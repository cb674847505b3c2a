"""The steps of stochastic dual coordinate ascent (Shalev-Shwartz and Zhang 2013), for any linear problem."""

from dataclasses import dataclass
from functools import singledispatch

from torch import Tensor

from structsmooth.problems.affine import inner, minus
from structsmooth.problems.bounds import step_length
from structsmooth.problems.linear.base import LinearProblem
from structsmooth.smoothing import Smoother


@dataclass(frozen=True)
class SmoothedIterate:
    """A point of the dual of a smoothed objective, and its weights.

    The answer s of a smoothed oracle h_μ at potentials θ gives a lower bound of h_μ, the plane
    ⟨·, s⟩ + o. What it has beyond the score of s is its offset o = h_μ(θ) − ⟨θ, s⟩, with 0 ≤ o ≤ μ·const. Convex
    combinations of such planes are lower bounds too, and the statistics and the offset of a block are one.

    Attributes:
        weights: minimizer of the planes with their regularizer, [dim].
        statistics: m_i of all blocks, see :meth:`LinearProblem.label_statistics`.
        smoothing_offset: o_i of all blocks, [blocks].
    """

    weights: Tensor
    statistics: Tensor
    smoothing_offset: Tensor


@singledispatch
def epoch(
    problem: LinearProblem, point: SmoothedIterate, order: Tensor, *, lam: float, smoother: Smoother
) -> SmoothedIterate:
    """Makes steps of dual coordinate ascent on (1/n) Σ f_μ,i(w) + (λ/2)‖w − z‖².

    A step takes a block i, calls the smoothed oracle, and moves the plane of the block, ⟨θ_i + ℓ_i, m_i⟩ + o_i,
    towards the plane of the answer, by the exact line search for the lower bound on the optimum that all planes
    give together. Without smoothing it is the step of block-coordinate Frank-Wolfe.

    This is the reference, in plain torch; faster loops for some kinds of problems are registered beside it.

    Args:
        problem: any linear problem.
        point: the start; its weights are z − (1/(λn)) Σ B_iᵀ(m_i − ν(y_i)) for any z.
        order: the block of each step, int64 [steps].
        lam: λ > 0 of the regularizer, with the strength of a proximal term if there is one.
        smoother: of the losses.
    """
    point = SmoothedIterate(*(tensor.clone() for tensor in vars(point).values()))
    for block in order.tolist():
        statistics = problem.block_statistics(point.statistics, block)  # m_i; changed in place

        # Oracle.
        augmented = problem.augmented(point.weights, block)
        response = problem.call(augmented, block, smoother)

        # Direction, and gap from the plane of the block to the smoothed loss, both at these weights.
        direction = minus(response.statistics, statistics)
        gain = float(response.value - inner(augmented, statistics) - point.smoothing_offset[block])
        if gain <= 0:
            continue

        # Step.
        scale = problem.block_weight(block) / lam
        size = step_length(gain, problem.feature_map.squared_norm(direction, block) * scale)

        # Update.
        problem.feature_map.add_adjoint(direction, block, -size * scale, point.weights)
        for m, d in zip(statistics, direction, strict=True):
            m += size * d
        point.smoothing_offset[block].lerp_(response.value - inner(augmented, response.statistics), size)
    return point
