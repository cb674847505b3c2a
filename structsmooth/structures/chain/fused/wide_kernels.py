"""Triton kernels of chains with many states: a launch for each position, so that programs share the work of a sequence.

A program has ``OWN`` states of a sequence, and reads what comes from, or goes to, all states in tiles of ``OTHERS``.
Messages and shifts are those of the kernels of whole sequences, and so are sizes and strides.
"""

import triton
import triton.language as tl

from structsmooth.compiled.triton_functions import example_and_part, finite, length_of
from structsmooth.structures.chain.fused.exponential_kernels import SIZES, edge_tile, joined, message_tile, weighted


@triton.jit(do_not_specialize=["t", *SIZES])
def forward_step(
    unary, edges, lengths, messages, shifts, t, steps, states, edge_batch, edge_step,
    OWN: tl.constexpr, OTHERS: tl.constexpr, MAX: tl.constexpr,
):  # fmt: skip
    """Messages of position ``t`` from those of the position before, and what was subtracted from these."""
    b, part = example_and_part(tl.cdiv(states, OWN))
    if t >= length_of(lengths, b, steps):
        return
    columns, others = part * OWN + tl.arange(0, OWN), tl.arange(0, OTHERS)
    row = b * steps + t - 1
    unary, messages = unary + row * states, messages + row * states
    edges += b * edge_batch + (t - 1) * tl.cast(edge_step, tl.int64)
    every = tl.full([OTHERS], float("-inf"), unary.dtype.element_ty)
    for first in range(0, states, OTHERS):
        every = tl.maximum(every, message_tile(messages, unary, first + others, states))
    shift = finite(tl.max(every, 0))  # the same in all programs of a sequence
    tl.store(shifts + row, shift, mask=part == 0)
    total = tl.zeros([OWN], unary.dtype.element_ty)
    largest = total + float("-inf")
    for first in range(0, states, OTHERS):
        source = message_tile(messages, unary, first + others, states) - shift
        edge = edge_tile(edges, first + others, columns, states)
        largest, total = joined(largest, total, source[:, None] + edge, MAX)
    message = largest if MAX else finite(largest) + tl.log(total)
    tl.store(messages + states + columns, message, mask=columns < states)


@triton.jit(do_not_specialize=["t", *SIZES])
def backward_step(
    unary, edges, lengths, messages, shifts, weights, nodes, pairs, following, t, steps, states, edge_batch, edge_step,
    OWN: tl.constexpr, OTHERS: tl.constexpr, SUMMED: tl.constexpr,
):  # fmt: skip
    """Marginals of the position before ``t``, and of its pairs with it, times the weights [B].

    ``following`` [B, 2, S] has the marginals without weights of positions by their parity; ``pairs`` are zero before.
    """
    b, part = example_and_part(tl.cdiv(states, OWN))
    if t >= length_of(lengths, b, steps):
        return
    rows, others = part * OWN + tl.arange(0, OWN), tl.arange(0, OTHERS)
    row = b * steps + t - 1
    unary, messages, nodes = unary + row * states, messages + row * states, nodes + row * states
    edges += b * edge_batch + (t - 1) * tl.cast(edge_step, tl.int64)
    pairs += (b if SUMMED else b * (steps - 1) + t - 1) * states * states
    after, before = following + (2 * b + t % 2) * states, following + (2 * b + 1 - t % 2) * states
    mass = tl.zeros([OTHERS], unary.dtype.element_ty)
    for first in range(0, states, OTHERS):
        mass += tl.load(after + first + others, mask=first + others < states, other=0.0)
    mass = tl.sum(mass, 0)
    weight = tl.load(weights + b)
    source = message_tile(messages, unary, rows, states) - tl.load(shifts + row)
    marginal = tl.zeros([OWN], unary.dtype.element_ty)
    for first in range(0, states, OTHERS):
        columns = first + others
        inside = columns < states
        message = tl.load(messages + states + columns, mask=inside, other=float("-inf"))
        node = tl.load(after + columns, mask=inside, other=0.0) / tl.where(mass > 0, mass, 1)
        node = tl.where(message > float("-inf"), node, 0.0)
        edge = edge_tile(edges, rows, columns, states)
        joint = tl.exp(source[:, None] + edge - finite(message)[None, :]) * node[None, :]
        marginal += tl.sum(joint, 1)
        both = (rows < states)[:, None] & inside[None, :]
        tile = pairs + rows[:, None] * states + columns[None, :]
        joint = weighted(weight, joint)
        if SUMMED:
            joint += tl.load(tile, mask=both, other=0.0)
        tl.store(tile, joint, mask=both)
    tl.store(before + rows, marginal, mask=rows < states)
    tl.store(nodes + rows, weighted(weight, marginal), mask=rows < states)
