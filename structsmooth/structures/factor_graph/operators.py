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

from structsmooth.structures.best_max_marginal_first import sorted_downwards
from structsmooth.structures.factor_graph.exact import (
    Group,
    Limits,
    Method,
    Rows,
    eliminations,
    groups,
    sizes_of,
    solved,
)
from structsmooth.structures.factor_graph.layout import Layout
from structsmooth.structures.operators import hessian_product, like_scores, on_cpu, operator, without_statistics


def _scores(unary: Tensor, pairwise: Tensor, layout: Layout) -> tuple[Tensor, Tensor]:
    """Potentials in float64, zero where there is no node or edge, on the device of the layout."""
    unary, pairwise = (scores.to(layout.edges.device, torch.float64) for scores in (unary, pairwise))
    node, edge = layout.node_mask.unsqueeze(-1), layout.edge_mask[:, :, None, None]
    return torch.where(node, unary, 0.0), torch.where(edge, pairwise, 0.0)


def _plan(unary: Tensor, layout: Sequence[Tensor], max_table: int, max_sets: int = 1) -> tuple[Layout, list[Group]]:
    """What the examples look like, and how to solve them."""
    own = Layout(*(tensor.cpu() for tensor in layout))
    return own, groups(own, sizes_of(unary.cpu()), Limits(max_table, max_sets))


def _like_top_k(unary: Tensor, *others: Any) -> tuple[Tensor, Tensor]:
    (batch, nodes), k = unary.shape[:2], others[4]
    return unary.new_empty(batch, k), unary.new_empty(batch, k, nodes, dtype=torch.int64)


def _save_outputs(ctx: Any, inputs: tuple[Any, ...], output: Any) -> None:
    unary, _, *layout = inputs[:5]
    ctx.save_for_backward(*layout, *output)
    ctx.states = unary.shape[-1]


def _top_k_backward(ctx: Any, grad: Tensor, _grad_y: Tensor) -> tuple[Tensor | None, ...]:
    *layout, values, y = ctx.saved_tensors
    shares = torch.where(values > -torch.inf, grad, 0.0)
    return *_weighted_parts(shares, y, Layout(*layout), ctx.states), *[None] * 6


def _weighted_parts(shares: Tensor, y: Tensor, layout: Layout, states: int) -> tuple[Tensor, Tensor]:
    """Σ_k shares[b, k] ν(y[b, k]): nodes [B, N, S] and edges [B, E, S, S]."""
    shares, labels = shares.unsqueeze(1), y.transpose(1, 2)
    joint = pairs(labels, layout.edges, layout.edge_mask, states)
    node = shares.new_zeros(*labels.shape[:2], states)
    node = node.scatter_add(2, labels, shares * layout.node_mask.unsqueeze(-1))
    edge = shares.new_zeros(*joint.shape[:2], states**2)
    edge = edge.scatter_add(2, joint, shares * layout.edge_mask.unsqueeze(-1))
    return node, edge.unflatten(2, (states, states))


def pairs(labels: Tensor, edges: Tensor, edge_mask: Tensor, states: int) -> Tensor:
    """Joint states S y_a + y_b at the edges, for labels [B, N, ...]: [B, E, ...]; 0 where there is no edge."""
    wide = edge_mask.view(*edge_mask.shape, *[1] * (labels.dim() - 2))
    ends = torch.where(edge_mask.unsqueeze(-1), edges, 0).unbind(-1)
    first, second = (labels.gather(1, e.view(wide.shape).expand(-1, -1, *labels.shape[2:])) for e in ends)
    return torch.where(wide, states * first + second, 0)


@operator("factor_graph_top_k", _like_top_k, _top_k_backward, _save_outputs)
def top_k(
    unary: Tensor,
    pairwise: Tensor,
    edges: Tensor,
    node_mask: Tensor,
    edge_mask: Tensor,
    k: int,
    max_table: int,
    max_sets: int,
) -> tuple[Tensor, Tensor]:
    """Values [B, k] and outputs [B, k, N]."""
    own, tables, *tensors = on_cpu(unary, pairwise, edges, node_mask, edge_mask)
    layout, chosen = _plan(own, tensors, max_table, max_sets)
    scores = _scores(own, tables, layout)
    found, y = solved(chosen, lambda method, rows: method.top_k(*_of(scores, rows), k))
    # A value has the roundings of its labels alone, whatever found them.
    values, y = sorted_downwards(torch.where(found > -torch.inf, _sums(scores, y, layout), -torch.inf), y)
    return values.to(unary), y.to(unary.device)


def _sums(scores: tuple[Tensor, Tensor], y: Tensor, layout: Layout) -> Tensor:
    """Scores [B, k] of labels [B, k, N]: slot by slot, so that the order of a sum does not depend on k."""
    unary, pairwise = scores

    def score(labels: Tensor) -> Tensor:
        joint = pairs(labels, layout.edges, layout.edge_mask, unary.shape[-1])
        nodes = unary.gather(2, labels.unsqueeze(-1)).sum((1, 2))
        return nodes + pairwise.flatten(2).gather(2, joint.unsqueeze(-1)).sum((1, 2))

    return torch.stack([score(labels) for labels in y.unbind(1)], 1)


def _of(scores: tuple[Tensor, Tensor], rows: Rows) -> tuple[Tensor, Tensor]:
    return scores[0][rows], scores[1][rows]


def _run_marginals(
    unary: Tensor, pairwise: Tensor, layout: Layout, chosen: list[Group]
) -> tuple[Tensor, Tensor, Tensor]:
    """Log-partition [B], node marginals [B, N, S] and edge marginals [B, E, S, S], in float64 on the CPU."""
    scores = _scores(unary, pairwise, layout)

    def run(method: Method, rows: Rows) -> tuple[Tensor, ...]:
        own = _of(scores, rows)
        return method.logsumexp(*own), *method.marginals(*own)

    log_z, node, edge = solved(chosen, run)
    return log_z, node, edge


def _like_marginals(unary: Tensor, pairwise: Tensor, *others: Any) -> tuple[Tensor, Tensor, Tensor]:
    return unary.new_empty(len(unary)), unary.new_empty(unary.shape), unary.new_empty(pairwise.shape)


def _save_marginals(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, ...]) -> None:
    *tensors, ctx.max_table = inputs
    ctx.set_materialize_grads(False)
    ctx.save_for_backward(*tensors, *output[1:])


def _marginals_backward(
    ctx: Any, grad: Tensor | None, grad_node: Tensor | None, grad_edge: Tensor | None
) -> tuple[Tensor | None, ...]:
    unary, pairwise, *layout, node, edge = ctx.saved_tensors
    grad_unary, grad_pairwise = torch.zeros_like(unary), torch.zeros_like(pairwise)
    if grad is not None:
        grad_unary, grad_pairwise = grad[:, None, None] * node, grad[:, None, None, None] * edge
    if grad_node is not None or grad_edge is not None:
        weights = (torch.zeros_like(m) if w is None else w for w, m in ((grad_node, node), (grad_edge, edge)))
        second = weighted_hessian(unary, pairwise, *layout, *weights, ctx.max_table)
        grad_unary, grad_pairwise = grad_unary + second[0], grad_pairwise + second[1]
    return grad_unary, grad_pairwise, *[None] * 4


def _like_potentials(unary: Tensor, pairwise: Tensor, *others: Any) -> tuple[Tensor, Tensor]:
    return unary.new_empty(unary.shape), pairwise.new_empty(pairwise.shape)


def _hessian_product(
    plan: tuple[Layout, list[Group]], unary: Tensor, pairwise: Tensor, *weights: Tensor
) -> tuple[Tensor, ...]:
    def run(unary: Tensor, pairwise: Tensor) -> tuple[Tensor, Tensor]:
        _, node, edge = _run_marginals(unary, pairwise, *plan)
        return node.to(unary), edge.to(unary)

    return hessian_product(run, (unary, pairwise), weights)


def _save_weights(ctx: Any, inputs: tuple[Any, ...], output: Any) -> None:
    *tensors, ctx.max_table = inputs
    ctx.save_for_backward(*tensors)


def _hessian_backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
    unary, pairwise, *layout, grad_node, grad_edge = ctx.saved_tensors
    product = partial(_hessian_product, _plan(unary, layout, ctx.max_table))
    gradients = torch.func.vjp(product, unary, pairwise, grad_node, grad_edge)[1](grads)
    return *gradients[:2], None, None, None, *gradients[2:], None


@operator("factor_graph_weighted_hessian", _like_potentials, _hessian_backward, _save_weights)
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
    plan = _plan(unary, (edges, node_mask, edge_mask), max_table)  # transforms of torch.func read no values
    node, edge = _hessian_product(plan, unary, pairwise, grad_node, grad_edge)
    return node, edge


@operator("factor_graph_marginals", _like_marginals, _marginals_backward, _save_marginals)
def _marginals(
    unary: Tensor, pairwise: Tensor, edges: Tensor, node_mask: Tensor, edge_mask: Tensor, max_table: int
) -> tuple[Tensor, Tensor, Tensor]:
    """Those of :func:`marginals`."""
    own, tables, *tensors = on_cpu(unary, pairwise, edges, node_mask, edge_mask)
    log_z, node, edge = _run_marginals(own, tables, *_plan(own, tensors, max_table))
    without_statistics(log_z, node, edge)
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
    return unary.new_empty(len(unary))


@operator("factor_graph_entropy", _like_entropy)
def entropy(
    unary: Tensor, pairwise: Tensor, edges: Tensor, node_mask: Tensor, edge_mask: Tensor, max_table: int
) -> Tensor:
    """Entropy [B], without gradient."""
    own, tables, *tensors = on_cpu(unary, pairwise, edges, node_mask, edge_mask)
    layout, chosen = _plan(own, tensors, max_table)
    scores = _scores(own, tables, layout)
    (values,) = solved(chosen, lambda method, rows: (method.entropy(*_of(scores, rows)),))
    return values.to(unary)


@operator("factor_graph_max_marginals_gradient", _like_potentials)
def max_marginals_gradient(
    unary: Tensor,
    pairwise: Tensor,
    edges: Tensor,
    node_mask: Tensor,
    edge_mask: Tensor,
    grad: Tensor,
    max_table: int,
) -> tuple[Tensor, Tensor]:
    """Gradients of ⟨grad, max-marginals⟩: sums of the parts of the outputs that attain them."""
    layout = Layout(edges.cpu(), node_mask.cpu(), edge_mask.cpu())
    scores, weights = _scores(unary, pairwise, layout), grad.to("cpu", torch.float64)
    node, edge = (torch.zeros_like(own) for own in scores)
    for rows, method in eliminations(layout, sizes_of(scores[0])):
        own = layout.rows(rows)
        for v in method.nodes:
            values, y = method.max_outputs(*_of(scores, rows), v)
            shares = torch.where(values > -torch.inf, weights[rows, v, : method.sizes[v]], 0.0)
            parts = _weighted_parts(shares, y, own, unary.shape[-1])
            node[rows] += parts[0]
            edge[rows] += parts[1]
    return node.to(unary), edge.to(pairwise)


def _save_max_marginals(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
    *tensors, ctx.max_table = inputs
    ctx.save_for_backward(*tensors)


def _max_marginals_backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
    return *max_marginals_gradient(*ctx.saved_tensors, grad, ctx.max_table), *[None] * 4


@operator("factor_graph_max_marginals", like_scores, _max_marginals_backward, _save_max_marginals)
def max_marginals(
    unary: Tensor, pairwise: Tensor, edges: Tensor, node_mask: Tensor, edge_mask: Tensor, max_table: int
) -> Tensor:
    """Max-marginals [B, N, S]."""
    layout, chosen = _plan(unary, (edges, node_mask, edge_mask), max_table)
    scores = _scores(unary, pairwise, layout)
    (values,) = solved(chosen, lambda method, rows: (method.max_marginals(*_of(scores, rows)),))
    return values.to(unary)


def _like_sample(unary: Tensor, *others: Any) -> Tensor:
    return unary.new_empty(others[4].shape, dtype=torch.int64)


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
    layout, chosen = _plan(unary, (edges, node_mask, edge_mask), max_table)
    scores, uniform = _scores(unary, pairwise, layout), uniform.cpu()
    (y,) = solved(chosen, lambda method, rows: (method.sample(*_of(scores, rows), uniform[rows]),))
    return y.to(unary.device)
