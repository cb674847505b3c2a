"""Oracles of the linear chain in plain torch: one recursion over a semiring, from which every query is derived.

The readable reference, on any device and twice differentiable, with the signatures of the compiled operators. The
recursion goes forward; marginals, the best outputs and samples go back through its messages. Shapes: unary [B, T, S],
transition [1 or B, 1 or T-1, S, S], lengths [B]; scores at padding may be anything.
"""

from __future__ import annotations  # torch.compile of torch 2.5 does not trace those of nested functions

import torch
from torch import Tensor

from structsmooth.structures.checks import length_mask
from structsmooth.structures.oracles import Traits
from structsmooth.structures.scans import Tensors, scan
from structsmooth.structures.semirings import Log, Semiring, TopK, inverse_cdf, softmax

traits, sums, surprisals, smoothed_top_k = Traits(), None, None, None


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
    _, last = _messages(semiring, unary, _entering(edges), mask)
    return semiring.sum(last, 1)


def _entering(edges: Tensor) -> Tensor:
    """Scores [B, T, S, S] of the pairs that end at each position; the first comes after state 0, for nothing."""
    return torch.nn.functional.pad(edges, (0, 0, 0, 0, 1, 0))


def _messages(semiring: Semiring, unary: Tensor, entering: Tensor, mask: Tensor) -> tuple[Tensor, Tensor]:
    """Forward messages before each position, [B, T, S, R], and behind the last one, [B, S, R].

    Beyond its end, a sequence keeps its last message.
    """

    # π_t(s) = ψ_t(s) ⊗ ⊕ over p of {π_{t-1}(p) ⊗ ψ_{t-1,t}(p, s)}: Eq. 18, Eq. 19 or the sums of Algorithm 9, by the
    # semiring.
    def step(state: Tensors, inputs: Tensors) -> tuple[Tensors, Tensors]:
        (before,), (scores, pairs, inside) = state, inputs
        message = semiring.sum(before.unsqueeze(2) + pairs.unsqueeze(-1), 1) + scores.unsqueeze(-1)
        return (torch.where(inside[:, None, None], message, before),), (before,)

    # Before the first position there is one state, 0, from which all are entered for nothing.
    start = torch.where(torch.arange(unary.shape[2], device=unary.device) == 0, 0.0, -torch.inf).to(unary.dtype)
    state = semiring.embed(start.expand(unary.shape[0], -1))
    (last,), (before,) = scan(step, (state,), (unary, entering, mask))
    return before, last


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
    entering = _entering(edges)
    before, last = _messages(Log(), unary, entering, mask)

    def step(state: Tensors, inputs: Tensors) -> tuple[Tensors, Tensors]:
        (node,), (message, pairs, inside) = state, inputs
        # The distribution of y_{t-1} given y_t times that of y_t.
        both = softmax(message + pairs, 1) * node.unsqueeze(1)
        # Beyond its end, a sequence keeps its last message.
        return (torch.where(inside.unsqueeze(-1), both.sum(2), node),), (node, both)

    _, (nodes, both) = scan(step, (softmax(last.squeeze(-1), 1),), (before, entering, mask), reverse=True)
    node = torch.where(mask.unsqueeze(-1), nodes, 0.0)
    return node, torch.where(mask[:, 1:, None, None], both[:, 1:], 0.0)


def node_marginals(unary: Tensor, transition: Tensor, lengths: Tensor) -> Tensor:
    """Marginals [B, T, S]."""
    return marginals(unary, transition, lengths)[0]


def top_k(unary: Tensor, transition: Tensor, lengths: Tensor, k: int) -> tuple[Tensor, Tensor]:
    """Values [B, k] and outputs [B, k, T], 0 at padding: forward messages, and back along their best alternatives."""
    best, mask = TopK(k), length_mask(lengths, unary.shape[1])
    unary, edges = masked(unary, transition, mask)
    entering = _entering(edges)
    before, last = _messages(best, unary, entering, mask)
    values = best.sum(last, 1)
    # The same numbers, without the gradient of what is impossible.
    values = torch.where(values > -torch.inf, values, -torch.inf)
    y = _backward(best, before, last, entering, mask)
    return values, torch.where(mask.unsqueeze(1) & (values > -torch.inf).unsqueeze(-1), y, 0)


@torch.no_grad()
def _backward(best: TopK, before: Tensor, last: Tensor, entering: Tensor, mask: Tensor) -> Tensor:
    """The labels [B, k, T] of the best outputs, from the last position to the first."""
    batch, _, states, _ = entering.shape

    def step(state: Tensors, inputs: Tensors) -> tuple[Tensors, Tensors]:
        (label, rank), (message, pairs, inside) = state, inputs
        scores = pairs.mT.gather(1, label.unsqueeze(-1).expand(-1, -1, states))
        found = best.find(message.unsqueeze(1) + scores.unsqueeze(-1), rank)
        earlier = tuple(torch.where(inside.unsqueeze(-1), new, old) for new, old in zip(found, state, strict=True))
        return earlier, (label,)

    slots = torch.arange(best.k, device=entering.device).expand(batch, -1)
    _, (y,) = scan(step, best.find(last.unsqueeze(1), slots), (before, entering, mask), reverse=True)
    return y.mT


def max_marginals(unary: Tensor, transition: Tensor, lengths: Tensor) -> Tensor:
    """Max-marginals [B, T, S]: the best prefix that ends in each state plus the best suffix after it."""
    best, mask = TopK(1), length_mask(lengths, unary.shape[1])
    unary, edges = masked(unary, transition, mask)
    entering = _entering(edges)
    before, last = _messages(best, unary, entering, mask)

    # The suffix after t by y_t = p: max over s of {ψ_{t,t+1}(p, s) + ψ_{t+1}(s) + the suffix after t + 1 by s}.
    def step(state: Tensors, inputs: Tensors) -> tuple[Tensors, Tensors]:
        (suffix,), (scores, pairs, inside) = state, inputs
        message = best.sum((pairs + (scores + suffix).unsqueeze(1)).unsqueeze(-1), 2).squeeze(-1)
        return (torch.where(inside.unsqueeze(-1), message, suffix),), (suffix,)

    _, (suffixes,) = scan(step, (torch.zeros_like(unary[:, 0]),), (unary, entering, mask), reverse=True)
    values = _after(before, last).squeeze(-1) + suffixes
    values = torch.where(values > -torch.inf, values, -torch.inf)
    return torch.where(mask.unsqueeze(-1), values, 0.0)


def filtered(unary: Tensor, transition: Tensor, lengths: Tensor) -> Tensor:
    """Marginals [B, T, S] of each position without the scores behind it: forward messages that sum to one."""
    mask = length_mask(lengths, unary.shape[1])
    unary, edges = masked(unary, transition, mask)
    after = _after(*_messages(Log(), unary, _entering(edges), mask)).squeeze(-1)
    return torch.where(mask.unsqueeze(-1), softmax(after, 2), 0.0)


def sample(unary: Tensor, transition: Tensor, lengths: Tensor, uniform: Tensor) -> Tensor:
    """Samples [B, n, T] at uniform numbers of that shape: forward filtering, backward sampling; 0 at padding."""
    mask = length_mask(lengths, unary.shape[1])
    unary, edges = masked(unary, transition, mask)
    entering = _entering(edges)
    after = _after(*_messages(Log(), unary, entering, mask)).squeeze(-1)
    feasible = (after[:, -1] > -torch.inf).any(1)[:, None, None]

    def step(state: Tensors, inputs: Tensors) -> tuple[Tensors, Tensors]:
        (later,), (message, pairs, numbers) = state, inputs
        label = inverse_cdf(message.unsqueeze(1) + later, numbers)
        # Beyond its end, a sequence keeps its last message, and edges are zero.
        return (pairs.mT.gather(1, label.unsqueeze(-1).expand_as(later)),), (label,)

    later = unary.new_zeros(*uniform.shape[:2], unary.shape[2])
    _, (y,) = scan(step, (later,), (after, entering, uniform.mT), reverse=True)
    return torch.where(mask.unsqueeze(1) & feasible, y.mT, 0)


def _after(before: Tensor, last: Tensor) -> Tensor:
    """Forward messages [B, T, S, R] of every position, from those before them and the last one."""
    return torch.cat([before[:, 1:], last.unsqueeze(1)], 1)
