"""Sums over programs by kernels: log-partition function, probabilities, their derivatives, and max-marginals."""

from typing import Any

import torch
from torch import Tensor

from structsmooth.compiled.gpu import or_plain, run
from structsmooth.structures.derivatives import gradients_of
from structsmooth.structures.operators import gradient_of_plain, like_scores, operator, save_inputs_and_statistics
from structsmooth.structures.programs import reference
from structsmooth.structures.programs.fused.tables import TILE, rooted
from structsmooth.structures.programs.program import program_of


def _like_sums(scores: Tensor, root_index: Tensor, handle: int, largest: bool = False) -> tuple[Tensor, Tensor]:
    batch = scores.shape[0]
    return scores.new_empty(batch), scores.new_empty(batch, program_of(handle).nodes + 1)


def _sums(scores: Tensor, root_index: Tensor, handle: int, largest: bool) -> tuple[Tensor, Tensor]:
    """Log-sums, or maxima, of roots [B] and of all places [B, N + 1]."""
    from structsmooth.structures.programs.fused import sum_kernels as kernels  # Triton loads with the first kernel

    t, roots, sizes = rooted(root_index, handle)
    at_root, values = _like_sums(scores, root_index, handle)
    run(
        kernels.sums, len(scores), scores.contiguous(), roots, t.rows, t.left, t.right, t.score, t.bounds, values,
        at_root, **sizes, levels=len(t.bounds) - 1, **TILE, MAX=largest,
    )  # fmt: skip
    return at_root, values


def _parts(scores: Tensor, root_index: Tensor, values: Tensor, weights: Tensor, handle: int, largest: bool) -> Tensor:
    """Probabilities [B, P] of the scores times the weights [B], or max-marginals, from the sums of places."""
    from structsmooth.structures.programs.fused import sum_kernels as kernels

    t, roots, sizes = rooted(root_index, handle)
    scores, out, adjoint = scores.contiguous(), torch.empty_like(scores), torch.empty_like(values)
    edges = (t.left, t.right, t.score, t.head)
    run(
        kernels.adjoints, len(scores), scores, roots, *edges, t.bounds, t.out_rows, t.out_edges, values,
        weights.contiguous(), adjoint, **sizes, levels=len(t.bounds) - 1, **TILE, MAX=largest,
    )  # fmt: skip
    run(
        kernels.parts, len(scores) * _tiles(scores), scores, *edges, t.score_rows, t.score_edges, values, adjoint, out,
        **sizes, **TILE, MAX=largest,
    )  # fmt: skip
    return out


def _tiles(scores: Tensor) -> int:
    return -(-scores.shape[1] // TILE["NODES"])


def _log_sums_backward(ctx: Any, grad: Tensor | None, _values: Any) -> tuple[Tensor, ...]:
    return () if grad is None else (weighted_parts(*ctx.saved_tensors, grad, *ctx.constants),)


@operator("program_fused_log_sums", _like_sums, _log_sums_backward, save_inputs_and_statistics)
@or_plain(lambda *arguments: (reference.log_partition(*arguments), _like_sums(*arguments)[1]))
def log_sums(scores: Tensor, root_index: Tensor, handle: int) -> tuple[Tensor, Tensor]:
    """Log-partition [B], which is differentiable, and the log-sums of all places [B, N + 1]."""
    return _sums(scores, root_index, handle, False)


def _parts_backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
    """The second derivatives are symmetric: the gradient is a tangent."""
    turned, moved = tangents(*ctx.saved_tensors, grad, *ctx.constants)
    return turned, None, None, moved


@operator("program_fused_parts", like_scores, _parts_backward)
@or_plain(lambda s, roots, _values, weights, handle: reference.marginals(s, roots, handle)[0] * weights[:, None])
def weighted_parts(scores: Tensor, root_index: Tensor, values: Tensor, weights: Tensor, handle: int) -> Tensor:
    """Probabilities [B, P] of the scores times the weights [B], from the log-sums of places."""
    found: Tensor = _parts(scores, root_index, values, weights, handle, False)
    return found


def _like_tangents(scores: Tensor, *_others: Any) -> tuple[Tensor, Tensor]:
    return scores.new_empty(scores.shape), scores.new_empty(scores.shape[0])


def _tangents_backward(ctx: Any, grad: Tensor, grad_moved: Tensor) -> tuple[Tensor | None, ...]:
    """The third derivatives, by torch."""
    scores, root_index, _, weights, directions = ctx.saved_tensors

    def total(scores: Tensor, weights: Tensor, directions: Tensor) -> Tensor:
        turned, moved = _plain_tangents(scores, root_index, scores, weights, directions, *ctx.constants)
        return (turned * grad).sum() + (moved * grad_moved).sum()

    scores, weights, directions = gradients_of(total, (scores, weights, directions))
    return scores, None, None, weights, directions


def _plain_tangents(
    scores: Tensor, root_index: Tensor, values: Tensor, weights: Tensor, directions: Tensor, handle: int
) -> tuple[Tensor, Tensor]:
    def moves(scores: Tensor) -> Tensor:
        return (reference.marginals(scores, root_index, handle)[0] * directions).sum(1)

    (turned,) = gradients_of(lambda s: (moves(s) * weights).sum(), (scores,))
    return turned, moves(scores)


@operator("program_fused_tangents", _like_tangents, _tangents_backward)
@or_plain(_plain_tangents)
def tangents(
    scores: Tensor, root_index: Tensor, values: Tensor, weights: Tensor, directions: Tensor, handle: int
) -> tuple[Tensor, Tensor]:
    """Derivatives in directions [B, P] of :func:`weighted_parts`, and of the log-partition function [B].

    They are differences of sums over whole outputs, and so in float64.
    """
    from structsmooth.structures.programs.fused import sum_kernels as kernels

    if scores.dtype != torch.float64:
        wide, weights, directions = scores.double(), weights.double(), directions.double()
        values = _sums(wide, root_index, handle, False)[1]
        turned, moves = tangents(wide, root_index, values, weights, directions, handle)
        return turned.to(scores.dtype), moves.to(scores.dtype)
    t, roots, sizes = rooted(root_index, handle)
    scores, directions = scores.contiguous(), directions.contiguous()
    out, at_root = _like_tangents(scores)
    moved, adjoint, slope = (torch.empty_like(values) for _ in range(3))
    edges = (t.left, t.right, t.score, t.head)
    run(
        kernels.tangents, len(scores), scores, directions, roots, t.rows, *edges, t.bounds, t.out_rows, t.out_edges,
        values, weights.contiguous(), moved, adjoint, slope, at_root, **sizes, levels=len(t.bounds) - 1, **TILE,
    )  # fmt: skip
    run(
        kernels.turned_parts, len(scores) * _tiles(scores), scores, directions, *edges, t.score_rows, t.score_edges,
        values, moved, adjoint, slope, out, **sizes, **TILE,
    )  # fmt: skip
    return out, at_root


def log_partition(scores: Tensor, root_index: Tensor, handle: int) -> Tensor:
    """Log-partition [B]; twice differentiable by kernels, and thrice by torch."""
    return log_sums(scores, root_index, handle)[0]


def marginals(scores: Tensor, root_index: Tensor, handle: int) -> tuple[Tensor]:
    """Probabilities [B, P]; differentiable."""
    values = log_sums(scores, root_index, handle)[1].detach()
    return (weighted_parts(scores, root_index, values, scores.new_ones(len(scores)), handle),)


@operator("program_fused_max_marginals", like_scores, gradient_of_plain(reference.max_marginals, 1))
@or_plain(reference.max_marginals)
def max_marginals(scores: Tensor, root_index: Tensor, handle: int) -> Tensor:
    """Max-marginals [B, P]."""
    best, values = _sums(scores, root_index, handle, True)
    return _parts(scores, root_index, values, best, handle, True)
