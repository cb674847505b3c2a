"""Outputs of chains by kernels: top-K oracle, scores, and their adjoint."""

from typing import Any, Sequence  # noqa: UP035 - torch 2.5 infers no schema from that of collections.abc

import torch
from torch import Tensor

from structsmooth.structures.chain.fused.tiles import sizes_of, summed_to, tiles_of, top_k_tiles
from structsmooth.structures.operators import like_top_k, operator


def _save_outputs(ctx: Any, inputs: tuple[Any, ...], output: Any) -> None:
    unary, transition, lengths, _ = inputs
    ctx.save_for_backward(lengths, *output)
    ctx.states, ctx.transition_shape = unary.shape[-1], transition.shape


def _top_k_backward(ctx: Any, grad: Tensor, _grad_y: Tensor) -> tuple[Tensor | None, ...]:
    lengths, values, y = ctx.saved_tensors
    weights = torch.where(values > -torch.inf, grad, 0.0)
    return *_parts_summed(weights, y, lengths, ctx.states, ctx.transition_shape), None, None


@operator("chain_fused_top_k", like_top_k, _top_k_backward, _save_outputs)
def top_k(unary: Tensor, transition: Tensor, lengths: Tensor, k: int) -> tuple[Tensor, Tensor]:
    """Values [B, k] and outputs [B, k, T]."""
    from structsmooth.structures.chain.fused import output_kernels as kernels

    unary, transition = unary.contiguous(), transition.contiguous()
    values, y = like_top_k(unary, k)
    batch, steps, states = unary.shape
    scores = unary.new_empty(batch, 2, states, k)
    back, ends = (
        torch.empty(s, dtype=torch.int32, device=unary.device) for s in ((batch, steps, states, k), (batch, k))
    )
    with torch.cuda.device_of(unary):
        kernels.top_k[(batch,)](
            unary, transition, lengths, values, y, scores, back, ends, k=k, **sizes_of(unary, transition),
            **top_k_tiles(states, k, unary.itemsize),
        )  # fmt: skip
    return values, y


def _like_scores(unary: Tensor, transition: Tensor, lengths: Tensor, y: Tensor) -> Tensor:
    return unary.new_empty(y.shape[:2])


def _save_labels(ctx: Any, inputs: tuple[Tensor, ...], output: Tensor) -> None:
    unary, transition, lengths, y = inputs
    ctx.save_for_backward(lengths, y)
    ctx.states, ctx.transition_shape = unary.shape[-1], transition.shape


def _scores_backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
    lengths, y = ctx.saved_tensors
    return *_parts_summed(grad, y, lengths, ctx.states, ctx.transition_shape), None, None


@operator("chain_fused_scores", _like_scores, _scores_backward, _save_labels)
def scores(unary: Tensor, transition: Tensor, lengths: Tensor, y: Tensor) -> Tensor:
    """Scores [B, K] of outputs [B, K, T]; NaN where a label is no state."""
    from structsmooth.structures.chain.fused import output_kernels as kernels

    unary, transition = unary.contiguous(), transition.contiguous()
    out, k = _like_scores(unary, transition, lengths, y), y.shape[1]
    with torch.cuda.device_of(unary):
        kernels.score[(len(unary), k)](
            unary, transition, lengths, y.contiguous(), out, k=k, **sizes_of(unary, transition), POSITIONS=128,
            num_warps=4,
        )  # fmt: skip
    return out


def _parts_summed(
    weights: Tensor, y: Tensor, lengths: Tensor, states: int, transition_shape: Sequence[int]
) -> tuple[Tensor, Tensor]:
    node, pairs = weighted_parts(weights, y, lengths, states, transition_shape[1] == 1)
    return node, summed_to(pairs, transition_shape)


def _like_weighted_parts(
    weights: Tensor, y: Tensor, lengths: Tensor, states: int, summed: bool
) -> tuple[Tensor, Tensor]:
    batch, _, steps = y.shape
    pairs = weights.new_empty(batch, 1 if summed else steps - 1, states, states)
    return weights.new_empty(batch, steps, states), pairs


def _save_outputs_and_lengths(ctx: Any, inputs: tuple[Any, ...], output: Any) -> None:
    _, y, lengths, _, _ = inputs
    ctx.save_for_backward(y, lengths)


def _weighted_parts_backward(ctx: Any, grad_node: Tensor, grad_pairs: Tensor) -> tuple[Tensor | None, ...]:
    y, lengths = ctx.saved_tensors
    return scores(grad_node, grad_pairs, lengths, y), None, None, None, None


@operator("chain_fused_weighted_parts", _like_weighted_parts, _weighted_parts_backward, _save_outputs_and_lengths)
def weighted_parts(weights: Tensor, y: Tensor, lengths: Tensor, states: int, summed: bool) -> tuple[Tensor, Tensor]:
    """Σ_k weights[b, k] ν(y[b, k]) for unary [B, T, S] and pairs [B, T-1, S, S], or [B, 1, S, S] if ``summed``."""
    from structsmooth.structures.chain.fused import output_kernels as kernels

    node, pairs = _like_weighted_parts(weights, y, lengths, states, summed)
    (batch, k, steps), tiles = y.shape, tiles_of(states, weights.itemsize)
    with torch.cuda.device_of(weights):
        kernels.parts[(batch, -(-states // tiles["ROWS"]))](
            weights.contiguous(), y.contiguous(), lengths, node, pairs, steps=steps, states=states, k=k,
            pair_steps=pairs.shape[1], **tiles,
        )  # fmt: skip
    return node, pairs
