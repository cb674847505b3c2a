"""The steps of block-coordinate Frank-Wolfe over derivations of programs, compiled."""

import torch
from torch import Tensor

from structsmooth.problems.linear.arrays import checked
from structsmooth.problems.linear.programs import ProgramProblem
from structsmooth.smoothing import Max
from structsmooth.solvers.bcfw import loop_arguments
from structsmooth.solvers.bcfw.active_set import Cache, DualIterate, Steps
from structsmooth.solvers.bcfw.steps import epoch, plain


@epoch.register
def _(
    problem: ProgramProblem,
    point: DualIterate,
    order: Tensor,
    *,
    lam: float,
    steps: Steps = "fw",
    averaging_weights: Tensor | None = None,
    cache: Cache | None = None,
    threads: int = 1,
) -> tuple[DualIterate, Tensor | None]:
    """The steps of :mod:`structsmooth.solvers.bcfw.steps`, compiled where there are no bounds."""
    problem.check_threads(threads)
    if problem.bounds is not None or not isinstance(problem.smoother, Max):
        return plain(problem, point, order, lam=lam, steps=steps, averaging_weights=averaging_weights, cache=cache)
    from structsmooth.solvers.bcfw import compiled_programs

    w = problem.checked_vector("point.weights", point.weights).clone()
    statistics = problem.checked_statistics(point.statistics).clone()
    gaps = checked("point.gaps", point.gaps, torch.float64, problem.n).clone()
    blocks, draws = loop_arguments.choices(order, problem.n)
    total, remaining = loop_arguments.averaging(w, averaging_weights, len(order))
    needed = steps != "fw" or cache is not None
    outputs, alphas, stamps = (tensor.clone() for tensor in (point.outputs, point.alphas, point.stamps))
    if not needed:
        outputs, alphas = torch.empty(0, dtype=torch.int32), w.new_empty(problem.n, 0)
    held = stamps if len(stamps) else torch.zeros(1, alphas.shape[1], dtype=torch.int32)
    arrays = (tensor.numpy() for tensor in (w, total, statistics, gaps))
    sets = (outputs.numpy(), alphas.numpy(), held.numpy())
    problem.oracle_calls += compiled_programs.frank_wolfe_epoch(
        blocks.numpy(),
        draws.numpy(),
        problem.arrays,
        *arrays,
        float(lam),
        remaining.numpy(),
        sets,
        *loop_arguments.settings(steps, cache),
    )
    new = (outputs, alphas, stamps) if needed else (point.outputs, point.alphas, point.stamps)
    return DualIterate(w, statistics, gaps, *new), None if averaging_weights is None else total
