"""The steps of exponentiated gradient over linear chains, compiled."""

import torch
from torch import Tensor

from structsmooth.compiled.arguments import checked
from structsmooth.problems.linear.chain.problem import ChainProblem
from structsmooth.solvers.baselines.exponentiated.steps import (
    GibbsIterate,
    epoch,
    lead_scales,
    near_labels,
    rounding_of,
)
from structsmooth.solvers.dual.base import entropy_level


@near_labels.register
def _(problem: ChainProblem, center: float) -> tuple[Tensor, Tensor, Tensor]:
    """The distributions of the plain function, compiled."""
    from structsmooth.solvers.baselines.exponentiated import compiled_chain

    data = problem.data
    problem.oracle_calls += problem.n
    logs = torch.zeros(len(data.labels) + data.n * data.states, data.states, dtype=torch.float64)
    logs[data.token_rows()[0], data.labels] = center
    statistics, log_partitions = torch.empty_like(logs), logs.new_empty(data.n)
    compiled_chain.gibbs_pass(data.arrays, logs.numpy(), statistics.numpy(), log_partitions.numpy())
    return logs.view(-1), statistics.view(-1), log_partitions


@epoch.register
def _(
    problem: ChainProblem, point: GibbsIterate, order: Tensor, taus: Tensor, *, lam: float, shrink: float = 1.0
) -> GibbsIterate:
    """The steps of the plain loop, compiled where there are no bounds."""
    if problem.bounds is not None:
        return epoch.dispatch(object)(problem, point, order, taus, lam=lam, shrink=shrink)
    from structsmooth.solvers.baselines.exponentiated import compiled_chain

    data = problem.data
    examples = data.checked_order(checked("order [steps]", order, torch.int64, -1)[:, None])[:, 0]
    taus = checked("taus", taus, torch.float64, len(order))
    scales = lead_scales(taus, data.n)
    w, lead = (data.checked_vector(f"point.{name}", getattr(point, name)).clone() for name in ("weights", "lead"))
    logs, statistics = (data.checked_statistics(vector).clone() for vector in (point.log_potentials, point.statistics))
    log_partitions, curvatures = (
        checked(f"point.{name}", getattr(point, name), torch.float64, data.n).clone()
        for name in ("log_partitions", "curvatures")
    )
    values = checked("point.values", point.values, torch.float64, 2).clone()
    problem.oracle_calls += compiled_chain.exponentiated_epoch(
        examples.numpy(),
        taus.numpy(),
        scales.numpy(),
        data.arrays,
        (data.matrix(w), data.matrix(lead)),
        (logs.numpy(), statistics.numpy(), log_partitions.numpy()),
        curvatures.numpy(),
        values.numpy(),
        (float(lam), entropy_level(problem), float(shrink), rounding_of(torch.float64)),
    )
    lead *= scales[-1]
    values[1] *= scales[-1]
    return GibbsIterate(w, lead, logs.view(-1), statistics.view(-1), log_partitions, curvatures, values)
