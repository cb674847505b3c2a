"""Oracles of trees as torch operators over compiled loops (CPU).

Value and statistics come from one pass; the backward pass is a product with saved statistics. Whatever the dtype of
the potentials, sums are accumulated in float64. The operators are opaque to ``torch.compile``, so models that use them
compile without graph breaks. Shapes: unary [B, N, S], pairwise [B, N, S, S], parents int64 [B, N], mask bool [B, N].
"""

from functools import partial
from typing import Any

import torch
from torch import Tensor

from structsmooth.compiled.threads import over_batch
from structsmooth.structures.operators import (
    cpu_operator,
    hessian_product,
    like_scores,
    like_top_k,
    max_marginals_gradient,
    without_statistics,
)
from structsmooth.structures.tree import reference


def _arrays(unary: Tensor, pairwise: Tensor, parents: Tensor, mask: Tensor) -> tuple[Any, ...]:
    scores = (scores.detach().contiguous().numpy() for scores in (unary, pairwise))
    return *scores, parents.contiguous().numpy(), mask.contiguous().numpy()


def _save_outputs(ctx: Any, inputs: tuple[Any, ...], output: Any) -> None:
    unary, _, parents, mask, _ = inputs
    ctx.save_for_backward(parents, mask, *output)
    ctx.states = unary.shape[-1]


def _top_k_backward(ctx: Any, grad: Tensor, _grad_y: Tensor) -> tuple[Tensor | None, ...]:
    parents, mask, values, y = ctx.saved_tensors
    weights = torch.where(values > -torch.inf, grad, 0.0)
    return *weighted_parts(weights, y, parents, mask, ctx.states), None, None, None


@cpu_operator("tree_top_k", like_top_k, _top_k_backward, _save_outputs)
def top_k(unary: Tensor, pairwise: Tensor, parents: Tensor, mask: Tensor, k: int) -> tuple[Tensor, Tensor]:
    """Values [B, k] and outputs [B, k, N] (Algorithm 8)."""
    from structsmooth.structures.tree import compiled  # numba loads with the first oracle, not with the library

    batch, nodes, states = unary.shape
    values = unary.new_empty(batch, k)
    y = torch.zeros(batch, k, nodes, dtype=torch.int64)
    arrays = (*_arrays(unary, pairwise, parents, mask), k, values.numpy(), y.numpy())
    over_batch(lambda *bounds: compiled.batch_top_k(*arrays, *bounds), batch, batch * nodes * states**2 * k)
    return values, y


def weighted_parts(weights: Tensor, y: Tensor, parents: Tensor, mask: Tensor, states: int) -> tuple[Tensor, Tensor]:
    """Σ_k weights[b, k] ν(y[b, k]): nodes [B, N, S] and edges [B, N, S, S]."""
    labels, hangs = y.transpose(1, 2), mask & (parents >= 0)
    shares = weights[:, None, :].expand(labels.shape)
    above = labels.gather(1, torch.where(hangs, parents, 0).unsqueeze(-1).expand(labels.shape))
    node = weights.new_zeros(*parents.shape, states).scatter_add(2, labels, shares * mask.unsqueeze(-1))
    edge = weights.new_zeros(*parents.shape, states**2)
    edge = edge.scatter_add(2, above * states + labels, shares * hangs.unsqueeze(-1))
    return node, edge.unflatten(2, (states, states))


def _like_marginals(unary: Tensor, pairwise: Tensor, parents: Tensor, mask: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    return unary.new_empty(len(unary)), unary.new_empty(unary.shape), unary.new_empty(pairwise.shape)


def _save_marginals(ctx: Any, inputs: tuple[Tensor, ...], output: tuple[Tensor, ...]) -> None:
    ctx.set_materialize_grads(False)
    ctx.save_for_backward(*inputs, *output[1:])


def _marginals_backward(
    ctx: Any, grad: Tensor | None, grad_node: Tensor | None, grad_edge: Tensor | None
) -> tuple[Tensor | None, ...]:
    unary, pairwise, parents, mask, node, edge = ctx.saved_tensors
    grad_unary, grad_pairwise = torch.zeros_like(unary), torch.zeros_like(pairwise)
    if grad is not None:
        grad_unary, grad_pairwise = grad[:, None, None] * node, grad[:, None, None, None] * edge
    if grad_node is not None or grad_edge is not None:
        run = partial(reference.marginals, forest=reference.forest(parents, mask))
        second = hessian_product(run, (unary, pairwise), (grad_node, grad_edge))
        grad_unary, grad_pairwise = grad_unary + second[0], grad_pairwise + second[1]
    return grad_unary, grad_pairwise, None, None


@cpu_operator("tree_marginals", _like_marginals, _marginals_backward, _save_marginals)
def marginals(unary: Tensor, pairwise: Tensor, parents: Tensor, mask: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Log-partition [B], node marginals [B, N, S] and edge marginals [B, N, S, S]."""
    from structsmooth.structures.tree import compiled

    log_z, node, edge = (like.zero_() for like in _like_marginals(unary, pairwise, parents, mask))
    arrays = (*_arrays(unary, pairwise, parents, mask), log_z.numpy(), node.numpy(), edge.numpy())
    over_batch(lambda *bounds: compiled.batch_marginals(*arrays, *bounds), len(unary), 8 * pairwise.numel())
    without_statistics(log_z, node, edge)
    return log_z, node, edge


def _max_marginals_backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
    unary, pairwise, parents, mask = ctx.saved_tensors
    run = partial(reference.max_marginals, forest=reference.forest(parents, mask))
    return *max_marginals_gradient(run, (unary, pairwise), grad), None, None


@cpu_operator("tree_max_marginals", like_scores, _max_marginals_backward)
def max_marginals(unary: Tensor, pairwise: Tensor, parents: Tensor, mask: Tensor) -> Tensor:
    """Max-marginals [B, N, S]."""
    from structsmooth.structures.tree import compiled

    out = unary.new_zeros(unary.shape)
    arrays = (*_arrays(unary, pairwise, parents, mask), out.numpy())
    over_batch(lambda *bounds: compiled.batch_max_marginals(*arrays, *bounds), len(unary), 2 * pairwise.numel())
    return out


def _like_sample(unary: Tensor, pairwise: Tensor, parents: Tensor, mask: Tensor, uniform: Tensor) -> Tensor:
    return uniform.new_empty(uniform.shape, dtype=torch.int64)


@cpu_operator("tree_sample", _like_sample)
def sample(unary: Tensor, pairwise: Tensor, parents: Tensor, mask: Tensor, uniform: Tensor) -> Tensor:
    """Samples [B, n, N] at uniform numbers of that shape."""
    from structsmooth.structures.tree import compiled

    y = torch.zeros(uniform.shape, dtype=torch.int64)
    arrays = (*_arrays(unary, pairwise, parents, mask), uniform.contiguous().numpy(), y.numpy())
    operations = 8 * pairwise.numel() + 2 * uniform.shape[1] * unary.numel()
    over_batch(lambda *bounds: compiled.batch_sample(*arrays, *bounds), len(unary), operations)
    return y
