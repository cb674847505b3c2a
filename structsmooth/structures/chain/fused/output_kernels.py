"""Triton kernels of chains that find, score and count outputs, and that find the best output with each label.

Shapes and strides are those of the kernels of the exp oracle; outputs are int64 [B, K, T].
"""

import triton
import triton.language as tl

from structsmooth.compiled.triton_functions import add_compensated, example_and_part, finite, length_of, project

SIZES = ["steps", "states", "k", "edge_batch", "edge_step"]


@triton.jit
def _best_slots(scores, places, rows):
    """Of each column of scores [ROWS, COLUMNS]: the best, its row, its place, and where it stands."""
    best, row = tl.max(scores, 0, return_indices=True)
    taken = rows[:, None] == row[None, :]
    return best, row, tl.sum(tl.where(taken, places, 0), 0), taken


@triton.jit(do_not_specialize=SIZES)
def top_k(
    unary, edges, lengths, values, labels, scores, back, ends, mu, smoothed, weights,
    steps, states, k, edge_batch, edge_step,
    ROWS: tl.constexpr, COLUMNS: tl.constexpr, RANKS: tl.constexpr, SHARED: tl.constexpr,
    SMOOTHED: tl.constexpr,
):  # fmt: skip
    """Values [B, K] and outputs of the top-K oracle, one program for each sequence.

    Each state has a list of K scores. Those of the next position are merged from the lists of all states before: the
    heads of the lists are a tile [ROWS, COLUMNS], from which the best are taken K times. Ties go to the lowest state
    and rank. ``scores`` [B, 2, S, K], ``back`` [B, T, S, K] and ``ends`` [B, K] are scratch. With ``SHARED``,
    transitions stay in registers: there is one tile, which all positions share.
    With ``SMOOTHED``, also the smoothed maximum [B] of the values and its weights [B, K].
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
    if SHARED:
        both = inside[:, None] & (tile_columns < states)[None, :]
        edge = tl.load(edges + rows[:, None] * states + tile_columns[None, :], mask=both, other=float("-inf"))
    offset, lost = tl.sum(tl.zeros([ROWS], start.dtype), 0), tl.sum(tl.zeros([ROWS], start.dtype), 0)
    shift = finite(tl.max(start, 0))
    for t in range(1, length):
        offset, lost = add_compensated(offset, lost, shift)
        before, after = scores + (t - 1) % 2 * states * k, scores + t % 2 * states * k
        edges_t, back_t = edges + (t - 1) * edge_step, back + t * states.to(tl.int64) * k
        tl.debug_barrier()  # the lists of the position before are complete
        heads = tl.load(before + rows * k, mask=inside, other=float("-inf")) - shift
        largest = tl.sum(tl.zeros([ROWS], start.dtype), 0) + float("-inf")
        for first in range(0, states, COLUMNS):
            columns = first + tile_columns
            real = columns < states
            both = inside[:, None] & real[None, :]
            if not SHARED:
                edge = tl.load(edges_t + rows[:, None] * states + columns[None, :], mask=both, other=float("-inf"))
            node = tl.load(unary + t * states + columns, mask=real, other=float("-inf"))
            places = tl.zeros([ROWS, COLUMNS], tl.int32)
            joint = heads[:, None] + edge
            for rank in range(0, k):
                best, row, place, taken = _best_slots(joint, places, rows)
                tl.store(after + columns * k + rank, best + node, mask=real)
                tl.store(back_t + columns * k + rank, row * k + place, mask=real)
                largest = tl.maximum(largest, tl.max(best + node, 0))
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
    found = tl.load(values + ranks, mask=asked, other=float("-inf"))
    possible = found > float("-inf")
    if SMOOTHED:
        largest, shares = project(found, ranks, tl.load(mu))
        tl.store(smoothed + b, largest)
        tl.store(weights + b * k + ranks, shares, mask=asked)
    for ahead in range(0, length):
        t = length - 1 - ahead
        tl.store(labels + ranks * steps + t, tl.where(possible, entry // k, 0), mask=asked)
        entry = tl.load(back + t * states.to(tl.int64) * k + entry, mask=possible & (t > 0), other=0).to(entry.dtype)
    for t in range(length, steps):
        tl.store(labels + ranks * steps + t, tl.zeros([RANKS], tl.int64), mask=asked)


@triton.jit(do_not_specialize=SIZES)
def max_marginals(
    unary, edges, lengths, best, before_in_all, scratch, steps, states, edge_batch, edge_step,
    ROWS: tl.constexpr, COLUMNS: tl.constexpr,
):  # fmt: skip
    """Largest score [B, T, S] of an output with each label, 0 at padding; a program for each sequence.

    On the way there, ``best`` holds the best of the positions up to each label, relative to what ``before_in_all``
    [B, 2, T] says, which is summed with compensation; on the way back, the best of the later positions joins.
    ``scratch`` [B, S] is used where there are several tiles of states.
    """
    b, edge_step = tl.program_id(0).to(tl.int64), tl.cast(edge_step, tl.int64)
    columns = tl.arange(0, COLUMNS)
    inside = columns < states
    length = length_of(lengths, b, steps)
    unary, best = unary + b * steps * states, best + b * steps * states
    edges, scratch = edges + b * edge_batch, scratch + b * states
    before_in_all += 2 * b * steps
    alpha = tl.load(unary + columns, mask=inside, other=float("-inf"))
    zeros = tl.zeros([COLUMNS], alpha.dtype)
    offset, lost = tl.max(zeros, 0), tl.max(zeros, 0)
    for t in range(0, length):
        shift = finite(tl.max(alpha, 0))
        offset, lost = add_compensated(offset, lost, shift)
        tl.store(best + t * states + columns, alpha - shift, mask=inside)
        tl.store(before_in_all + t, offset)
        tl.store(before_in_all + steps + t, lost)
        if t + 1 < length:
            tl.debug_barrier()  # the scores of the position are complete
            alpha = zeros + float("-inf")
            for first in range(0, states, ROWS):
                rows = first + tl.arange(0, ROWS)
                both = (rows < states)[:, None] & inside[None, :]
                cells = edges + t * edge_step + rows[:, None] * states + columns[None, :]
                edge = tl.load(cells, mask=both, other=float("-inf"))
                source = tl.load(best + t * states + rows, mask=rows < states, other=float("-inf"))
                alpha = tl.maximum(alpha, tl.max(source[:, None] + edge, 0))
            alpha += tl.load(unary + (t + 1) * states + columns, mask=inside, other=float("-inf"))
    offset, lost = tl.max(zeros, 0), tl.max(zeros, 0)
    beta = zeros
    tl.debug_barrier()
    for back in range(0, length):
        t = length - 1 - back
        relative = tl.load(best + t * states + columns, mask=inside, other=float("-inf"))
        rest = lost + tl.load(before_in_all + steps + t) + (relative + beta)
        total, missed = add_compensated(tl.load(before_in_all + t), 0.0, offset)
        tl.store(best + t * states + columns, total + (missed + rest), mask=inside)
        if t > 0:
            ahead = beta + tl.load(unary + t * states + columns, mask=inside, other=float("-inf"))
            shift = finite(tl.max(ahead, 0))
            offset, lost = add_compensated(offset, lost, shift)
            for first in range(0, states, ROWS):
                rows = first + tl.arange(0, ROWS)
                both = (rows < states)[:, None] & inside[None, :]
                cells = edges + (t - 1) * edge_step + rows[:, None] * states + columns[None, :]
                edge = tl.load(cells, mask=both, other=float("-inf"))
                tl.store(scratch + rows, tl.max((ahead - shift)[None, :] + edge, 1), mask=rows < states)
            tl.debug_barrier()  # the best of the later positions is complete
            beta = tl.load(scratch + columns, mask=inside, other=float("-inf"))
            tl.debug_barrier()  # and read, before that of the position before takes its place
    for t in range(length, steps):
        tl.store(best + t * states + columns, zeros, mask=inside)


@triton.jit(do_not_specialize=SIZES)
def score(
    unary, edges, lengths, labels, values, log_z, real, steps, states, k, edge_batch, edge_step,
    POSITIONS: tl.constexpr, SUBTRACTED: tl.constexpr,
):  # fmt: skip
    """Scores [B, K] of outputs, one program for each: NaN if a label is no state.

    With ``SUBTRACTED``, by how much ``log_z`` [B] exceeds them, at least 0; where that is no number, it is +inf, and
    ``real`` [B, 1] is 0 in place of 1.
    """
    b, rank = example_and_part(k)
    edge_step = tl.cast(edge_step, tl.int64)
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
        node = tl.load(unary + t * states + label, mask=inside & valid, other=0.0)
        total, lost = add_compensated(total, lost, tl.where(valid, node, float("nan")))
        later = inside & (t > 0)
        before = tl.load(labels + t - 1, mask=later, other=0)
        valid = valid & (before >= 0) & (before < states)
        pair = tl.load(edges + (t - 1) * edge_step + before * states + label, mask=later & valid, other=0.0)
        total, lost = add_compensated(total, lost, pair)
    # NaN from −inf minus −inf is −inf: the sum of forbidden parts.
    lost = tl.where(lost == lost, lost, 0.0)
    result = tl.sum(total.to(tl.float64) + lost, 0)
    if SUBTRACTED:
        excess = tl.load(log_z + b) - result
        is_number = tl.abs(excess) < float("inf")
        tl.store(real + b, is_number)
        result = tl.where(is_number, tl.where(excess > 0, excess, 0.0), float("inf"))
    tl.store(values + b * k + rank, result)


@triton.jit
def _store(cells, numbers, inside, SUBTRACTED: tl.constexpr):
    """Store numbers in cells, or what these have without them."""
    if SUBTRACTED:
        numbers = tl.load(cells, mask=inside, other=0.0) - numbers
    tl.store(cells, numbers, mask=inside)


@triton.jit(do_not_specialize=[*SIZES, "pair_steps"])
def parts(
    weights, labels, lengths, nodes, pairs, steps, states, k, pair_steps,
    ROWS: tl.constexpr, COLUMNS: tl.constexpr, SUBTRACTED: tl.constexpr,
):  # fmt: skip
    """Σ_k weights[b, k] ν(y[b, k]) for labels [B, T, S] and for pairs [B, T - 1, S, S] or [B, 1, S, S].

    With ``SUBTRACTED``, it is taken from what ``nodes`` and ``pairs`` have.

    A program for each sequence and tile of states, in a fixed order and without atomic additions: each position adds a
    tile that is the weight at its label or pair and zero elsewhere. ``pair_steps`` is T - 1 or 1.
    """
    b, chunk = example_and_part(tl.cdiv(states, ROWS))
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
        _store(nodes + t * states + rows, node, inside, SUBTRACTED)
        if (pair_steps > 1) & (t < pair_steps):
            _store(pairs + tl.cast(t, tl.int64) * states * states + tile, summed, both, SUBTRACTED)
    if pair_steps == 1:
        _store(pairs + tile, summed, both, SUBTRACTED)
