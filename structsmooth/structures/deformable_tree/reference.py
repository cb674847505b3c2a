"""Max-marginals of deformable trees in plain torch: the readable reference, on any device and differentiable.

A message is a maximum over all columns and then over all rows, which takes O(H W (H + W)); the compiled distance
transform finds the same in O(H W). Nodes are put in an order in which parents come first, without reading values.
"""

from typing import NamedTuple

import torch
from torch import Tensor

from structsmooth.structures.tree.reference import forest


class Springs(NamedTuple):
    """Costs of columns and of rows, entry [b, v, q, r] for q of the parent and r of node v."""

    columns: Tensor  # [B, N, W, W]
    rows: Tensor  # [B, N, H, H]


def max_marginals(unary: Tensor, deformation: Tensor, anchors: Tensor, parents: Tensor) -> Tensor:
    """Largest score [B, N, H, W] of an output with each node at each position.

    Args:
        unary: [B, N, H, W].
        deformation: [B, N, 4], finite.
        anchors: [N, 2].
        parents: [N]; -1 for a root.
    """
    order, above, _, hangs = (t[0] for t in forest(parents.unsqueeze(0), torch.ones_like(parents).bool().unsqueeze(0)))
    costs = springs(unary, deformation[:, order], anchors[order])
    nodes = len(parents)
    # All roots hang on one more node, whose scores are the same everywhere.
    inside = torch.cat([unary[:, order], torch.zeros_like(unary[:, :1])], 1)
    sent, before = [unary] * nodes, [unary] * nodes
    for t in reversed(range(nodes)):
        sent[t] = torch.where(hangs[t], upward(inside[:, t], costs, t), inside[:, t].amax((1, 2), keepdim=True))
        before[t] = _scores_at(inside, above[t])
        inside = _with_scores_at(inside, above[t], before[t] + sent[t])
    rest = torch.zeros_like(inside)
    for t in range(nodes):
        outside = _scores_at(rest, above[t]) + before[t]
        # Siblings come in the reverse of the order in which their messages were sent.
        rest = _with_scores_at(rest, above[t], _scores_at(rest, above[t]) + sent[t])
        rest = rest.slice_scatter(torch.where(hangs[t], downward(outside, costs, t), outside).unsqueeze(1), 1, t, t + 1)
        sent[t] = inside[:, t] + rest[:, t]
    return torch.stack(sent, 1)[:, order.argsort()]


def springs(unary: Tensor, deformation: Tensor, anchors: Tensor) -> Springs:
    """Costs for scores [B, N, H, W], weights [B, N, 4] and anchors [N, 2]."""

    def costs(size: int, linear: Tensor, square: Tensor, middle: Tensor) -> Tensor:
        places = torch.arange(size, device=unary.device)
        d = (places - places.unsqueeze(1) - middle[:, None, None]).to(unary)
        return linear[..., None, None] * d + square[..., None, None] * d.square()

    x, xx, y, yy = deformation.unbind(2)
    return Springs(costs(unary.shape[3], x, xx, anchors[:, 0]), costs(unary.shape[2], y, yy, anchors[:, 1]))


def upward(scores: Tensor, costs: Springs, v: int) -> Tensor:
    """The message [B, H, W] to the parent of v: max_r scores[b, r] − cost of r and q, for each q."""
    return _transformed(scores, costs.columns[:, v], costs.rows[:, v])


def downward(scores: Tensor, costs: Springs, v: int) -> Tensor:
    """The message [B, H, W] from the parent to v: max_q scores[b, q] − cost of r and q, for each r."""
    return _transformed(scores, costs.columns[:, v].mT, costs.rows[:, v].mT)


def _transformed(scores: Tensor, columns: Tensor, rows: Tensor) -> Tensor:
    over_columns = (scores.unsqueeze(2) - columns.unsqueeze(1)).max(3).values
    return (over_columns.mT.unsqueeze(2) - rows.unsqueeze(1)).max(3).values.mT


def _scores_at(scores: Tensor, t: Tensor) -> Tensor:
    """Scores [B, H, W] at position ``t`` of the order, among those [B, N, H, W] of all."""
    return scores[:, t.view(1)].squeeze(1)  # torch 2.5 cannot trace the derivative of index_select here


def _with_scores_at(scores: Tensor, t: Tensor, new: Tensor) -> Tensor:
    """The scores with new ones at one position of the order."""
    return scores.index_copy(1, t.view(1), new.unsqueeze(1))
