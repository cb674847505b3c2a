"""Oracles of paths through grids as torch operators over compiled loops (CPU).

A grid is given by six tensors: ``scores`` [B, T, W] of the cells that it stores; ``entries``, scores of entering cells
by moves: [B, T, W, M], or [B, 1, 1, M] for all cells alike, without gradient, or [B, 0, 0, M] for none; ``allowed``
[B, U, M], whether a move may enter a column, or [B, 0, M]; ``first`` [B, T], the column at which the stored cells of a
row begin, or [B, 0] for 0; ``sizes`` [B, 2], numbers of rows and columns; and ``steps`` [M, 2] along both.
"""

import math
from typing import Any, NamedTuple

from torch import Tensor

from structsmooth.structures.operators import cpu_loop, like_scores, save_inputs


class Grid(NamedTuple):
    """The tensors of a grid."""

    scores: Tensor
    entries: Tensor
    allowed: Tensor
    first: Tensor
    sizes: Tensor
    steps: Tensor


def _operations(count: int) -> Any:
    """Of a number of passes over all cells and moves."""
    return lambda scores, *others: 5 * count * scores.numel() * len(others[4])


def _inputs(*arguments: Any) -> tuple[Any, ...]:
    """What loops read, after checks of what could lead them out of bounds."""
    tensors = tuple(argument for argument in arguments if isinstance(argument, Tensor))
    grid = Grid(*tensors[:6])
    rows, columns = (int(size.max()) for size in grid.sizes.unbind(1)) if len(grid.sizes) else (0, 0)
    stored = grid.allowed.shape[1] if grid.allowed.shape[1] else columns
    if rows > grid.scores.shape[1] or columns > stored:
        raise ValueError(f"lengths must be at most T, U = {(grid.scores.shape[1], stored)}, got {grid.sizes.tolist()}")
    return tensors


@cpu_loop("grid_best", "grids.compiled:batch_best", _operations(1), inputs=_inputs)
def best(
    scores: Tensor,
    entries: Tensor,
    allowed: Tensor,
    first: Tensor,
    sizes: Tensor,
    steps: Tensor,
    offset: Tensor,
    longest: int,
) -> tuple[Tensor, Tensor, Tensor]:
    """Best scores [B], with an offset [B], and cells, t W + place, and moves of such paths: int64 [B, longest] each.

    The last cell is first; the first cell has move M. Places that a path does not need have cell -1.
    """
    cells = sizes.new_full((len(scores), longest), -1)
    return scores.new_empty(len(scores)), cells, cells.clone()


def _log_partition_backward(ctx: Any, grad: Tensor, _: Tensor) -> tuple[Tensor, Tensor]:
    cells, moves = marginals(*ctx.saved_tensors)
    weights = grad.view(-1, 1, 1)
    return weights * cells, weights.unsqueeze(3) * moves


def _save(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, Tensor]) -> None:
    save_inputs(ctx, (*inputs, *output), output)


@cpu_loop(
    "grid_log_partition",
    "grids.compiled:batch_log_partition",
    _operations(3),
    _log_partition_backward,
    _save,
    inputs=_inputs,
)
def log_partition(
    scores: Tensor, entries: Tensor, allowed: Tensor, first: Tensor, sizes: Tensor, steps: Tensor, depth: int
) -> tuple[Tensor, Tensor]:
    """Log-partition [B], and rows [B, blocks, depth, W] for the way back; ``depth`` is the longest step along rows."""
    batch, rows, width = scores.shape
    return scores.new_empty(batch), scores.new_zeros(batch, math.isqrt(rows - 1) + 1, depth, width)


def _marginals_backward(ctx: Any, *weights: Tensor) -> tuple[Tensor, Tensor]:
    inputs = ctx.saved_tensors[:6]
    moved: tuple[Tensor, Tensor] = tangents(*inputs, *weights)
    return moved


@cpu_loop("grid_marginals", "grids.compiled:batch_marginals", _operations(4), _marginals_backward, inputs=_inputs)
def marginals(
    scores: Tensor,
    entries: Tensor,
    allowed: Tensor,
    first: Tensor,
    sizes: Tensor,
    steps: Tensor,
    log_z: Tensor,
    kept: Tensor,
) -> tuple[Tensor, Tensor]:
    """Probabilities of cells [B, T, W] and of moves, shaped as entries, given what :func:`log_partition` returns."""
    return scores.new_zeros(scores.shape), _for_entries(scores, entries)


def _for_entries(scores: Tensor, entries: Tensor) -> Tensor:
    """Zeros for each entry; for none, if all cells share them."""
    return entries.new_zeros(entries.shape if entries.shape[:3] == scores.shape else (len(scores), 0, 0, 0))


@cpu_loop("grid_tangents", "grids.compiled:batch_tangents", _operations(8), inputs=_inputs)
def tangents(
    scores: Tensor,
    entries: Tensor,
    allowed: Tensor,
    first: Tensor,
    sizes: Tensor,
    steps: Tensor,
    directions: Tensor,
    entering: Tensor,
) -> tuple[Tensor, Tensor]:
    """Derivatives of :func:`marginals` in directions of the scores and entries, and shaped as these."""
    return like_scores(scores).zero_(), _for_entries(scores, entries)
