"""The steps of exponentiated gradient on blocks (Collins et al. 2008), for any linear problem with an exp oracle."""

from dataclasses import dataclass
from functools import singledispatch

import torch
from torch import Tensor

from structsmooth.problems.affine import flat, inner, minus
from structsmooth.problems.linear.base import LinearProblem
from structsmooth.smoothing import Entropy
from structsmooth.solvers.dual.base import entropy_level


@dataclass(frozen=True)
class GibbsIterate:
    """Two points of the dual: z, a Gibbs distribution for each block, and x, a mixture of all that z has been.

    Attributes:
        weights: −(1/(λn)) Σ B_iᵀ(m_i − ν(y_i)) with the statistics m_i of z, [dim].
        lead: the same of x, minus ``weights``, [dim]; zero without acceleration.
        log_potentials: Q_i, whose Gibbs distributions z has, shaped and stored as the statistics.
        statistics: m_i of all blocks of z, see :meth:`LinearProblem.label_statistics`.
        log_partitions: log Σ_y exp⟨Q_i, ν(y)⟩, [blocks].
        curvatures: G_i², as far as steps have found it, [blocks].
        values: (1/n) Σ (⟨ℓ_i, m_i⟩ + h H_i) of z, and the same of x minus that, [2]. H_i is the entropy of z_i; for x
            it is the mean over its mixture, a lower bound. The level h is that of a problem with the smoother
            ``Entropy(h)``, and 0 for hinges.
    """

    weights: Tensor
    lead: Tensor
    log_potentials: Tensor
    statistics: Tensor
    log_partitions: Tensor
    curvatures: Tensor
    values: Tensor


@singledispatch
def epoch(
    problem: LinearProblem, point: GibbsIterate, order: Tensor, taus: Tensor, *, lam: float, shrink: float = 1.0
) -> GibbsIterate:
    """Makes steps of exponentiated gradient on blocks, accelerated by extrapolation (Collins et al. 2008).

    A step on block i begins at y = x + (τ/N)(z − x), where N is the number of blocks. By a call of the exp oracle,
    z_i becomes the maximizer m of ⟨ℓ_i + B_i w_y, m⟩ + h H(m) − τ G_i²/(λn) KL(m ‖ z_i), and x becomes y plus τ
    times the change of z. If ‖B_iᵀ(m − z_i)‖² > 2G_i² KL(m ‖ z_i), G_i² is doubled, and the step made again.

    This is the reference, in plain torch; faster loops for some kinds of problems are registered beside it.

    Args:
        problem: any linear problem with an exp oracle.
        point: the start.
        order: the block of each step, int64 [steps].
        taus: τ of each step in (0, 1], float64 [steps]; 1 for no acceleration.
        lam: λ > 0 of the problem.
        shrink: factor of G_i² after a step.
    """
    point = GibbsIterate(*(tensor.clone() for tensor in vars(point).values()))
    level, scales = entropy_level(problem), lead_scales(taus, problem.blocks)
    for block, tau, lead_scale in zip(order.tolist(), taus.tolist(), scales.tolist(), strict=True):
        scale = -problem.block_weight(block) / lam
        statistics = problem.block_statistics(point.statistics, block)  # m_i; changed in place, as log-potentials are
        logs = problem.block_statistics(point.log_potentials, block)
        augmented = problem.augmented(problem.within_bounds(point.weights + lead_scale * point.lead), block)

        # Oracle, with a larger constant until the step is short enough for it.
        curvature, log_partition = float(point.curvatures[block]), float(point.log_partitions[block])
        while True:
            c = -scale * tau * curvature
            towards = tuple((c * q + a) / (c + level) for q, a in zip(logs, augmented, strict=True))
            response = problem.call(towards, block, Entropy(1.0))
            change, new_partition = minus(response.statistics, statistics), float(response.value)
            divergence = float(inner(minus(towards, logs), response.statistics)) - new_partition + log_partition
            scores = inner(tuple(map(torch.abs, towards)), response.statistics)
            rounding = rounding_of(point.weights.dtype) * (1 + float(scores))
            square = float(problem.feature_map.squared_norm(change, block))
            if not square > 2 * curvature * (divergence + rounding):
                break
            curvature *= 2

        # Gain of the dual.
        gain = float(inner(problem.costs(block), change))
        if level > 0:
            entropy = new_partition - float(inner(towards, response.statistics))
            gain += level * (entropy - log_partition + float(inner(logs, statistics)))

        # Update of both points: what the lead has is x − z over its scale.
        momentum = (tau - 1) / lead_scale
        problem.feature_map.add_adjoint(change, block, scale, point.weights)
        problem.feature_map.add_adjoint(change, block, scale * momentum, point.lead)
        point.values.add_(point.values.new_tensor([gain, momentum * gain]), alpha=problem.block_weight(block))
        for old, new in ((statistics, response.statistics), (logs, towards)):
            for a, b in zip(old, new, strict=True):
                a.copy_(b)
        point.log_partitions[block], point.curvatures[block] = new_partition, shrink * curvature
    point.lead.mul_(lead_scale)
    point.values[1] *= lead_scale
    return point


@singledispatch
def near_labels(problem: LinearProblem, center: float) -> tuple[Tensor, Tensor, Tensor]:
    """Gibbs distributions near the labels: log-potentials [size], statistics [size], log-partitions [blocks].

    The log-potentials are ``center`` for each part of the labels, of the first kind of parts, and 0 elsewhere. One
    call of the exp oracle on each block.
    """
    logs = []
    for block in range(problem.blocks):
        first, *rest = problem.label_parts(block)
        logs.append((center * (first > 0).to(first), *map(torch.zeros_like, rest)))
    responses = [problem.call(log, block, Entropy(1.0)) for block, log in enumerate(logs)]
    statistics = torch.cat([flat(response.statistics) for response in responses])
    return torch.cat([flat(log) for log in logs]), statistics, torch.stack([response.value for response in responses])


def lead_scales(taus: Tensor, blocks: int) -> Tensor:
    """The scale of x − z after each step, Π (1 − τ/N), positive also for one block, whose first step makes x = z."""
    return (1 - taus / blocks).cumprod(0).clamp_min(torch.finfo(taus.dtype).tiny)


def rounding_of(dtype: torch.dtype) -> float:
    """Error that a relative entropy may have, for scores of the size of one."""
    return 64 * torch.finfo(dtype).eps
