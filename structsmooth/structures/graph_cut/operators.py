"""Oracles of binary graphs as torch operators over compiled loops.

Value and statistics come from one pass; the backward pass is a product with saved statistics. Whatever the dtype of
the potentials, scores are summed in float64. The cuts are found on the CPU: tensors on other devices are copied to it,
and results are copied back. The operators are opaque to ``torch.compile``.

Shapes: unary [B, N, 2], pairwise [B, E, 2, 2], edges int64 [E, 2].
"""

from typing import Any

import torch
from torch import Tensor

from structsmooth.compiled.threads import over_batch
from structsmooth.structures.best_max_marginal_first import sorted_downwards
from structsmooth.structures.operators import like_scores, like_top_k, on_cpu, operator


def check_edges(edges: Tensor, nodes: int) -> None:
    """Raise unless ends of edges are from 0 to ``nodes`` - 1: others would make compiled loops read out of bounds."""
    if edges.numel() and not 0 <= int(edges.min()) <= int(edges.max()) < nodes:
        raise ValueError(f"edges must hold nodes from 0 to {nodes - 1}, got {int(edges.min())} to {int(edges.max())}")


def _arrays(unary: Tensor, pairwise: Tensor, edges: Tensor) -> tuple[Any, ...]:
    unary, pairwise, edges = on_cpu(unary, pairwise, edges)
    check_edges(edges, unary.shape[1])
    return unary.double().numpy(), pairwise.double().numpy(), edges.numpy()


def _operations(unary: Tensor, edges: Tensor) -> int:
    """Number of operations of one maximal flow per example, usually."""
    batch, nodes, _ = unary.shape
    return 100 * batch * (nodes + len(edges))


def pairs(labels: Tensor, edges: Tensor) -> Tensor:
    """Joint states 2 y_a + y_b at the edges, for labels [B, N, ...]: [B, E, ...]."""
    return 2 * labels[:, edges[:, 0]] + labels[:, edges[:, 1]]


@operator("graph_cut_top_k", like_top_k)
def top_k(unary: Tensor, pairwise: Tensor, edges: Tensor, k: int) -> tuple[Tensor, Tensor]:
    """Values [B, k] and outputs [B, k, N] (Algorithm 10 over Algorithm 11), without gradient."""
    from structsmooth.structures.graph_cut import compiled  # numba loads with the first oracle, not with the library

    batch, nodes, _ = unary.shape
    values = torch.full((batch, k), -torch.inf, dtype=torch.float64)
    y = torch.zeros(batch, k, nodes, dtype=torch.int64)
    arrays = (*_arrays(unary, pairwise, edges), values.numpy(), y.numpy())
    flows = 1 if k == 1 else nodes
    over_batch(lambda *bounds: compiled.batch_top_k(*arrays, *bounds), batch, flows * _operations(unary, edges))
    values, y = sorted_downwards(values, y)
    return values.to(unary), y.to(unary.device)


def _like_max_marginals_gradient(unary: Tensor, pairwise: Tensor, edges: Tensor, grad: Tensor) -> tuple[Tensor, Tensor]:
    return unary.new_empty(unary.shape), pairwise.new_empty(pairwise.shape)


@operator("graph_cut_max_marginals_gradient", _like_max_marginals_gradient)
def max_marginals_gradient(unary: Tensor, pairwise: Tensor, edges: Tensor, grad: Tensor) -> tuple[Tensor, Tensor]:
    """Gradients of ⟨grad, max-marginals⟩; the cuts are computed again, since storing their labels takes much memory."""
    from structsmooth.structures.graph_cut import compiled

    batch, nodes, _ = unary.shape
    node = torch.zeros(unary.shape, dtype=torch.float64)
    edge = torch.zeros(pairwise.shape, dtype=torch.float64)
    weights = grad.to("cpu", torch.float64).contiguous().numpy()
    arrays = (*_arrays(unary, pairwise, edges), weights, node.numpy(), edge.numpy())
    over_batch(
        lambda *bounds: compiled.batch_max_marginals_gradient(*arrays, *bounds),
        batch,
        nodes * _operations(unary, edges),
    )
    return node.to(unary), edge.to(pairwise)


def _max_marginals_backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
    node, edge = max_marginals_gradient(*ctx.saved_tensors, grad)
    return node, edge, None


@operator("graph_cut_max_marginals", like_scores, _max_marginals_backward)
def max_marginals(unary: Tensor, pairwise: Tensor, edges: Tensor) -> Tensor:
    """Max-marginals [B, N, 2] (Algorithm 11)."""
    from structsmooth.structures.graph_cut import compiled

    batch, nodes, _ = unary.shape
    out = torch.empty(batch, nodes, 2, dtype=torch.float64)
    arrays = (*_arrays(unary, pairwise, edges), out.numpy())
    over_batch(lambda *bounds: compiled.batch_max_marginals(*arrays, *bounds), batch, nodes * _operations(unary, edges))
    return out.to(unary)
