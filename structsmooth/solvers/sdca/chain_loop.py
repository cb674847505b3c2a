"""The steps of dual coordinate ascent over linear chains, compiled."""

import torch
from torch import Tensor

from structsmooth.compiled.arguments import checked
from structsmooth.problems.linear.chain.data import smoothing
from structsmooth.problems.linear.chain.problem import ChainProblem
from structsmooth.smoothing import Smoother
from structsmooth.solvers.sdca.steps import SmoothedIterate, epoch


@epoch.register
def _(
    problem: ChainProblem, point: SmoothedIterate, order: Tensor, *, lam: float, smoother: Smoother
) -> SmoothedIterate:
    """The steps of the plain loop, compiled."""
    from structsmooth.solvers.sdca import compiled_chain

    data = problem.data
    w = data.checked_vector("point.weights", point.weights).clone()
    statistics = data.checked_statistics(point.statistics).clone()
    smoothing_offset = checked("point.smoothing_offset", point.smoothing_offset, torch.float64, data.n).clone()
    examples = data.checked_order(checked("order [steps]", order, torch.int64, -1)[:, None])[:, 0]
    iterate = (data.matrix(w), statistics.numpy(), smoothing_offset.numpy())
    compiled_chain.sdca_epoch(examples.numpy(), data.arrays, *iterate, smoothing(smoother), float(lam))
    problem.oracle_calls += len(order)
    return SmoothedIterate(w, statistics.view(-1), smoothing_offset)
