"""Oracles of matchings as torch operators over compiled loops.

Whatever the dtype of the weights, they are summed in float64. Assignments are found on the CPU: tensors on other
devices are copied to it, and results are copied back. The operators are opaque to ``torch.compile``.

Shapes: weights [B, N, M], sizes int64 [B, 2]. Those that begin with ``flow`` take scores [B, N + 1, M + 1] of pairs and
of places that stay free, and places of rows [B, N] and columns [B, M], int64; -inf forbids.
"""

from typing import Any

import torch
from torch import Tensor

from structsmooth.lazy import LazyLoops
from structsmooth.structures import checks
from structsmooth.structures.best_max_marginal_first import sorted_downwards
from structsmooth.structures.max_marginals import max_marginals_operator
from structsmooth.structures.operators import compiled_operator, no_labels, no_outputs

compiled = LazyLoops("structsmooth.structures.matching.compiled")
compiled_flow = LazyLoops("structsmooth.structures.matching.compiled_flow")


def check_sizes(sizes: Tensor, rows: int, columns: int, *, rows_fit: bool = True) -> None:
    """Raise unless rows and columns are within the weights: else compiled loops would read out of bounds.

    If ``rows_fit``, there must be a column for each row.
    """
    found = sizes.cpu().numpy()  # whose functions take less time for a few numbers
    n, m = found.T
    wrong = (n < 0) | (m < 0) | (n > rows) | (m > columns)
    if rows_fit:
        wrong |= n > m
    if wrong.any():
        b = int(wrong.argmax())
        wanted = "0 <= rows <= columns" if rows_fit else "at least 0"
        raise ValueError(
            f"sizes must be rows and columns, {wanted}, at most N, M = {rows}, {columns}, "
            f"got {sizes[b].tolist()} at example {b}"
        )


def row_mask(sizes: Tensor, rows: int) -> Tensor:
    """[B, N], true at the rows that examples have."""
    return torch.arange(rows, device=sizes.device) < sizes[:, :1]


def column_mask(sizes: Tensor, columns: int) -> Tensor:
    """[B, M], true at the columns that examples have."""
    return torch.arange(columns, device=sizes.device) < sizes[:, 1:]


def _checked(weights: Tensor, sizes: Tensor, *others: Any) -> tuple[Any, ...]:
    check_sizes(sizes, *weights.shape[1:])
    return weights, sizes, *(other for other in others if isinstance(other, Tensor))


def _operations(weights: Tensor, *_: Any) -> int:
    """Number of operations of four assignments per example."""
    batch, rows, columns = weights.shape
    return 4 * batch * rows**2 * columns


def _top_k_operations(weights: Tensor, sizes: Tensor, k: int) -> int:
    return _operations(weights) // 4 if k == 1 else _operations(weights) * (2 + k) // 2


top_k = compiled_operator(
    "matching_top_k(Tensor weights, Tensor sizes, SymInt k) -> (Tensor, Tensor)",
    results=no_labels,
    loop=compiled.batch_top_k,
    reads=_checked,
    operations=_top_k_operations,
    finish=sorted_downwards,
)
"""Values [B, k] and outputs [B, k, N] (Algorithm 10), without gradient."""


def _no_max_marginals(weights: Tensor, sizes: Tensor) -> Tensor:
    _, rows, columns = weights.shape
    missing = row_mask(sizes, rows).unsqueeze(-1) & ~column_mask(sizes, columns).unsqueeze(1)
    return weights.new_zeros(weights.shape).masked_fill(missing, -torch.inf)


# Registers matching_max_marginals_gradient, too.
max_marginals = max_marginals_operator(
    "matching_max_marginals(Tensor weights, Tensor sizes) -> Tensor",
    results=_no_max_marginals,
    loop=compiled.batch_max_marginals,
    gradient_loop=compiled.batch_max_marginals_gradient,
    reads=_checked,
    operations=_operations,
)
"""Max-marginals [B, N, M] (Algorithm 12)."""


def _checked_flow(scores: Tensor, rows: Tensor, columns: Tensor, *others: Any) -> tuple[Any, ...]:
    batch, n, m = scores.shape
    checks.require_shape("row_capacities", rows, "[B, N]", (batch, n - 1))
    checks.require_shape("column_capacities", columns, "[B, M]", (batch, m - 1))
    return scores, rows, columns, *(other for other in others if isinstance(other, Tensor))


def _paths(scores: Tensor, *_: Any) -> int:
    """Number of operations of a shortest path from each node."""
    batch, n, m = scores.shape
    return 2 * batch * (n + m) ** 3


flow_top_k = compiled_operator(
    "matching_flow_top_k(Tensor scores, Tensor rows, Tensor columns, SymInt k) -> (Tensor, Tensor)",
    results=lambda scores, rows, columns, k: no_outputs(scores, k, rows.shape[1] * columns.shape[1]),
    loop=compiled_flow.batch_top_k,
    reads=_checked_flow,
    operations=lambda scores, rows, columns, k: _paths(scores) * k,
    finish=sorted_downwards,
)
"""Values [B, k] and outputs [B, k, N M], which are 1 for pairs that they have (Algorithm 10), without gradient."""

# Registers matching_flow_max_marginals_gradient, too.
flow_max_marginals = max_marginals_operator(
    "matching_flow_max_marginals(Tensor scores, Tensor rows, Tensor columns) -> Tensor",
    results=lambda scores, rows, columns: scores.new_empty(scores.shape[0], rows.shape[1], columns.shape[1]),
    loop=compiled_flow.batch_max_marginals,
    gradient_loop=compiled_flow.batch_max_marginals_gradient,
    reads=_checked_flow,
    operations=_paths,
)
"""Best scores [B, N, M] with each pair."""
