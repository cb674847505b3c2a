"""Exact oracles of factor graphs as torch operators.

Whatever the dtype of the potentials, scores are summed in float64, on the CPU: tensors on other devices are copied to
it, and results are copied back. The operators are opaque to ``torch.compile``.

Shapes: unary [B, N, S], pairwise [B, E, S, S], edges int64 [B, E, 2], node_mask bool [B, N], edge_mask bool [B, E].
"""

from collections.abc import Sequence
from functools import partial
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import pad

from structsmooth.compiled.threads import on_own_thread
from structsmooth.structures import derivatives, operators
from structsmooth.structures.best_max_marginal_first import sorted_downwards
from structsmooth.structures.factor_graph.exact import Exact, Limits, groups, hessian_product, sizes_of
from structsmooth.structures.factor_graph.layout import Expanded, score
from structsmooth.structures.operators import (
    exp_oracle_backward,
    like_scores,
    on_cpu,
    operator,
    save_inputs_and_statistics,
)


def _exact(graph: Sequence[Tensor], max_table: int, max_sets: int = 1, variables: int = 0) -> Exact:
    """The examples of a batch on the CPU, in float64, grouped by how they are solved."""
    expanded = Expanded(*on_cpu(*graph))
    unary, pairwise, layout = expanded.in_float64()
    limits = Limits(max_table, max_sets, variables)
    return Exact((unary, pairwise), layout, groups(layout, sizes_of(expanded.unary), limits))


def _with_scores(exact: Exact, unary: Tensor, pairwise: Tensor) -> Exact:
    """The same examples with other scores, through which gradients flow; transforms of torch.func read no values."""
    return exact._replace(scores=Expanded(unary, pairwise, *exact.layout).in_float64()[:2])


def _like_top_k(unary: Tensor, pairwise: Tensor, edges: Tensor, *others: Any) -> tuple[Tensor, Tensor]:
    _node_mask, _edge_mask, k, *_limits = others
    return operators.like_top_k(unary, k)


@operator("factor_graph_top_k", _like_top_k)
def top_k(
    unary: Tensor,
    pairwise: Tensor,
    edges: Tensor,
    node_mask: Tensor,
    edge_mask: Tensor,
    k: int,
    max_table: int,
    max_sets: int,
    variables: int,
) -> tuple[Tensor, Tensor]:
    """Values [B, k] and outputs [B, k, N], without gradient; the first ``variables`` nodes decide over the others."""
    exact = _exact((unary, pairwise, edges, node_mask, edge_mask), max_table, max_sets, variables)
    found, y = exact.solved(lambda structure, _: structure.topk(k))
    # A value has the roundings of its labels alone, whatever found them.
    scores = torch.stack([score(*exact.scores, exact.layout, labels) for labels in y.unbind(1)], 1)
    values, y = sorted_downwards(torch.where(found > -torch.inf, scores, -torch.inf), y)
    return values.to(unary), y.to(unary.device)


def _like_marginals(unary: Tensor, pairwise: Tensor, *others: Any) -> tuple[Tensor, Tensor, Tensor]:
    return unary.new_empty(unary.shape[0]), unary.new_empty(unary.shape), unary.new_empty(pairwise.shape)


def _curvature(potentials: tuple[Tensor, ...], weights: tuple[Tensor | None, ...], *others: Any) -> tuple[Tensor, ...]:
    *layout, max_table = others
    directions = [torch.zeros_like(p) if w is None else w for w, p in zip(weights, potentials, strict=True)]
    gradients: tuple[Tensor, ...] = weighted_hessian(*potentials, *layout, *directions, max_table)
    return gradients


def _like_potentials(unary: Tensor, pairwise: Tensor, *others: Any) -> tuple[Tensor, Tensor]:
    return unary.new_empty(unary.shape), pairwise.new_empty(pairwise.shape)


def _hessian_product(exact: Exact, unary: Tensor, pairwise: Tensor, *weights: Tensor) -> tuple[Tensor, ...]:
    """Gradients of ⟨weights, marginals⟩, by automatic differentiation."""

    def run(*potentials: Tensor) -> tuple[Tensor, Tensor]:
        node, edge = _with_scores(exact, *potentials).solved(lambda structure, _: structure.marginals())
        return node.to(unary), edge.to(unary)

    return hessian_product(run, (unary, pairwise), weights)


def _hessian_backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
    *graph, grad_node, grad_edge = ctx.saved_tensors
    product = partial(_hessian_product, _exact(graph, *ctx.constants))
    gradients = hessian_product(product, (*graph[:2], grad_node, grad_edge), grads)
    return *gradients[:2], None, None, None, *gradients[2:]


@operator("factor_graph_weighted_hessian", _like_potentials, _hessian_backward)
@on_own_thread
def weighted_hessian(
    unary: Tensor,
    pairwise: Tensor,
    edges: Tensor,
    node_mask: Tensor,
    edge_mask: Tensor,
    grad_node: Tensor,
    grad_edge: Tensor,
    max_table: int,
) -> tuple[Tensor, Tensor]:
    """Gradients of ⟨grads, marginals⟩: a product with second derivatives of the log-partition function."""
    exact = _exact((unary, pairwise, edges, node_mask, edge_mask), max_table)
    weights = tuple(grad.to("cpu", torch.float64) for grad in (grad_node, grad_edge))
    node, edge = exact.solved(lambda structure, rows: structure.second_derivatives(*(w[rows] for w in weights)))
    return node.to(unary), edge.to(pairwise)


@operator("factor_graph_marginals", _like_marginals, exp_oracle_backward(_curvature), save_inputs_and_statistics)
def _marginals(
    unary: Tensor, pairwise: Tensor, edges: Tensor, node_mask: Tensor, edge_mask: Tensor, max_table: int
) -> tuple[Tensor, Tensor, Tensor]:
    """The operator behind :func:`marginals`, for graphs with an edge."""
    exact = _exact((unary, pairwise, edges, node_mask, edge_mask), max_table)
    log_z, node, edge = exact.solved(lambda structure, _: (structure.logsumexp(), *structure.marginals()))
    return log_z.to(unary), node.to(unary), edge.to(unary)


def marginals(
    unary: Tensor, pairwise: Tensor, edges: Tensor, node_mask: Tensor, edge_mask: Tensor, max_table: int
) -> tuple[Tensor, Tensor, Tensor]:
    """Log-partition [B], node marginals [B, N, S] and edge marginals [B, E, S, S].

    Graphs without edges get one that they do not have: torch.func finds no derivatives where a tensor has no entries.
    """
    count = edges.shape[1]
    if not count:
        pairwise, edges = pad(pairwise, (0, 0, 0, 0, 0, 1)), pad(edges, (0, 0, 0, 1))
        edge_mask = pad(edge_mask, (0, 1))
    log_z, node, edge = _marginals(unary, pairwise, edges, node_mask, edge_mask, max_table)
    return log_z, node, edge[:, :count]


def _like_entropy(unary: Tensor, *others: Any) -> Tensor:
    return unary.new_empty(unary.shape[0])


@operator("factor_graph_entropy", _like_entropy)
def entropy(
    unary: Tensor, pairwise: Tensor, edges: Tensor, node_mask: Tensor, edge_mask: Tensor, max_table: int
) -> Tensor:
    """Entropy [B], without gradient."""
    exact = _exact((unary, pairwise, edges, node_mask, edge_mask), max_table)
    (values,) = exact.solved(lambda structure, _: (structure.entropy(),))
    return values.to(unary)


def _max_marginals(exact: Exact, *potentials: Tensor) -> Tensor:
    (values,) = _with_scores(exact, *potentials).solved(lambda structure, _: (structure.max_marginals(),))
    return values


@operator("factor_graph_max_marginals_gradient", _like_potentials)
@on_own_thread
def max_marginals_gradient(
    unary: Tensor, pairwise: Tensor, edges: Tensor, node_mask: Tensor, edge_mask: Tensor, grad: Tensor, max_table: int
) -> tuple[Tensor, Tensor]:
    """Gradients of ⟨grad, max-marginals⟩."""
    run = partial(_max_marginals, _exact((unary, pairwise, edges, node_mask, edge_mask), max_table))
    node, edge = derivatives.max_marginals_gradient(run, (unary, pairwise), grad.cpu())
    return node, edge


def _max_marginals_backward(ctx: Any, grad: Tensor) -> tuple[Tensor, ...]:
    gradients: tuple[Tensor, ...] = max_marginals_gradient(*ctx.saved_tensors, grad, *ctx.constants)
    return gradients


@operator("factor_graph_max_marginals", like_scores, _max_marginals_backward)
def max_marginals(
    unary: Tensor, pairwise: Tensor, edges: Tensor, node_mask: Tensor, edge_mask: Tensor, max_table: int
) -> Tensor:
    """Max-marginals [B, N, S]."""
    exact = _exact((unary, pairwise, edges, node_mask, edge_mask), max_table)
    return _max_marginals(exact, unary, pairwise).to(unary)


def _like_sample(unary: Tensor, *others: Any) -> Tensor:
    *_, uniform, _max_table = others
    return unary.new_empty(uniform.shape, dtype=torch.int64)


@operator("factor_graph_sample", _like_sample)
def sample(
    unary: Tensor,
    pairwise: Tensor,
    edges: Tensor,
    node_mask: Tensor,
    edge_mask: Tensor,
    uniform: Tensor,
    max_table: int,
) -> Tensor:
    """Samples [B, n, N] at uniform numbers of that shape."""
    exact, numbers = _exact((unary, pairwise, edges, node_mask, edge_mask), max_table), uniform.cpu()
    (y,) = exact.solved(lambda structure, rows: (structure.inverse_cdf(numbers[rows]),))
    return y.to(unary.device)
