"""Oracles of programs by kernels; shapes are those of :mod:`structsmooth.structures.programs.operators`."""

from functools import cache
from typing import Any

import torch
from torch import Tensor

from structsmooth.compiled.gpu import launch
from structsmooth.structures.operators import operator
from structsmooth.structures.programs import reference
from structsmooth.structures.programs.fused.tables import Tables, tables_of
from structsmooth.structures.programs.levels import levels_of
from structsmooth.structures.programs.operators import like_top_k, save_used
from structsmooth.structures.programs.program import program_of

TILE = {"NODES": 16, "EDGES": 16, **launch(16 * 16 * 8, 16)}


def _rooted(which: Tensor, handle: int) -> tuple[Tables, Tensor, dict[str, int]]:
    """The tables, the places of the roots [B], and sizes; numbers of roots beyond their range count as the nearest."""
    program, tables = program_of(handle), tables_of(handle, which.device)
    roots = tables.places[which.clamp(0, len(program.roots) - 1)]
    return tables, roots, {"nodes": program.nodes, "scores": program.scores}


def _like_log_sums(scores: Tensor, which: Tensor, handle: int) -> tuple[Tensor, Tensor]:
    return scores.new_empty(len(scores)), scores.new_empty(len(scores), program_of(handle).nodes + 1)


def _save_log_sums(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, Tensor]) -> None:
    ctx.set_materialize_grads(False)
    ctx.save_for_backward(*inputs[:2], output[1])
    ctx.handle = inputs[2]


def _log_sums_backward(ctx: Any, grad: Tensor | None, _values: Any) -> tuple[Tensor | None, ...]:
    return None if grad is None else weighted_parts(*ctx.saved_tensors, grad, ctx.handle), None, None


@operator("program_fused_log_sums", _like_log_sums, _log_sums_backward, _save_log_sums)
def log_sums(scores: Tensor, which: Tensor, handle: int) -> tuple[Tensor, Tensor]:
    """Log-partition [B], which is differentiable, and the log-sums of all places [B, N + 1]."""
    from structsmooth.structures.programs.fused import kernels  # Triton loads with the first kernel

    t, roots, sizes = _rooted(which, handle)
    log_z, values = _like_log_sums(scores, which, handle)
    with torch.cuda.device_of(scores):
        kernels.log_sums[(len(scores),)](
            scores.contiguous(), roots, t.rows, t.left, t.right, t.score, t.bounds, values, log_z, **sizes,
            levels=len(t.bounds) - 1, **TILE,
        )  # fmt: skip
    return log_z, values


def _like_parts(scores: Tensor, *_others: Any) -> Tensor:
    return scores.new_empty(scores.shape)


def _save_parts(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
    scores, which, _, weights, ctx.handle = inputs
    ctx.save_for_backward(scores, which, weights)


def _parts_backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
    """Second derivatives, by torch."""
    scores, which, weights = ctx.saved_tensors
    levels = levels_of(ctx.handle, which.device)
    root = levels.roots[which]

    def expected(scores: Tensor, weights: Tensor) -> Tensor:
        total: Tensor = (reference.marginals(scores, root, levels) * weights.unsqueeze(1) * grad).sum()
        return total

    of_scores, of_weights = torch.func.grad(expected, (0, 1))(scores, weights)
    return of_scores, None, None, of_weights, None


@operator("program_fused_parts", _like_parts, _parts_backward, _save_parts)
def weighted_parts(scores: Tensor, which: Tensor, values: Tensor, weights: Tensor, handle: int) -> Tensor:
    """Probabilities [B, P] of the scores times the weights [B], from the log-sums of places."""
    from structsmooth.structures.programs.fused import kernels

    t, roots, sizes = _rooted(which, handle)
    scores, out, adjoint = scores.contiguous(), _like_parts(scores), torch.empty_like(values)
    edges = (t.left, t.right, t.score, t.head)
    with torch.cuda.device_of(scores):
        kernels.adjoints[(len(scores),)](
            scores, roots, *edges, t.bounds, t.out_rows, t.out_edges, values, weights.contiguous(), adjoint, **sizes,
            levels=len(t.bounds) - 1, **TILE,
        )  # fmt: skip
        kernels.parts[(len(scores), -(-scores.shape[1] // TILE["NODES"]))](
            scores, *edges, t.score_rows, t.score_edges, values, adjoint, out, **sizes, **TILE
        )
    return out


def log_partition(scores: Tensor, which: Tensor, handle: int) -> Tensor:
    """Log-partition [B]."""
    log_z: Tensor = log_sums(scores, which, handle)[0]
    return log_z


def probabilities(scores: Tensor, which: Tensor, handle: int) -> Tensor:
    """Probabilities [B, P]; differentiable."""
    values = log_sums(scores, which, handle)[1].detach()
    parts: Tensor = weighted_parts(scores, which, values, scores.new_ones(len(scores)), handle)
    return parts


@cache
def _pairs(k: int, device: torch.device) -> tuple[Tensor, Tensor]:
    """Ranks of the two tails of an edge that can be among the k best."""
    pairs = [(i, j) for i in range(k) for j in range(k // (i + 1))]
    firsts, seconds = torch.tensor(pairs, dtype=torch.int32).t().contiguous().to(device)
    return firsts, seconds


def _top_k_backward(ctx: Any, grad: Tensor, _grad_used: Tensor) -> tuple[Tensor | None, ...]:
    """Weighted numbers of uses, an output after the other: numbers alone are exact in any order of atomic additions."""
    values, used = ctx.saved_tensors
    total = grad.new_zeros(len(used), ctx.count + 1)
    ones = grad.new_ones(1, 1).expand(used[:, 0].shape)
    for weight, output in zip(torch.where(values > -torch.inf, grad, 0.0).unbind(1), used.unbind(1), strict=True):
        total = total + weight.unsqueeze(1) * torch.zeros_like(total).scatter_add(1, output, ones)
    return total[:, : ctx.count], None, None, None


@operator("program_fused_top_k", like_top_k, _top_k_backward, save_used)
def top_k(scores: Tensor, which: Tensor, handle: int, k: int) -> tuple[Tensor, Tensor]:
    """Values [B, k] and outputs [B, k, M]."""
    from structsmooth.structures.programs.fused import kernels

    t, roots, sizes = _rooted(which, handle)
    program, batch, scores = program_of(handle), len(scores), scores.contiguous()
    out, used = like_top_k(scores, which, handle, k)
    used.fill_(program.scores)
    values = scores.new_empty(batch, program.nodes + 1, k)
    back, stack = (
        torch.empty(shape, dtype=torch.int32, device=scores.device)
        for shape in (values.shape, (batch, k, 2, program.depth + 1))
    )
    firsts, seconds = _pairs(k, scores.device)
    with torch.cuda.device_of(scores):
        kernels.best[(batch,)](
            scores, t.rows, t.left, t.right, t.score, t.bounds, firsts, seconds, values, back,
            **sizes, levels=len(t.bounds) - 1, k=k, pairs=len(firsts), **TILE,
        )  # fmt: skip
        kernels.follow[(batch, k)](
            roots, t.rows, t.left, t.right, t.score, values, back, out, used, stack, **sizes, k=k,
            depth=program.depth, longest=program.longest, num_warps=1,
        )  # fmt: skip
    return out, used


def _like_sample(scores: Tensor, which: Tensor, uniform: Tensor, handle: int) -> Tensor:
    return which.new_empty(*uniform.shape[:2], program_of(handle).longest)


@operator("program_fused_sample", _like_sample)
def sample(scores: Tensor, which: Tensor, uniform: Tensor, handle: int) -> Tensor:
    """Outputs [B, n, M] at uniform numbers [B, n, D]; -1 for an example without any."""
    from structsmooth.structures.programs.fused import kernels

    t, roots, sizes = _rooted(which, handle)
    program, draws = program_of(handle), uniform.shape[1]
    _, values = log_sums(scores, which, handle)
    used = _like_sample(scores, which, uniform, handle).fill_(program.scores)
    stack = t.rows.new_empty(len(scores), draws, program.depth + 1)
    with torch.cuda.device_of(scores):
        kernels.draw[(len(scores), draws)](
            scores.contiguous(), roots, t.rows, t.left, t.right, t.score, values, uniform.to(scores.dtype).contiguous(),
            used, stack, **sizes, draws=draws, depth=program.depth, longest=program.longest, EDGES=32, num_warps=1,
        )  # fmt: skip
    return used
