"""Outputs of chains by kernels: top-K oracle, the smoothed maximum of the K best, scores, and their adjoint."""

from typing import Any, Sequence  # noqa: UP035 - torch 2.5 infers no schema from that of collections.abc

import torch
from torch import Tensor

from structsmooth.compiled.gpu import or_plain, run
from structsmooth.structures.chain import reference
from structsmooth.structures.chain.fused.messages import follow
from structsmooth.structures.chain.fused.tiles import sizes_of, tiles_of, top_k_tiles
from structsmooth.structures.chain.operators import (
    found_backward,
    parts_backward,
    save_found,
    save_shapes,
    scores_backward,
)
from structsmooth.structures.derivatives import pullbacks
from structsmooth.structures.operators import (
    gradient_of_plain,
    like_scores,
    like_top_k,
    operator,
    smoothed_gradient,
    smoothed_maximum,
)


@operator("chain_fused_top_k", like_top_k, found_backward("chain_fused_weighted_parts"), save_found)
@or_plain(reference.top_k)
def top_k(unary: Tensor, transition: Tensor, lengths: Tensor, k: int) -> tuple[Tensor, Tensor]:
    """Values [B, k] and outputs [B, k, T]."""
    if k > 1:
        return _found(unary, transition, lengths, k)
    y = like_top_k(unary, k)[1]
    return follow(unary, transition, lengths, y)[:, None].to(unary.dtype), y


def _found(
    unary: Tensor, transition: Tensor, lengths: Tensor, k: int, mu: float = 0.0, into: tuple[Tensor, ...] = ()
) -> tuple[Tensor, Tensor]:
    """The k best outputs; with a level of smoothing, also the smoothed maximum [B] and weights [B, k], ``into``."""
    from structsmooth.structures.chain.fused import output_kernels as kernels

    unary, transition = unary.contiguous(), transition.contiguous()
    values, y = like_top_k(unary, k)
    batch, steps, states = unary.shape
    scores = unary.new_empty(batch, 2, states, k)
    narrow = torch.int16 if states * k < 2**15 else torch.int32
    back = torch.empty(batch, steps, states, k, dtype=narrow, device=unary.device)
    ends = torch.empty(batch, k, dtype=torch.int32, device=unary.device)
    smoothed, weights = into or (values, values)
    sizes = sizes_of(unary, transition)
    run(
        kernels.top_k, batch, unary, transition, lengths, values, y, scores, back, ends, values.new_full((1,), mu),
        smoothed, weights, k=k, **sizes, **top_k_tiles(states, k, unary.itemsize, sizes["edge_step"]),
        SMOOTHED=bool(into),
    )  # fmt: skip
    return values, y


def _like_scores(unary: Tensor, transition: Tensor, lengths: Tensor, y: Tensor) -> Tensor:
    return unary.new_empty(y.shape[:2])


@operator("chain_fused_scores", _like_scores, scores_backward("chain_fused_weighted_parts"), save_shapes)
@or_plain(reference.scores)
def scores(unary: Tensor, transition: Tensor, lengths: Tensor, y: Tensor) -> Tensor:
    """Scores [B, K] of outputs [B, K, T]; NaN where a label is no state."""
    return run_score(unary, transition, lengths, y)[0]


def run_score(
    unary: Tensor, transition: Tensor, lengths: Tensor, y: Tensor, log_z: Tensor | None = None
) -> tuple[Tensor, Tensor]:
    """Scores [B, K] of outputs; or by how much log-partitions [B] exceed them, for K = 1, and where that is finite."""
    from structsmooth.structures.chain.fused import output_kernels as kernels

    unary, transition = unary.contiguous(), transition.contiguous()
    values, real = unary.new_empty(y.shape[:2]), unary.new_empty(y.shape[:2])
    run(
        kernels.score, y.shape[0] * y.shape[1], unary, transition, lengths, y.contiguous(), values,
        values if log_z is None else log_z, real, k=y.shape[1], **sizes_of(unary, transition), POSITIONS=128,
        num_warps=4, SUBTRACTED=log_z is not None,
    )  # fmt: skip
    return values, real


def _like_parts(
    weights: Tensor, y: Tensor, lengths: Tensor, states: int, transition_shape: Sequence[int]
) -> tuple[Tensor, Tensor]:
    return weights.new_empty(y.shape[0], y.shape[2], states), weights.new_empty(transition_shape)


def plain_parts(
    weights: Tensor, y: Tensor, lengths: Tensor, states: int, transition_shape: Sequence[int]
) -> tuple[Tensor, Tensor]:
    """The gradient of the weighted scores, which are linear."""
    zeros = (weights.new_zeros(len(y), y.shape[2], states), weights.new_zeros(transition_shape))
    node, edge = pullbacks(lambda unary, pairs: reference.scores(unary, pairs, lengths, y), [weights], zeros)[0]
    return node, edge


@operator("chain_fused_weighted_parts", _like_parts, parts_backward("chain_fused_scores"))
@or_plain(plain_parts)
def weighted_parts(
    weights: Tensor, y: Tensor, lengths: Tensor, states: int, transition_shape: Sequence[int]
) -> tuple[Tensor, Tensor]:
    """Weighted sums of the parts of outputs y [B, K, T], with weights [B, K]: [B, T, S] and ``transition_shape``."""
    batch, _, steps = y.shape
    node = weights.new_empty(batch, steps, states)
    pairs = weights.new_empty(batch, 1 if transition_shape[1] == 1 else steps - 1, states, states)
    run_parts(weights, y, lengths, node, pairs)
    return node, pairs.sum_to_size(transition_shape)


def run_parts(
    weights: Tensor, y: Tensor, lengths: Tensor, node: Tensor, pairs: Tensor, *, subtracted: bool = False
) -> None:
    """Let ``node`` and ``pairs`` be weighted sums of the parts of outputs, or subtract these from what is there."""
    from structsmooth.structures.chain.fused import output_kernels as kernels

    (batch, k, steps), states = y.shape, node.shape[2]
    tiles = tiles_of(states, weights.itemsize, heavy=subtracted)
    run(
        kernels.parts, batch * -(-states // tiles["ROWS"]), weights.contiguous(), y.contiguous(), lengths, node, pairs,
        steps=steps, states=states, k=k, pair_steps=pairs.shape[1], **tiles, SUBTRACTED=subtracted,
    )  # fmt: skip


def _like_smoothed(
    unary: Tensor, transition: Tensor, lengths: Tensor, k: int, mu: float
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    values, y = like_top_k(unary, k)
    return unary.new_empty(unary.shape[0]), torch.empty_like(values), values, y


def _save_smoothed(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, ...]) -> None:
    ctx.set_materialize_grads(False)
    unary, transition, lengths, _, ctx.mu = inputs
    _, weights, _, y = output
    ctx.save_for_backward(lengths, weights, y)
    ctx.states, ctx.transition_shape = unary.shape[-1], transition.shape


def _smoothed_backward(ctx: Any, grad: Tensor | None, grad_weights: Tensor | None, *_: Any) -> Sequence[Tensor]:
    lengths, weights, y = ctx.saved_tensors
    of_values = smoothed_gradient(weights, ctx.mu, grad, grad_weights)
    return () if of_values is None else weighted_parts(of_values, y, lengths, ctx.states, ctx.transition_shape)


def _plain_smoothed(
    unary: Tensor, transition: Tensor, lengths: Tensor, k: int, mu: float
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    values, y = reference.top_k(unary, transition, lengths, k)
    return *smoothed_maximum(values, mu), values, y


@operator("chain_fused_smoothed", _like_smoothed, _smoothed_backward, _save_smoothed)
@or_plain(_plain_smoothed)
def smoothed_top_k(
    unary: Tensor, transition: Tensor, lengths: Tensor, k: int, mu: float
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """The smoothed maximum [B] of the k best values, the weights [B, k] that attain it, values and outputs."""
    smoothed, weights, _, _ = _like_smoothed(unary, transition, lengths, k, mu)
    return smoothed, weights, *_found(unary, transition, lengths, k, mu, (smoothed, weights))


@operator("chain_fused_max_marginals", like_scores, gradient_of_plain(reference.max_marginals, 2))
@or_plain(reference.max_marginals)
def max_marginals(unary: Tensor, transition: Tensor, lengths: Tensor) -> Tensor:
    """Max-marginals [B, T, S]."""
    from structsmooth.structures.chain.fused import output_kernels as kernels

    unary, transition = unary.contiguous(), transition.contiguous()
    batch, steps, states = unary.shape
    best: Tensor = torch.empty_like(unary)
    before, scratch = unary.new_empty(batch, 2, steps), unary.new_empty(batch, states)
    run(
        kernels.max_marginals, batch, unary, transition, lengths, best, before, scratch, **sizes_of(unary, transition),
        **tiles_of(states, unary.itemsize),
    )  # fmt: skip
    return best
