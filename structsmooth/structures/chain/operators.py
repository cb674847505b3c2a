"""Oracles of the linear chain as torch operators over compiled loops (CPU).

Value and statistics come from one pass; the backward pass is a product with saved statistics. Transitions have shape
[1 or B, 1 or T-1, S, S]. The operators are opaque to ``torch.compile``, so models that use them compile without graph
breaks.
"""

from functools import partial
from typing import Any, Sequence  # noqa: UP035 - torch 2.5 infers no schema from that of collections.abc

import torch
from torch import Tensor

from structsmooth.compiled.threads import over_batch
from structsmooth.structures.chain import reference
from structsmooth.structures.chain.output_operators import like_scores_of_outputs, output_operators, summed_to
from structsmooth.structures.checks import require_labels
from structsmooth.structures.operators import (
    cpu_operator,
    hessian_product,
    like_scores,
    max_marginals_gradient,
    without_statistics,
)


def _arrays(unary: Tensor, transition: Tensor, lengths: Tensor) -> tuple[Any, ...]:
    reference.check_lengths(lengths, unary.shape[1])
    return _array(unary), _array(transition), _array(lengths)


def _array(tensor: Tensor) -> Any:
    return tensor.detach().contiguous().numpy()


def _top_k(unary: Tensor, transition: Tensor, lengths: Tensor, k: int) -> tuple[Tensor, Tensor]:
    """Algorithm 2."""
    from structsmooth.structures.chain import compiled  # numba loads with the first oracle, not with the library

    batch, steps, states = unary.shape
    values = unary.new_empty(batch, k)
    y = torch.zeros(batch, k, steps, dtype=torch.int64)
    loop, outputs = (compiled.batch_viterbi, ()) if k == 1 else (compiled.batch_top_k, (k,))
    arrays = (*_arrays(unary, transition, lengths), *outputs, values.numpy(), y.numpy())
    over_batch(lambda *bounds: loop(*arrays, *bounds), batch, batch * steps * states**2 * k)
    return values, y


def _scores(unary: Tensor, transition: Tensor, lengths: Tensor, y: Tensor) -> Tensor:
    from structsmooth.structures.chain import compiled

    out = like_scores_of_outputs(unary, transition, lengths, y)
    if not compiled.batch_scores(*_arrays(unary, transition, lengths), _array(y), out.numpy()):
        inside = y.masked_select(reference.length_mask(lengths, y.shape[2]).unsqueeze(1))
        require_labels(inside, unary.shape[2])
    return out


def _weighted_parts(
    weights: Tensor, y: Tensor, lengths: Tensor, states: int, transition_shape: Sequence[int]
) -> tuple[Tensor, Tensor]:
    from structsmooth.structures.chain import compiled

    batch, _, steps = y.shape
    node, edge = weights.new_zeros(batch, steps, states), weights.new_zeros(transition_shape)
    compiled.batch_parts(*(_array(tensor) for tensor in (weights, y, lengths, node, edge)))
    return node, edge


top_k, scores, weighted_parts = output_operators("chain", _top_k, _scores, _weighted_parts, cpu_operator)


def _like_marginals(
    unary: Tensor, transition: Tensor, lengths: Tensor, per_edge: bool
) -> tuple[Tensor, Tensor, Tensor]:
    batch, steps, states = unary.shape
    edge = unary.new_empty(batch, steps - 1 if per_edge else 1, states, states)
    return unary.new_empty(batch), unary.new_empty(unary.shape), edge


def _save_marginals(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, ...]) -> None:
    ctx.set_materialize_grads(False)
    unary, transition, lengths, _ = inputs
    ctx.save_for_backward(unary, transition, lengths, *output[1:])


def _marginals_backward(
    ctx: Any, grad: Tensor | None, grad_node: Tensor | None, grad_edge: Tensor | None
) -> tuple[Tensor | None, ...]:
    unary, transition, lengths, node, edge = ctx.saved_tensors
    gradients: tuple[Tensor, ...] = ()
    if grad is not None:
        gradients = grad[:, None, None] * node, summed_to(grad[:, None, None, None] * edge, transition.shape)
    if grad_node is not None or grad_edge is not None:
        run = partial(reference.marginals, mask=reference.length_mask(lengths, unary.shape[1]))
        second = hessian_product(run, (unary, transition), (grad_node, grad_edge))
        gradients = tuple(a + b for a, b in zip(gradients, second, strict=True)) if gradients else second
    return *(gradients or (None, None)), None, None


@cpu_operator("chain_marginals", _like_marginals, _marginals_backward, _save_marginals)
def log_partition_and_marginals(
    unary: Tensor, transition: Tensor, lengths: Tensor, per_edge: bool
) -> tuple[Tensor, Tensor, Tensor]:
    """Log-partition [B], node marginals [B, T, S] and edge marginals [B, T-1, S, S], or [B, 1, S, S] summed over t."""
    from structsmooth.structures.chain import compiled

    batch, steps, states = unary.shape
    log_z, node, edge = (like.zero_() for like in _like_marginals(unary, transition, lengths, per_edge))
    arrays = (*_arrays(unary, transition, lengths), log_z.numpy(), node.numpy(), edge.numpy())
    over_batch(lambda *bounds: compiled.batch_marginals(*arrays, *bounds), batch, 4 * batch * steps * states**2)
    without_statistics(log_z, node, edge)
    return log_z, node, edge


def log_partition(unary: Tensor, transition: Tensor, lengths: Tensor) -> Tensor:
    """Log-partition [B]."""
    log_z: Tensor = log_partition_and_marginals(unary, transition, lengths, transition.shape[1] != 1)[0]
    return log_z


def marginals(unary: Tensor, transition: Tensor, lengths: Tensor) -> tuple[Tensor, Tensor]:
    """Node marginals [B, T, S] and edge marginals [B, T-1, S, S]."""
    _, node, edge = log_partition_and_marginals(unary, transition, lengths, True)
    return node, edge


def _max_marginals_backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
    unary, transition, lengths = ctx.saved_tensors
    run = partial(reference.max_marginals, mask=reference.length_mask(lengths, unary.shape[1]))
    return *max_marginals_gradient(run, (unary, transition), grad), None


@cpu_operator("chain_max_marginals", like_scores, _max_marginals_backward)
def max_marginals(unary: Tensor, transition: Tensor, lengths: Tensor) -> Tensor:
    """Max-marginals [B, T, S]."""
    from structsmooth.structures.chain import compiled

    batch, steps, states = unary.shape
    out = unary.new_zeros(unary.shape)
    arrays = (*_arrays(unary, transition, lengths), out.numpy())
    over_batch(lambda *bounds: compiled.batch_max_marginals(*arrays, *bounds), batch, 2 * batch * steps * states**2)
    return out


def _like_sample(unary: Tensor, transition: Tensor, lengths: Tensor, uniform: Tensor) -> Tensor:
    return uniform.new_empty(uniform.shape, dtype=torch.int64)


@cpu_operator("chain_sample", _like_sample)
def sample(unary: Tensor, transition: Tensor, lengths: Tensor, uniform: Tensor) -> Tensor:
    """Samples [B, n, T] at uniform numbers of that shape."""
    from structsmooth.structures.chain import compiled

    batch, steps, states = unary.shape
    y = torch.zeros(uniform.shape, dtype=torch.int64)
    arrays = (*_arrays(unary, transition, lengths), _array(uniform), y.numpy())
    operations = 2 * batch * steps * states * (states + uniform.shape[1])
    over_batch(lambda *bounds: compiled.batch_sample(*arrays, *bounds), batch, operations)
    return y
