"""Expansion moves on what messages leave: good labels of large graphs of many states, by a few minimum cuts.

A move lets all nodes keep their labels or take one and the same. The best of all such moves is one minimum cut where,
at every edge and for all states α, β and γ, θ(α, α) + θ(β, γ) >= θ(β, α) + θ(α, γ): for Potts strengths, or minus any
metric. Messages change none of these sums. They bound the maximum, and after them few nodes are left to move.
"""

import torch
from torch import Tensor

from structsmooth.structures.factor_graph.layout import Layout
from structsmooth.structures.factor_graph.relaxation_dual import Marginals, RelaxationDual
from structsmooth.structures.operators import on_cpu

# Sweeps of messages before the moves. More of them give a better bound, and hardly better labels.
_SWEEPS = 10
# A move must gain more than this share of the sum of all scores' sizes: less is rounding.
_GAIN = 1e-14


def suits(problem: RelaxationDual) -> Tensor:
    """Which examples have moves that are minimum cuts, bool [B] on the device of the scores."""
    from structsmooth.structures.graph_cut import compiled_expansion  # numba loads with the first cut

    (pairwise, edge_mask), found = on_cpu(problem.pairwise, problem.layout.edge_mask), []
    for tables, real in zip(pairwise, edge_mask, strict=True):
        found.append(compiled_expansion.moves_are_supermodular(tables.numpy(), real.numpy()))
    return torch.tensor(found, dtype=torch.bool, device=problem.pairwise.device)


def solve(problem: RelaxationDual, max_sweeps: int) -> tuple[Marginals, Tensor]:
    """Labels that no move improves, as a vertex of the local polytope, and messages; found on the CPU."""
    from structsmooth.structures.graph_cut import compiled_expansion

    graphs = problem
    if problem.unary.device.type != "cpu":
        unary, pairwise, *layout = on_cpu(problem.unary, problem.pairwise, *problem.layout)
        graphs = RelaxationDual(unary, pairwise, Layout(*layout))
    deltas = graphs.sweep(graphs.zero(), graphs.unary.new_zeros(len(graphs.unary)), min(_SWEEPS, max_sweeps))
    node, edge = graphs.reparameterized(deltas)
    y = node.argmax(-1)
    for b, real in enumerate(graphs.layout.edge_mask):
        least = _GAIN * float(graphs.unary[b].abs().sum() + graphs.pairwise[b].abs().sum())
        arrays = node[b], edge[b][real], graphs.ends[b][real], y[b]
        compiled_expansion.expand(*(array.contiguous().numpy() for array in arrays), least)
    marginals = graphs.vertex(y)
    return Marginals(*(part.to(problem.unary) for part in marginals)), deltas.to(problem.unary)
