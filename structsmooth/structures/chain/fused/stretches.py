"""Oracles of long chains by kernels, in parallel over stretches of them.

A kernel takes the positions of a sequence one after the other, and a few sequences leave most of a GPU idle. A chain is
therefore cut into stretches that share their ends. What leads from each state at the beginning of a stretch to each at
its end is found for all stretches and states at once, which is S times the work in 1/C of the time. These are the
transitions of a chain over the ends, by whose messages the stretches then are chains by themselves (Särkkä and
García-Fernández 2021, "Temporal parallelization of Bayesian smoothers", with stretches in place of a tree of pairs).
"""

from functools import partial
from typing import Any, NamedTuple

import torch
from torch import Tensor

from structsmooth.compiled.gpu import or_plain, run
from structsmooth.structures.chain import reference
from structsmooth.structures.chain.fused import outputs
from structsmooth.structures.chain.fused.exponential import (
    filter_messages,
    no_labels,
    plain_smooth,
    plain_values,
    smooth,
    values_of,
)
from structsmooth.structures.chain.fused.messages import backward, follow, forward
from structsmooth.structures.chain.fused.outputs import run_parts
from structsmooth.structures.chain.fused.tiles import fits_a_tile, sizes_of, tiles_of
from structsmooth.structures.chain.operators import found_backward, save_found
from structsmooth.structures.checks import length_mask
from structsmooth.structures.operators import like_top_k, operator, save_inputs_and_statistics

# Transitions from end to end of a stretch. Of 65,536 positions, the chain over the ends is as long as a stretch.
STEPS = 256
# Shorter chains, and batches with more states in all, fill a GPU as they are.
_LONG, _STATES = 4096, 1024


def is_long(unary: Tensor, transition: Tensor) -> bool:
    """Whether chains are few and long enough for stretches, and share the transitions of their positions."""
    if torch.compiler.is_compiling():  # a graph for open sizes may not depend on them
        return False
    batch, steps, states = unary.shape
    return steps >= _LONG and 0 < batch * states <= _STATES and fits_a_tile(states) and transition.shape[1] == 1


def _count(steps: int) -> int:
    """Number of stretches of a chain."""
    return max(1, -(-(steps - 1) // STEPS))


class Stretches(NamedTuple):
    """Stretches of C each of B chains: a batch of B C chains of ``STEPS`` + 1 positions at most.

    Attributes:
        places: their positions [B, C, STEPS + 1] in the chains, the last one repeated behind their ends.
        lengths: [B, C], 1 behind the end of a chain.
        unary: [B C, STEPS + 1, S].
        transition: [1 or B C, 1, S, S].
        at_ends: scores [B, C + 1, S] of the states at the ends, 0 behind that of the chain.
    """

    places: Tensor
    lengths: Tensor
    unary: Tensor
    transition: Tensor
    at_ends: Tensor

    @classmethod
    def of(cls, unary: Tensor, transition: Tensor, lengths: Tensor) -> "Stretches":
        """The stretches of chains [B, T, S] with transitions [1 or B, 1, S, S]."""
        batch, steps, states = unary.shape
        count = _count(steps)
        ends = torch.arange(count + 1, device=unary.device) * STEPS
        ends = torch.minimum(ends, (lengths.clamp(1, steps) - 1).unsqueeze(1))
        within = torch.arange(STEPS + 1, device=unary.device)
        places = torch.minimum(ends[:, :-1, None] + within, ends[:, 1:, None])
        own = unary.gather(1, places.view(batch, -1, 1).expand(-1, -1, states)).view(-1, STEPS + 1, states)
        at_ends = unary.gather(1, ends.unsqueeze(2).expand(-1, -1, states))
        repeated = torch.nn.functional.pad(ends.diff(), (1, 0), value=1) == 0
        shared = transition if len(transition) == 1 else transition.repeat_interleave(count, 0)
        return cls(places, ends.diff() + 1, own, shared, torch.where(repeated.unsqueeze(2), 0.0, at_ends))

    def ends(self, scores: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """The chain over the ends, with transitions [B, C, S, S]: the arguments of its oracles."""
        batch, ends, _ = self.at_ends.shape
        return self.at_ends, scores, self.lengths.new_full((batch,), ends)

    def labels(self, y: Tensor) -> Tensor:
        """Labels [B, K, T] of the chains as those [B C, K, STEPS + 1] of the stretches."""
        (batch, k, _), places = y.shape, self.places
        own = y.gather(2, places.view(batch, 1, -1).expand(-1, k, -1)).view(batch, k, *places.shape[1:])
        return own.transpose(1, 2).flatten(0, 1)

    def with_ends(self, first: Tensor, last: Tensor) -> Tensor:
        """Unary scores of the stretches, with others [B, C, S] of their first and last positions.

        Where these are one position, it has both.
        """
        own = self.unary.clone()
        own[:, 0] = first.flatten(0, 1)
        alone = (self.lengths == 1).unsqueeze(2)
        last = torch.where(alone, first + last, last).flatten(0, 1).unsqueeze(1)
        return own.scatter_(1, (self.lengths.flatten() - 1).view(-1, 1, 1).expand_as(last), last)

    def joined(self, values: Tensor, lengths: Tensor, steps: int) -> Tensor:
        """Values [B C, STEPS + 1, ...] at the positions of stretches as those of the chains [B, T, ...]."""
        batch, count, _ = self.places.shape
        own = values.view(batch, count, *values.shape[1:])
        found = torch.cat([own[:, :, :-1].flatten(1, 2), own[:, -1, -1:]], 1)[:, :steps]
        inside = length_mask(lengths, steps).view(batch, steps, *[1] * (found.dim() - 2))
        return torch.where(inside, found, 0)


def transfers(cut: Stretches, largest: bool) -> tuple[Tensor, Tensor]:
    """Scores [B, C, S, S] between the ends of stretches, relative to what is given in float64 for each chain [B]."""
    from structsmooth.structures.chain.fused import stretch_kernels as kernels

    (batch, count, _), (_, _, states) = cut.places.shape, cut.unary.shape
    scores = cut.unary.new_empty(batch * count, states, states)
    offsets, lost = cut.unary.new_empty(2, batch * count, states)
    run(
        kernels.transfers, batch * count * states, cut.unary, cut.transition.contiguous(), cut.lengths.flatten(),
        scores, offsets, lost, **sizes_of(cut.unary, cut.transition), **tiles_of(states, cut.unary.itemsize),
        MAX=largest,
    )  # fmt: skip
    # Of the states that lead anywhere: others have stopped at an offset of their own.
    base = torch.where(scores.amax(2) > -torch.inf, offsets, -torch.inf).amax(1, keepdim=True)
    base = torch.where(base > -torch.inf, base, 0.0)
    scores = scores + (offsets - base + lost).unsqueeze(2)
    return scores.view(batch, count, states, states), base.double().view(batch, count).sum(1)


def _like_filter(unary: Tensor, transition: Tensor, lengths: Tensor, y: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    batch, steps, states = unary.shape
    scores = unary.new_empty(batch, _count(steps), states, states)
    return unary.new_empty(batch), unary.new_empty(y.shape[:2]), scores


def _filter_backward(ctx: Any, grad: Tensor | None, *_others: Any) -> tuple[Tensor | None, ...]:
    if grad is None:
        return ()
    unary, transition, lengths, y, real, scores = ctx.saved_tensors
    weights = grad * real[:, 0] if y.shape[1] else grad
    if torch.is_grad_enabled():  # second derivatives are found position by position
        _, _, *kept = filter_messages(unary, transition, lengths, no_labels(unary, lengths))
        kept = [tensor.detach() for tensor in kept]
        node, pairs = smooth(unary, transition, lengths, *kept, weights, y, True)
    else:
        node, pairs = _smooth_stretches(unary, transition, lengths, scores, weights, y, True)
    return node, pairs.sum_to_size(transition.shape)


def _plain_filter(unary: Tensor, transition: Tensor, lengths: Tensor, y: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    return *plain_values(unary, transition, lengths, y), _like_filter(unary, transition, lengths, y)[2]


@operator("chain_fused_long_filter", _like_filter, _filter_backward, save_inputs_and_statistics)
@or_plain(_plain_filter)
def filter_stretches(unary: Tensor, transition: Tensor, lengths: Tensor, y: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """What ``filter_messages`` says of whole chains, and the scores between the ends of stretches."""
    cut = Stretches.of(unary, transition, lengths)
    scores, base = transfers(cut, largest=False)
    log_z, _, _ = forward(*cut.ends(scores), largest=False)
    return *values_of(unary, transition, lengths, y, log_z + base), scores


def _plain_smooth(
    unary: Tensor, transition: Tensor, lengths: Tensor, scores: Tensor, weights: Tensor, y: Tensor, summed: bool
) -> tuple[Tensor, Tensor]:
    return plain_smooth(unary, transition, lengths, weights, y, summed)


@or_plain(_plain_smooth)
def _smooth_stretches(
    unary: Tensor, transition: Tensor, lengths: Tensor, scores: Tensor, weights: Tensor, y: Tensor, summed: bool
) -> tuple[Tensor, Tensor]:
    """What ``smooth`` gives: stretches are chains by themselves, given what comes before and behind them."""
    cut = Stretches.of(unary, transition, lengths)
    _, messages, shifts = forward(*cut.ends(scores), largest=False)
    marginals, _ = backward(*cut.ends(scores), messages, shifts, torch.ones_like(weights), True)
    behind = torch.where(marginals > 0, marginals.log() - messages, -torch.inf)
    own = cut.with_ends((messages + cut.at_ends)[:, :-1], behind[:, 1:]), cut.transition, cut.lengths.flatten()
    _, messages, shifts = forward(*own, largest=False)
    weights = weights.repeat_interleave(cut.lengths.shape[1])
    node, pairs = backward(*own, messages, shifts, weights, summed)
    if y.shape[1]:
        run_parts(weights, cut.labels(y), own[2], node, pairs, subtracted=True)
    pairs = pairs.view(len(unary), -1, *pairs.shape[2:])
    pairs = pairs.sum(1, keepdim=True) if summed else pairs[:, : unary.shape[1] - 1]
    return cut.joined(node, lengths, unary.shape[1]), pairs


def surprisals(unary: Tensor, transition: Tensor, lengths: Tensor, y: Tensor) -> Tensor:
    """Minus the log-probabilities [B] of outputs [B, T]; +inf, without gradient, where that is no number."""
    return _values(unary, transition, lengths, y.unsqueeze(1))


def log_partition(unary: Tensor, transition: Tensor, lengths: Tensor) -> Tensor:
    """Log-partition function [B]; twice differentiable by kernels, and thrice by torch."""
    return _values(unary, transition, lengths, no_labels(unary, lengths))


def _values(unary: Tensor, transition: Tensor, lengths: Tensor, y: Tensor) -> Tensor:
    kernel = filter_stretches if is_long(unary, transition) else filter_messages
    return kernel(unary, transition, lengths, y)[0]


def marginals(unary: Tensor, transition: Tensor, lengths: Tensor) -> tuple[Tensor, Tensor]:
    """Marginals [B, T, S] and [B, T-1, S, S]; differentiable."""
    none, ones = no_labels(unary, lengths), unary.new_ones(len(unary))
    differentiated = torch.is_grad_enabled() and (unary.requires_grad or transition.requires_grad)
    if is_long(unary, transition) and not differentiated:
        scores = filter_stretches(unary, transition, lengths, none)[2]
        return _smooth_stretches(unary, transition, lengths, scores, ones, none, False)
    _, _, messages, shifts = filter_messages(unary, transition, lengths, none)
    node, pairs = smooth(unary, transition, lengths, messages.detach(), shifts.detach(), ones, none, False)
    return node, pairs


@operator(
    "chain_fused_long_best",
    lambda *scores: like_top_k(*scores, 1),
    found_backward("chain_fused_weighted_parts"),
    lambda ctx, inputs, output: save_found(ctx, (*inputs, 1), output),
)
@or_plain(partial(reference.top_k, k=1))
def best_of_stretches(unary: Tensor, transition: Tensor, lengths: Tensor) -> tuple[Tensor, Tensor]:
    """The largest scores [B, 1] and outputs [B, 1, T] that have them; of several, any."""
    cut = Stretches.of(unary, transition, lengths)
    scores, base = transfers(cut, largest=True)
    batch, ends, states = cut.at_ends.shape
    y, own_y = lengths.new_empty(batch, 1, ends), lengths.new_empty(len(cut.unary), 1, STEPS + 1)
    values = follow(*cut.ends(scores), y) + base
    chosen = y[:, 0].unsqueeze(2) == torch.arange(states, device=y.device)
    chosen = torch.where(chosen, 0.0, -torch.inf).to(unary.dtype)
    follow(cut.with_ends(chosen[:, :-1], chosen[:, 1:]), cut.transition, cut.lengths.flatten(), own_y)
    found = torch.where(values.unsqueeze(1) > -torch.inf, cut.joined(own_y[:, 0], lengths, unary.shape[1]), 0)
    return values.unsqueeze(1).to(unary.dtype), found.unsqueeze(1)


def top_k(unary: Tensor, transition: Tensor, lengths: Tensor, k: int) -> tuple[Tensor, Tensor]:
    """Values [B, k] and outputs [B, k, T]."""
    if k == 1 and is_long(unary, transition):
        return best_of_stretches(unary, transition, lengths)
    return outputs.top_k(unary, transition, lengths, k)
