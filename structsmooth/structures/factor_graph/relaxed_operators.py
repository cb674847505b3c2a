"""Oracles of the local polytope as torch operators: the relaxation, and its smoothed dual.

Scores are summed in float64, whatever the dtype of the potentials. Distributions of nodes and edges come with the
values, whose gradients they are. The operators are opaque to ``torch.compile``. Shapes are those of :mod:`.operators`.
"""

from typing import Any, Sequence, cast  # noqa: UP035 - torch 2.5 infers no schema from that of collections.abc

import torch
from torch import Tensor

from structsmooth.structures.factor_graph.expansion import Automata
from structsmooth.structures.factor_graph.layout import Expanded
from structsmooth.structures.factor_graph.local_search import LocalSearch
from structsmooth.structures.factor_graph.relaxation import RelaxationMethod, relax
from structsmooth.structures.factor_graph.relaxation_dual import RelaxationDual, with_penalties
from structsmooth.structures.factor_graph.roof_duality import optimum
from structsmooth.structures.operators import exp_oracle_backward, operator, save_inputs_and_statistics

# Sweeps between two looks at how far message passing has come.
_ROUND = 10
# Largest difference between the distributions of nodes and edges at which they count as equal.
_AGREEMENT = 1e-9


def _like_max(unary: Tensor, pairwise: Tensor, *others: Any) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
    value, bound, labels = *(unary.new_empty(unary.shape[0]) for _ in range(2)), unary.new_empty(unary.shape[:2]).long()
    return value, bound, labels, unary.new_empty(unary.shape), unary.new_empty(pairwise.shape)


def _save_distributions(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, ...]) -> None:
    ctx.set_materialize_grads(False)
    ctx.save_for_backward(*output[-2:])
    ctx.constants = [[None] * len(value) if isinstance(value, (list, tuple)) else None for value in inputs[2:]]


def _max_backward(ctx: Any, grad: Tensor | None, *_constant: Tensor | None) -> tuple[Tensor | None, ...]:
    """Distributions are constant where they do not jump."""
    node, edge = ctx.saved_tensors
    weighted = (None, None) if grad is None else (grad[:, None, None] * node, grad[:, None, None, None] * edge)
    return *weighted, *ctx.constants


@operator("local_polytope_max", _like_max, _max_backward, _save_distributions)
def largest(
    unary: Tensor,
    pairwise: Tensor,
    edges: Tensor,
    node_mask: Tensor,
    edge_mask: Tensor,
    factors: Sequence[Tensor],
    method: str,
    tolerance: float,
    max_sweeps: int,
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
    """The value [B] of a point of the relaxation, and a bound [B] of all; labels [B, N]; distributions of the point.

    ``factors`` are the tensors of :class:`Automata` and the scores of final states, or nothing.
    """
    graph = Expanded(unary, pairwise, edges, node_mask, edge_mask).in_float64()
    binary = unary.shape[-1] == 2 and not factors and unary.device.type == "cpu" and method in ("auto", "cut")
    if binary and bool(graph[0].isfinite().all()) and bool(graph[1].isfinite().all()):
        # There is no need of messages, nor of better labels: a cut of each example is enough.
        node, edge = optimum(*graph)
        value = (graph[0] * node).sum((1, 2)) + (graph[1] * edge).sum((1, 2, 3))
        bound, labels = value, (node[..., 1] > node[..., 0]).long()
    else:
        search = LocalSearch(Automata(*factors[:-1]), factors[-1].double()) if factors else None
        found = relax(*graph, cast(RelaxationMethod, method), tolerance, max_sweeps, search)
        value, labels, node, edge = found.value, found.labels, found.unary, found.pairwise
        bound = torch.maximum(found.dual, value)
    return value.to(unary), bound.to(unary, copy=True), labels, node.to(unary), edge.to(unary)


def _like_logsumexp(unary: Tensor, pairwise: Tensor, *others: Any) -> tuple[Tensor, Tensor, Tensor]:
    value, _, _, node, edge = _like_max(unary, pairwise)
    return value, node, edge


def _no_second_derivatives(*_: Any) -> tuple[Tensor, ...]:
    raise NotImplementedError(
        "logsumexp of LocalPolytope can be differentiated once, and its marginals cannot: for second derivatives, "
        "take the exact oracles of a FactorGraph of small treewidth"
    )


@operator(
    "local_polytope_logsumexp", _like_logsumexp, exp_oracle_backward(_no_second_derivatives), save_inputs_and_statistics
)
def logsumexp(
    unary: Tensor, pairwise: Tensor, edges: Tensor, node_mask: Tensor, edge_mask: Tensor, max_sweeps: int
) -> tuple[Tensor, Tensor, Tensor]:
    """The least smoothed dual [B], and the distributions of nodes and of edges that are its gradient."""
    finite, least = with_penalties(*Expanded(unary, pairwise, edges, node_mask, edge_mask).in_float64())
    one = torch.ones_like(finite.unary[:, 0, 0])
    deltas = _least(finite, one, max_sweeps)
    value, (node, edge) = finite.dual(deltas, one), finite.softmax(deltas, one)
    feasible = value > least
    value = torch.where(feasible, value, -torch.inf)
    node = torch.where(feasible[:, None, None], node, 0.0)
    edge = torch.where(feasible[:, None, None, None], edge, 0.0)
    return value.to(unary), node.to(unary), edge.to(unary)


def _least(problem: RelaxationDual, tau: Tensor, max_sweeps: int) -> Tensor:
    """The messages of the least dual at temperatures ``tau``."""
    deltas = problem.zero()
    for _ in range(0, max_sweeps, _ROUND):
        deltas = problem.sweep(deltas, tau, _ROUND)
        if bool(problem.disagreement(problem.softmax(deltas, tau)) <= _AGREEMENT):
            break
    return deltas
