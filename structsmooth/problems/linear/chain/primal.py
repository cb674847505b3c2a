"""Epochs of SVRG and SGD over chains, compiled."""

import math
from dataclasses import dataclass, field

import torch
from torch import Tensor

from structsmooth.problems.base import FullPass
from structsmooth.problems.linear.arrays import checked
from structsmooth.problems.linear.chain import hogwild
from structsmooth.problems.linear.chain.data import ChainData, smoothing
from structsmooth.smoothing import Smoother


@dataclass(frozen=True)
class ChainPass(FullPass):
    """A full pass that keeps the statistics of every example."""

    node: Tensor = field(kw_only=True)
    """Marginals of all tokens: [tokens, S]."""
    edge: Tensor = field(kw_only=True)
    """Marginals of neighbouring pairs, summed over each sequence: [n, S, S]."""

    per_example = ("node", "edge")


def svrg_epoch(
    data: ChainData,
    snapshot: ChainPass,
    order: Tensor,
    *,
    step_size: float,
    lam: float,
    kappa: float = 0.0,
    center: Tensor | None = None,
) -> tuple[Tensor, Tensor]:
    """The epoch of :meth:`~structsmooth.problems.Problem.svrg_epoch` with steps of one example, order [steps]."""
    from structsmooth.problems.linear.chain import compiled_primal  # numba loads with the first pass

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
    compiled_primal.svrg_epoch(order.numpy(), data.arrays, *vectors, smoothing(snapshot.smoother), *stored, decay)
    # The dense terms of the sum of the iterates, in closed form.
    total.add_(start, alpha=float(sums[steps + 1] - 1))
    total.sub_(drift, alpha=step_size * float(sums.sum() - sums[-1]))
    return w, total.div_(steps)


def sgd_epoch(
    data: ChainData,
    w: Tensor,
    order: Tensor,
    *,
    step_sizes: Tensor,
    lam: float,
    smoother: Smoother,
    shares: Tensor,
    threads: int = 1,
) -> tuple[Tensor, Tensor]:
    """The epoch of :meth:`~structsmooth.problems.Problem.sgd_epoch` with steps of one example, order [steps]."""
    from structsmooth.problems.linear.chain import compiled_primal

    w = data.checked_vector("w", w).clone()
    total = torch.zeros_like(w)
    rates = {"step_sizes": step_sizes, "shares": shares}
    steps = [checked(name, rate, torch.float64, len(order)) for name, rate in rates.items()]
    if threads > 1:
        hogwild.sgd_epoch(data, w, total, order, *steps, lam=float(lam), smoother=smoother, threads=threads)
        return w, total
    iterate = (data.arrays, data.matrix(w), data.matrix(total), smoothing(smoother))
    compiled_primal.sgd_epoch(order.numpy(), *iterate, float(lam), *(rate.numpy() for rate in steps))
    return w, total


def _power_sums(shrink: float, steps: int) -> Tensor:
    """1 + c + ... + c^(g-1) for c = 1 - shrink and g = 0, ..., steps + 1; also where c is 1 to rounding."""
    if not 0 <= shrink < 1:
        raise ValueError(f"step_size * (lam + kappa) must be in [0, 1), got {shrink}")
    g = torch.arange(steps + 2, dtype=torch.float64)
    return -torch.expm1(g * math.log1p(-shrink)) / shrink if shrink > 0 else g
