"""The exp oracle of chains by kernels: log-partition function, marginals, their tangents, samples."""

from typing import Any

import torch
from torch import Tensor

from structsmooth.compiled.gpu import or_plain, run
from structsmooth.structures.chain import reference
from structsmooth.structures.chain.fused.messages import backward, follow, forward
from structsmooth.structures.chain.fused.outputs import plain_parts, run_parts, run_score
from structsmooth.structures.chain.fused.tiles import sizes_of, strides, tiles_of
from structsmooth.structures.derivatives import gradients_of
from structsmooth.structures.distribution import excess
from structsmooth.structures.operators import operator, save_inputs, save_inputs_and_statistics


def _like_filter(
    unary: Tensor, transition: Tensor, lengths: Tensor, y: Tensor
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    batch, steps, _ = unary.shape
    values, real = unary.new_empty(batch), unary.new_empty(y.shape[:2])
    return values, real, unary.new_empty(unary.shape), unary.new_empty(batch, steps)


def _filter_backward(ctx: Any, grad: Tensor | None, *_others: Any) -> tuple[Tensor | None, ...]:
    if grad is None:
        return ()
    unary, transition, lengths, y, real, messages, shifts = ctx.saved_tensors
    summed = transition.shape[1] == 1
    weights = grad * real[:, 0] if y.shape[1] else grad
    node, pairs = smooth(unary, transition, lengths, messages, shifts, weights, y, summed)
    return node, pairs.sum_to_size(transition.shape)


def plain_values(unary: Tensor, transition: Tensor, lengths: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
    """The first two results of :func:`filter_messages`, in plain torch."""
    values = reference.log_partition(unary, transition, lengths)
    if y.shape[1]:
        values = excess(values, reference.scores(unary, transition, lengths, y)[:, 0]).clamp_min(0)
    return values, values.isfinite().to(values.dtype).unsqueeze(1)[:, : y.shape[1]]


def _plain_filter(*arguments: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    _, _, messages, shifts = _like_filter(*arguments)  # anything: what reads them is plain, too
    return *plain_values(*arguments), messages, shifts


@operator("chain_fused_filter", _like_filter, _filter_backward, save_inputs_and_statistics)
@or_plain(_plain_filter)
def filter_messages(
    unary: Tensor, transition: Tensor, lengths: Tensor, y: Tensor
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Log-partition [B], nothing [B, 0], messages [B, T, S] and shifts [B, T]; the first is differentiable.

    With outputs y [B, 1, T] in place of [B, 0, T] it is minus their log-probability, +inf where that is no number, and
    what follows it [B, 1] is 0 there and else 1.
    """
    log_z, messages, shifts = forward(unary, transition, lengths, largest=False)
    return *values_of(unary, transition, lengths, y, log_z), messages, shifts


def values_of(unary: Tensor, transition: Tensor, lengths: Tensor, y: Tensor, log_z: Tensor) -> tuple[Tensor, Tensor]:
    """Log-partitions [B] in the dtype of the scores, or of outputs y what :func:`filter_messages` says of them."""
    if not y.shape[1]:
        return log_z.to(unary.dtype), unary.new_empty(y.shape[:2])
    values, real = run_score(unary, transition, lengths, y, log_z)
    return values.squeeze(1), real


def _like_smooth(unary: Tensor, *others: Any) -> tuple[Tensor, Tensor]:
    *_, summed = others
    batch, steps, states = unary.shape
    return unary.new_empty(unary.shape), unary.new_empty(batch, 1 if summed else steps - 1, states, states)


def _save_smooth(ctx: Any, inputs: tuple[Any, ...], output: Any) -> None:
    ctx.set_materialize_grads(False)
    save_inputs(ctx, inputs, output)


def _smooth_backward(ctx: Any, grad_node: Tensor | None, grad_pairs: Tensor | None) -> tuple[Tensor | None, ...]:
    """The second derivatives are symmetric: the gradient is a tangent."""
    unary, transition, lengths, messages, shifts, weights, y = ctx.saved_tensors
    node = torch.zeros_like(unary) if grad_node is None else grad_node
    pairs = torch.zeros_like(transition) if grad_pairs is None else grad_pairs
    summed = transition.shape[1] == 1
    moved, moved_pairs = tangents(unary, transition, lengths, messages, shifts, weights, node, pairs, summed)
    of_weights = None
    if ctx.needs_input_grad[5]:
        parts = smooth(unary, transition, lengths, messages, shifts, torch.ones_like(weights), y, *ctx.constants)
        of_weights = (parts[0] * node).flatten(1).sum(1) + (parts[1] * pairs).flatten(1).sum(1)
    return moved, moved_pairs.sum_to_size(transition.shape), None, None, None, of_weights


def plain_smooth(
    unary: Tensor, transition: Tensor, lengths: Tensor, weights: Tensor, y: Tensor, summed: bool
) -> tuple[Tensor, Tensor]:
    """What :func:`smooth` gives, in plain torch."""
    node, pairs = reference.marginals(unary, transition, lengths)
    if y.shape[1]:
        shape = (len(pairs), *pairs.shape[1:])
        of_y = plain_parts(torch.ones_like(weights).unsqueeze(1), y, lengths, unary.shape[2], shape)
        node, pairs = node - of_y[0], pairs - of_y[1]
    counts, weights = weights != 0, weights[:, None, None]  # where nothing counts, there may be NaN
    node = torch.where(counts[:, None, None], node * weights, 0.0)
    pairs = torch.where(counts[:, None, None, None], pairs * weights.unsqueeze(3), 0.0)
    return node, pairs.sum(1, keepdim=True) if summed else pairs


def _plain_smooth(unary: Tensor, transition: Tensor, lengths: Tensor, *others: Any) -> tuple[Tensor, Tensor]:
    _messages, _shifts, *used = others
    return plain_smooth(unary, transition, lengths, *used)


@operator("chain_fused_smooth", _like_smooth, _smooth_backward, _save_smooth)
@or_plain(_plain_smooth)
def smooth(
    unary: Tensor,
    transition: Tensor,
    lengths: Tensor,
    messages: Tensor,
    shifts: Tensor,
    weights: Tensor,
    y: Tensor,
    summed: bool,
) -> tuple[Tensor, Tensor]:
    """Marginals [B, T, S] and [B, T-1, S, S], or [B, 1, S, S] if ``summed``, less the parts of y, times weights [B]."""
    node, pairs = backward(unary, transition, lengths, messages, shifts, weights, summed)
    if y.shape[1]:
        run_parts(weights, y, lengths, node, pairs, subtracted=True)
    return node, pairs


def _tangents_backward(ctx: Any, grad_node: Tensor, grad_pairs: Tensor) -> tuple[Tensor | None, ...]:
    """The third derivatives, by torch."""
    unary, transition, lengths, _, _, weights, node, pairs = ctx.saved_tensors

    def turned(unary: Tensor, transition: Tensor, weights: Tensor, node: Tensor, pairs: Tensor) -> Tensor:
        moved, moved_pairs = _plain_tangents(unary, transition, lengths, None, None, weights, node, pairs)
        total: Tensor = (moved * grad_node).sum() + (moved_pairs * grad_pairs).sum()
        return total

    arguments = unary, transition, weights, node, pairs
    unary, transition, weights, node, pairs = gradients_of(turned, arguments)
    return unary, transition, None, None, None, weights, node, pairs


def _plain_tangents(unary: Tensor, transition: Tensor, *others: Any) -> tuple[Tensor, Tensor]:
    lengths, _, _, weights, node, pairs, *_ = others

    def expected(unary: Tensor, transition: Tensor) -> Tensor:
        marginals, joint = reference.marginals(unary, transition, lengths)
        weight = weights[:, None, None]
        total: Tensor = (marginals * weight * node).sum() + (joint * weight.unsqueeze(-1) * pairs).sum()
        return total

    moved = gradients_of(expected, (unary, transition.expand(len(unary), -1, -1, -1)))
    return moved[0], moved[1]


@operator("chain_fused_tangents", _like_smooth, _tangents_backward)
@or_plain(_plain_tangents)
def tangents(
    unary: Tensor,
    transition: Tensor,
    lengths: Tensor,
    messages: Tensor,
    shifts: Tensor,
    weights: Tensor,
    node: Tensor,
    pairs: Tensor,
    summed: bool,
) -> tuple[Tensor, Tensor]:
    """Derivatives of :func:`smooth` in a direction [B, T, S] and [1 or B, 1 or T-1, S, S] of the scores, in float64."""
    from structsmooth.structures.chain.fused import exponential_kernels as kernels

    if unary.dtype != torch.float64:  # these are differences of sums over whole sequences
        wide = unary.double(), transition.double(), lengths
        _, _, *kept = filter_messages(*wide, no_labels(wide[0], lengths))
        moves = tangents(*wide, *kept, weights.double(), node.double(), pairs.double(), summed)
        return moves[0].to(unary.dtype), moves[1].to(unary.dtype)
    unary, transition, node, pairs = (tensor.contiguous() for tensor in (unary, transition, node, pairs))
    batch, steps, states = unary.shape
    out, out_pairs = _like_smooth(unary, summed)
    moved, scratch = unary.new_empty(batch, 2, steps, states), unary.new_empty(batch, 2, states)
    moved_batch, moved_step = strides(pairs)
    run(
        kernels.tangent, batch, unary, transition, lengths, messages, shifts, weights.contiguous(), node, pairs, moved,
        out, out_pairs.zero_(), scratch, **sizes_of(unary, transition), moved_batch=moved_batch, moved_step=moved_step,
        **tiles_of(states, unary.itemsize, heavy=True), SUMMED=summed,
    )  # fmt: skip
    return out, out_pairs


def no_labels(unary: Tensor, lengths: Tensor) -> Tensor:
    """In place of outputs: [B, 0, T]."""
    return lengths.new_empty(unary.shape[0], 0, unary.shape[1])


def _like_sample(unary: Tensor, transition: Tensor, lengths: Tensor, uniform: Tensor) -> Tensor:
    return lengths.new_empty(uniform.shape)


@operator("chain_fused_sample", _like_sample)
@or_plain(reference.sample)
def sample(unary: Tensor, transition: Tensor, lengths: Tensor, uniform: Tensor) -> Tensor:
    """Samples [B, n, T] at uniform numbers of that shape."""
    y = _like_sample(unary, transition, lengths, uniform)
    follow(unary, transition, lengths, y, uniform)
    return y
