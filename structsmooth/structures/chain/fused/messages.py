"""Passes over chains by kernels, which raise where these do not run: a launch for all positions, or one for each."""

import torch
from torch import Tensor

from structsmooth.compiled.gpu import run
from structsmooth.structures.chain.fused.tiles import fits_a_tile, is_wide, row_tile, sizes_of, whole_tiles, wide_tiles
from structsmooth.structures.semirings import logsumexp, softmax


def forward(unary: Tensor, transition: Tensor, lengths: Tensor, largest: bool) -> tuple[Tensor, Tensor, Tensor]:
    """Log-partition [B] in float64, messages [B, T, S] and shifts [B, T]; or those of the ``largest``, not log-sums."""
    from structsmooth.structures.chain.fused import exponential_kernels, wide_kernels  # Triton loads with them

    unary, transition = unary.contiguous(), transition.contiguous()
    (batch, steps, states), sizes = unary.shape, sizes_of(unary, transition)
    messages, shifts = torch.empty_like(unary), unary.new_empty(batch, steps)
    log_z = unary.new_empty(batch, dtype=torch.float64)
    arguments = transition, lengths, messages, shifts
    if not is_wide(states):
        tiles = whole_tiles(states, unary.itemsize, sizes["edge_step"])
        run(exponential_kernels.forward, batch, unary, *arguments, log_z, **sizes, **tiles, MAX=largest)
        return log_z, messages, shifts
    messages[:, 0] = 0
    programs, tiles = wide_tiles(batch, states, unary.itemsize)
    for t in range(1, steps):
        run(wide_kernels.forward_step, programs, unary, *arguments, t=t, **sizes, **tiles, MAX=largest)
    (_, last), scores = _ends(unary, lengths, messages)
    best = scores.double().amax(1) if largest else logsumexp(scores.double(), 1)
    before = torch.arange(steps, device=unary.device) < last[:, None]
    return best + torch.where(before, shifts, 0.0).double().sum(1), messages, shifts


def _ends(unary: Tensor, lengths: Tensor, messages: Tensor) -> tuple[tuple[Tensor, Tensor], Tensor]:
    """Where sequences end, and their messages there with the unary scores, [B, S]."""
    last = torch.arange(len(unary), device=unary.device), lengths.clamp(1, unary.shape[1]) - 1
    return last, messages[last] + unary[last]


def backward(
    unary: Tensor, transition: Tensor, lengths: Tensor, messages: Tensor, shifts: Tensor, weights: Tensor, summed: bool
) -> tuple[Tensor, Tensor]:
    """Marginals [B, T, S] and [B, T-1, S, S], or [B, 1, S, S] if ``summed``, times the weights [B]."""
    from structsmooth.structures.chain.fused import exponential_kernels, wide_kernels

    unary, transition, weights = unary.contiguous(), transition.contiguous(), weights.contiguous()
    (batch, steps, states), sizes = unary.shape, sizes_of(unary, transition)
    node = torch.empty_like(unary)
    pairs = unary.new_empty(batch, 1 if summed else steps - 1, states, states)
    arguments = transition, lengths, messages, shifts, weights, node, pairs
    one_tile = fits_a_tile(states)
    if is_wide(states) or not (summed and one_tile):
        pairs.zero_()
    if not is_wide(states):
        scratch = weights if one_tile else torch.empty_like(node[:, 0])
        tiles = whole_tiles(states, unary.itemsize, sizes["edge_step"])
        run(exponential_kernels.backward, batch, unary, *arguments, scratch, **sizes, **tiles, SUMMED=summed)
        return node, pairs
    last, scores = _ends(unary, lengths, messages)
    ends = softmax(scores, 1)
    node.zero_()[last] = torch.where(weights[:, None] != 0, weights[:, None] * ends, 0.0)
    programs, tiles = wide_tiles(batch, states, unary.itemsize)
    following = ends.unsqueeze(1).repeat(1, 2, 1)
    for t in range(steps - 1, 0, -1):
        run(wide_kernels.backward_step, programs, unary, *arguments, following, t=t, **sizes, **tiles, SUMMED=summed)
    return node, pairs


def follow(unary: Tensor, transition: Tensor, lengths: Tensor, labels: Tensor, uniform: Tensor | None = None) -> Tensor:
    """Fill in labels [B, n, T] of samples at uniform numbers, or of the best output; give the value [B] of all."""
    from structsmooth.structures.chain.fused import exponential_kernels as kernels

    unary, transition = unary.contiguous(), transition.contiguous()
    largest, draws = uniform is None, labels.shape[1]
    value, messages, shifts = forward(unary, transition, lengths, largest)
    run(
        kernels.sample, len(unary) * draws, unary, transition, lengths, messages, shifts, value,
        value if uniform is None else uniform.to(unary.dtype).contiguous(), labels, draws=draws,
        **sizes_of(unary, transition), **row_tile(unary.shape[2], unary.itemsize), MAX=largest,
    )  # fmt: skip
    return value
