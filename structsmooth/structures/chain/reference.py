"""Oracles of the linear chain in plain torch: one recursion over a semiring, from which every query is derived.

The readable reference, on any device and twice differentiable, with the signatures of the compiled operators. The
recursion goes forward; marginals, the best outputs and samples go back through its messages. Shapes: unary [B, T, S],
transition [1 or B, 1 or T-1, S, S], lengths [B]; scores at padding may be anything.
"""

import torch
from torch import Tensor

from structsmooth.structures.semirings import Log, Semiring, TopK, inverse_cdf, softmax


def check_lengths(lengths: Tensor, steps: int, name: str = "T", least: int = 1) -> None:
    """Lengths from 1, or ``least``, to T, or what it is called: compiled loops would go beyond their arrays."""
    smallest, largest = lengths.aminmax() if lengths.numel() else (1, 1)
    if not least <= int(smallest) <= int(largest) <= steps:
        raise ValueError(f"lengths must be from {least} to {name} = {steps}, got {lengths.tolist()}")


def length_mask(lengths: Tensor, steps: int) -> Tensor:
    """Mask [B, T], true on the first ``lengths`` positions."""
    return torch.arange(steps, device=lengths.device) < lengths[:, None]


def masked(unary: Tensor, transition: Tensor, mask: Tensor) -> tuple[Tensor, Tensor]:
    """Unary scores and edges [B, T-1, S, S], zero at padding."""
    batch, steps, states = unary.shape
    edges = transition.expand(batch, steps - 1, states, states)
    return torch.where(mask.unsqueeze(-1), unary, 0.0), torch.where(mask[:, 1:, None, None], edges, 0.0)


def recursion(semiring: Semiring, unary: Tensor, edges: Tensor, mask: Tensor) -> Tensor:
    """Semiring sum of the scores of all outputs (Algorithms 1 to 3).

    Args:
        semiring: what a sum is.
        unary: [B, T, S].
        edges: [B, T-1, S, S], entry [b, t, i, j] scores y_t = i, y_{t+1} = j.
        mask: [B, T], true on the first ``length`` positions.

    Returns:
        [B, R], with R the number of slots of the semiring.
    """
    return semiring.sum(_messages(semiring, unary, edges, mask)[-1], 1)


def _messages(semiring: Semiring, unary: Tensor, edges: Tensor, mask: Tensor) -> list[Tensor]:
    """Forward messages [B, S, R] of every position; beyond its end, a sequence keeps its last message."""
    messages = [semiring.embed(unary[:, 0])]
    for t in range(1, unary.shape[1]):
        extended = messages[-1].unsqueeze(2) + edges[:, t - 1].unsqueeze(-1)
        message = semiring.sum(extended, 1) + unary[:, t].unsqueeze(-1)
        messages.append(torch.where(mask[:, t, None, None], message, messages[-1]))
    return messages


def scores(unary: Tensor, transition: Tensor, lengths: Tensor, y: Tensor) -> Tensor:
    """Scores [B, K] of labels [B, K, T], which may be anything at padding."""
    mask = length_mask(lengths, y.shape[2]).unsqueeze(1)
    y = torch.where(mask, y, 0)
    nodes = unary.gather(2, y.mT).mT
    pairs = transition.flatten().gather(0, _edge_cells(y, transition.shape).flatten()).view(y[..., 1:].shape)
    return torch.where(mask, nodes, 0.0).sum(2) + torch.where(mask[..., 1:], pairs, 0.0).sum(2)


def _edge_cells(y: Tensor, transition_shape: torch.Size) -> Tensor:
    """Indices [B, K, T-1] into flattened transitions of the scores of the pairs in labels [B, K, T]."""
    examples, edges, states, _ = transition_shape
    pairs = y[..., :-1] * states + y[..., 1:]
    if examples > 1:
        pairs = pairs + torch.arange(examples, device=y.device)[:, None, None] * (edges * states**2)
    if edges > 1:
        pairs = pairs + torch.arange(edges, device=y.device) * states**2
    return pairs


def log_partition(unary: Tensor, transition: Tensor, lengths: Tensor) -> Tensor:
    """Log-partition function [B]."""
    mask = length_mask(lengths, unary.shape[1])
    return recursion(Log(), *masked(unary, transition, mask), mask).squeeze(-1)


def marginals(unary: Tensor, transition: Tensor, lengths: Tensor) -> tuple[Tensor, Tensor]:
    """Marginals [B, T, S] and [B, T-1, S, S], differentiable: forward filtering, backward smoothing."""
    mask = length_mask(lengths, unary.shape[1])
    unary, edges = masked(unary, transition, mask)
    messages = _messages(Log(), unary, edges, mask)
    nodes = [softmax(messages[-1].squeeze(-1), 1)]
    pairs: list[Tensor] = []
    for t in range(unary.shape[1] - 2, -1, -1):
        # The distribution of y_t given y_{t+1} times that of y_{t+1}.
        both = softmax(messages[t] + edges[:, t], 1) * nodes[0].unsqueeze(1)
        inside = mask[:, t + 1]
        pairs.insert(0, torch.where(inside[:, None, None], both, 0.0))
        # Beyond its end, a sequence keeps its last message.
        nodes.insert(0, torch.where(inside.unsqueeze(-1), both.sum(2), nodes[0]))
    node = torch.where(mask.unsqueeze(-1), torch.stack(nodes, 1), 0.0)
    return node, torch.stack(pairs, 1) if pairs else edges


def top_k(unary: Tensor, transition: Tensor, lengths: Tensor, k: int) -> tuple[Tensor, Tensor]:
    """Values [B, k] and outputs [B, k, T], 0 at padding: forward messages, and back along their best alternatives."""
    best, mask = TopK(k), length_mask(lengths, unary.shape[1])
    unary, edges = masked(unary, transition, mask)
    messages = _messages(best, unary, edges, mask)
    values = best.sum(messages[-1], 1)
    values = torch.where(values > -torch.inf, values, -torch.inf)
    y = _backward(best, messages, edges, mask)
    return values, torch.where(mask.unsqueeze(1) & (values > -torch.inf).unsqueeze(-1), y, 0)


@torch.no_grad()
def _backward(best: TopK, messages: list[Tensor], edges: Tensor, mask: Tensor) -> Tensor:
    """The labels [B, k, T] of the best outputs, from the last position to the first."""
    batch, _, states, _ = edges.shape
    slots = torch.arange(best.k, device=edges.device).expand(batch, -1)
    label, rank = best.find(messages[-1].unsqueeze(1), slots)
    y = [label]
    for t in range(len(messages) - 2, -1, -1):
        scores = edges[:, t].mT.gather(1, label.unsqueeze(-1).expand(-1, -1, states))
        found = best.find(messages[t].unsqueeze(1) + scores.unsqueeze(-1), rank)
        inside = mask[:, t + 1, None]
        label, rank = torch.where(inside, found[0], label), torch.where(inside, found[1], rank)
        y.insert(0, label)
    return torch.stack(y, 2)


def max_marginals(unary: Tensor, transition: Tensor, lengths: Tensor) -> Tensor:
    """Max-marginals [B, T, S]: the best prefix that ends in each state plus the best suffix after it."""
    best, mask = TopK(1), length_mask(lengths, unary.shape[1])
    unary, edges = masked(unary, transition, mask)
    prefix = torch.stack(_messages(best, unary, edges, mask), 1).squeeze(-1)
    suffix = [torch.zeros_like(unary[:, 0])]
    for t in range(unary.shape[1] - 1, 0, -1):
        extended = edges[:, t - 1] + (unary[:, t] + suffix[0]).unsqueeze(1)
        message = best.sum(extended.unsqueeze(-1), 2).squeeze(-1)
        suffix.insert(0, torch.where(mask[:, t, None], message, suffix[0]))
    values = prefix + torch.stack(suffix, 1)
    values = torch.where(values > -torch.inf, values, -torch.inf)
    return torch.where(mask.unsqueeze(-1), values, 0.0)


def sample(unary: Tensor, transition: Tensor, lengths: Tensor, uniform: Tensor) -> Tensor:
    """Samples [B, n, T] at uniform numbers of that shape: forward filtering, backward sampling; 0 at padding."""
    mask = length_mask(lengths, unary.shape[1])
    unary, edges = masked(unary, transition, mask)
    messages = torch.cat(_messages(Log(), unary, edges, mask), 2).unsqueeze(1)  # [B, 1, S, T]
    feasible = (messages[..., -1] > -torch.inf).any(2, keepdim=True)
    # Beyond its end, a sequence keeps its last message, and edges are zero.
    y = [inverse_cdf(messages[..., -1], uniform[..., -1])]
    for t in range(unary.shape[1] - 2, -1, -1):
        index = y[0].unsqueeze(-1).expand(-1, -1, unary.shape[2])
        y.insert(0, inverse_cdf(messages[..., t] + edges[:, t].mT.gather(1, index), uniform[..., t]))
    return torch.where(mask.unsqueeze(1) & feasible, torch.stack(y, 2), 0)
