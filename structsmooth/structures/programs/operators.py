"""Oracles of programs as torch operators over compiled loops (CPU).

Programs are given by their handles. Shapes: scores [B, P], ``which`` [B], indices into the roots of the program;
outputs [B, K, M], the scores that their derivations use, filled up with P. The loops read and write the dtype of the
scores, float32 or float64, and sum in float64, an example at a time.
"""

from typing import Any

import torch
from torch import Tensor

from structsmooth.compiled.threads import over_batch
from structsmooth.structures.operators import cpu_operator, like_scores, without_statistics
from structsmooth.structures.programs import reference
from structsmooth.structures.programs.levels import levels_of
from structsmooth.structures.programs.program import Program, program_of


def _array(tensor: Tensor) -> Any:
    return tensor.detach().contiguous().numpy()


def inputs(scores: Tensor, which: Tensor, handle: int) -> tuple[Program, Any, Any]:
    """The program, scores and root nodes."""
    program = program_of(handle)
    smallest, largest = which.aminmax() if which.numel() else (0, 0)
    if not 0 <= int(smallest) <= int(largest) < len(program.roots):
        raise ValueError(f"lengths must be from 0 to {len(program.roots) - 1}, got {which.tolist()}")
    return program, _array(scores), program.roots[_array(which)]


def _rooted(which: Tensor, handle: int) -> dict[str, Any]:
    """What the reference takes besides scores."""
    levels = levels_of(handle, which.device)
    return {"root": levels.roots[which], "levels": levels}


def weighted_uses(weights: Tensor, used: Tensor, count: int) -> Tensor:
    """How often outputs [B, K, M] use each of ``count`` scores, weighted by [B, K]: [B, P]."""
    sums = weights.new_zeros(len(used), count + 1)
    return sums.scatter_add(1, used.flatten(1), weights.unsqueeze(2).expand(used.shape).flatten(1))[:, :count]


def like_top_k(scores: Tensor, which: Tensor, handle: int, k: int) -> tuple[Tensor, Tensor]:
    """Empty values [B, k] and outputs [B, k, M]."""
    batch = len(scores)
    return scores.new_empty(batch, k), which.new_empty(batch, k, program_of(handle).longest)


def save_used(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, Tensor]) -> None:
    """Keep the answer of the top-K oracle."""
    ctx.save_for_backward(*output)
    ctx.count = inputs[0].shape[1]


def _top_k_backward(ctx: Any, grad: Tensor, _grad_used: Tensor) -> tuple[Tensor | None, ...]:
    """Gradients of the top-K oracle, which are weighted numbers of uses."""
    values, used = ctx.saved_tensors
    return weighted_uses(torch.where(values > -torch.inf, grad, 0.0), used, ctx.count), None, None, None


@cpu_operator("program_top_k", like_top_k, _top_k_backward, save_used)
def top_k(scores: Tensor, which: Tensor, handle: int, k: int) -> tuple[Tensor, Tensor]:
    """Values [B, k] and outputs [B, k, M]."""
    from structsmooth.structures.programs import compiled  # numba loads with the first program

    program, array, roots = inputs(scores, which, handle)
    values = scores.new_empty(len(scores), k)
    used = torch.full((len(scores), k, program.longest), program.scores)
    if k == 1:
        loop, outputs = compiled.batch_max, (values.numpy()[:, 0], used.numpy()[:, 0])
    else:
        loop, outputs = compiled.batch_top_k, (values.numpy(), used.numpy())
    arrays = (program.arrays, program.depth, array, roots, *outputs)
    over_batch(lambda *bounds: loop(*arrays, *bounds), len(scores), 2 * k * len(scores) * program.edges)
    return values, used


def _like_marginals(scores: Tensor, which: Tensor, handle: int) -> tuple[Tensor, Tensor]:
    return scores.new_empty(len(scores)), scores.new_empty(scores.shape)


def _save_marginals(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, Tensor]) -> None:
    ctx.set_materialize_grads(False)
    ctx.save_for_backward(*inputs[:2], output[1])
    ctx.handle = inputs[2]


def _marginals_backward(ctx: Any, grad: Tensor | None, grad_parts: Tensor | None) -> tuple[Tensor | None, ...]:
    scores, which, parts = ctx.saved_tensors
    gradient = None if grad is None else grad.unsqueeze(1) * parts
    if grad_parts is not None:
        second = tangents(scores, grad_parts, which, ctx.handle)
        gradient = second if gradient is None else gradient + second
    return gradient, None, None


@cpu_operator("program_marginals", _like_marginals, _marginals_backward, _save_marginals)
def marginals(scores: Tensor, which: Tensor, handle: int) -> tuple[Tensor, Tensor]:
    """Log-partition [B] and probabilities [B, P]."""
    from structsmooth.structures.programs import compiled

    program, array, roots = inputs(scores, which, handle)
    log_z, parts = _like_marginals(scores, which, handle)
    arrays = (program.arrays, array, roots, log_z.numpy(), parts.numpy())
    over_batch(lambda *bounds: compiled.batch_marginals(*arrays, *bounds), len(parts), 10 * len(parts) * program.edges)
    without_statistics(log_z, parts)
    return log_z, parts


def log_partition(scores: Tensor, which: Tensor, handle: int) -> Tensor:
    """Log-partition [B]."""
    log_z: Tensor = marginals(scores, which, handle)[0]
    return log_z


def probabilities(scores: Tensor, which: Tensor, handle: int) -> Tensor:
    """Probabilities [B, P]."""
    parts: Tensor = marginals(scores, which, handle)[1]
    return parts


def _save_tangents(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
    ctx.save_for_backward(*inputs[:3])
    ctx.handle = inputs[3]


def _tangents_backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
    """The second derivatives are symmetric; the third ones are computed by torch."""
    scores, directions, which = ctx.saved_tensors
    rooted = _rooted(which, ctx.handle)

    def curvature(scores: Tensor) -> Tensor:
        moved: Tensor = torch.func.grad(lambda s: (reference.marginals(s, **rooted) * directions).sum())(scores)
        return (moved * grad).sum()

    third: Tensor = torch.func.grad(curvature)(scores)
    return third, tangents(scores, grad, which, ctx.handle), None, None


@cpu_operator("program_tangents", like_scores, _tangents_backward, _save_tangents)
def tangents(scores: Tensor, directions: Tensor, which: Tensor, handle: int) -> Tensor:
    """Derivatives [B, P] of the probabilities in directions [B, P] of the scores."""
    from structsmooth.structures.programs import compiled

    program, array, roots = inputs(scores, which, handle)
    parts: Tensor = scores.new_empty(scores.shape)
    arrays = (program.arrays, array, _array(directions), roots, parts.numpy())
    over_batch(lambda *bounds: compiled.batch_tangents(*arrays, *bounds), len(scores), 20 * len(scores) * program.edges)
    return parts


def _save_inputs(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
    ctx.save_for_backward(*inputs[:2])
    ctx.handle = inputs[2]


@cpu_operator("program_max_marginals_gradient", like_scores)
def max_marginals_gradient(scores: Tensor, weights: Tensor, which: Tensor, handle: int) -> Tensor:
    """Gradient [B, P] of the sum of max-marginals weighted by [B, P], without those of -inf."""
    from structsmooth.structures.programs import compiled

    program, array, roots = inputs(scores, which, handle)
    out: Tensor = scores.new_empty(scores.shape)
    arrays = (program.arrays, array, roots, _array(weights), out.numpy())
    loop = compiled.batch_max_marginals_gradient
    over_batch(lambda *bounds: loop(*arrays, *bounds), len(out), 6 * len(out) * program.edges)
    return out


def _max_marginals_backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
    scores, which = ctx.saved_tensors
    return max_marginals_gradient(scores, grad, which, ctx.handle), None, None


@cpu_operator("program_max_marginals", like_scores, _max_marginals_backward, _save_inputs)
def max_marginals(scores: Tensor, which: Tensor, handle: int) -> Tensor:
    """Max-marginals [B, P]."""
    from structsmooth.structures.programs import compiled

    program, array, roots = inputs(scores, which, handle)
    out: Tensor = scores.new_empty(scores.shape)
    arrays = (program.arrays, array, roots, out.numpy())
    over_batch(lambda *bounds: compiled.batch_max_marginals(*arrays, *bounds), len(out), 4 * len(out) * program.edges)
    return out


def _like_sample(scores: Tensor, which: Tensor, uniform: Tensor, handle: int) -> Tensor:
    return which.new_empty(*uniform.shape[:2], program_of(handle).longest)


@cpu_operator("program_sample", _like_sample)
def sample(scores: Tensor, which: Tensor, uniform: Tensor, handle: int) -> Tensor:
    """Outputs [B, n, M] at uniform numbers [B, n, D]; -1 for an example without any."""
    from structsmooth.structures.programs import compiled

    program, array, roots = inputs(scores, which, handle)
    used = torch.full((*uniform.shape[:2], program.longest), -1)
    arrays = (program.arrays, program.depth, array, roots, _array(uniform), used.numpy())
    operations = 10 * len(scores) * (program.edges + uniform.shape[1] * program.depth)
    over_batch(lambda *bounds: compiled.batch_sample(*arrays, *bounds), len(scores), operations)
    return used
