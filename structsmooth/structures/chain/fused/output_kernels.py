"""Triton kernels of chains that find, score and count outputs.

Shapes and strides are those of the kernels of the exp oracle; outputs are int64 [B, K, T].
"""

import triton
import triton.language as tl

from structsmooth.compiled.kernels import add_compensated, finite, length_of

SIZES = ["steps", "states", "k", "edge_batch", "edge_step"]


@triton.jit
def _best_slots(scores, places, rows):
    """Of each column of scores [ROWS, COLUMNS]: the best, its row, its place, and where it stands."""
    best, row = tl.max(scores, 0), tl.argmax(scores, 0)
    taken = rows[:, None] == row[None, :]
    return best, row, tl.sum(tl.where(taken, places, 0), 0), taken


@triton.jit(do_not_specialize=SIZES)
def top_k(
    unary, edges, lengths, values, labels, scores, back, ends, steps, states, k, edge_batch, edge_step,
    ROWS: tl.constexpr, COLUMNS: tl.constexpr, RANKS: tl.constexpr,
):  # fmt: skip
    """Values [B, K] and outputs of the top-K oracle, one program for each sequence.

    Each state has a list of K scores. Those of the next position are merged from the lists of all states before: the
    heads of the lists are a tile [ROWS, COLUMNS], from which the best are taken K times. Ties go to the lowest state
    and rank. ``scores`` [B, 2, S, K], ``back`` [B, T, S, K] and ``ends`` [B, K] are scratch.
    """
    b, edge_step = tl.program_id(0).to(tl.int64), tl.cast(edge_step, tl.int64)
    rows, tile_columns = tl.arange(0, ROWS), tl.arange(0, COLUMNS)
    inside = rows < states
    length = length_of(lengths, b, steps)
    unary, edges = unary + b * steps * states, edges + b * edge_batch
    values, labels, ends = values + b * k, labels + b * k * steps, ends + b * k
    scores, back = scores + 2 * b * states * k, back + b * steps * states * k
    start = tl.load(unary + rows, mask=inside, other=float("-inf"))
    for rank in range(0, k):
        tl.store(scores + rows * k + rank, tl.where(rank == 0, start, float("-inf")), mask=inside)
    offset, lost = tl.sum(tl.zeros([ROWS], start.dtype), 0), tl.sum(tl.zeros([ROWS], start.dtype), 0)
    shift = finite(tl.max(start, 0))
    for t in range(1, length):
        offset, lost = add_compensated(offset, lost, shift)
        before, after = scores + (t - 1) % 2 * states * k, scores + t % 2 * states * k
        own_edges, own_back = edges + (t - 1) * edge_step, back + t * states.to(tl.int64) * k
        tl.debug_barrier()  # the lists of the position before are complete
        heads = tl.load(before + rows * k, mask=inside, other=float("-inf")) - shift
        largest = tl.sum(tl.zeros([ROWS], start.dtype), 0) + float("-inf")
        for first in range(0, states, COLUMNS):
            columns = first + tile_columns
            real = columns < states
            both = inside[:, None] & real[None, :]
            edge = tl.load(own_edges + rows[:, None] * states + columns[None, :], mask=both, other=float("-inf"))
            own = tl.load(unary + t * states + columns, mask=real, other=float("-inf"))
            places = tl.zeros([ROWS, COLUMNS], tl.int32)
            joint = heads[:, None] + edge
            for rank in range(0, k):
                best, row, place, taken = _best_slots(joint, places, rows)
                tl.store(after + columns * k + rank, best + own, mask=real)
                tl.store(own_back + columns * k + rank, row * k + place, mask=real)
                largest = tl.maximum(largest, tl.max(best + own, 0))
                places += taken.to(tl.int32)
                following = taken & both & (places < k)
                head = tl.load(before + rows[:, None] * k + places, mask=following, other=float("-inf"))
                joint = tl.where(taken, head - shift + edge, joint)
        shift = finite(largest)
    tl.debug_barrier()
    final = scores + (length - 1) % 2 * states * k
    joint = tl.load(final + rows * k, mask=inside, other=float("-inf"))[:, None]
    places = tl.zeros([ROWS, 1], tl.int32)
    for rank in range(0, k):
        best, row, place, taken = _best_slots(joint, places, rows)
        best, entry = tl.max(best, 0), tl.max(row * k + place, 0)
        tl.store(values + rank, offset + (lost + best))
        tl.store(ends + rank, entry)
        places += taken.to(tl.int32)
        following = taken & inside[:, None] & (places < k)
        joint = tl.where(taken, tl.load(final + rows[:, None] * k + places, mask=following, other=float("-inf")), joint)
    tl.debug_barrier()
    ranks = tl.arange(0, RANKS)
    asked = ranks < k
    entry = tl.load(ends + ranks, mask=asked, other=0)
    possible = tl.load(values + ranks, mask=asked, other=float("-inf")) > float("-inf")
    for ahead in range(0, length):
        t = length - 1 - ahead
        tl.store(labels + ranks * steps + t, tl.where(possible, entry // k, 0), mask=asked)
        entry = tl.load(back + t * states.to(tl.int64) * k + entry, mask=possible & (t > 0), other=0)
    for t in range(length, steps):
        tl.store(labels + ranks * steps + t, tl.zeros([RANKS], tl.int64), mask=asked)


@triton.jit(do_not_specialize=SIZES)
def score(
    unary, edges, lengths, labels, values, steps, states, k, edge_batch, edge_step,
    POSITIONS: tl.constexpr,
):  # fmt: skip
    """Scores [B, K] of outputs, one program for each: NaN if a label is no state."""
    b, rank, edge_step = tl.program_id(0).to(tl.int64), tl.program_id(1), tl.cast(edge_step, tl.int64)
    length = length_of(lengths, b, steps)
    unary, edges = unary + b * steps * states, edges + b * edge_batch
    labels += (b * k + rank) * steps
    places = tl.arange(0, POSITIONS)
    total = tl.zeros([POSITIONS], unary.dtype.element_ty)
    lost = tl.zeros([POSITIONS], unary.dtype.element_ty)
    for first in range(0, length, POSITIONS):
        t = first + places
        inside = t < length
        label = tl.load(labels + t, mask=inside, other=0)
        valid = (label >= 0) & (label < states)
        own = tl.load(unary + t * states + label, mask=inside & valid, other=0.0)
        total, lost = add_compensated(total, lost, tl.where(valid, own, float("nan")))
        later = inside & (t > 0)
        before = tl.load(labels + t - 1, mask=later, other=0)
        valid = valid & (before >= 0) & (before < states)
        pair = tl.load(edges + (t - 1) * edge_step + before * states + label, mask=later & valid, other=0.0)
        total, lost = add_compensated(total, lost, pair)
    # NaN from −inf minus −inf is −inf: the sum of forbidden parts.
    lost = tl.where(lost == lost, lost, 0.0)
    tl.store(values + b * k + rank, tl.sum(total + lost, 0))


@triton.jit(do_not_specialize=[*SIZES, "pair_steps"])
def parts(
    weights, labels, lengths, nodes, pairs, steps, states, k, pair_steps,
    ROWS: tl.constexpr, COLUMNS: tl.constexpr,
):  # fmt: skip
    """Σ_k weights[b, k] ν(y[b, k]) for labels [B, T, S] and for pairs [B, T - 1, S, S] or [B, 1, S, S].

    A program for each sequence and tile of states, in a fixed order and without atomic additions: each position adds a
    tile that is the weight at its label or pair and zero elsewhere. ``pair_steps`` is T - 1 or 1.
    """
    b, chunk = tl.program_id(0).to(tl.int64), tl.program_id(1)
    rows, columns = chunk * ROWS + tl.arange(0, ROWS), tl.arange(0, COLUMNS)
    length = length_of(lengths, b, steps)
    weights, labels = weights + b * k, labels + b * k * steps
    nodes, pairs = nodes + b * steps * states, pairs + b * pair_steps * states * states
    inside = rows < states
    tile = rows[:, None] * states + columns[None, :]
    both = inside[:, None] & (columns < states)[None, :]
    zeros = tl.zeros([ROWS], nodes.dtype.element_ty)
    summed = tl.zeros([ROWS, COLUMNS], nodes.dtype.element_ty)
    for t in range(0, steps):
        node = zeros
        if pair_steps > 1:
            summed = tl.zeros([ROWS, COLUMNS], nodes.dtype.element_ty)
        if t < length:
            for rank in range(0, k):
                weight = tl.load(weights + rank)
                label = tl.load(labels + rank * steps + t)
                node += tl.where(rows == label, weight, 0.0)
                if t + 1 < length:
                    following = tl.load(labels + rank * steps + t + 1)
                    chosen = (rows == label)[:, None] & (columns == following)[None, :]
                    summed += tl.where(chosen, weight, 0.0)
        tl.store(nodes + t * states + rows, node, mask=inside)
        if (pair_steps > 1) & (t < pair_steps):
            tl.store(pairs + tl.cast(t, tl.int64) * states * states + tile, summed, mask=both)
    if pair_steps == 1:
        tl.store(pairs + tile, summed, mask=both)
