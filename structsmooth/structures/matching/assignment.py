"""Assignments of least cost, as detectors use them to match queries with objects."""

from collections.abc import Sequence

import torch
from torch import Tensor

from structsmooth.structures import checks
from structsmooth.structures.base import widened
from structsmooth.structures.matching import operators
from structsmooth.structures.operators import on_cpu


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
    weights, rows = on_cpu(-widened(costs).mT, numbers.to(costs.device, torch.int64))
    if bool(((rows < 0) | (rows > objects)).any()):
        raise ValueError(f"sizes must be from 0 to M = {objects}, got {rows.tolist()}")
    inside = torch.arange(objects) < rows.unsqueeze(1)
    wrong = inside & ~(weights < torch.inf).all(2)
    if bool(wrong.any()):
        raise _NonFiniteCostsError(checks.first_examples(wrong))
    values, y = operators.top_k(weights, torch.stack([rows, torch.full_like(rows, queries)], 1), 1)
    impossible = values[:, 0] == -torch.inf
    if bool(impossible.any()):
        raise ValueError(
            f"costs of example {int(impossible.long().argmax())} forbid every assignment: some objects have no query "
            "of finite cost left"
        )
    return torch.where(inside, y[:, 0], -1).to(costs.device)


class _NonFiniteCostsError(checks.NonFiniteScoresError):
    message = "costs must not contain NaN or -inf, got some in {examples}"
