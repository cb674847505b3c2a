"""The relaxation of binary graphs by one minimum cut on twice their nodes (Hammer et al. 1984; Rother et al. 2007).

Every node v gets a twin v' whose label is the other one where both agree. Each table of scores is split in halves: a
supermodular one between the pairs (a, b) and (a', b'), any other between (a, b') and (a', b), where it is supermodular
because one label is exchanged. The optimum of the doubled graph is that of the relaxation: μ_v is the mean of the
labels of v and of its twin.
"""

import torch
from torch import Tensor

from structsmooth.structures.factor_graph.layout import Layout
from structsmooth.structures.factor_graph.relaxation_dual import Marginals, RelaxationDual
from structsmooth.structures.operators import on_cpu


def solve(problem: RelaxationDual) -> tuple[Marginals, Tensor]:
    """An optimal point, half-integral, and optimal messages; found on the CPU."""
    unary, pairwise, *layout = on_cpu(problem.unary, problem.pairwise, *problem.layout)
    deltas = torch.zeros(problem.zero().shape, dtype=unary.dtype)
    marginals = optimum(unary, pairwise, Layout(*layout), deltas)
    return Marginals(*(tensor.to(problem.unary) for tensor in marginals)), deltas.to(problem.unary)


def optimum(unary: Tensor, pairwise: Tensor, layout: Layout, deltas: Tensor | None = None) -> Marginals:
    """An optimal point of each example under finite scores, half-integral; on the CPU.

    Optimal messages go to ``deltas`` [B, E, 2, 2], zeros before, if they are given.
    """
    from structsmooth.structures.graph_cut import compiled  # numba loads with the first cut

    node, edge = torch.zeros_like(unary), torch.zeros_like(pairwise)
    for b, real in enumerate(layout.edge_mask):
        tables, ends = pairwise[b][real].contiguous(), layout.edges[b][real].contiguous()
        found = torch.zeros_like(tables)
        messages = tables.new_empty(0 if deltas is None else len(tables), 2, 2)
        arrays = (unary[b].contiguous(), tables, ends, node[b], found, messages)
        compiled.half_integral(*(array.numpy() for array in arrays))
        edge[b, real] = found
        if deltas is not None:
            deltas[b, real] = messages
    return Marginals(node * layout.node_mask.unsqueeze(-1), edge)
