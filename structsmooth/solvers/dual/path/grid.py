"""Solutions on a grid of λ: the baseline of a regularization path."""

from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from itertools import pairwise

from structsmooth.problems.base import Problem
from structsmooth.settings import parse_lam
from structsmooth.solvers.bcfw import BCFW
from structsmooth.solvers.dual.path.solution import Breakpoint
from structsmooth.solvers.dual.path.walk import Walk


def grid_search(
    problem: Problem,
    lams: Sequence[float | str],
    *,
    epsilon: float = 0.1,
    solver: BCFW = BCFW(),  # noqa: B008 - immutable
    warm_start: bool = True,
    passes: int = 1000,
    seed: int = 0,
    callbacks: Iterable[Callable[[Breakpoint], None]] = (),
) -> list[Breakpoint]:
    """Solve for single values of λ, each to a gap of at most ε, and record the costs: the baseline of a path.

    Args:
        problem: a linear problem of hinges.
        lams: values of λ, falling: numbers or text such as ``"10/n"``.
        epsilon: ε.
        solver: solver of the dual.
        warm_start: start from the weights for the last λ, not from zero.
        passes: limit on passes for one λ; a row whose gap is larger than ε ran into it.
        seed: of the order of examples.
        callbacks: called with every row.

    Raises:
        TypeError: a problem that is not linear.
        ValueError: a problem not of hinges, or λ that are not positive and falling.

    Returns:
        A row for each λ; Ctrl-C returns the rows there are.
    """
    values = [parse_lam(lam, problem.total_weight, "lams") for lam in lams]
    if not all(lam > 0 for lam in values) or any(a <= b for a, b in pairwise(values)):
        raise ValueError(f"lams must be positive and falling, got {', '.join(map(str, lams))}")
    walk, rows = Walk(problem, solver, passes, seed), list[Breakpoint]()
    with suppress(KeyboardInterrupt):
        for lam in values:
            if warm_start and rows:
                walk.lower(lam)
            else:
                walk.begin_at_labels(lam)
            if not walk.reach(epsilon):
                walk.check()
            rows.append(walk.breakpoint())
            for callback in callbacks:
                callback(rows[-1])
    return rows
