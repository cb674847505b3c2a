"""Triton kernels of the exp oracle of chains, and of best outputs: a program of the grid for each sequence.

Messages are kept relative to the largest one of the position before, and what is subtracted is summed with
compensation: so float32 loses no digits to the length of a sequence. ``messages`` [B, T, S] are log-sums over the
states before, without the unary score of their own state. All sums have a fixed order: results are deterministic.
With ``MAX``, the largest takes the place of a log-sum: what leads back through such messages is the best output.

``COLUMNS`` is the number of states, rounded up to a power of two; tiles of transitions are [ROWS, COLUMNS], with the
states before in rows. Where one tile holds all states (``ROWS == COLUMNS``), messages stay in registers, and so do
transitions that all positions share (``SHARED``). Otherwise a row of messages is read again, tile by tile.
Strides ``edge_batch`` and ``edge_step`` of the transitions are 0 where they are shared. Lengths outside of 1 to T count
as the nearest of these, so that nothing beyond a row is read.
"""

import triton
import triton.language as tl

from structsmooth.compiled.triton_functions import add_compensated, example_and_part, finite, first_reached, length_of

SIZES = ["steps", "states", "edge_batch", "edge_step"]


@triton.jit
def edge_tile(edges, rows, columns, states):
    """Transitions [ROWS, COLUMNS], -inf outside."""
    inside = (rows < states)[:, None] & (columns < states)[None, :]
    return tl.load(edges + rows[:, None] * states + columns[None, :], mask=inside, other=float("-inf"))


@triton.jit
def message_tile(messages, unary, rows, states):
    """Messages of a position with the unary scores of their states."""
    inside = rows < states
    node = tl.load(unary + rows, mask=inside, other=float("-inf"))
    return tl.load(messages + rows, mask=inside, other=float("-inf")) + node


@triton.jit
def _exponentials(scores):
    """Exponentials relative to the largest score, and this; zeros if all are -inf."""
    largest = finite(tl.max(scores, 0))
    return tl.exp(scores - largest), largest


@triton.jit
def _softmax(scores):
    """Probabilities; zeros if all scores are -inf."""
    weights, _ = _exponentials(scores)
    mass = tl.sum(weights, 0)
    return weights / tl.where(mass > 0, mass, 1)


@triton.jit
def weighted(weight, numbers):
    """Numbers times a weight; zeros for weight 0, whatever the numbers are."""
    return tl.where(weight != 0, weight * numbers, 0.0)


@triton.jit
def joined(largest, total, scores, MAX: tl.constexpr):
    """Largest scores of columns and sums of exponentials relative to them, joined by a tile of scores."""
    larger = tl.maximum(largest, tl.max(scores, 0))
    if not MAX:
        total = total * tl.exp(largest - finite(larger)) + tl.sum(tl.exp(scores - finite(larger)[None, :]), 0)
    return larger, total


@triton.jit(do_not_specialize=SIZES)
def forward(
    unary, edges, lengths, messages, shifts, log_z, steps, states, edge_batch, edge_step,
    ROWS: tl.constexpr, COLUMNS: tl.constexpr, SHARED: tl.constexpr, MAX: tl.constexpr,
):  # fmt: skip
    """Log-partition [B], in float64, messages [B, T, S], and what was subtracted from those of each position [B, T]."""
    b, edge_step = tl.program_id(0).to(tl.int64), tl.cast(edge_step, tl.int64)
    columns = tl.arange(0, COLUMNS)
    inside = columns < states
    length = length_of(lengths, b, steps)
    unary, messages = unary + b * steps * states, messages + b * steps * states
    edges, shifts = edges + b * edge_batch, shifts + b * steps
    alpha = tl.load(unary + columns, mask=inside, other=float("-inf"))
    zeros = tl.zeros([COLUMNS], alpha.dtype)
    tl.store(messages + columns, zeros, mask=inside)
    if SHARED:
        edge = edge_tile(edges, columns, columns, states)
    offset = tl.max(zeros, 0)
    lost = tl.max(zeros, 0)
    for t in range(1, length):
        before = (t - 1) * states
        node = tl.load(unary + t * states + columns, mask=inside, other=float("-inf"))  # on its way meanwhile
        shift = finite(tl.max(alpha, 0))
        tl.store(shifts + t - 1, shift)
        offset, lost = add_compensated(offset, lost, shift)
        if ROWS != COLUMNS:
            tl.debug_barrier()  # the messages of the position before are complete
        largest, total = zeros + float("-inf"), zeros
        for first in range(0, states, ROWS):
            rows = first + tl.arange(0, ROWS)
            source = alpha if ROWS == COLUMNS else message_tile(messages + before, unary + before, rows, states)
            if not SHARED:
                edge = edge_tile(edges + (t - 1) * edge_step, rows, columns, states)
            largest, total = joined(largest, total, (source - shift)[:, None] + edge, MAX)
        message = largest if MAX else finite(largest) + tl.log(total)
        tl.store(messages + t * states + columns, message, mask=inside)
        alpha = message + node
    weights, largest = _exponentials(alpha)
    offset, lost = add_compensated(offset, lost, largest)
    mass = tl.max(weights, 0) if MAX else tl.sum(weights, 0)
    tl.store(log_z + b, offset.to(tl.float64) + (lost + tl.log(mass)))


@triton.jit(do_not_specialize=SIZES)
def backward(
    unary, edges, lengths, messages, shifts, weights, nodes, pairs, scratch, steps, states, edge_batch, edge_step,
    ROWS: tl.constexpr, COLUMNS: tl.constexpr, SHARED: tl.constexpr, SUMMED: tl.constexpr,
):  # fmt: skip
    """Marginals [B, T, S] and [B, T - 1, S, S], or [B, 1, S, S] if ``SUMMED``, times the weights [B].

    Those of a position follow from those of the next one and from the messages, so that nothing overflows, and they are
    normalized anew. ``pairs`` are zero before; ``scratch`` [B, S] is used where there are several tiles.
    """
    b, edge_step = tl.program_id(0).to(tl.int64), tl.cast(edge_step, tl.int64)
    columns = tl.arange(0, COLUMNS)
    inside = columns < states
    length = length_of(lengths, b, steps)
    unary, messages = unary + b * steps * states, messages + b * steps * states
    nodes, scratch = nodes + b * steps * states, scratch + b * states
    edges, shifts = edges + b * edge_batch, shifts + b * steps
    if SUMMED:
        pairs += b * states * states
    else:
        pairs += b * (steps - 1) * states * states
    weight = tl.load(weights + b)
    last = (length - 1) * states
    node = _softmax(message_tile(messages + last, unary + last, columns, states))
    tl.store(nodes + last + columns, weighted(weight, node), mask=inside)
    zeros = tl.zeros([COLUMNS], node.dtype)
    for t in range(length, steps):
        tl.store(nodes + t * states + columns, zeros, mask=inside)
    if SHARED:
        edge = edge_tile(edges, columns, columns, states)
    if SUMMED and ROWS == COLUMNS:
        summed = tl.zeros([ROWS, COLUMNS], node.dtype)
    message = tl.load(messages + last + columns, mask=inside, other=float("-inf"))
    for back in range(1, length):
        t = length - back
        before = (t - 1) * states
        # The log-sum over the states before, of which each has its share.
        node = tl.where(message > float("-inf"), node, 0.0)
        sums = finite(message) + tl.load(shifts + t - 1)
        mass = tl.max(zeros, 0)
        following = zeros
        for first in range(0, states, ROWS):
            rows = first + tl.arange(0, ROWS)
            if not SHARED:
                edge = edge_tile(edges + (t - 1) * edge_step, rows, columns, states)
            if ROWS == COLUMNS:
                message = tl.load(messages + before + columns, mask=inside, other=float("-inf"))
                source = message + tl.load(unary + before + columns, mask=inside, other=float("-inf"))
            else:
                source = message_tile(messages + before, unary + before, rows, states)
            joint = tl.exp(source[:, None] + edge - sums[None, :]) * node[None, :]
            marginal = tl.sum(joint, 1)
            mass += tl.sum(marginal, 0)
            tl.store(nodes + before + rows, weighted(weight, marginal), mask=rows < states)
            both = (rows < states)[:, None] & inside[None, :]
            tile = rows[:, None] * states + columns[None, :]
            if SUMMED and ROWS == COLUMNS:
                summed += joint
            elif SUMMED:
                tl.store(pairs + tile, weighted(weight, joint) + tl.load(pairs + tile, mask=both, other=0.0), mask=both)
            else:
                tl.store(pairs + before.to(tl.int64) * states + tile, weighted(weight, joint), mask=both)
            if ROWS == COLUMNS:
                following = marginal
            else:
                tl.store(scratch + rows, marginal, mask=rows < states)
        if ROWS != COLUMNS:
            tl.debug_barrier()  # the marginals of the position are complete
            following = tl.load(scratch + columns, mask=inside, other=0.0)
            message = tl.load(messages + before + columns, mask=inside, other=float("-inf"))
            tl.debug_barrier()  # and read, before those of the next one take their place
        node = following / tl.where(mass > 0, mass, 1)
    if SUMMED and ROWS == COLUMNS:
        tile = columns[:, None] * states + columns[None, :]
        tl.store(pairs + tile, weighted(weight, summed), mask=inside[:, None] & inside[None, :])


@triton.jit(do_not_specialize=[*SIZES, "moved_batch", "moved_step"])
def tangent(
    unary, edges, lengths, messages, shifts, weights, unary_moved, edges_moved, moved, nodes, pairs, scratch,
    steps, states, edge_batch, edge_step, moved_batch, moved_step,
    ROWS: tl.constexpr, COLUMNS: tl.constexpr, SUMMED: tl.constexpr,
):  # fmt: skip
    """Derivatives of what :func:`backward` gives in a direction of unary scores and transitions, times the weights.

    A message moves by the expected move of what it sums. The moves of a position are kept relative to their mean, which
    changes nothing. ``moved`` [B, 2, T, S] and ``scratch`` [B, 2, S] are scratch; ``pairs`` are zero before.
    """
    b, edge_step = tl.program_id(0).to(tl.int64), tl.cast(edge_step, tl.int64)
    moved_step = tl.cast(moved_step, tl.int64)
    columns = tl.arange(0, COLUMNS)
    inside = columns < states
    length = length_of(lengths, b, steps)
    unary, messages = unary + b * steps * states, messages + b * steps * states
    unary_moved, moved = unary_moved + b * steps * states, moved + 2 * b * steps * states
    expected = moved + steps * states
    nodes, scratch = nodes + b * steps * states, scratch + 2 * b * states
    edges, edges_moved, shifts = edges + b * edge_batch, edges_moved + b * moved_batch, shifts + b * steps
    if SUMMED:
        pairs += b * states * states
    else:
        pairs += b * (steps - 1) * states * states
    weight = tl.load(weights + b)
    change = tl.load(unary_moved + columns, mask=inside, other=0.0)
    zeros = tl.zeros([COLUMNS], change.dtype)
    for t in range(1, length):
        before = (t - 1) * states
        edges_t, edges_moved_t = edges + (t - 1) * edge_step, edges_moved + (t - 1) * moved_step
        mean = tl.sum(change, 0) / states
        tl.store(moved + before + columns, change - mean, mask=inside)
        tl.debug_barrier()  # the moves of the position before are complete
        sums = tl.load(messages + t * states + columns, mask=inside, other=float("-inf"))
        sums = finite(sums) + tl.load(shifts + t - 1)
        change = zeros
        for first in range(0, states, ROWS):
            rows = first + tl.arange(0, ROWS)
            source = message_tile(messages + before, unary + before, rows, states)
            edge = edge_tile(edges_t, rows, columns, states)
            move = finite(edge_tile(edges_moved_t, rows, columns, states))
            move += tl.load(moved + before + rows, mask=rows < states, other=0.0)[:, None]
            change += tl.sum(tl.exp(source[:, None] + edge - sums[None, :]) * move, 0)
        tl.store(expected + t * states + columns, change, mask=inside)
        change += tl.load(unary_moved + t * states + columns, mask=inside, other=0.0)
    last = (length - 1) * states
    node = _softmax(message_tile(messages + last, unary + last, columns, states))
    slope = node * (change - tl.sum(node * change, 0))
    tl.store(nodes + last + columns, weighted(weight, slope), mask=inside)
    for t in range(length, steps):
        tl.store(nodes + t * states + columns, zeros, mask=inside)
    tl.debug_barrier()  # all moves are there
    for back in range(1, length):
        t = length - back
        before = (t - 1) * states
        edges_t, edges_moved_t = edges + (t - 1) * edge_step, edges_moved + (t - 1) * moved_step
        sums = tl.load(messages + t * states + columns, mask=inside, other=float("-inf"))
        node, slope = tl.where(sums > float("-inf"), node, 0.0), tl.where(sums > float("-inf"), slope, 0.0)
        sums = finite(sums) + tl.load(shifts + t - 1)
        change = tl.load(expected + t * states + columns, mask=inside, other=0.0)
        mass = tl.max(zeros, 0)
        for first in range(0, states, ROWS):
            rows = first + tl.arange(0, ROWS)
            source = message_tile(messages + before, unary + before, rows, states)
            edge = edge_tile(edges_t, rows, columns, states)
            move = finite(edge_tile(edges_moved_t, rows, columns, states))
            move += tl.load(moved + before + rows, mask=rows < states, other=0.0)[:, None]
            share = tl.exp(source[:, None] + edge - sums[None, :])
            both = (rows < states)[:, None] & inside[None, :]
            joint = share * node[None, :]
            turned = share * slope[None, :] + joint * (move - change[None, :])
            marginal, derivative = tl.sum(joint, 1), tl.sum(turned, 1)
            mass += tl.sum(marginal, 0)
            tl.store(scratch + rows, marginal, mask=rows < states)
            tl.store(scratch + states + rows, derivative, mask=rows < states)
            tl.store(nodes + before + rows, weighted(weight, derivative), mask=rows < states)
            tile = rows[:, None] * states + columns[None, :]
            if SUMMED:
                tl.store(
                    pairs + tile, weighted(weight, turned) + tl.load(pairs + tile, mask=both, other=0.0), mask=both
                )
            else:
                tl.store(pairs + before.to(tl.int64) * states + tile, weighted(weight, turned), mask=both)
        tl.debug_barrier()  # node and slope of the position are complete
        scale = 1 / tl.where(mass > 0, mass, 1)
        node = tl.load(scratch + columns, mask=inside, other=0.0) * scale
        slope = tl.load(scratch + states + columns, mask=inside, other=0.0) * scale
        tl.debug_barrier()  # and read, before those of the next one take their place


@triton.jit
def _choice(scores, uniform, states, MAX: tl.constexpr):
    """The first best state, or one at a uniform number."""
    return tl.argmax(scores, 0) if MAX else first_reached(_exponentials(scores)[0], tl.load(uniform), states)


@triton.jit(do_not_specialize=SIZES)
def sample(
    unary, edges, lengths, messages, shifts, log_z, uniform, labels, draws, steps, states, edge_batch, edge_step,
    COLUMNS: tl.constexpr, MAX: tl.constexpr,
):  # fmt: skip
    """Labels [B, n, T] of samples at uniform numbers of that shape, 0 at padding; a program for each sample.

    With ``MAX``, those of best outputs; ties go to the lowest states from the end of a sequence.
    """
    b, i = example_and_part(draws)
    edge_step = tl.cast(edge_step, tl.int64)
    columns = tl.arange(0, COLUMNS)
    inside = columns < states
    length = length_of(lengths, b, steps)
    unary, messages = unary + b * steps * states, messages + b * steps * states
    edges, shifts = edges + b * edge_batch, shifts + b * steps
    uniform, labels = uniform + (b * draws + i) * steps, labels + (b * draws + i) * steps
    last = length - 1
    scores = message_tile(messages + last * states, unary + last * states, columns, states)
    state = _choice(scores, uniform + last, columns, MAX)
    possible = tl.load(log_z + b) > float("-inf")
    tl.store(labels + last, tl.where(possible, state, 0))
    for t in range(length, steps):
        tl.store(labels + t, 0)
    for back in range(1, length):
        t = length - back
        before = (t - 1) * states
        scores = message_tile(messages + before, unary + before, columns, states) - tl.load(shifts + t - 1)
        edges_t = edges + (t - 1) * edge_step
        scores += tl.load(edges_t + columns * states + state, mask=inside, other=float("-inf"))
        state = _choice(scores, uniform + t - 1, columns, MAX)
        tl.store(labels + t - 1, tl.where(possible, state, 0))
