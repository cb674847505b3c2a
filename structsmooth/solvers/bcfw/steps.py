"""The steps of block-coordinate Frank-Wolfe (Osokin et al. 2016, Algorithms 1 to 5 and 9), for any linear problem."""

from functools import singledispatch

import torch
from torch import Tensor

from structsmooth.problems.affine import inner
from structsmooth.problems.bounds import line_search, step_length
from structsmooth.problems.linear.base import LinearProblem
from structsmooth.solvers.bcfw.active_set import CLEARLY_MORE, ActiveSet, Cache, Direction, DualIterate, Steps


@singledispatch
def epoch(
    problem: LinearProblem,
    point: DualIterate,
    order: Tensor,
    *,
    lam: float,
    steps: Steps = "fw",
    averaging_weights: Tensor | None = None,
    cache: Cache | None = None,
    threads: int = 1,
) -> tuple[DualIterate, Tensor | None]:
    """Makes steps with exact line search on the blocks of a dual iterate.

    This is the reference, in plain torch. Faster loops for some kinds of problems are registered beside it; they make
    the same iterates, away from ties. ``epoch.dispatch(type(problem))`` is the loop of a problem.

    Args:
        problem: any linear problem.
        point: the start; with atoms that it holds, if steps are not ``"fw"`` or there is a cache.
        order: the block of each step, int64 [steps]; or numbers in [0, 1), float64 [steps], which choose blocks with
            probabilities in proportion to the gaps at that step.
        lam: λ > 0 of the problem.
        steps: ``"fw"`` towards the atom of the oracle; ``"pairwise"`` from the worst atom of the active set to it;
            ``"away"`` either towards it or away from the worst, whichever has the larger gap; ``"best"`` whichever of
            these three raises the dual most.
        averaging_weights: weight of each iterate in the sum, float64 [steps].
        cache: when a step takes an atom of the cache and does not call the oracle.
        threads: that make the steps at the same time, each without those that the others have not finished. Only
            problems whose ``check_threads`` says so take more than one.

    Returns:
        The last point, and Σ_t averaging_weights[t] · w_t if weights are given.
    """
    problem.check_threads(threads)
    point = point.copy(problem.unpacked(point.statistics))
    total = None if averaging_weights is None else torch.zeros_like(point.weights)
    for step, choice in enumerate(order):
        block = _chosen(choice, point.gaps)
        statistics = problem.block_statistics(point.statistics, block)  # m_i; changed in place
        held = ActiveSet.of(problem, point, block)
        augmented = problem.augmented(problem.within_bounds(point.weights), block)  # θ_i + ℓ_i

        # Oracle: an atom s of the cache, if its gap is large enough, or the best of all.
        atom = None
        if cache is not None:
            least = max(cache.factor * float(point.gaps[block]), cache.least) / problem.block_weight(block)
            atom = held.at_least(float(inner(augmented, statistics)) + least, augmented)
        if atom is not None:
            direction = Direction.between(statistics, held.parts(atom), augmented)
        else:
            output = problem.call(augmented, block)
            atom, direction = output.atom, Direction.between(statistics, output.statistics, augmented)
            point.gaps[block] = (direction.gain * problem.block_weight(block)).clamp_min(0.0)

        # Direction: s − m, or from or away from the worst atom of the active set; and step, to where the dual is
        # largest on the line. Of several directions, the one whose step raises it most.
        directions = held.directions(steps, augmented, statistics, direction)
        direction, size = _best(problem, point.weights, directions, block, lam)

        # Update of the weights, the statistics and the active set.
        if size > 0:
            scale = -problem.block_weight(block) / lam
            problem.feature_map.add_adjoint(direction.statistics, block, size * scale, point.weights)
            if steps != "fw":
                held.reweight(direction, _checked(atom, problem), size)
            if cache is not None:
                held.stamp(_checked(atom, problem))
            for m, d in zip(statistics, direction.statistics, strict=True):
                m += size * d

        # Average.
        if total is not None and averaging_weights is not None:
            total += averaging_weights[step] * problem.within_bounds(point.weights)
    return point, total


plain = epoch.dispatch(object)
"""The loop in plain torch, which takes any problem."""


def _chosen(choice: Tensor, gaps: Tensor) -> int:
    """The block of a step: as given, or by a draw from [0, 1) in proportion to the gaps; all alike if all are 0."""
    if choice.dtype == torch.int64:
        return int(choice)
    if not gaps.any():
        return int(choice * len(gaps))
    sums = gaps.cumsum(0)
    return int((sums <= choice * sums[-1]).sum())


def _best(
    problem: LinearProblem, v: Tensor, directions: list[Direction], block: int, lam: float
) -> tuple[Direction, float]:
    """The direction whose step raises the dual most, the first one of several, and the size of the step."""
    if len(directions) == 1:
        return directions[0], step_size(problem, v, directions[0], block, lam)
    sizes = [step_size(problem, v, direction, block, lam) for direction in directions]
    best, most = 0, 0.0
    for number, (direction, size) in enumerate(zip(directions, sizes, strict=True)):
        rise = _rise(problem, v, direction, size, block, lam) if size > 0 else 0.0
        if rise > most * CLEARLY_MORE:
            best, most = number, rise
    return directions[best], sizes[best]


def _rise(problem: LinearProblem, v: Tensor, direction: Direction, size: float, block: int, lam: float) -> float:
    """How much a step raises the dual, over λ."""
    scale = -problem.block_weight(block) / lam
    slope = -scale * float(direction.gain)
    if problem.bounds is None:
        return size * (slope - size / 2 * problem.feature_map.squared_norm(direction.statistics, block) * scale**2)
    change = torch.zeros_like(v)
    problem.feature_map.add_adjoint(direction.statistics, block, scale, change)
    linear = slope + float(problem.within_bounds(v) @ change)  # the part of the costs
    return size * linear - problem.conjugate(v + size * change) + problem.conjugate(v)


def step_size(problem: LinearProblem, v: Tensor, direction: Direction, block: int, lam: float) -> float:
    """The size of a step of a block where the dual is largest along a direction."""
    scale = -problem.block_weight(block) / lam
    rise = -scale * float(direction.gain)  # the derivative of the dual at 0, over λ
    if rise <= 0:
        return 0.0
    if problem.bounds is None:
        curvature = problem.feature_map.squared_norm(direction.statistics, block) * scale**2
        return step_length(rise, curvature, direction.longest)
    # The derivative along the line has kinks where weights reach their bounds (Algorithm 9).
    change = torch.zeros_like(v)
    problem.feature_map.add_adjoint(direction.statistics, block, scale, change)
    return line_search(rise, v, change, direction.longest, problem.bounds)


def _checked(atom: Tensor | None, problem: LinearProblem) -> Tensor:
    if atom is None:
        raise ValueError(
            f"the oracle of {type(problem).__name__} answers without atoms, which no active set or cache can hold; "
            'take steps="fw" and no cache'
        )
    return atom
