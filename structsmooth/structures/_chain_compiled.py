"""Oracles of the linear chain as torch operators over the compiled kernels (CPU).

Value and statistics come from one pass; the backward pass is a product with saved statistics. Whatever the dtype of
the potentials, sums are accumulated in float64. Transitions have shape [1 or B, 1 or T-1, S, S]. The operators are
opaque to ``torch.compile``, so models that use them compile without graph breaks.
"""

from typing import Any

import torch
from torch import Tensor
from torch.library import register_autograd, register_fake

from structsmooth.kernels.threads import over_batch
from structsmooth.structures import _chain_reference as reference
from structsmooth.structures._operators import cpu_operator


def expand_edges(unary: Tensor, transition: Tensor) -> Tensor:
    """Transitions [1 or B, 1 or T-1, S, S] as edges [B, T-1, S, S]."""
    batch, steps, states = unary.shape
    return transition.expand(batch, steps - 1, states, states)


def length_mask(lengths: Tensor, steps: int) -> Tensor:
    """Mask [B, T], true on the first ``lengths`` positions."""
    return torch.arange(steps, device=lengths.device) < lengths[:, None]


def masked(unary: Tensor, transition: Tensor, mask: Tensor) -> tuple[Tensor, Tensor]:
    """Unary scores and edges [B, T-1, S, S], zero at padding, where they may hold anything."""
    edges = expand_edges(unary, transition)
    return torch.where(mask.unsqueeze(-1), unary, 0.0), torch.where(mask[:, 1:, None, None], edges, 0.0)


def edge_cells(labels: Tensor, transition_shape: torch.Size) -> Tensor:
    """Where the scores of the pairs in labels [B, T, ...] stand in flattened transitions: [B, T-1, ...]."""
    examples, edges, states, _ = transition_shape
    batch, steps = labels.shape[:2]
    pairs = labels[:, :-1] * states + labels[:, 1:]
    if examples == edges == 1:
        return pairs
    first = torch.zeros(batch, steps - 1, dtype=torch.int64, device=labels.device)
    if examples > 1:
        first = first + torch.arange(batch, device=labels.device)[:, None] * edges
    if edges > 1:
        first = first + torch.arange(edges, device=labels.device)
    return pairs + (first * states**2).view(*first.shape, *[1] * (labels.dim() - 2))


def check_lengths(lengths: Tensor, steps: int) -> None:
    """Lengths from 1 to T: the kernels would read and write beyond their arrays."""
    if lengths.numel() and not 1 <= int(lengths.min()) <= int(lengths.max()) <= steps:
        raise ValueError(f"lengths must be from 1 to T = {steps}, got {lengths.tolist()}")


def _arrays(unary: Tensor, transition: Tensor, lengths: Tensor) -> tuple[Any, ...]:
    check_lengths(lengths, unary.shape[1])
    return _array(unary), _array(transition), lengths.contiguous().numpy()


def _array(tensor: Tensor) -> Any:
    return tensor.detach().contiguous().to(torch.float64).numpy()


@cpu_operator("chain_top_k", "(Tensor unary, Tensor transition, Tensor lengths, int k) -> (Tensor, Tensor)")
def top_k(unary: Tensor, transition: Tensor, lengths: Tensor, k: int) -> tuple[Tensor, Tensor]:
    """Values [B, k] and outputs [B, k, T] (Algorithm 2)."""
    from structsmooth.kernels import chain  # numba loads with the first oracle, not with the library

    batch, steps, states = unary.shape
    values = torch.empty(batch, k, dtype=torch.float64)
    y = torch.zeros(batch, k, steps, dtype=torch.int64)
    arrays = (*_arrays(unary, transition, lengths), k, values.numpy(), y.numpy())
    over_batch(lambda *bounds: chain.batch_top_k(*arrays, *bounds), batch, batch * steps * states**2 * k)
    return values.to(unary.dtype), y


def _like_top_k(unary: Tensor, transition: Tensor, lengths: Tensor, k: int) -> tuple[Tensor, Tensor]:
    batch, steps, _ = unary.shape
    return unary.new_empty(batch, k), unary.new_empty(batch, k, steps, dtype=torch.int64)


def _save_outputs(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, Tensor]) -> None:
    unary, transition, lengths, _ = inputs
    ctx.save_for_backward(lengths, *output)
    ctx.states, ctx.transition_shape = unary.shape[-1], transition.shape


def _top_k_backward(ctx: Any, grad: Tensor, _grad_y: Tensor) -> tuple[Tensor | None, ...]:
    lengths, values, y = ctx.saved_tensors
    weights = torch.where(values > -torch.inf, grad, 0.0)
    return *weighted_parts(weights, y, lengths, ctx.states, ctx.transition_shape), None, None


register_fake(top_k, _like_top_k)
register_autograd(top_k, _top_k_backward, setup_context=_save_outputs)


def weighted_parts(
    weights: Tensor, y: Tensor, lengths: Tensor, states: int, transition_shape: torch.Size
) -> tuple[Tensor, Tensor]:
    """Σ_k weights[b, k] ν(y[b, k]) for unary [B, T, S] and transitions, summed to ``transition_shape``."""
    batch, _, steps = y.shape
    mask = length_mask(lengths, steps)
    shares = weights[:, None, :] * mask.unsqueeze(-1)
    labels = y.transpose(1, 2)
    node = shares.new_zeros(batch, steps, states).scatter_add(2, labels, shares)
    cells = edge_cells(labels, transition_shape)
    edge = shares.new_zeros(transition_shape.numel()).index_add(0, cells.flatten(), shares[:, 1:].flatten())
    return node, edge.view(transition_shape)


@cpu_operator(
    "chain_marginals", "(Tensor unary, Tensor transition, Tensor lengths, bool per_edge) -> (Tensor, Tensor, Tensor)"
)
def marginals(unary: Tensor, transition: Tensor, lengths: Tensor, per_edge: bool) -> tuple[Tensor, Tensor, Tensor]:
    """Log-partition [B], node marginals [B, T, S] and edge marginals [B, T-1, S, S], or [B, 1, S, S] summed over t."""
    from structsmooth.kernels import chain

    batch, steps, states = unary.shape
    log_z = torch.empty(batch, dtype=torch.float64)
    node = torch.zeros(batch, steps, states, dtype=torch.float64)
    edge = torch.zeros(batch, steps - 1 if per_edge else 1, states, states, dtype=torch.float64)
    arrays = (*_arrays(unary, transition, lengths), log_z.numpy(), node.numpy(), edge.numpy())
    over_batch(lambda *bounds: chain.batch_marginals(*arrays, *bounds), batch, 4 * batch * steps * states**2)
    return log_z.to(unary.dtype), node.to(unary.dtype), edge.to(unary.dtype)


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
        gradients = grad[:, None, None] * node, _sum_to(grad[:, None, None, None] * edge, transition.shape)
    if grad_node is not None or grad_edge is not None:
        second = _hessian_product(unary, transition, lengths, grad_node, grad_edge)
        gradients = tuple(a + b for a, b in zip(gradients, second, strict=True)) if gradients else second
    return *(gradients or (None, None)), None, None


register_fake(marginals, _like_marginals)
register_autograd(marginals, _marginals_backward, setup_context=_save_marginals)


def _sum_to(edge: Tensor, shape: torch.Size) -> Tensor:
    """Sum over the dimensions that ``shape`` does not have; unlike ``sum_to_size``, also over none of an edge."""
    shared = [dim for dim in (0, 1) if shape[dim] == 1 != edge.shape[dim]]
    return edge.sum(shared, keepdim=True) if shared else edge


def _hessian_product(
    unary: Tensor, transition: Tensor, lengths: Tensor, node_weights: Tensor | None, edge_weights: Tensor | None
) -> tuple[Tensor, ...]:
    """Gradient of ⟨weights, marginals⟩: second derivatives of the log-partition, through the reference."""

    def weighted(unary: Tensor, transition: Tensor) -> Tensor:
        mask = length_mask(lengths, unary.shape[1])
        node, edge = reference.marginals(*masked(unary, transition, mask), mask)
        total = unary.new_zeros(())
        if node_weights is not None:
            total = total + (node_weights * node).sum()
        if edge_weights is not None:
            total = total + (edge_weights * edge).sum()
        return total

    gradients: tuple[Tensor, ...] = torch.func.grad(weighted, (0, 1))(unary, transition)
    return gradients


@cpu_operator("chain_max_marginals", "(Tensor unary, Tensor transition, Tensor lengths) -> Tensor")
def max_marginals(unary: Tensor, transition: Tensor, lengths: Tensor) -> Tensor:
    """Max-marginals [B, T, S]."""
    from structsmooth.kernels import chain

    batch, steps, states = unary.shape
    out = torch.zeros(batch, steps, states, dtype=torch.float64)
    arrays = (*_arrays(unary, transition, lengths), out.numpy())
    over_batch(lambda *bounds: chain.batch_max_marginals(*arrays, *bounds), batch, 2 * batch * steps * states**2)
    return out.to(unary.dtype)


def _like_max_marginals(unary: Tensor, transition: Tensor, lengths: Tensor) -> Tensor:
    return unary.new_empty(unary.shape)


def _save_inputs(ctx: Any, inputs: tuple[Tensor, ...], output: Tensor) -> None:
    ctx.save_for_backward(*inputs)


def _max_marginals_backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
    unary, transition, lengths = ctx.saved_tensors

    def weighted(unary: Tensor, transition: Tensor) -> Tensor:
        mask = length_mask(lengths, unary.shape[1])
        values = reference.max_marginals(*masked(unary, transition, mask), mask)
        return torch.where(values > -torch.inf, values * grad, 0.0).sum()

    return *torch.func.grad(weighted, (0, 1))(unary, transition), None


register_fake(max_marginals, _like_max_marginals)
register_autograd(max_marginals, _max_marginals_backward, setup_context=_save_inputs)
