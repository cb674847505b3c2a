"""Block-coordinate Frank-Wolfe in plain torch, for any linear problem (Osokin et al. 2016, Algorithms 1 to 5 and 9)."""

from dataclasses import dataclass

import torch
from torch import Tensor

from structsmooth.problems.affine import Parts
from structsmooth.problems.bounds import line_search
from structsmooth.problems.linear.active_set import ActiveSet, Cache, Direction, DualIterate, Steps, inner, minus
from structsmooth.problems.linear.blocks import BlockProblem


@dataclass(frozen=True)
class BlockSteps:
    """Steps with line search on the blocks of a dual iterate; see ``LinearProblem.frank_wolfe_epoch``."""

    problem: BlockProblem
    lam: float
    steps: Steps = "fw"
    cache: Cache | None = None

    def step(self, point: DualIterate, block: int) -> None:
        """One step on a block, in place."""
        problem, own = self.problem, self.problem.block_statistics(point.statistics, block)
        held = problem.active_set(point, block)
        augmented = problem.augmented(problem.within_bounds(point.weights), block)
        atom, direction = self._towards(point, block, held, augmented, own)
        if self.steps != "fw":
            direction = held.direction(self.steps, augmented, own, direction)
        size = self._move(point.weights, direction, block)
        if size == 0:
            return
        if self.steps != "fw":
            held.reweight(direction, _held(atom, problem), size)
        if self.cache is not None:
            held.stamp(_held(atom, problem))
        for m, d in zip(own, direction.statistics, strict=True):
            m += size * d

    def _towards(
        self, point: DualIterate, block: int, held: ActiveSet, augmented: Parts, own: Parts
    ) -> tuple[Tensor | None, Direction]:
        """An atom and the direction towards it: the best of the cache if its gap is large enough, or the oracle's."""
        if self.cache is not None:
            least = max(self.cache.factor * float(point.gaps[block]), self.cache.least)
            least_gain = least / self.problem.block_share(block)
            atom = held.at_least(float(inner(augmented, own)) + least_gain, augmented)
            if atom is not None:
                return atom, _direction(held.parts(atom), own, augmented)
        response = self.problem.call(augmented, block)
        direction = _direction(response.statistics, own, augmented)
        point.gaps[block] = (direction.gain * self.problem.block_share(block)).clamp_min(0.0)
        return response.atom, direction

    def _move(self, v: Tensor, direction: Direction, block: int) -> float:
        """Size of the step where the dual is largest; adds it to v, touching no more than the weights of the block."""
        problem, scale = self.problem, -self.problem.block_share(block) / self.lam
        rise = -scale * float(direction.gain)
        if rise <= 0:
            return 0.0
        if problem.bounds is None:
            curvature = problem.feature_map.squared_norm(direction.statistics, block) * scale**2
            size = direction.longest if rise >= direction.longest * curvature else rise / curvature
        else:  # the derivative along the line has kinks where weights reach their bounds (Algorithm 9)
            change = torch.zeros_like(v)
            problem.feature_map.add_adjoint(direction.statistics, block, scale, change)
            size = line_search(rise, v, change, direction.longest, problem.bounds)
        problem.feature_map.add_adjoint(direction.statistics, block, size * scale, v)
        return size


def chosen(choice: Tensor, gaps: Tensor) -> int:
    """The block of a step: as given, or by a draw from [0, 1) in proportion to the gaps; all alike if all are 0."""
    if choice.dtype == torch.int64:
        return int(choice)
    if not gaps.any():
        return int(choice * len(gaps))
    sums = gaps.cumsum(0)
    return int((sums <= choice * sums[-1]).sum())


def _direction(atom: Parts, own: Parts, augmented: Parts) -> Direction:
    """From the statistics of a block to those of an atom."""
    towards = minus(atom, own)
    return Direction(towards, inner(augmented, towards))


def _held(atom: Tensor | None, problem: BlockProblem) -> Tensor:
    if atom is None:
        raise ValueError(
            f"the oracle of {type(problem).__name__} answers without atoms, which no active set or cache can hold; "
            'take steps="fw" and no cache'
        )
    return atom
