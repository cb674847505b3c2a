"""Oracles of matchings as torch operators over compiled loops.

Whatever the dtype of the weights, they are summed in float64. Assignments are found on the CPU: tensors on other
devices are copied to it, and results are copied back. The operators are opaque to ``torch.compile``.

Shapes: weights [B, N, M], sizes int64 [B, 2].
"""

from typing import Any

import torch
from torch import Tensor

from structsmooth.compiled.threads import over_batch
from structsmooth.structures.best_max_marginal_first import sorted_downwards
from structsmooth.structures.operators import like_scores, like_top_k, on_cpu, operator


def check_sizes(sizes: Tensor, rows: int, columns: int, *, rows_fit: bool = True) -> None:
    """Raise unless rows and columns are within the weights: else compiled loops would read out of bounds.

    If ``rows_fit``, there must be a column for each row.
    """
    n, m = sizes.unbind(-1)
    wrong = (n < 0) | (m < 0) | (n > rows) | (m > columns)
    if rows_fit:
        wrong |= n > m
    if bool(wrong.any()):
        b = int(wrong.nonzero()[0])
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


def _arrays(weights: Tensor, sizes: Tensor) -> tuple[Any, ...]:
    weights, sizes = on_cpu(weights, sizes)
    check_sizes(sizes, *weights.shape[1:])
    return weights.double().numpy(), sizes.numpy()


def _operations(weights: Tensor) -> int:
    """Number of operations of one assignment per example."""
    batch, rows, columns = weights.shape
    return batch * rows**2 * columns


@operator("matching_top_k", like_top_k)
def top_k(weights: Tensor, sizes: Tensor, k: int) -> tuple[Tensor, Tensor]:
    """Values [B, k] and outputs [B, k, N] (Algorithm 10), without gradient."""
    from structsmooth.structures.matching import compiled  # numba loads with the first oracle, not with the library

    batch, rows, _ = weights.shape
    values = torch.full((batch, k), -torch.inf, dtype=torch.float64)
    y = torch.zeros(batch, k, rows, dtype=torch.int64)
    arrays = (*_arrays(weights, sizes), values.numpy(), y.numpy())
    assignments = 1 if k == 1 else 4 + 2 * k
    over_batch(lambda *bounds: compiled.batch_top_k(*arrays, *bounds), batch, assignments * _operations(weights))
    values, y = sorted_downwards(values, y)
    return values.to(weights), y.to(weights.device)


@operator("matching_max_marginals_gradient", like_scores)
def max_marginals_gradient(weights: Tensor, sizes: Tensor, grad: Tensor) -> Tensor:
    """Gradient of ⟨grad, max-marginals⟩; paths are computed again, since storing the matchings takes much memory."""
    from structsmooth.structures.matching import compiled

    out = torch.zeros(weights.shape, dtype=torch.float64)
    arrays = (*_arrays(weights, sizes), grad.to("cpu", torch.float64).contiguous().numpy(), out.numpy())
    operations = 4 * _operations(weights)
    over_batch(lambda *bounds: compiled.batch_max_marginals_gradient(*arrays, *bounds), len(weights), operations)
    return out.to(weights)


def _max_marginals_backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
    return max_marginals_gradient(*ctx.saved_tensors, grad), None


@operator("matching_max_marginals", like_scores, _max_marginals_backward)
def max_marginals(weights: Tensor, sizes: Tensor) -> Tensor:
    """Max-marginals [B, N, M] (Algorithm 12)."""
    from structsmooth.structures.matching import compiled

    batch, rows, columns = weights.shape
    weights_array, sizes_array = _arrays(weights, sizes)
    inside = row_mask(sizes, rows).unsqueeze(-1) & ~column_mask(sizes, columns).unsqueeze(1)
    out = torch.where(inside.cpu(), -torch.inf, torch.zeros((), dtype=torch.float64))
    arrays = (weights_array, sizes_array, out.numpy())
    over_batch(lambda *bounds: compiled.batch_max_marginals(*arrays, *bounds), batch, 4 * _operations(weights))
    return out.to(weights)
