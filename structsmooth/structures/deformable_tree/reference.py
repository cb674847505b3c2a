"""Max-marginals of deformable trees in plain torch: the readable reference, on any device and differentiable.

A message is a maximum over all columns and then over all rows, which takes O(H W (H + W)); the compiled distance
transform finds the same in O(H W).
"""

from collections.abc import Sequence
from functools import cache

import torch
from torch import Tensor

LineCosts = tuple[Tensor, Tensor]  # [B, W, W] and [B, H, H], entry [b, q, r] for q of the parent and r of the node


def max_marginals(unary: Tensor, deformation: Tensor, anchors: Tensor, parents: Sequence[int]) -> Tensor:
    """Largest score [B, N, H, W] of an output with each node at each position.

    Args:
        unary: [B, N, H, W].
        deformation: [B, N, 4], finite.
        anchors: [N, 2].
        parents: of the nodes; -1 for a root.
    """
    nodes = range(len(parents))
    costs = [line_costs(unary, deformation[:, v], anchors[v]) for v in nodes]
    neighbours = [[u for u in nodes if parents[u] == v or parents[v] == u] for v in nodes]

    @cache
    def message(source: int, target: int) -> Tensor:
        """What the nodes behind the edge from source to target add to the scores of the target: [B, H, W]."""
        upward = parents[source] == target
        columns, rows = costs[source if upward else target]
        if not upward:
            columns, rows = columns.mT, rows.mT
        return transformed(branch(source, target), columns, rows)

    def branch(v: int, without: int | None = None) -> Tensor:
        """Scores of v and of all nodes that are connected to it, but through one of its neighbours: [B, H, W]."""
        return unary[:, v] + sum(message(u, v) for u in neighbours[v] if u != without)

    best = {v: branch(v).flatten(1).amax(1) for v in nodes if parents[v] < 0}
    others = [sum(value for root, value in best.items() if root != _root(v, parents)) for v in nodes]
    return torch.stack([branch(v) + torch.as_tensor(others[v]).view(-1, 1, 1) for v in nodes], 1)


def line_costs(unary: Tensor, deformation: Tensor, anchor: Tensor) -> LineCosts:
    """Costs of columns and of rows of a node and its parent: deformation [B, 4], anchor [2]."""

    def costs(size: int, linear: Tensor, square: Tensor, middle: Tensor) -> Tensor:
        places = torch.arange(size, device=unary.device)
        d = (places - places.unsqueeze(1) - middle).to(unary)
        return linear.view(-1, 1, 1) * d + square.view(-1, 1, 1) * d.square()

    x, xx, y, yy = deformation.unbind(1)
    return costs(unary.shape[3], x, xx, anchor[0]), costs(unary.shape[2], y, yy, anchor[1])


def transformed(scores: Tensor, columns: Tensor, rows: Tensor) -> Tensor:
    """max_r scores[b, r] − columns[b, x of q, x of r] − rows[b, y of q, y of r] for all positions q: [B, H, W]."""
    over_columns = (scores.unsqueeze(2) - columns.unsqueeze(1)).max(3).values
    return (over_columns.mT.unsqueeze(2) - rows.unsqueeze(1)).max(3).values.mT


def _root(v: int, parents: Sequence[int]) -> int:
    while parents[v] >= 0:
        v = parents[v]
    return v
