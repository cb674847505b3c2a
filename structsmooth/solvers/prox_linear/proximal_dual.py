"""Block-coordinate Frank-Wolfe on problems with affine potentials and a proximal term."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from structsmooth.problems.affine import AffineProblem, flat, shaped
from structsmooth.problems.base import Problem
from structsmooth.problems.module import LinearizedProblem, ModuleProblem
from structsmooth.problems.reductions import agreed


@dataclass(frozen=True)
class BlockStatistics:
    """For each block of examples, a convex combination of answers of the oracle.

    Answers consist of outputs, whatever the potentials were, so it stays one when the potentials change.

    Attributes:
        statistics: of each block, less those of the labels, flat; empty as long as it has the labels alone.
        constants: of the losses less ⟨θ, statistics⟩, summed over the examples of each block, [blocks].
    """

    statistics: tuple[Tensor, ...]
    constants: Tensor

    @classmethod
    def of_labels(cls, weights: Tensor, blocks: int) -> "BlockStatistics":
        """The labels of all blocks, in the dtype and on the device of the weights."""
        return cls((weights.new_zeros(0),) * blocks, weights.new_zeros(blocks))


@dataclass(frozen=True)
class ProximalPoint:
    """A point of the dual, and the weights that belong to it.

    Attributes:
        weights: the minimum of the objective with the planes of the blocks in place of their losses, [dim].
        value: of the dual there, which is that minimum, [].
        gap: sum of the gaps of all blocks in the last pass, each before the step on its block, [].
        blocks: the statistics.
    """

    weights: Tensor
    value: Tensor
    gap: Tensor
    blocks: BlockStatistics


@dataclass(frozen=True)
class ProximalDual:
    """The dual of (1/n) Σ f_i(w) + (λ/2)‖w‖² + (1/2η)‖w − z‖² for f_i whose potentials are affine in the weights.

    The statistics m of a block give a plane below its loss, ⟨θ(w), m⟩ plus a constant. A step on a block asks the
    oracle for the plane that touches its loss at the weights, and moves towards it by exact line search, so the dual
    never decreases.

    Attributes:
        problem: (1/n) Σ f_i.
        lam: λ ≥ 0.
        step_size: η.
        center: z, [dim].
        examples: those of each block.

    Reference:
        Lacoste-Julien et al. (2013), Algorithm 4.
    """

    problem: AffineProblem
    lam: float
    step_size: float
    center: Tensor
    examples: Sequence[Tensor]

    @property
    def convexity(self) -> float:
        """λ + 1/η."""
        return self.lam + 1 / self.step_size

    def point(self, blocks: BlockStatistics) -> ProximalPoint:
        """The point with some statistics, by one pass over the examples without the oracle."""
        kept, made = len(blocks.statistics), len(self.examples)
        if kept != made:
            raise ValueError(f"the state has statistics of {kept} blocks, but this batch_size gives {made}")
        slope, constant = torch.zeros_like(self.center), self.center.new_zeros(())
        for examples, vector in zip(self.examples, blocks.statistics, strict=True):
            if len(vector):
                batch = self.problem.affine_batch(examples)
                block_slope, block_constant = batch.plane(shaped(vector, tuple(batch.trainable_potentials)))
                slope, constant = slope + block_slope, constant + block_constant
        slope, constant = slope / self.problem.n, (constant + blocks.constants.sum()) / self.problem.n
        weights = (self.center / self.step_size - slope) / self.convexity
        value = constant + slope @ weights + self.regularizer(weights)
        return ProximalPoint(weights, value, value.new_tensor(torch.inf), blocks)

    def ascend(self, point: ProximalPoint, rng: np.random.Generator) -> ProximalPoint:
        """One step on each block, in random order."""
        weights, value, gap_of_all = point.weights, point.value, torch.zeros_like(point.value)
        statistics, constants = [*point.blocks.statistics], point.blocks.constants.clone()
        for i in rng.permutation(len(self.examples)):
            examples = self.examples[i]
            batch = self.problem.affine_batch(examples)

            # Oracle.
            answer = self.problem.answer(batch, weights, examples, self.problem.smoother)
            towards = flat(tuple(answer.statistics))
            current = statistics[i] if len(statistics[i]) else torch.zeros_like(towards)

            # Direction, and the gap between the planes of the block at these weights.
            slope, constant = batch.plane(shaped(towards - current, tuple(answer.statistics)))
            rise = answer.constant - constants[i]
            gap = (rise + constant + slope @ weights) / self.problem.n
            gap_of_all = gap_of_all + gap

            # Step, to where the dual is largest on the line.
            curvature = slope @ slope / (self.convexity * self.problem.n**2)
            size = (gap / curvature).nan_to_num(0.0).clamp(0, 1)  # no direction, no step
            statistics[i] = torch.lerp(current, towards, size)
            constants[i] += size * rise
            weights = weights - size / (self.convexity * self.problem.n) * slope
            value = value + size * (gap - size / 2 * curvature)
        blocks = BlockStatistics(tuple(statistics), constants)
        return agreed(self.problem, ProximalPoint(weights, value, gap_of_all, blocks))

    def gap(self, point: ProximalPoint) -> float:
        """The duality gap at the weights of a point, by one oracle call on each example."""
        return self.problem.loss(point.weights) + float(self.regularizer(point.weights) - point.value)

    def regularizer(self, weights: Tensor) -> Tensor:
        """(λ/2)‖w‖² + (1/2η)‖w − z‖², []."""
        distance = (weights - self.center).square().sum()
        return self.lam / 2 * weights.square().sum() + distance / (2 * self.step_size)


def linearized(problem: Problem, weights: Tensor) -> AffineProblem:
    """The linearization of a problem, with products with its Jacobians.

    Raises:
        TypeError: the problem has another kind of linearization.
    """
    linear = problem.linearize(weights)
    if isinstance(linear, ModuleProblem):  # its scores are affine
        return LinearizedProblem(linear, weights)
    if not isinstance(linear, AffineProblem):
        raise TypeError(
            f"ProxLinear(inner=BCFW()) needs a linearization with statistics, got a {type(linear).__name__}; take "
            "inner=CasimirSVRG()"
        )
    return linear
