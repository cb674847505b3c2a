"""Outputs of programs by kernels: top-K oracle, the smoothed maximum of the K best, scores, their adjoint, samples."""

from functools import cache
from typing import Any

import torch
from torch import Tensor

from structsmooth.compiled.gpu import or_plain, power_of_two, run
from structsmooth.structures.derivatives import pullbacks
from structsmooth.structures.operators import operator, smoothed_gradient, smoothed_maximum
from structsmooth.structures.programs import reference
from structsmooth.structures.programs.fused.sums import log_sums
from structsmooth.structures.programs.fused.tables import TILE, rooted
from structsmooth.structures.programs.program import program_of

# Places of outputs that a warp reads at once.
PLACES = 128


@cache
def _pairs(k: int, device: torch.device) -> tuple[Tensor, Tensor]:
    """Ranks of the two tails of an edge that can be among the k best."""
    pairs = [(i, j) for i in range(k) for j in range(k // (i + 1))]
    firsts, seconds = torch.tensor(pairs, dtype=torch.int32).t().contiguous().to(device)
    return firsts, seconds


def _like_scores_of_outputs(scores: Tensor, used: Tensor) -> Tensor:
    return scores.new_empty(used.shape[:2])


def _scores_backward(ctx: Any, grad: Tensor) -> tuple[Tensor]:
    scores, used = ctx.saved_tensors
    return (weighted_uses(grad, used, scores.shape[1]),)


@operator("program_fused_scores", _like_scores_of_outputs, _scores_backward)
@or_plain(reference.scores_of_outputs)
def scores_of_outputs(scores: Tensor, used: Tensor) -> Tensor:
    """Scores [B, K] of outputs [B, K, M]."""
    from structsmooth.structures.programs.fused import output_kernels as kernels

    out, (batch, k, longest) = _like_scores_of_outputs(scores, used), used.shape
    run(
        kernels.scores_of_outputs, batch * k, scores.contiguous(), used.contiguous(), out, scores=scores.shape[1], k=k,
        longest=longest, PLACES=PLACES, num_warps=1,
    )  # fmt: skip
    return out


def _like_uses(weights: Tensor, used: Tensor, count: int) -> Tensor:
    return weights.new_empty(used.shape[0], count)


def _plain_uses(weights: Tensor, used: Tensor, count: int) -> Tensor:
    """The gradient of the weighted scores, which are linear."""
    zeros = weights.new_zeros(len(used), count)
    return pullbacks(lambda scores: reference.scores_of_outputs(scores, used), [weights], [zeros])[0][0]


@operator(
    "program_fused_uses",
    _like_uses,
    lambda ctx, grad: (scores_of_outputs(grad, *ctx.saved_tensors),),
    lambda ctx, inputs, _output: ctx.save_for_backward(inputs[1]),
)
@or_plain(_plain_uses)
def weighted_uses(weights: Tensor, used: Tensor, count: int) -> Tensor:
    """How often outputs [B, K, M] use each of ``count`` scores, weighted by [B, K]: [B, P]."""
    from structsmooth.structures.programs.fused import output_kernels as kernels

    out, (batch, k, longest) = _like_uses(weights, used, count).zero_(), used.shape
    run(
        kernels.weighted_uses, batch, weights.contiguous(), used.contiguous(), out, scores=count, k=k, longest=longest,
        PLACES=PLACES, num_warps=1,
    )  # fmt: skip
    return out


def _like_top_k(scores: Tensor, root_index: Tensor, handle: int, k: int) -> tuple[Tensor, Tensor]:
    batch = scores.shape[0]
    return scores.new_empty(batch, k), root_index.new_empty(batch, k, program_of(handle).longest)


def _save_found(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, Tensor]) -> None:
    ctx.save_for_backward(*output)
    ctx.count = inputs[0].shape[1]


def _top_k_backward(ctx: Any, grad: Tensor, _grad_used: Tensor) -> tuple[Tensor]:
    values, used = ctx.saved_tensors
    return (weighted_uses(torch.where(values > -torch.inf, grad, 0.0), used, ctx.count),)


@operator("program_fused_top_k", _like_top_k, _top_k_backward, _save_found)
@or_plain(reference.top_k)
def top_k(scores: Tensor, root_index: Tensor, handle: int, k: int) -> tuple[Tensor, Tensor]:
    """Values [B, k] and outputs [B, k, M]."""
    return _found(scores, root_index, handle, k)


def _found(
    scores: Tensor, root_index: Tensor, handle: int, k: int, mu: float = 0.0, into: tuple[Tensor, ...] = ()
) -> tuple[Tensor, Tensor]:
    """The k best outputs; with a level of smoothing, also the smoothed maximum [B] and weights [B, k], ``into``."""
    from structsmooth.structures.programs.fused import output_kernels as kernels

    t, roots, sizes = rooted(root_index, handle)
    program, batch, scores = program_of(handle), len(scores), scores.contiguous()
    out, used = _like_top_k(scores, root_index, handle, k)
    used.fill_(program.scores)
    values = scores.new_empty(batch, program.nodes + 1, k)
    back, stack = (
        torch.empty(shape, dtype=torch.int32, device=scores.device)
        for shape in (values.shape, (batch, k, 2, program.depth + 1))
    )
    firsts, seconds = _pairs(k, scores.device)
    smoothed, weights = into or (out, out)
    run(
        kernels.best, batch, scores, t.rows, t.left, t.right, t.score, t.bounds, firsts, seconds, values, back,
        **sizes, levels=len(t.bounds) - 1, k=k, pairs=len(firsts), **TILE,
    )  # fmt: skip
    run(
        kernels.follow, batch * k, roots, t.rows, t.left, t.right, t.score, values, back, out, used, stack,
        out.new_full((1,), mu), smoothed, weights, **sizes, k=k, depth=program.depth, longest=program.longest,
        RANKS=power_of_two(k) if into else 0, num_warps=1,
    )  # fmt: skip
    return out, used


def _like_smoothed(
    scores: Tensor, root_index: Tensor, handle: int, k: int, mu: float
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    values, used = _like_top_k(scores, root_index, handle, k)
    return scores.new_empty(scores.shape[0]), torch.empty_like(values), values, used


def _save_smoothed(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, ...]) -> None:
    ctx.set_materialize_grads(False)
    _, weights, _, used = output
    ctx.save_for_backward(weights, used)
    ctx.count, ctx.mu = inputs[0].shape[1], inputs[4]


def _smoothed_backward(ctx: Any, grad: Tensor | None, grad_weights: Tensor | None, *_: Any) -> tuple[Tensor, ...]:
    weights, used = ctx.saved_tensors
    of_values = smoothed_gradient(weights, ctx.mu, grad, grad_weights)
    return () if of_values is None else (weighted_uses(of_values, used, ctx.count),)


def _plain_smoothed(
    scores: Tensor, root_index: Tensor, handle: int, k: int, mu: float
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    values, used = reference.top_k(scores, root_index, handle, k)
    return *smoothed_maximum(values, mu), values, used


@operator("program_fused_smoothed", _like_smoothed, _smoothed_backward, _save_smoothed)
@or_plain(_plain_smoothed)
def smoothed_top_k(
    scores: Tensor, root_index: Tensor, handle: int, k: int, mu: float
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """The smoothed maximum [B] of the k best values, the weights [B, k] that attain it, values and outputs."""
    smoothed, weights, _, _ = _like_smoothed(scores, root_index, handle, k, mu)
    return smoothed, weights, *_found(scores, root_index, handle, k, mu, (smoothed, weights))


def _like_sample(scores: Tensor, root_index: Tensor, handle: int, uniform: Tensor) -> Tensor:
    return root_index.new_empty(*uniform.shape[:2], program_of(handle).longest)


@operator("program_fused_sample", _like_sample)
@or_plain(reference.sample)
def sample(scores: Tensor, root_index: Tensor, handle: int, uniform: Tensor) -> Tensor:
    """Outputs [B, n, M] at uniform numbers [B, n, D]; -1 for an example without any."""
    from structsmooth.structures.programs.fused import output_kernels as kernels

    t, roots, sizes = rooted(root_index, handle)
    program, draws = program_of(handle), uniform.shape[1]
    _, values = log_sums(scores, root_index, handle)
    used = _like_sample(scores, root_index, handle, uniform).fill_(program.scores)
    stack = t.rows.new_empty(len(scores), draws, program.depth + 1)
    run(
        kernels.draw, len(scores) * draws, scores.contiguous(), roots, t.rows, t.left, t.right, t.score, values,
        uniform.to(scores.dtype).contiguous(), used, stack, **sizes, draws=draws, depth=program.depth,
        longest=program.longest, EDGES=32, num_warps=1,
    )  # fmt: skip
    return used
