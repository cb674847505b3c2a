"""Outputs of chains by kernels: top-K oracle, scores, and their adjoint."""

from typing import Sequence  # noqa: UP035 - torch 2.5 infers no schema from that of collections.abc

import torch
from torch import Tensor

from structsmooth.structures.chain.fused.tiles import sizes_of, tiles_of, top_k_tiles
from structsmooth.structures.chain.output_operators import like_scores_of_outputs, output_operators, summed_to
from structsmooth.structures.operators import like_top_k


def _top_k(unary: Tensor, transition: Tensor, lengths: Tensor, k: int) -> tuple[Tensor, Tensor]:
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


def _scores(unary: Tensor, transition: Tensor, lengths: Tensor, y: Tensor) -> Tensor:
    """NaN where a label is no state."""
    from structsmooth.structures.chain.fused import output_kernels as kernels

    unary, transition = unary.contiguous(), transition.contiguous()
    out, k = like_scores_of_outputs(unary, transition, lengths, y), y.shape[1]
    with torch.cuda.device_of(unary):
        kernels.score[(len(unary), k)](
            unary, transition, lengths, y.contiguous(), out, k=k, **sizes_of(unary, transition), POSITIONS=128,
            num_warps=4,
        )  # fmt: skip
    return out


def _weighted_parts(
    weights: Tensor, y: Tensor, lengths: Tensor, states: int, transition_shape: Sequence[int]
) -> tuple[Tensor, Tensor]:
    from structsmooth.structures.chain.fused import output_kernels as kernels

    (batch, k, steps), tiles = y.shape, tiles_of(states, weights.itemsize)
    node = weights.new_empty(batch, steps, states)
    pairs = weights.new_empty(batch, 1 if transition_shape[1] == 1 else steps - 1, states, states)
    with torch.cuda.device_of(weights):
        kernels.parts[(batch, -(-states // tiles["ROWS"]))](
            weights.contiguous(), y.contiguous(), lengths, node, pairs, steps=steps, states=states, k=k,
            pair_steps=pairs.shape[1], **tiles,
        )  # fmt: skip
    return node, summed_to(pairs, transition_shape)


top_k, scores, weighted_parts = output_operators("chain_fused", _top_k, _scores, _weighted_parts)
