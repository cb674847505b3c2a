"""Oracles of paths through grids as torch operators over compiled loops (CPU).

A grid is given by the tensors of a :class:`~structsmooth.structures.grids.paths.Grid`, one by one.
"""

import math
from typing import Any

import torch
from torch import Tensor, library

from structsmooth.compiled.arguments import in_either_precision
from structsmooth.lazy import LazyLoops
from structsmooth.structures.grids.paths import Grid, grid_paths
from structsmooth.structures.operators import compiled_operator, save_inputs, tangents_backward
from structsmooth.structures.programs import reference

compiled = LazyLoops("structsmooth.structures.grids.compiled")
_MOVES = "Tensor offset, Tensor allowed, Tensor band, Tensor sizes, Tensor steps"
_GRIDS = f"Tensor scores, Tensor entries, {_MOVES}"


def _operations(count: int) -> Any:
    """Of a number of passes over all cells and moves."""
    return lambda scores, entries, *_: 5 * count * scores.numel() * entries.shape[3]


def _inputs(*arguments: Any) -> tuple[Any, ...]:
    """What loops read, after checks of what could lead them out of bounds; scores and entries in either precision."""
    tensors = tuple(argument for argument in arguments if isinstance(argument, Tensor))
    grid = Grid(*tensors[:7])
    rows, columns = grid.sizes.numpy().max(0, initial=0).tolist()
    stored = grid.allowed.shape[1] if grid.allowed.shape[1] else columns
    if rows > grid.scores.shape[1] or columns > stored:
        raise ValueError(f"lengths must be at most T, U = {(grid.scores.shape[1], stored)}, got {grid.sizes.tolist()}")
    others = (tensor.double() if tensor.is_floating_point() else tensor for tensor in tensors[2:])
    return *map(in_either_precision, tensors[:2]), *others


def _no_paths(scores: Tensor, *others: Any) -> tuple[Tensor, Tensor, Tensor]:
    sizes, longest = others[4], others[-1]
    cells = sizes.new_full((scores.shape[0], longest), -1)
    return scores.new_empty(scores.shape[0]), cells, cells.clone()


best = compiled_operator(
    f"grid_best({_GRIDS}, SymInt longest) -> (Tensor, Tensor, Tensor)",
    results=_no_paths,
    loop=compiled.batch_best,
    reads=_inputs,
    operations=_operations(1),
    narrow=0,
)
"""Best scores [B], and cells, t W + place, and moves of paths that have them: int64 [B, longest] each.

The last cell is first; the first cell has move M. Places that a path does not need have cell -1.
"""

bound_outside = compiled_operator(
    f"grid_bound_outside({_GRIDS}, Tensor cells) -> Tensor",
    results=lambda scores, *_: scores.new_empty(scores.shape[0]),
    loop=compiled.batch_bound_outside,
    reads=_inputs,
    operations=_operations(2),
    narrow=0,
)
"""Bounds [B] of the scores of paths with a cell that the band leaves out, from bounds [B, T] of these cells."""


def _log_partition_backward(ctx: Any, grad: Tensor, _: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    cells, moves = marginals(*ctx.saved_tensors)
    log_z, weights = ctx.saved_tensors[-2], grad.view(-1, 1, 1)
    return weights * cells, weights.unsqueeze(3) * moves, torch.where(log_z > -torch.inf, grad, 0.0)


def _save(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, Tensor]) -> None:
    save_inputs(ctx, (*inputs, *output), output)


def _no_rows(scores: Tensor, *others: Any) -> tuple[Tensor, Tensor]:
    (batch, rows, width), depth = scores.shape, others[-1]
    # A symbol where a graph leaves the number of rows open.
    blocks = math.isqrt(rows - 1) + 1 if isinstance(rows, int) else library.get_ctx().new_dynamic_size()
    return scores.new_empty(batch), scores.new_empty(batch, blocks, depth, 2, width, dtype=torch.float64)


log_partition = compiled_operator(
    f"grid_log_partition({_GRIDS}, SymInt depth) -> (Tensor, Tensor)",
    results=_no_rows,
    loop=compiled.batch_log_partition,
    reads=_inputs,
    operations=_operations(3),
    gradient=_log_partition_backward,
    save=_save,
    wide=1,
    narrow=0,
)
"""Log-partition [B], and rows [B, blocks, depth, 2, W] for the way back; ``depth``: the longest step along rows."""


def _marginals_backward(ctx: Any, *weights: Tensor) -> tuple[Tensor, Tensor]:
    scores, entries, *others = ctx.saved_tensors[:7]
    return tangents(scores, entries, *weights, *others)


def _no_marginals(scores: Tensor, entries: Tensor, *_: Any) -> tuple[Tensor, Tensor]:
    """Zeros for cells, and for the entry of each; none if all cells share theirs."""
    shape = entries.shape if entries.shape[:3] == scores.shape else (scores.shape[0], 0, 0, 0)
    return scores.new_zeros(scores.shape), entries.new_zeros(shape)


marginals = compiled_operator(
    f"grid_marginals({_GRIDS}, Tensor log_z, Tensor kept) -> (Tensor, Tensor)",
    results=_no_marginals,
    loop=compiled.batch_marginals,
    reads=_inputs,
    operations=_operations(4),
    gradient=_marginals_backward,
    narrow=2,
)
"""Probabilities of cells [B, T, W] and of moves, shaped as entries, given what :func:`log_partition` returns."""


def _log_partition(scores: Tensor, entries: Tensor, *others: Tensor) -> Tensor:
    """Log-partition [B] of grids in plain torch, by the general program."""
    grid = Grid(scores, entries, *others)
    width = max([1, *map(int, grid.sizes[:, 1])]) if grid.band.shape[1] else scores.shape[2]
    program = grid_paths(scores.shape[1], width, tuple((int(along), int(across)) for along, across in grid.steps))
    return reference.log_partition(grid.program_scores(width), grid.roots(width), program.handle)


tangents = compiled_operator(
    f"grid_tangents(Tensor scores, Tensor entries, Tensor directions, Tensor entering, {_MOVES}) -> (Tensor, Tensor)",
    results=_no_marginals,
    loop=compiled.batch_tangents,
    reads=lambda scores, entries, directions, entering, *others: (
        *_inputs(scores, entries, *others),
        directions,
        entering,
    ),
    operations=_operations(8),
    gradient=tangents_backward("grid_tangents", _log_partition, 2),
)
"""Derivatives of :func:`marginals` in directions of the scores and entries, and shaped as these."""
