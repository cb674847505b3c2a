"""The steps of SVRG over linear chains, compiled."""

import math

import torch
from torch import Tensor

from structsmooth.compiled.arguments import checked
from structsmooth.problems.base import FullPass
from structsmooth.problems.linear.chain.data import smoothing
from structsmooth.problems.linear.chain.problem import ChainPass, ChainProblem
from structsmooth.solvers.svrg.steps import epoch


@epoch.register
def _(
    problem: ChainProblem,
    snapshot: FullPass,
    order: Tensor,
    *,
    step_size: float,
    lam: float,
    kappa: float = 0.0,
    center: Tensor | None = None,
) -> tuple[Tensor, Tensor]:
    """The steps of the plain loop, compiled for steps of one example."""
    data = problem.data
    order = data.checked_order(order)
    if order.shape[1] > 1 or not isinstance(snapshot, ChainPass):
        settings = {"step_size": step_size, "lam": lam, "kappa": kappa}
        return epoch.dispatch(object)(problem, snapshot, order, center=center, **settings)
    from structsmooth.solvers.svrg import compiled_chain  # numba loads with the first pass

    shrink = step_size * (lam + kappa)
    steps, sums = len(order), _power_sums(shrink, len(order))
    start = data.checked_vector("snapshot.weights", snapshot.weights)
    drift = data.checked_vector("snapshot.gradient", snapshot.gradient)
    node = checked("snapshot.node", snapshot.node, torch.float64, len(data.labels), data.states)
    edge = checked("snapshot.edge", snapshot.edge, torch.float64, data.n, data.states, data.states)
    w, total = start.clone(), torch.zeros_like(start)
    if center is not None:
        drift = torch.sub(drift, data.checked_vector("center", center), alpha=kappa)
    vectors, stored = map(data.matrix, (w, drift, total)), (node.numpy(), edge.numpy())
    decay = (float(step_size), float(shrink), sums.numpy())
    compiled_chain.svrg_epoch(order[:, 0].numpy(), data.arrays, *vectors, smoothing(snapshot.smoother), *stored, decay)
    # The dense terms of the sum of the iterates, in closed form.
    total.add_(start, alpha=float(sums[steps + 1] - 1))
    total.sub_(drift, alpha=step_size * float(sums.sum() - sums[-1]))
    problem.oracle_calls += steps
    return w, total.div_(steps)


def _power_sums(shrink: float, steps: int) -> Tensor:
    """1 + c + ... + c^(g-1) for c = 1 - shrink and g = 0, ..., steps + 1; also where c is 1 to rounding."""
    if not 0 <= shrink < 1:
        raise ValueError(f"step_size * (lam + kappa) must be in [0, 1), got {shrink}")
    g = torch.arange(steps + 2, dtype=torch.float64)
    return -torch.expm1(g * math.log1p(-shrink)) / shrink if shrink > 0 else g
