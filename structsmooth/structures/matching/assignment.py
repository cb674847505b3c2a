"""Assignments of least cost, as detectors use them to match queries with objects."""

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from structsmooth.compiled.threads import over_batch
from structsmooth.structures import checks
from structsmooth.structures.base import widened


def linear_sum_assignment(costs: Tensor, sizes: Tensor | Sequence[int] | None = None) -> Tensor:
    """For each object a query of its own, so that the sum of their costs is the least: int64 [B, M].

    As ``scipy.optimize.linear_sum_assignment`` for each example, in one call: the batch is moved to the CPU once, is
    assigned there in float64 on every core that torch may use, and only the answer comes back. It has no gradient:
    gather the costs, or what they are made of, at the answer. :class:`~structsmooth.Matching` is the structure for
    models that learn to match.

    Args:
        costs: [B, Q, M], floating point, of Q queries and M <= Q objects; +inf forbids a pair.
        sizes: the number of objects of each example, [B] integers from 0 to M; all M if not given. Costs beyond them
            may have any value.

    Returns:
        The query of each object, on the device of the costs; -1 beyond ``sizes``.

    Raises:
        TypeError: costs that are not floating point.
        ValueError: wrong shapes or sizes, NaN or -inf, or an example in which the pairs that are allowed are too few.

    Reference:
        Kuhn (1955); Jonker and Volgenant (1987); Carion et al. (2020), Eq. (1), for detectors.

    Example:
        >>> costs = torch.tensor([[[4.0, 1.0], [2.0, 0.0], [3.0, 2.0]]])
        >>> linear_sum_assignment(costs)
        tensor([[1, 0]])
        >>> linear_sum_assignment(costs, sizes=[1])
        tensor([[ 1, -1]])
    """
    from structsmooth.structures.matching import compiled  # numba loads with the first oracle, not with the library

    checks.require_scores("costs", costs)
    if costs.dim() != 3 or costs.shape[1] < costs.shape[2]:
        raise ValueError(
            f"costs must have shape [B, Q, M] with Q >= M, got {tuple(costs.shape)}: where objects outnumber queries, "
            "transpose the costs, so that each query gets an object"
        )
    batch, queries, objects = costs.shape
    numbers = torch.full((batch,), objects) if sizes is None else torch.as_tensor(sizes)
    numbers = numbers if batch else numbers.long()  # an empty list has no dtype
    checks.require_integers("sizes", numbers)
    checks.require_shape("sizes", numbers, "[B]", (batch,))
    scores = widened(costs.detach())
    # One copy for both.
    host = torch.cat([scores.flatten(), numbers.to(scores)]).cpu().double().numpy()
    weights = np.ascontiguousarray(-host[: costs.numel()].reshape(batch, queries, objects).swapaxes(1, 2))
    rows = host[costs.numel() :].astype(np.int64)
    _check(weights, rows)
    values = np.full((batch, 1), -np.inf)
    y = np.full((batch, 1, objects), -1)
    pairs = np.stack([rows, np.full(batch, queries)], 1)
    arrays = (weights, pairs, values, y)
    over_batch(lambda *bounds: compiled.batch_top_k(*arrays, *bounds), batch, batch * objects**2 * queries)
    if not (values > -np.inf).all():
        b = int((values[:, 0] == -np.inf).argmax())
        raise ValueError(
            f"costs of example {b} forbid every assignment: some objects have no query of finite cost left"
        )
    return torch.from_numpy(y[:, 0]).to(costs.device)


class _NonFiniteCostsError(checks.NonFiniteScoresError):
    message = "costs must not contain NaN or -inf, got some in {examples}"


def _check(weights: "np.typing.NDArray[np.float64]", rows: "np.typing.NDArray[np.int64]") -> None:
    objects = weights.shape[1]
    if ((rows < 0) | (rows > objects)).any():
        raise ValueError(f"sizes must be from 0 to M = {objects}, got {rows.tolist()}")
    inside = np.arange(objects) < rows[:, None]
    if not (weights[inside] < np.inf).all():
        wrong = ~(weights < np.inf).all(2) & inside
        raise _NonFiniteCostsError(np.flatnonzero(wrong.any(1)).tolist())
