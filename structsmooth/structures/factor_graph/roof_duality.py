"""The relaxation of binary graphs by one minimum cut on twice their nodes (Hammer et al. 1984; Rother et al. 2007).

Every node v gets a twin v' whose label is the other one where both agree. Each table of scores is split in halves: a
supermodular one between the pairs (a, b) and (a', b'), any other between (a, b') and (a', b), where it is supermodular
because one label is exchanged. The optimum of the doubled graph is that of the relaxation: μ_v is the mean of the
labels of v and of its twin.
"""

import numpy as np
import torch
from torch import Tensor

from structsmooth.structures.factor_graph.layout import Layout
from structsmooth.structures.factor_graph.messages import Marginals, Messages


def solve(problem: Messages) -> tuple[Marginals, Tensor]:
    """An optimal point, half-integral, and optimal messages; on the CPU, for all examples by a single cut."""
    device = problem.unary.device
    unary, pairwise, ends, mask = _on_the_cpu(problem)
    batch, nodes = unary.shape[:2]
    b, e = mask.nonzero(as_tuple=True)
    tables, pairs = pairwise[b, e], ends[b, e] + nodes * b.unsqueeze(-1)
    crossed = tables[:, 0, 0] + tables[:, 1, 1] < tables[:, 0, 1] + tables[:, 1, 0]
    size = batch * nodes
    # The twin of node v of the batch is v + size. In a crossed pair the second label is exchanged, in twins all are.
    first, second = pairs.unbind(-1)
    edges = torch.cat(
        [
            torch.stack([first, torch.where(crossed, second + size, second)], -1),
            torch.stack([first + size, torch.where(crossed, second, second + size)], -1),
        ]
    )
    halves = torch.where(crossed[:, None, None], tables.flip(2), tables) / 2
    twins = torch.where(crossed[:, None, None], tables.flip(1), tables.flip(1, 2)) / 2
    scores = unary.reshape(size, 2) / 2
    labels, gains = _cut(torch.cat([scores, scores.flip(1)]), torch.cat([halves, twins]), edges)
    node = torch.stack([1 - labels, labels], -1)
    node = (node[:size] + node[size:].flip(1)) / 2
    return (
        Marginals(
            (node.view(batch, nodes, 2) * problem.layout.node_mask.cpu().unsqueeze(-1)).to(device),
            _edges(labels, edges, crossed, (b, e), pairwise).to(device),
        ),
        _messages(gains, crossed, (b, e), pairwise).to(device),
    )


def optimum(unary: Tensor, pairwise: Tensor, layout: Layout) -> Marginals:
    """An optimal point of each example under finite scores, half-integral, without messages; on the CPU."""
    from structsmooth.structures.graph_cut import compiled  # numba loads with the first cut

    node, edge = torch.zeros_like(unary), torch.zeros_like(pairwise)
    for b, own in enumerate(layout.edge_mask):
        tables, ends = pairwise[b][own].contiguous(), layout.edges[b][own].contiguous()
        found = torch.zeros_like(tables)
        scores = unary[b].contiguous().numpy(), tables.numpy(), ends.numpy()
        compiled.half_integral(*scores, node[b].numpy(), found.numpy())
        edge[b, own] = found
    return Marginals(node * layout.node_mask.unsqueeze(-1), edge)


def _on_the_cpu(problem: Messages) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    layout: Layout = problem.layout
    return problem.unary.cpu(), problem.pairwise.cpu(), problem.ends.cpu(), layout.edge_mask.cpu()


def _cut(unary: Tensor, pairwise: Tensor, edges: Tensor) -> tuple[Tensor, Tensor]:
    """Labels of the best output, float64 [N], and what each edge gives to label 1 of its ends, [E, 2]."""
    from structsmooth.structures.graph_cut import compiled

    labels, gains = np.empty(len(unary)), np.empty((len(edges), 2))
    arrays = (tensor.contiguous().numpy() for tensor in (unary, pairwise, edges))
    compiled.cut_with_gains(*arrays, labels, gains)
    return torch.from_numpy(labels), torch.from_numpy(gains)


def _edges(labels: Tensor, edges: Tensor, crossed: Tensor, where: tuple[Tensor, Tensor], pairwise: Tensor) -> Tensor:
    """Distributions of the edges: the mean of both halves."""
    count = len(crossed)
    ones = labels[edges].bool()
    ones[:count, 1] ^= crossed
    ones[count:, 0] ^= True
    ones[count:, 1] ^= ~crossed
    total = torch.zeros_like(pairwise)
    for half in ones.long().split(count):
        total[(*where, half[:, 0], half[:, 1])] += 0.5
    return total


def _messages(gains: Tensor, crossed: Tensor, where: tuple[Tensor, Tensor], pairwise: Tensor) -> Tensor:
    """Messages δ [B, E, 2, 2]: a gain of label 1 counts for label 0 where labels are exchanged."""
    count = len(crossed)
    signs = torch.ones_like(gains)
    signs[:count, 1] = torch.where(crossed, -1.0, 1.0)
    signs[count:, 0] = -1.0
    signs[count:, 1] = torch.where(crossed, 1.0, -1.0)
    signed = (gains * signs).view(2, count, 2).sum(0)
    deltas = pairwise.new_zeros(*pairwise.shape[:2], 2, 2)
    deltas[where] = torch.stack([torch.zeros_like(signed), signed], -1)
    return deltas
