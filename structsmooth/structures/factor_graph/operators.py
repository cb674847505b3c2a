"""Exact oracles of factor graphs as torch operators.

Whatever the dtype of the potentials, scores are summed in float64, on the CPU: tensors on other devices are copied to
it, and results are copied back. The operators are opaque to ``torch.compile``.

Shapes: unary [B, N, S], pairwise [B, E, S, S], scores of the final states of tables [B, F, Q], edges int64 [B, E, 2],
node_mask bool [B, N], edge_mask bool [B, E], scopes of tables int64 [B, F, K] with -1 at padding, and their transitions
int64 [F, 1 or K, Q, S].
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
from structsmooth.structures.factor_graph.exact import Exact, Limits, Way, groups, hessian_product, sizes_of
from structsmooth.structures.factor_graph.layout import Tabled, Tables
from structsmooth.structures.operators import (
    exp_oracle_backward,
    like_scores,
    on_cpu,
    operator,
    save_inputs_and_statistics,
)

# The tensors of :class:`~structsmooth.structures.factor_graph.layout.Tabled`.
_GRAPH = (
    "Tensor unary, Tensor pairwise, Tensor finals, Tensor edges, Tensor node_mask, Tensor edge_mask, Tensor scopes, "
    "Tensor transitions"
)


def _exact(graph: Sequence[Tensor], max_table: int, max_sets: int = 1, variables: int = 0) -> Exact:
    """The examples of a batch on the CPU, in float64, grouped by how they are solved."""
    given = Tabled(*on_cpu(*graph))
    limits, tables = Limits(max_table, max_sets, variables), Tables(given.scopes, given.transitions)
    return Exact(given.scores_in_float64(), given, groups(given.layout, tables, sizes_of(given.unary), limits))


def ways(graph: Tabled, max_table: int) -> list[Way]:
    """How each example is solved."""
    found = {b: group.way for group in _exact(graph, max_table).groups for b in group.rows.tolist()}
    return [found[b] for b in sorted(found)]


def _with_scores(exact: Exact, *potentials: Tensor) -> Exact:
    """The same examples with other scores, through which gradients flow; transforms of torch.func read no values."""
    unary, pairwise, finals = potentials
    return exact._replace(scores=Tabled(unary, pairwise, finals, *exact.graph[3:]).scores_in_float64())


def _like_top_k(unary: Tensor, *others: Any) -> tuple[Tensor, Tensor]:
    *_graph, k, _max_table, _max_sets, _variables = others
    return operators.like_top_k(unary, k)


@operator(
    f"factor_graph_top_k({_GRAPH}, SymInt k, SymInt max_table, SymInt max_sets, SymInt variables) -> (Tensor, Tensor)",
    _like_top_k,
)
def top_k(unary: Tensor, *others: Any) -> tuple[Tensor, Tensor]:
    """Values [B, k] and outputs [B, k, N], without gradient; the first ``variables`` nodes decide over the others."""
    *graph, k, max_table, max_sets, variables = others
    exact, nodes = _exact((unary, *graph), max_table, max_sets, variables), unary.shape[1]

    def run(structure: Any, _: Any) -> tuple[Tensor, Tensor]:
        values, y = structure.topk(k)
        return values, y[..., :nodes]  # a search adds nodes

    found, y = exact.solved(run)
    # A value has the roundings of its labels alone, whatever found them.
    scores = torch.stack([exact.score(labels) for labels in y.unbind(1)], 1)
    values, y = sorted_downwards(torch.where(found > -torch.inf, scores, -torch.inf), y)
    return values.to(unary), y.to(unary.device)


def _curvature(potentials: tuple[Tensor, ...], weights: tuple[Tensor | None, ...], *others: Any) -> tuple[Tensor, ...]:
    *layout, max_table = others
    directions = [torch.zeros_like(p) if w is None else w for w, p in zip(weights, potentials, strict=True)]
    return weighted_hessian(*potentials, *layout, *directions, max_table)


def _like_potentials(unary: Tensor, pairwise: Tensor, finals: Tensor, *others: Any) -> tuple[Tensor, Tensor, Tensor]:
    return unary.new_empty(unary.shape), unary.new_empty(pairwise.shape), unary.new_empty(finals.shape)


def _hessian_product(exact: Exact, *potentials_and_weights: Tensor) -> tuple[Tensor, ...]:
    """Gradients of ⟨weights, marginals⟩, by automatic differentiation."""
    potentials, weights = potentials_and_weights[:3], potentials_and_weights[3:]

    def run(*potentials: Tensor) -> tuple[Tensor, ...]:
        found = _with_scores(exact, *potentials).solved(lambda structure, _: structure.statistics())
        return tuple(statistics.to(potentials[0]) for statistics in found)

    return hessian_product(run, potentials, weights)


def _hessian_backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
    *graph, grad_node, grad_edge, grad_final = ctx.saved_tensors
    product = partial(_hessian_product, _exact(graph, *ctx.constants))
    gradients = hessian_product(product, (*graph[:3], grad_node, grad_edge, grad_final), grads)
    return *gradients[:3], None, None, None, None, None, *gradients[3:]


@operator(
    f"factor_graph_weighted_hessian({_GRAPH}, Tensor grad_node, Tensor grad_edge, Tensor grad_final, SymInt max_table)"
    " -> (Tensor, Tensor, Tensor)",
    _like_potentials,
    _hessian_backward,
)
@on_own_thread
def weighted_hessian(unary: Tensor, *others: Any) -> tuple[Tensor, Tensor, Tensor]:
    """Gradients of ⟨grads, marginals⟩: a product with second derivatives of the log-partition function."""
    *graph, grad_node, grad_edge, grad_final, max_table = others
    exact = _exact((unary, *graph), max_table)
    weights = tuple(grad.to("cpu", torch.float64) for grad in (grad_node, grad_edge, grad_final))
    found = exact.solved(lambda structure, rows: structure.second_derivatives(*(w[rows] for w in weights)))
    node, edge, final = (gradient.to(unary) for gradient in found)
    return node, edge, final


@operator(
    f"factor_graph_marginals({_GRAPH}, SymInt max_table) -> (Tensor, Tensor, Tensor, Tensor)",
    lambda unary, *others: (unary.new_empty(unary.shape[0]), *_like_potentials(unary, *others)),
    exp_oracle_backward(_curvature),
    save_inputs_and_statistics,
)
def _marginals(unary: Tensor, *others: Any) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """The operator behind :func:`marginals`, for graphs with an edge and a table."""
    *graph, max_table = others
    exact = _exact((unary, *graph), max_table)
    found = exact.solved(lambda structure, _: (structure.logsumexp(), *structure.statistics()))
    log_z, node, edge, final = (result.to(unary) for result in found)
    return log_z, node, edge, final


def marginals(graph: Tabled, max_table: int) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Log-partition [B], and marginals of nodes [B, N, S], of edges [B, E, S, S] and of final states [B, F, Q].

    Graphs without edges get one that they do not have: torch.func finds no derivatives where a tensor has no entries.
    """
    count = graph.edges.shape[1]
    if not count:
        graph = graph._replace(
            pairwise=pad(graph.pairwise, (0, 0, 0, 0, 0, 1)),
            edges=pad(graph.edges, (0, 0, 0, 1)),
            edge_mask=pad(graph.edge_mask, (0, 1)),
        )
    log_z, node, edge, final = _marginals(*graph, max_table)
    return log_z, node, edge[:, :count], final


@operator(
    f"factor_graph_entropy({_GRAPH}, SymInt max_table) -> Tensor", lambda unary, *_: unary.new_empty(unary.shape[0])
)
def entropy(unary: Tensor, *others: Any) -> Tensor:
    """Entropy [B], without gradient."""
    *graph, max_table = others
    exact = _exact((unary, *graph), max_table)
    (values,) = exact.solved(lambda structure, _: (structure.entropy(),))
    return values.to(unary)


def _max_marginals(exact: Exact, *potentials: Tensor) -> Tensor:
    (values,) = _with_scores(exact, *potentials).solved(lambda structure, _: (structure.max_marginals(),))
    return values


@operator(
    f"factor_graph_max_marginals_gradient({_GRAPH}, Tensor grad, SymInt max_table) -> (Tensor, Tensor, Tensor)",
    _like_potentials,
)
@on_own_thread
def max_marginals_gradient(
    unary: Tensor, pairwise: Tensor, finals: Tensor, *others: Any
) -> tuple[Tensor, Tensor, Tensor]:
    """Gradients of ⟨grad, max-marginals⟩."""
    *layout, grad, max_table = others
    run = partial(_max_marginals, _exact((unary, pairwise, finals, *layout), max_table))
    node, edge, final = derivatives.max_marginals_gradient(run, (unary, pairwise, finals), grad.cpu())
    return node, edge, final


def _max_marginals_backward(ctx: Any, grad: Tensor) -> tuple[Tensor, ...]:
    return max_marginals_gradient(*ctx.saved_tensors, grad, *ctx.constants)


@operator(f"factor_graph_max_marginals({_GRAPH}, SymInt max_table) -> Tensor", like_scores, _max_marginals_backward)
def max_marginals(unary: Tensor, pairwise: Tensor, finals: Tensor, *others: Any) -> Tensor:
    """Max-marginals [B, N, S]."""
    *layout, max_table = others
    exact = _exact((unary, pairwise, finals, *layout), max_table)
    return _max_marginals(exact, unary, pairwise, finals).to(unary)


def _like_sample(unary: Tensor, *others: Any) -> Tensor:
    *_, uniform, _max_table = others
    return unary.new_empty(uniform.shape, dtype=torch.int64)


@operator(f"factor_graph_sample({_GRAPH}, Tensor uniform, SymInt max_table) -> Tensor", _like_sample)
def sample(unary: Tensor, *others: Any) -> Tensor:
    """Samples [B, n, N] at uniform numbers of that shape."""
    *graph, uniform, max_table = others
    numbers = uniform.cpu()
    (y,) = _exact((unary, *graph), max_table).solved(lambda structure, rows: (structure.inverse_cdf(numbers[rows]),))
    return y.to(unary.device)
