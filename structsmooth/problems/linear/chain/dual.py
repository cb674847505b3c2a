"""Epochs of solvers of the dual over chains, compiled."""

import torch
from torch import Tensor

from structsmooth.problems.linear.arrays import checked
from structsmooth.problems.linear.ascent import SmoothedIterate
from structsmooth.problems.linear.chain.data import ChainData, smoothing
from structsmooth.problems.linear.exponentiated import GibbsIterate, rounding_of
from structsmooth.smoothing import Smoother


def sdca_epoch(
    data: ChainData, point: SmoothedIterate, order: Tensor, *, lam: float, smoother: Smoother
) -> SmoothedIterate:
    """The epoch of :meth:`~structsmooth.problems.LinearProblem.sdca_epoch`."""
    from structsmooth.problems.linear.chain import compiled_dual

    w = data.checked_vector("point.weights", point.weights).clone()
    statistics = data.checked_statistics(point.statistics).clone()
    surplus = checked("point.surplus", point.surplus, torch.float64, data.n).clone()
    examples = data.checked_order(checked("order [steps]", order, torch.int64, -1)[:, None])[:, 0]
    iterate = (data.matrix(w), statistics.numpy(), surplus.numpy())
    compiled_dual.sdca_epoch(examples.numpy(), data.arrays, *iterate, smoothing(smoother), float(lam))
    return SmoothedIterate(w, statistics.view(-1), surplus)


def gibbs_near_labels(data: ChainData, center: float) -> tuple[Tensor, Tensor, Tensor]:
    """Those of :meth:`~structsmooth.problems.LinearProblem.gibbs_near_labels`."""
    from structsmooth.problems.linear.chain import compiled_exponentiated

    logs = torch.zeros(len(data.labels) + data.n * data.states, data.states, dtype=torch.float64)
    logs[data.token_rows()[0], data.labels] = center
    statistics, log_partitions = torch.empty_like(logs), logs.new_empty(data.n)
    compiled_exponentiated.gibbs_pass(data.arrays, logs.numpy(), statistics.numpy(), log_partitions.numpy())
    return logs.view(-1), statistics.view(-1), log_partitions


def exponentiated_epoch(
    data: ChainData, point: GibbsIterate, order: Tensor, taus: Tensor, *, lam: float, level: float, shrink: float = 1.0
) -> tuple[GibbsIterate, int]:
    """The epoch of :meth:`~structsmooth.problems.LinearProblem.exponentiated_epoch`, and its oracle calls."""
    from structsmooth.problems.linear.chain import compiled_exponentiated

    examples = data.checked_order(checked("order [steps]", order, torch.int64, -1)[:, None])[:, 0]
    taus = checked("taus", taus, torch.float64, len(order))
    shares = (1 - taus / data.n).cumprod(0)
    w, lead = (data.checked_vector(f"point.{name}", getattr(point, name)).clone() for name in ("weights", "lead"))
    logs, statistics = (data.checked_statistics(own).clone() for own in (point.log_potentials, point.statistics))
    log_partitions, curvatures = (
        checked(f"point.{name}", getattr(point, name), torch.float64, data.n).clone()
        for name in ("log_partitions", "curvatures")
    )
    values = checked("point.values", point.values, torch.float64, 2).clone()
    calls: int = compiled_exponentiated.exponentiated_epoch(
        examples.numpy(),
        taus.numpy(),
        shares.numpy(),
        data.arrays,
        (data.matrix(w), data.matrix(lead)),
        (logs.numpy(), statistics.numpy(), log_partitions.numpy()),
        curvatures.numpy(),
        values.numpy(),
        (float(lam), float(level), float(shrink), rounding_of(torch.float64)),
    )
    lead *= shares[-1]
    values[1] *= shares[-1]
    return GibbsIterate(w, lead, logs.view(-1), statistics.view(-1), log_partitions, curvatures, values), calls
