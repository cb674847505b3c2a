"""Sums over spanning trees, and samples of them, without subtraction.

Words are eliminated one by one. The trees in which word k has any head and any children are summed by adding to the
weight of each arc from i to j that of the way from i over k to j, divided by the total weight d of the arcs into k.
The product of the totals is the sum over all trees: this is Gaussian elimination of the Laplacian, whose diagonal is
minus the sum of the rest of a column, and so never needs to be subtracted from. In logarithms no digits are lost at
any scale of the scores. With one child of the root, arcs of the root count only for the last word.

A sample goes the other way round. Each arc from i to j goes over k with the probability that its weight does; these are
the children of k. The head of k is the head i of such a child that is not below another one, or, if there are no
children, drawn in proportion to the arcs into k. The heads of children that keep all of them a tree have the total
probability of the heads of k that are not below it, so samples have the probabilities of the trees.

Shapes: arcs [B, n, n], from head to modifier, root [B, n], mask [B, n].
"""

from typing import NamedTuple

import torch
from torch import Tensor

from structsmooth.structures.semirings import inverse_cdf, logsumexp


class Step(NamedTuple):
    """What the elimination of word k [B] saw: the graph before, the total, and the graph after."""

    k: Tensor
    active: Tensor
    arcs: Tensor
    root: Tensor
    total: Tensor
    after: Tensor
    root_after: Tensor


def log_partition(arcs: Tensor, root: Tensor, mask: Tensor, single_root: bool) -> tuple[Tensor, list[Step]]:
    """Log-sum [B] of exp of the scores of all trees, twice differentiable, and the steps."""
    batch, words, _ = arcs.shape
    different = ~torch.eye(words, dtype=torch.bool, device=arcs.device)
    left, place = mask, torch.arange(words, device=arcs.device)
    arcs = torch.where(mask.unsqueeze(2) & mask.unsqueeze(1) & different, arcs, -torch.inf)
    root = torch.where(mask, root, -torch.inf)
    log_z, feasible = arcs.new_zeros(batch), torch.ones(batch, dtype=torch.bool, device=arcs.device)
    steps = []
    for _ in range(words):
        into = logsumexp(arcs, 1)
        last = left.sum(1, keepdim=True) == 1
        totals = torch.where(last, root, into) if single_root else _log_add(into, root)
        # The largest total first: a word without heads is the child of the root, and stays to the end.
        finite = totals.detach().clamp_min(torch.finfo(totals.dtype).min)
        k, active = torch.where(left, finite, -torch.inf).argmax(1, keepdim=True), left.any(1)
        total = totals.gather(1, k).squeeze(1)
        possible = total > -torch.inf
        log_z = log_z + torch.where(active & possible, total, 0.0)
        feasible = feasible & (possible | ~active)
        over = torch.where(active & possible, total, 0.0).unsqueeze(1)
        column = arcs.gather(2, k.unsqueeze(1).expand(-1, words, -1)).squeeze(2)
        row = arcs.gather(1, k.unsqueeze(2).expand(-1, -1, words)).squeeze(1) - over
        left = left & (place != k)
        pairs = left.unsqueeze(2) & left.unsqueeze(1) & different
        after = torch.where(pairs, _log_add(arcs, column.unsqueeze(2) + row.unsqueeze(1)), -torch.inf)
        root_after = torch.where(left, _log_add(root, root.gather(1, k) + row), -torch.inf)
        steps.append(Step(k.squeeze(1), active, arcs, root, total, after, root_after))
        arcs, root = after, root_after
    return torch.where(feasible, log_z, -torch.inf), steps


def _log_add(first: Tensor, second: Tensor) -> Tensor:
    """Like ``torch.logaddexp``, with zero instead of NaN gradients where both are -inf."""
    return logsumexp(torch.stack([first, second]), 0)


def sample(arcs: Tensor, root: Tensor, mask: Tensor, single_root: bool, uniform: Tensor) -> Tensor:
    """Heads [B, N, n], 0 for the root, at numbers [B, N, n, n]: one for each word and each possible child of it.

    Those on the diagonal are for words without children. Heads are -1 for an example without trees; at padding 0.
    """
    log_z, steps = log_partition(arcs, root, mask, single_root)
    batch, n, words, _ = uniform.shape
    place = torch.arange(words, device=arcs.device)
    b = torch.arange(batch, device=arcs.device)[:, None, None]
    heads = torch.zeros(batch, n, words, dtype=torch.int64, device=arcs.device)  # 0: the root
    present = torch.zeros(batch, words, dtype=torch.bool, device=arcs.device)
    for step in reversed(steps):
        k, is_k = step.k[:, None, None], place == step.k[:, None]
        before = torch.cat([step.root.unsqueeze(1), step.arcs], 1)  # [B, 1 + n, n]: heads with the root first
        after = torch.cat([step.root_after.unsqueeze(1), step.after], 1)
        into_k = before[b.squeeze(2), :, step.k[:, None]]  # [B, 1, 1 + n]
        from_k = before[b.squeeze(2), 1 + step.k[:, None]]  # [B, 1, n]
        total = torch.where(step.total > -torch.inf, step.total, 0.0)[:, None, None]
        over_k = into_k.expand(-1, n, -1).gather(2, heads) + from_k - total
        log_share = over_k - after[b, heads, place]
        number = uniform[b.squeeze(2), :, step.k[:, None]].squeeze(1)
        # A direct arc of weight 0 is never taken, whatever the rounding.
        goes = (number < log_share.exp()) | (before[b, heads, place] == -torch.inf)
        child = goes & (over_k > -torch.inf) & present.unsqueeze(1)
        outermost = child & ~_below(heads, child).gather(2, (heads - 1).clamp_min(0)).logical_and(heads > 0)
        first = outermost.to(torch.uint8).argmax(2, keepdim=True)
        inherited = heads.gather(2, first)
        if single_root:
            of_root = child & (heads == 0)
            inherited = torch.where(of_root.any(2, keepdim=True), 0, inherited)
            only = (~present.any(1))[:, None, None]  # the first word to come back is the child of the root
            choices = into_k.masked_fill(torch.arange(1 + words, device=arcs.device) == 0, -torch.inf)
            choices = torch.where(only, into_k, choices)
        else:
            choices = into_k
        drawn = inverse_cdf(choices.expand(-1, n, -1), number.gather(2, k.expand(-1, n, 1)).squeeze(2)).unsqueeze(2)
        head = torch.where(child.any(2, keepdim=True), inherited, drawn)
        active = step.active[:, None, None]
        heads = torch.where(active & child, k + 1, heads)
        heads = torch.where(active & is_k.unsqueeze(1), head, heads)
        present = present | (is_k & step.active[:, None])
    heads = torch.where(mask.unsqueeze(1), heads, 0)
    return torch.where((log_z > -torch.inf)[:, None, None], heads, -1)


def _below(heads: Tensor, marked: Tensor) -> Tensor:
    """Whether words [B, N, n] are marked, or below one that is."""
    above, covered = heads, marked
    for _ in range(heads.shape[2].bit_length()):
        inside, index = above > 0, (above - 1).clamp_min(0)
        covered = covered | (covered.gather(2, index) & inside)
        above = torch.where(inside, above.gather(2, index), 0)
    return covered
