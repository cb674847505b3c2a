"""Oracles of binary graphs as torch operators over compiled loops.

Value and statistics come from one pass; the backward pass is a product with saved statistics. Whatever the dtype of
the potentials, scores are summed in float64. The cuts are found on the CPU: tensors on other devices are copied to it,
and results are copied back. The operators are opaque to ``torch.compile``.

Shapes: unary [B, N, 2], pairwise [B, E, 2, 2], edges int64 [E, 2].
"""

from typing import Any

from torch import Tensor

from structsmooth.lazy import LazyLoops
from structsmooth.structures.best_max_marginal_first import sorted_downwards
from structsmooth.structures.max_marginals import max_marginals_operator
from structsmooth.structures.operators import compiled_operator, like_scores, no_labels

compiled = LazyLoops("structsmooth.structures.graph_cut.compiled")


def check_edges(edges: Tensor, nodes: int) -> None:
    """Raise unless ends of edges are from 0 to ``nodes`` - 1: others would make compiled loops read out of bounds."""
    if edges.numel() and not 0 <= int(edges.min()) <= int(edges.max()) < nodes:
        raise ValueError(f"edges must hold nodes from 0 to {nodes - 1}, got {int(edges.min())} to {int(edges.max())}")


def _checked(unary: Tensor, pairwise: Tensor, edges: Tensor, *others: Any) -> tuple[Any, ...]:
    check_edges(edges, unary.shape[1])
    return unary, pairwise, edges, *(other for other in others if isinstance(other, Tensor))


def _one_flow(unary: Tensor, pairwise: Tensor, edges: Tensor, *_: Any) -> int:
    """Number of operations of one maximal flow per example, usually."""
    batch, nodes = unary.shape[:2]
    return 100 * batch * (nodes + len(edges))


def _flows(unary: Tensor, *others: Any) -> int:
    """Number of operations of one maximal flow for each node of each example, usually."""
    return unary.shape[1] * _one_flow(unary, *others)


def pairs(labels: Tensor, edges: Tensor) -> Tensor:
    """Joint states 2 y_a + y_b at the edges, for labels [B, N, ...]: [B, E, ...]."""
    return 2 * labels[:, edges[:, 0]] + labels[:, edges[:, 1]]


top_k = compiled_operator(
    "graph_cut_top_k(Tensor unary, Tensor pairwise, Tensor edges, SymInt k) -> (Tensor, Tensor)",
    results=no_labels,
    loop=compiled.batch_top_k,
    reads=_checked,
    operations=lambda *arguments: (_one_flow if arguments[-1] == 1 else _flows)(*arguments),
    finish=sorted_downwards,
)
"""Values [B, k] and outputs [B, k, N] (Algorithm 10 over Algorithm 11), without gradient."""

# Registers graph_cut_max_marginals_gradient, too.
max_marginals = max_marginals_operator(
    "graph_cut_max_marginals(Tensor unary, Tensor pairwise, Tensor edges) -> Tensor",
    results=like_scores,
    loop=compiled.batch_max_marginals,
    gradient_loop=compiled.batch_max_marginals_gradient,
    reads=_checked,
    operations=_flows,
    potentials=2,
)
"""Max-marginals [B, N, 2] (Algorithm 11)."""
