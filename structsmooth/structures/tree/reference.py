"""Oracles of trees in plain torch: one recursion over a semiring, from which every query is derived.

The readable reference, on any device and twice differentiable, with the signatures of the compiled operators. The
recursion goes up; marginals, the best outputs and samples go down through its messages. Trees of a batch may have
different shapes: nodes are put in an order in which parents come first, and every step of the recursion handles one
position of all examples.
"""

from typing import NamedTuple

import torch
from torch import Tensor

from structsmooth.structures.semirings import Log, Semiring, TopK, inverse_cdf, softmax


class Forest(NamedTuple):
    """The trees of a batch of N nodes each, in an order of the nodes; all roots hang on position N, above them."""

    nodes: Tensor  # [B, N], the node at each position: by depth, siblings in reverse order, padding at the end
    parents: Tensor  # [B, N], the position of its parent; N for roots and padding
    real: Tensor  # [B, N], false at padding
    hangs: Tensor  # [B, N], whether the node has a parent


def forest(parents: Tensor, mask: Tensor) -> Forest:
    """The order of the nodes, found without reading values, so that nothing waits for the device."""
    count = parents.shape[1]
    depths, _ = depths_and_ancestors(parents, mask)
    hangs = mask & (parents >= 0)
    index = torch.arange(count, device=parents.device)
    # Sorted by depth, and from the largest index down within a depth; padding comes last.
    last = torch.where(mask, depths, count + 1)
    nodes = (last * count - index).argsort(1)
    positions = torch.zeros_like(nodes).scatter(1, nodes, index.expand_as(nodes))
    above = torch.where(hangs, positions.gather(1, torch.where(hangs, parents, 0)), count)
    return Forest(nodes, above.gather(1, nodes), mask.gather(1, nodes), hangs.gather(1, nodes))


def depths_and_ancestors(parents: Tensor, mask: Tensor) -> tuple[Tensor, Tensor]:
    """Number of ancestors [B, N], and one at least N steps up: N, above all roots, unless there is a cycle."""
    count = parents.shape[1]
    above = torch.where(mask & (parents >= 0), parents, count)
    above = torch.nn.functional.pad(above, (0, 1), value=count)
    depths = (above < count).long()
    for _ in range(count.bit_length()):  # every step doubles how far up the ancestor is
        depths = depths + depths.gather(1, above)
        above = above.gather(1, above)
    return depths[:, :-1], above[:, :-1]


class Messages(NamedTuple):
    """What the upward pass of the recursion leaves for passes that go down."""

    inside: Tensor  # [B, N + 1, S, R]: the branch of each position, by its state
    sent: list[Tensor]  # [B, S, R] for each position: its message, by the state of the parent
    before: list[Tensor]  # [B, S, R] for each position: the sum that its parent had gathered before that message


def recursion(semiring: Semiring, unary: Tensor, pairwise: Tensor, forest: Forest) -> Tensor:
    """Semiring sum of the scores of all outputs (Algorithms 7 to 9).

    Args:
        semiring: what a sum is.
        unary: [B, N, S].
        pairwise: [B, N, S, S], entry [b, v, i, j] scores state i of the parent of v and state j of v.
        forest: the trees.

    Returns:
        [B, R], with R the number of slots of the semiring.
    """
    return _upward(semiring, *arranged(unary, pairwise, forest), forest).inside[:, -1, 0]


def arranged(unary: Tensor, pairwise: Tensor, forest: Forest) -> tuple[Tensor, Tensor]:
    """Scores in the order of the forest, with zeros at padding and, for pairs, at roots, where they are arbitrary."""
    index = forest.nodes.unsqueeze(-1)
    nodes = unary.gather(1, index.expand_as(unary))
    edges = pairwise.gather(1, index.unsqueeze(-1).expand_as(pairwise))
    return (torch.where(forest.real.unsqueeze(-1), nodes, 0.0), torch.where(forest.hangs[:, :, None, None], edges, 0.0))


def _upward(semiring: Semiring, unary: Tensor, pairwise: Tensor, forest: Forest) -> Messages:
    """Messages from the leaves to the roots."""
    batch, count, states = unary.shape
    inside = semiring.embed(torch.cat([unary, unary.new_zeros(batch, 1, states)], 1))
    sent: list[Tensor] = []
    before: list[Tensor] = []
    # m_v(i) = ⊕ over j of {inside_v(j) ⊗ ψ_{v,ρ(v)}(j, i)}, and inside_ρ(v) becomes inside_ρ(v) ⊗ m_v (Algorithms 7 to
    # 9).
    for t in reversed(range(count)):
        message = semiring.sum(inside[:, None, t] + pairwise[:, t].unsqueeze(-1), 2)
        parent = forest.parents[:, t].view(-1, 1, 1, 1).expand(-1, 1, *inside.shape[2:])
        gathered = inside.gather(1, parent).squeeze(1)
        joined = torch.where(forest.real[:, t, None, None], semiring.product(gathered, message), gathered)
        inside = inside.scatter(1, parent, joined.unsqueeze(1))
        sent.insert(0, message)
        before.insert(0, gathered)
    return Messages(inside, sent, before)


def scores(unary: Tensor, pairwise: Tensor, parents: Tensor, mask: Tensor, y: Tensor) -> Tensor:
    """Scores [B, K] of labels [B, K, N], which are 0 at padding."""
    labels, hangs = y.mT, mask & (parents >= 0)
    above = labels.gather(1, torch.where(hangs, parents, 0).unsqueeze(-1).expand_as(labels))
    nodes = unary.gather(2, labels)
    edges = pairwise.flatten(2).gather(2, above * unary.shape[-1] + labels)
    of_edges = torch.where(hangs.unsqueeze(-1), edges, 0.0).sum(1)
    return torch.where(mask.unsqueeze(-1), nodes, 0.0).sum(1) + of_edges


def log_partition(unary: Tensor, pairwise: Tensor, parents: Tensor, mask: Tensor) -> Tensor:
    """Log-partition function [B]."""
    trees = forest(parents, mask)
    return recursion(Log(), unary, pairwise, trees).squeeze(-1)


def marginals(unary: Tensor, pairwise: Tensor, parents: Tensor, mask: Tensor) -> tuple[Tensor, Tensor]:
    """Marginals [B, N, S] and [B, N, S, S], differentiable: upward messages, downward conditional distributions."""
    trees = forest(parents, mask)
    unary, pairwise = arranged(unary, pairwise, trees)
    _, count, states = unary.shape
    inside = _upward(Log(), unary, pairwise, trees).inside.squeeze(-1)
    nodes, pairs = torch.zeros_like(inside), [torch.zeros_like(pairwise[:, :0])]
    feasible = inside[:, -1, :1] > -torch.inf
    top = torch.where(feasible, torch.eye(1, states, dtype=unary.dtype, device=unary.device), 0.0)
    nodes = nodes.slice_scatter(top.unsqueeze(1), 1, count)
    # P(y_v = j, y_ρ(v) = i) = P(y_ρ(v) = i) P(y_v = j | y_ρ(v) = i), from the roots down.
    for t in range(count):
        parent = trees.parents[:, t].view(-1, 1, 1).expand(-1, 1, states)
        above = nodes.gather(1, parent).squeeze(1).unsqueeze(-1)
        both = above * softmax(inside[:, None, t] + pairwise[:, t], 2)
        nodes = nodes.slice_scatter(both.sum(1, keepdim=True), 1, t, t + 1)
        pairs.append(both.unsqueeze(1))
    of_nodes = torch.where(trees.real.unsqueeze(-1), nodes[:, :-1], 0.0)
    edges = torch.where(trees.hangs[:, :, None, None], torch.cat(pairs, 1), 0.0)
    return _rearranged(of_nodes, trees), _rearranged(edges, trees)


def _rearranged(values: Tensor, forest: Forest) -> Tensor:
    """Values [B, N, ...] of the nodes at each position as values of each node."""
    index = forest.nodes.view(*forest.nodes.shape, *[1] * (values.dim() - 2)).expand_as(values)
    return torch.zeros_like(values).scatter(1, index, values)


def top_k(unary: Tensor, pairwise: Tensor, parents: Tensor, mask: Tensor, k: int) -> tuple[Tensor, Tensor]:
    """Values [B, k] and outputs [B, k, N]: upward messages, and down along their best alternatives."""
    trees = forest(parents, mask)
    best = TopK(k)
    unary, pairwise = arranged(unary, pairwise, trees)
    messages = _upward(best, unary, pairwise, trees)
    values = messages.inside[:, -1, 0]
    values = torch.where(values > -torch.inf, values, -torch.inf)
    y = _downward(best, messages, pairwise, trees)
    y = torch.where(trees.real.unsqueeze(1) & (values > -torch.inf).unsqueeze(-1), y, 0)
    return values, _rearranged(y.mT, trees).mT


@torch.no_grad()
def _downward(best: TopK, messages: Messages, pairwise: Tensor, forest: Forest) -> Tensor:
    """The labels [B, k, N] of the best outputs, by position, from the roots to the leaves."""
    batch, count, states, _ = pairwise.shape
    inside, sent, before = messages
    slots = torch.arange(best.k, device=pairwise.device)
    ranks = torch.nn.functional.pad(slots[:, None], (count, 0)).expand(
        batch, -1, -1
    )  # among the lists of each position
    y = torch.zeros_like(ranks)  # all roots hang on a node of one state
    for t in range(count):
        parent = forest.parents[:, t].view(-1, 1, 1).expand(-1, best.k, 1)
        label, rank = y.gather(2, parent), ranks.gather(2, parent).squeeze(2)
        left, right = (m.gather(1, label.expand(-1, -1, best.k)) for m in (before[t], sent[t]))
        rest, slot = best.find(left.unsqueeze(-1) + right.unsqueeze(-2), rank)
        # Siblings come in the reverse of the order in which they were joined.
        ranks = ranks.scatter(2, parent, torch.where(forest.real[:, t, None], rest, rank).unsqueeze(2))
        scores = pairwise[:, t].gather(1, label.expand(-1, -1, states)).unsqueeze(-1)
        found = best.find(inside[:, None, t] + scores, slot)
        y, ranks = (
            old.slice_scatter(new.unsqueeze(2), 2, t, t + 1) for old, new in zip((y, ranks), found, strict=True)
        )
    return y[..., :-1]


def max_marginals(unary: Tensor, pairwise: Tensor, parents: Tensor, mask: Tensor) -> Tensor:
    """Max-marginals [B, N, S]: the best score of the branch of each node plus the best score of the rest.

    The rest is all that is connected through the parent: its own rest, and its other branches.
    """
    trees = forest(parents, mask)
    best = TopK(1)
    unary, pairwise = arranged(unary, pairwise, trees)
    batch, count, states = unary.shape
    inside, sent, before = _upward(best, unary, pairwise, trees)
    outside = unary.new_zeros(batch, count + 1, states)
    values = []
    for t in range(count):
        parent = trees.parents[:, t].view(-1, 1, 1).expand(-1, 1, states)
        above = outside.gather(1, parent).squeeze(1)
        rest = above + before[t].squeeze(-1)
        outside_t = best.sum((rest.unsqueeze(-1) + pairwise[:, t]).unsqueeze(-1), 1).squeeze(-1)
        values.append(inside[:, t].squeeze(-1) + outside_t)
        # Siblings come in the reverse of the order in which they were joined: this one was joined after the next.
        above = torch.where(trees.real[:, t, None], above + sent[t].squeeze(-1), above)
        outside = outside.scatter(1, parent, above.unsqueeze(1)).slice_scatter(outside_t.unsqueeze(1), 1, t, t + 1)
    result = torch.stack(values, 1)
    result = torch.where(result > -torch.inf, result, -torch.inf)
    return _rearranged(torch.where(trees.real.unsqueeze(-1), result, 0.0), trees)


def sample(unary: Tensor, pairwise: Tensor, parents: Tensor, mask: Tensor, uniform: Tensor) -> Tensor:
    """Samples [B, n, N] at uniform numbers of that shape, from the roots to the leaves; 0 at padding."""
    trees = forest(parents, mask)
    unary, pairwise = arranged(unary, pairwise, trees)
    inside = _upward(Log(), unary, pairwise, trees).inside.squeeze(-1)
    nodes = trees.nodes.unsqueeze(1).expand_as(uniform)
    uniform = uniform.gather(2, nodes)
    y = torch.zeros_like(nodes)
    y = torch.nn.functional.pad(y, (0, 1))  # all roots hang on a node of one state
    for t in range(unary.shape[1]):
        above = y.gather(2, trees.parents[:, t, None, None].expand(-1, y.shape[1], 1))
        scores = inside[:, None, t] + pairwise[:, t].gather(1, above.expand(-1, -1, unary.shape[2]))
        y[..., t] = inverse_cdf(scores, uniform[..., t])
    feasible = inside[:, -1:, :1] > -torch.inf
    y = torch.where(trees.real.unsqueeze(1) & feasible, y[..., :-1], 0)
    return torch.zeros_like(y).scatter(2, nodes, y)
