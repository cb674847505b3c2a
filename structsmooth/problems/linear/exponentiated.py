"""Exponentiated gradient steps on the blocks of a dual, in plain torch, for any linear problem with an exp oracle."""

from dataclasses import dataclass

import torch
from torch import Tensor

from structsmooth.problems.affine import Parts, flat, inner, minus
from structsmooth.problems.linear.blocks import BlockProblem
from structsmooth.smoothing import Entropy


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


@dataclass(frozen=True)
class ExponentiatedSteps:
    """Steps on the blocks of an iterate; see :meth:`LinearProblem.exponentiated_epoch`."""

    problem: BlockProblem
    lam: float
    shrink: float

    def step(self, point: GibbsIterate, block: int, tau: float, share: float) -> None:
        """One step on a block, in place, with gradients at z + share · (x − z)."""
        problem, scale = self.problem, -self.problem.block_share(block) / self.lam
        own = problem.block_statistics(point.statistics, block)
        logs = problem.block_statistics(point.log_potentials, block)
        augmented = problem.augmented(problem.within_bounds(point.weights + share * point.lead), block)
        level, curvature = entropy_level(problem), float(point.curvatures[block])
        log_partition = float(point.log_partitions[block])
        while True:
            c = -scale * tau * curvature
            towards = tuple((c * q + a) / (c + level) for q, a in zip(logs, augmented, strict=True))
            response = problem.call(towards, block, Entropy(1.0))
            change, new_partition = minus(response.statistics, own), float(response.value)
            divergence = float(inner(minus(towards, logs), response.statistics)) - new_partition + log_partition
            scores = inner(tuple(map(torch.abs, towards)), response.statistics)
            rounding = rounding_of(point.weights.dtype) * (1 + float(scores))
            square = float(problem.feature_map.squared_norm(change, block))
            if not square > 2 * curvature * (divergence + rounding):
                break
            curvature *= 2
        gain = float(inner(problem.costs(block), change))
        if level > 0:
            entropy = new_partition - float(inner(towards, response.statistics))
            gain += level * (entropy - log_partition + float(inner(logs, own)))
        momentum = (tau - 1) / share
        problem.feature_map.add_adjoint(change, block, scale, point.weights)
        problem.feature_map.add_adjoint(change, block, scale * momentum, point.lead)
        point.values.add_(point.values.new_tensor([gain, momentum * gain]), alpha=problem.block_share(block))
        for old, new in ((own, response.statistics), (logs, towards)):
            for a, b in zip(old, new, strict=True):
                a.copy_(b)
        point.log_partitions[block], point.curvatures[block] = new_partition, self.shrink * curvature


def near_labels(problem: BlockProblem, block: int, center: float) -> Parts:
    """Log-potentials: ``center`` for each part of the labels, of the first kind of parts, and 0 for all others."""
    first, *rest = problem.label_parts(block)
    return (center * (first > 0).to(first), *map(torch.zeros_like, rest))


def gibbs_near_labels(problem: BlockProblem, center: float) -> tuple[Tensor, Tensor, Tensor]:
    """See :meth:`LinearProblem.gibbs_near_labels`."""
    logs = [near_labels(problem, block, center) for block in range(problem.blocks)]
    responses = [problem.call(own, block, Entropy(1.0)) for block, own in enumerate(logs)]
    statistics = torch.cat([flat(response.statistics) for response in responses])
    return torch.cat([flat(own) for own in logs]), statistics, torch.stack([response.value for response in responses])


def entropy_level(problem: BlockProblem) -> float:
    """h of a problem whose smoother is ``Entropy(h)``; 0 for hinges."""
    return problem.smoother.mu if isinstance(problem.smoother, Entropy) else 0.0


def rounding_of(dtype: torch.dtype) -> float:
    """Error that a relative entropy may have, for scores of the size of one."""
    return 64 * torch.finfo(dtype).eps
