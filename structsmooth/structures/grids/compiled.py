"""Recursions over the rows of a grid for one example, and loops over a batch of them.

A path through a :class:`Grid` leads from cell (0, 0) to the last one, and a cell is entered by move m, or is the first,
which counts as M. Scores and entries are pairs of arrays in single and in double precision, of which one is empty. All
sums are float64.

Recursions hold the values of N rows, more than the longest step, in a ring [N + 1, P + W + P]: row t is ring[t % N].
Row N and the margins P hold what is impossible, so that a loop over the cells of a row need not ask where a move comes
from, and becomes vector instructions.

Sums of exponentials are numbers m 2^k, a mantissa m and an exponent k in two arrays. So their logarithms have the range
of float64, and no cell needs an exponential or a logarithm of its sum: of the largest exponent of the moves, all others
are a power of two away, which is a shift of bits. Exponentials of scores are such numbers too.
"""

from typing import Any, NamedTuple

import numpy as np

from structsmooth.compiled.exponentials import LOG2, exponential_near_zero, power_of_two
from structsmooth.compiled.jit import compiled, entry_point, inlined, vectorized


class Grid(NamedTuple):
    """A grid, or those of a batch, with one more dimension in front of all but the steps.

    Attributes:
        scores: [T, W], of the cells that it stores.
        entries: [T, W, M] or [1, 1, M], scores of entering a cell by a move, for each cell or for all cells alike.
        offset: a score of all paths.
        allowed: [U, M] or [0, M], whether a move may enter a column.
        band: [T] or [0], the column that each row's stored cells begin at, or 0.
        sizes: [2], the numbers of rows and columns.
        steps: [M, 2], of the moves along rows and columns.
    """

    scores: Any
    entries: Any
    offset: Any
    allowed: Any
    band: Any
    sizes: Any
    steps: Any


class Room(NamedTuple):
    """Working arrays for the moves into a row; as many moves as three divides, of which the last may be none.

    Attributes:
        slot: the ring's row [M] that each move comes from.
        place: the place [M] in it that leads to the first cell of the row.
        factors: scores of the moves, mantissas and exponents [rows, M, U]: for one row if all have the same, or as many
            as a ring. They have room for columns beyond the grid.
        margin: that of the ring.
    """

    slot: Any
    place: Any
    factors: Any
    margin: Any


# The exponent of what is impossible, which sums of forbidden scores are below, and those of others above.
_NEVER, _RARELY = -1e300, -1e298


@inlined
def _exponent(m):
    """The exponent k of a positive number m = r 2^k with 1 <= r < 2."""
    return np.int32((np.float64(m).view(np.int64) >> 52) - 1023)


@inlined
def _reduced(m, k):
    """The number m 2^k with a mantissa from 1 to 2, and an exponent that is not below that of the impossible."""
    shift = _exponent(m)
    m *= np.int64((1023 - np.int64(shift)) << 52).view(np.float64)
    k += shift
    return m, _NEVER if k < _NEVER else k


@vectorized
def _exponentials(scores, m, k):
    """exp(scores) as numbers m 2^k with 1 / √2 < m < √2, by the series of exp; whether all are below infinity."""
    wrong = 0
    for j in range(scores.shape[0]):
        wrong += 0 if scores[j] < np.inf else 1
        # -inf becomes finite, so that no difference of exponents is NaN, but its exponent stays below _RARELY.
        s = scores[j] if scores[j] > 0.1 * _NEVER else 0.1 * _NEVER
        k[j] = np.rint(s * (1.0 / LOG2))
        r = s - k[j] * LOG2
        r = r if r > -0.35 else -0.35  # which rounding of large scores may exceed
        r = r if r < 0.35 else 0.35
        m[j] = exponential_near_zero(r)
    return wrong == 0


@inlined
def _part(numbers, row, begin, count):
    """The mantissas and exponents of that many numbers in a row."""
    return numbers[0][row, begin : begin + count], numbers[1][row, begin : begin + count]


@inlined
def _add(m, k, m1, k1):
    """The sum of two numbers."""
    top = k1 if k1 > k else k
    return m * power_of_two(k - top) + m1 * power_of_two(k1 - top), top


@vectorized
def _join(m, k, ring, slot, place, factors, column):
    """The numbers m 2^k = the sums over the first three moves of what they lead from, times their factors."""
    count = m.shape[0]
    m1, k1 = _part(ring, slot[0], place[0], count)
    m2, k2 = _part(ring, slot[1], place[1], count)
    m3, k3 = _part(ring, slot[2], place[2], count)
    f1, e1 = _part(factors, 0, column, count)
    f2, e2 = _part(factors, 1, column, count)
    f3, e3 = _part(factors, 2, column, count)
    for j in range(count):
        a, b, c = k1[j] + e1[j], k2[j] + e2[j], k3[j] + e3[j]
        top = a if a > b else b
        top = top if top > c else c
        m[j] = (
            m1[j] * f1[j] * power_of_two(a - top)
            + m2[j] * f2[j] * power_of_two(b - top)
            + m3[j] * f3[j] * power_of_two(c - top)
        )
        k[j] = top


@vectorized
def _join_move(m, k, m1, k1, f1, e1):
    """Adds to the numbers m 2^k what one more move leads from, times its factors."""
    for j in range(m.shape[0]):
        m[j], k[j] = _add(m[j], k[j], m1[j] * f1[j], k1[j] + e1[j])


@vectorized
def _multiply(m, k, m1, k1, m2, k2):
    """The numbers m 2^k = the products of others."""
    for j in range(m.shape[0]):
        m[j], k[j] = _reduced(m1[j] * m2[j], k1[j] + k2[j])


@inlined
def _share(m, k, f, e, top):
    """The share of a number m 2^k, times a factor f 2^e, in a sum of the exponent ``top``, times the sum's mantissa.

    Exponents are added as in the sum, so that shares sum to one, whatever rounding makes of large exponents.
    """
    k += e
    return m * f * power_of_two((k if k < top else top) - top)


@vectorized
def _gather(flow, m, k, f, e, later, top):
    """Adds to ``flow`` the shares of cells m 2^k in ``later`` ones, which are over the mantissas of their sums."""
    for j in range(flow.shape[0]):
        flow[j] += later[j] * _share(m[j], k[j], f[j], e[j], top[j])


@vectorized
def _divide(flow, m, k, later, top):
    """The probabilities ``flow`` of cells as :func:`_gather` takes them, given the sums m 2^k over paths to them."""
    for j in range(flow.shape[0]):
        later[j] = flow[j] / m[j]
        top[j] = k[j]


@vectorized
def _choose(best, by, score, ring, slot, place, entry, column, first):
    """Fills the ``best`` scores, and ``by`` which of all moves, where one of three from the ``first`` on is better."""
    count = best.shape[0]
    a = ring[slot[first], place[first] : place[first] + count]
    b = ring[slot[first + 1], place[first + 1] : place[first + 1] + count]
    c = ring[slot[first + 2], place[first + 2] : place[first + 2] + count]
    p, q, r = entry[first, column:], entry[first + 1, column:], entry[first + 2, column:]
    move = np.float64(first)
    for j in range(count):
        value, chosen = best[j], by[j]
        x, y, z = score[j] + p[j] + a[j], score[j] + q[j] + b[j], score[j] + r[j] + c[j]
        chosen, value = move if x > value else chosen, x if x > value else value
        chosen, value = move + 1.0 if y > value else chosen, y if y > value else value
        by[j], best[j] = move + 2.0 if z > value else chosen, z if z > value else value


@vectorized
def _copy(source, target):
    for j in range(target.shape[0]):
        target[j] = source[j]


@vectorized
def _write_moves(source, target):
    """Moves in float64, as vector instructions compare them beside scores, in a byte each."""
    for j in range(target.shape[0]):
        target[j] = np.uint8(np.int32(source[j]))


@inlined
def _width(scores):
    """The number of columns of scores [..., W] in either precision."""
    return scores[0].shape[scores[0].ndim - 1] + scores[1].shape[scores[1].ndim - 1]


@inlined
def _start(band, t):
    """The column of the first stored cell of row t."""
    return band[t] if band.shape[0] > 0 else 0


@inlined
def _span(grid, t):
    """The stored cells of row t that the grid has: from, to."""
    start = _start(grid.band, t)
    begin = max(0, -start)
    return begin, max(begin, min(_width(grid.scores), grid.sizes[1] - start))


@inlined
def _shift(grid, t, m):
    """How much further the places of cells in row t are than those of the cells that move m comes from."""
    return _start(grid.band, t) - grid.steps[m, 1] - _start(grid.band, t - grid.steps[m, 0])


@compiled
def _first_place(grid, t):
    """The place of the first cell, if it is in row t and stored; else -1."""
    place = -_start(grid.band, t)
    return place if t == 0 and place < _width(grid.scores) else -1


@compiled
def _last_place(grid):
    """The place of the last cell in its row; -1 if it is not stored, or if there are no cells."""
    size = grid.sizes
    if size[0] == 0 or size[1] == 0:
        return -1
    place = size[1] - 1 - _start(grid.band, size[0] - 1)
    return place if 0 <= place < _width(grid.scores) else -1


@compiled
def _load(rows, t, target):
    """Copies row t, in either precision."""
    if rows[0].shape[1] > 0:
        _copy(rows[0][t], target)
    else:
        _copy(rows[1][t], target)


@compiled
def _store(source, rows, t):
    """Copies into row t, in either precision."""
    if rows[0].shape[1] > 0:
        _copy(source, rows[0][t])
    else:
        _copy(source, rows[1][t])


@compiled
def _room(grids):
    """Working arrays for rows."""
    entries, sizes, steps = grids.entries, grids.sizes, grids.steps
    count, depth = -(-steps.shape[0] // 3) * 3, 1 + steps[:, 0].max()
    columns = steps[:, 1].max()
    for b in range(sizes.shape[0]):
        columns = max(columns, steps[:, 1].max() + sizes[b, 1])
    rows = 1 if entries[0].shape[1] == entries[0].shape[2] == 1 else depth
    slot, place = np.empty(count, np.int64), np.empty(count, np.int64)
    factors = (
        np.zeros((rows, count, columns)),
        np.zeros((rows, count, columns)),
        np.full((rows, count, columns), _NEVER),
    )
    margin = min(_width(grids.scores), steps[:, 1].max())
    if grids.band.shape[1] > 0:
        margin = _width(grids.scores)
    return Room(slot, place, factors, margin)


@compiled
def _ring(rows, width, margin, nothing):
    """A ring for that many rows of a width."""
    return np.full((rows + 1, width + 2 * margin), nothing)


@compiled
def _load_factors(grid, t, factors):
    """Scores of moves into the columns of row t, -inf where they may not enter: for each row, or once for all.

    Returns whether they are below infinity.
    """
    narrow, wide = grid.entries
    allowed, is_same = grid.allowed, narrow.shape[0] == narrow.shape[1] == 1
    # Row 0 has loaded them, and has said whether they are below infinity.
    if is_same and t > 0:
        return True
    row, start, (begin, end) = t % factors[0].shape[0], _start(grid.band, t), _span(grid, t)
    if is_same:
        begin, end, start = 0, grid.sizes[1], 0
    fine = True
    for m in range(grid.steps.shape[0]):
        for j in range(begin, end):
            place = 0 if is_same else j
            entry = narrow[t, place, m] if narrow.shape[2] > 0 else wide[t, place, m]
            is_allowed = allowed.shape[0] == 0 or allowed[start + j, m]
            factors[0][row, m, start + j] = entry if is_allowed else -np.inf
        columns = slice(start + begin, start + end)
        fine &= _exponentials(factors[0][row, m, columns], factors[1][row, m, columns], factors[2][row, m, columns])
    return fine


@compiled
def _find_sources(grid, t, rows, margin, slot, place):
    """For each move into row t, the ring's row that it comes from, and the place there for the first cell of row t.

    Moves along the row come from row ``rows`` of the ring, which holds nothing; their places are those in row t.
    """
    steps, (begin, _) = grid.steps, _span(grid, t)
    slot[:], place[:] = rows, margin
    for m in range(steps.shape[0]):
        before = t - steps[m, 0]
        if before >= 0:
            slot[m] = before % rows if before < t else rows
            # Further away than the margin is as impossible as inside of it, and would be beyond the ring.
            place[m] += max(-margin, min(margin, begin + _shift(grid, t, m)))


@compiled
def _best_row(grid, t, room, ring, score, by, entered):
    """Fills row t of the ring, and the moves ``entered`` [W] by which the best paths reach its cells.

    v(t, u) = score(t, u) + max over moves m = (a, b) of entry(t, u, m) + v(t - a, u - b), with the offset at the first.
    """
    (slot, place, factors, margin), steps, rows = room, grid.steps, ring.shape[0] - 1
    start, (begin, end) = _start(grid.band, t), _span(grid, t)
    _load(grid.scores, t, score)
    _load_factors(grid, t, factors)
    _find_sources(grid, t, rows, margin, slot, place)
    row, entry = ring[t % rows, margin : margin + score.shape[0]], factors[0][t % factors[0].shape[0]]
    row[:] = -np.inf
    by[:] = steps.shape[0]
    if _first_place(grid, t) >= 0:
        row[_first_place(grid, t)] = score[_first_place(grid, t)] + grid.offset
    for first in range(0, slot.shape[0], 3):
        own = slice(begin, end)
        _choose(row[own], by[own], score[own], ring, slot, place, entry, start + begin, first)
    if steps[:, 0].min() == 0:
        for j in range(begin, end):
            for m in range(steps.shape[0]):
                if steps[m, 0] == 0:
                    value = score[j] + entry[m, start + j] + ring[t % rows, place[m] + j - begin]
                    # The first of equally good moves.
                    if value > row[j] or (value == row[j] and m < by[j]):
                        row[j], by[j] = value, m
    _write_moves(by, entered)


@compiled
def _sum_row(grid, t, room, ring, score, own, sums):
    """Fills row t of the ring with the sums over the paths to its cells; whether all scores are below infinity.

    z(t, u) = exp score(t, u) · Σ over moves m = (a, b) of exp entry(t, u, m) · z(t - a, u - b), with 1 for the first.
    Row t of ``sums``, modulo their number, has these sums without the scores of the cells, ``own`` [W].
    """
    (slot, place, factors, margin), steps, rows = room, grid.steps, ring[0].shape[0] - 1
    start, (begin, end) = _start(grid.band, t), _span(grid, t)
    count = end - begin
    _load(grid.scores, t, score)
    fine = _load_factors(grid, t, factors)
    fine &= _exponentials(score[begin:end], own[0][begin:end], own[1][begin:end])
    _find_sources(grid, t, rows, margin, slot, place)
    m, k = _part(sums, t % sums[0].shape[0], begin, count)
    f, e = factors[1][t % factors[0].shape[0]], factors[2][t % factors[0].shape[0]]
    _join(m, k, ring, slot, place, (f, e), start + begin)
    for move in range(3, steps.shape[0]):
        m1, k1 = _part(ring, slot[move], place[move], count)
        _join_move(m, k, m1, k1, *_part((f, e), move, start + begin, count))
    if _first_place(grid, t) >= 0:
        m[0], k[0] = 1.0, 0.0  # nothing leads there
    # Mantissas of the row that was here may stay: m 2^_NEVER is impossible whatever m is.
    ring[1][t % rows] = _NEVER
    row_m, row_k = _part(ring, t % rows, margin + begin, count)
    if steps[:, 0].min() > 0:
        _multiply(row_m, row_k, m, k, own[0][begin:end], own[1][begin:end])
        return fine
    whole_m, whole_k = ring[0][t % rows], ring[1][t % rows]
    # Moves along the row need the cells to the left first, so that this is no vector loop.
    for j in range(count):
        for move in range(steps.shape[0]):
            if steps[move, 0] == 0:
                before, column = place[move] + j, start + begin + j
                m[j], k[j] = _add(m[j], k[j], whole_m[before] * f[move, column], whole_k[before] + e[move, column])
        row_m[j], row_k[j] = _reduced(m[j] * own[0][begin + j], k[j] + own[1][begin + j])
    return fine


@compiled
def _follow(grid, entered, place, cells, moves):
    """Writes the cells and moves of the best path, from the last cell to the first."""
    band, steps, width = grid.band, grid.steps, _width(grid.scores)
    t, j, count = grid.sizes[0] - 1, place, 0
    while True:
        m = entered[t, j]
        cells[count], moves[count] = t * width + j, m
        count += 1
        if m == steps.shape[0]:
            return
        column = _start(band, t) + j - steps[m, 1]
        t -= steps[m, 0]
        j = column - _start(band, t)


@inlined
def _grid(grids, b):
    """The grid of an example."""
    scores, entries = (grids.scores[0][b], grids.scores[1][b]), (grids.entries[0][b], grids.entries[1][b])
    return Grid(scores, entries, grids.offset[b], grids.allowed[b], grids.band[b], grids.sizes[b], grids.steps)


@entry_point
def batch_best(scores, entries, offset, allowed, band, sizes, steps, values, cells, moves, begin, end):
    """Best scores [B], and the cells [B, L] and moves [B, L] of paths that have them, the last cell first.

    Places behind a path stay as they are.
    """
    grids = Grid(scores, entries, offset, allowed, band, sizes, steps)
    width, room = _width(scores), _room(grids)
    ring = _ring(1 + steps[:, 0].max(), width, room.margin, -np.inf)
    score, by = np.empty(width), np.empty(width)
    entered = np.empty((scores[0].shape[1], width), np.uint8)
    for b in range(begin, end):
        grid = _grid(grids, b)
        place = _last_place(grid)
        values[b] = offset[b] if sizes[b].min() == 0 else -np.inf
        if place >= 0:
            for t in range(sizes[b, 0]):
                _best_row(grid, t, room, ring, score, by, entered[t])
            values[b] = ring[(sizes[b, 0] - 1) % (ring.shape[0] - 1), room.margin + place]
            if values[b] > -np.inf:
                _follow(grid, entered, place, cells[b], moves[b])


@compiled
def _leave_row(grid, t, ring, margin):
    """The largest score of ways to cells in the ring from which a move leads into row t, but beyond its band."""
    allowed, steps, width, start = grid.allowed, grid.steps, _width(grid.scores), _start(grid.band, t)
    largest = -np.inf
    for m in range(steps.shape[0]):
        before = t - steps[m, 0]
        if before >= 0:
            begin, end = _span(grid, before)
            for j in range(begin, end):
                column = _start(grid.band, before) + j + steps[m, 1]
                is_beyond = column < grid.sizes[1] and not 0 <= column - start < width
                if is_beyond and (allowed.shape[0] == 0 or allowed[column, m]):
                    largest = max(largest, ring[before % (ring.shape[0] - 1), margin + j])
    return largest


@compiled
def _return_row(grid, t, margin, entry, score, ring, outside):
    """Fills row t of the ring with bounds of ways that have left the band, which is where ``outside`` [T] has them."""
    steps, width, rows, start = grid.steps, _width(grid.scores), ring.shape[0] - 1, _start(grid.band, t)
    begin, end = _span(grid, t)
    for j in range(begin, end):
        for m in range(steps.shape[0]):
            source = t - steps[m, 0]
            if source >= 0 and start + j >= steps[m, 1]:
                k = start + j - steps[m, 1] - _start(grid.band, source)
                before = ring[source % rows, margin + k] if 0 <= k < width else outside[source]
                value = score[j] + entry[m, start + j] + before
                ring[t % rows, margin + j] = max(ring[t % rows, margin + j], value)


@entry_point
def batch_bound_outside(scores, entries, offset, allowed, band, sizes, steps, cells, values, begin, end):
    """Bounds [B] of the scores of paths beyond the band, from those of the ``cells`` [B, T] of each row there.

    A way beyond the band forgets its column: it goes on to any cell of a later row, and returns by any move. So there
    is one bound for each row, ``outside``, beside rings of the ways that never left the band, and that have returned.
    """
    grids = Grid(scores, entries, offset, allowed, band, sizes, steps)
    depth, width, room = 1 + steps[:, 0].max(), _width(scores), _room(grids)
    margin, factors = room.margin, room.factors[0]
    ring, returned = _ring(depth, width, margin, -np.inf), _ring(depth, width, margin, -np.inf)
    score, by, entered, outside = np.empty(width), np.empty(width), np.empty(width, np.uint8), np.empty(cells.shape[1])
    along = steps[:, 0].min() == 0
    for b in range(begin, end):
        grid = _grid(grids, b)
        values[b] = -np.inf
        if sizes[b].min() == 0:
            continue
        for t in range(sizes[b, 0]):
            _best_row(grid, t, room, ring, score, by, entered)
            returned[t % depth] = -np.inf
            # A path has one cell of a row, or more where moves lead along it.
            own = cells[b, t] * (sizes[b, 1] if along and cells[b, t] > 0.0 else 1)
            way = offset[b] if t == 0 and not 0 <= -_start(grid.band, 0) < width else -np.inf
            for m in range(steps.shape[0]):
                if 0 < steps[m, 0] <= t:
                    way = max(way, outside[t - steps[m, 0]])
            outside[t] = own + max(way, _leave_row(grid, t, ring, margin), _leave_row(grid, t, returned, margin))
            _return_row(grid, t, margin, factors[t % factors.shape[0]], score, returned, outside)
            outside[t] = max(outside[t], own + _leave_row(grid, t, returned, margin))  # by moves along the row
        last, place = sizes[b, 0] - 1, _last_place(grid)
        values[b] = returned[last % depth, margin + place] if place >= 0 else outside[last]


@compiled
def _numbers(rows, width):
    """Mantissas and exponents of that many rows."""
    return np.ones((rows, width)), np.full((rows, width), _NEVER)


@inlined
def _logarithm(m, k):
    """The logarithm of a number, -inf for what is impossible."""
    return np.log(m) + k * LOG2 if k > _RARELY else -np.inf


@entry_point
def batch_log_partition(scores, entries, offset, allowed, band, sizes, steps, values, kept, begin, end):
    """Log-partitions [B], and for the way back the rows before each block, ``kept`` [B, blocks, D - 1, 2, W]."""
    grids = Grid(scores, entries, offset, allowed, band, sizes, steps)
    depth, width, room = 1 + steps[:, 0].max(), _width(scores), _room(grids)
    margin, rows = room.margin, -(-scores[0].shape[1] // kept.shape[1])
    ring = _numbers(depth + 1, width + 2 * margin)
    score, own, sums = np.empty(width), (np.empty(width), np.empty(width)), _numbers(1, width)
    for b in range(begin, end):
        grid = _grid(grids, b)
        place, fine = _last_place(grid), True
        values[b] = offset[b] if sizes[b].min() == 0 else -np.inf
        if place >= 0:
            for t in range(sizes[b, 0]):
                # The way back needs all sums, but computes them again a block at a time: D - 1 rows in front are enough
                # for that.
                if t % rows == 0:
                    for back in range(1, min(depth, t + 1)):
                        m, k = _part(ring, (t - back) % depth, margin, width)
                        kept[b, t // rows, back - 1, 0], kept[b, t // rows, back - 1, 1] = m, k
                fine &= _sum_row(grid, t, room, ring, score, own, sums)
            last = (sizes[b, 0] - 1) % depth
            values[b] = _logarithm(ring[0][last, margin + place], ring[1][last, margin + place]) + offset[b]
            values[b] = values[b] if fine else np.nan


@compiled
def _sum_block(grid, kept, block, rows, room, ring, score, own, sums):
    """Computes the rows of a block again. Returns where the block ends."""
    begin, end, slots = block * rows, min((block + 1) * rows, grid.sizes[0]), ring[0].shape[0] - 1
    for back in range(1, min(kept.shape[1], begin) + 1):
        m, k = _part(ring, (begin - back) % slots, room.margin, score.shape[0])
        m[:], k[:] = kept[block, back - 1, 0], kept[block, back - 1, 1]
    for t in range(begin, end):
        _sum_row(grid, t, room, ring, score, own, sums)
    return end


@compiled
def _flow_row(grid, t, room, ring, sums, flow, later):
    """Probabilities ``flow`` [W] of the cells of row t, to which it adds those by moves to later cells.

    The ring ``later`` holds those of later rows, as :func:`_gather` takes them, and gets those of row t.
    """
    (_, _, factors, margin), steps, depth = room, grid.steps, later[0].shape[0] - 1
    start, (begin, end) = _start(grid.band, t), _span(grid, t)
    count = end - begin
    row_m, row_k = _part(ring, t % (ring[0].shape[0] - 1), margin + begin, count)
    # P(cell) = Σ over moves of P(later cell) · exp entry · z(cell) / (the sum over the paths into the later cell).
    for move in range(steps.shape[0]):
        after, column = t + steps[move, 0], start + begin + steps[move, 1]
        if t < after < grid.sizes[0]:
            shift = max(-margin, min(margin, column - _start(grid.band, after)))
            g, top = _part(later, after % depth, margin + shift, count)
            row = after % factors[0].shape[0]
            f, e = factors[1][row, move, column : column + count], factors[2][row, move, column : column + count]
            _gather(flow[begin:end], row_m, row_k, f, e, g, top)
    later[0][t % depth], later[1][t % depth] = 0.0, -_NEVER
    m, k = _part(sums, t % sums[0].shape[0], begin, count)
    g, top = _part(later, t % depth, margin + begin, count)
    if steps[:, 0].min() > 0:
        _divide(flow[begin:end], m, k, g, top)
        return
    row = t % factors[0].shape[0]
    # Moves along the row lead to the right: those cells must have their probabilities first.
    for j in range(count - 1, -1, -1):
        for move in range(steps.shape[0]):
            across = steps[move, 1]
            if steps[move, 0] == 0 and j + across < count:
                column = start + begin + j + across
                share = _share(
                    row_m[j], row_k[j], factors[1][row, move, column], factors[2][row, move, column], top[j + across]
                )
                flow[begin + j] += g[j + across] * share
        g[j], top[j] = flow[begin + j] / m[j], k[j]


@compiled
def _share_row(grid, t, room, ring, sums, shares):
    """Fills the ``shares`` [W, M] of the moves that enter the cells of row t."""
    (slot, place, factors, margin), steps, rows = room, grid.steps, ring[0].shape[0] - 1
    start, (begin, end) = _start(grid.band, t), _span(grid, t)
    m, k = _part(sums, t % sums[0].shape[0], begin, end - begin)
    row = t % factors[0].shape[0]
    _find_sources(grid, t, rows, margin, slot, place)
    for j in range(end - begin):
        for move in range(steps.shape[0]):
            source = t % rows if steps[move, 0] == 0 else slot[move]
            before, column = place[move] + j, start + begin + j
            f, e = factors[1][row, move, column], factors[2][row, move, column]
            share = _share(ring[0][source, before], ring[1][source, before], f, e, k[j]) / m[j]
            shares[begin + j, move] = share if k[j] > _RARELY else 0.0


@entry_point
def batch_marginals(scores, entries, offset, allowed, band, sizes, steps, values, kept, cells, moves, begin, end):
    """Adds probabilities of cells [B, T, W] and of moves, [B, T, W, M] or nothing, given what the sums have kept."""
    grids = Grid(scores, entries, offset, allowed, band, sizes, steps)
    depth, width, room = 1 + steps[:, 0].max(), _width(scores), _room(grids)
    margin, rows = room.margin, -(-scores[0].shape[1] // kept.shape[1])
    slots, is_by_move = rows + depth - 1, max(moves[0].shape[1], moves[1].shape[1]) > 0
    ring, later = _numbers(slots + 1, width + 2 * margin), _numbers(depth + 1, width + 2 * margin)
    score, own, sums = np.empty(width), (np.empty(width), np.empty(width)), _numbers(rows, width)
    flow, shares = np.empty(width), np.zeros((width if is_by_move else 0, steps.shape[0]))
    for b in range(begin, end):
        grid = _grid(grids, b)
        place, height = _last_place(grid), sizes[b, 0]
        if place >= 0 and -np.inf < values[b] < np.inf:
            # Blocks begin with the last, but scores that all cells share are loaded for row 0 alone.
            _load_factors(grid, 0, room.factors)
            for block in range((height - 1) // rows, -1, -1):
                last = _sum_block(grid, kept[b], block, rows, room, ring, score, own, sums)
                # The rows behind the block, into which its moves lead: the block has overwritten their scores.
                for t in range(last, min(last + depth - 1, height)):
                    _load_factors(grid, t, room.factors)
                for t in range(last - 1, block * rows - 1, -1):
                    flow[:] = 0.0
                    if t == height - 1:
                        flow[place] = 1.0
                    _load_factors(grid, t, room.factors)
                    _flow_row(grid, t, room, ring, sums, flow, later)
                    _store(flow, (cells[0][b], cells[1][b]), t)
                    if is_by_move:
                        _share_row(grid, t, room, ring, sums, shares)
                        shares *= flow.reshape(-1, 1)
                        _store_moves(shares, (moves[0][b], moves[1][b]), t)


@compiled
def _store_moves(shares, moves, t):
    """Copies the probabilities [W, M] of moves into row t, in either precision."""
    for j in range(shares.shape[0]):
        for m in range(shares.shape[1]):
            if moves[0].shape[2] > 0:
                moves[0][t, j, m] = shares[j, m]
            else:
                moves[1][t, j, m] = shares[j, m]


@entry_point
def batch_tangents(
    scores, entries, offset, allowed, band, sizes, steps, directions, entering, cells, moves, begin, end
):
    """Derivatives of the probabilities of cells [B, T, W] and moves, [B, T, W, M] or nothing, shaped as directions.

    Those are directions of the scores of cells [B, T, W] and of ``entering`` them, [B, T, W, M] or nothing.
    """
    grids = Grid(scores, entries, offset, allowed, band, sizes, steps)
    (rows, width), count, room = directions.shape[1:], steps.shape[0], _room(grids)
    ring, sums = _numbers(rows + 1, width + 2 * room.margin), _numbers(rows, width)
    score, own, shares = np.empty(width), (np.empty(width), np.empty(width)), np.zeros((rows, width, count))
    moved, expected = np.empty((rows, width, count)), np.empty((rows, width))
    weight, change = np.empty((rows, width)), np.empty((rows, width))
    for b in range(begin, end):
        grid = _grid(grids, b)
        place, height, fine = _last_place(grid), sizes[b, 0], True
        if place < 0:
            continue
        for t in range(height):
            fine &= _sum_row(grid, t, room, ring, score, own, sums)
            _share_row(grid, t, room, ring, sums, shares[t])
            _move_row(grid, t, shares[t], directions[b], entering[b], moved[t], expected)
        if fine and ring[1][height - 1, room.margin + place] > _RARELY:
            weight[:height], change[:height] = 0.0, 0.0
            weight[height - 1, place] = 1.0
            for t in range(height - 1, -1, -1):
                _change_row(grid, t, shares[t], moved[t], weight, change, cells[b], moves[b])


@compiled
def _move_row(grid, t, shares, directions, entering, moved, expected):
    """How the scores of the cells of row t, with all before them, change in a direction.

    That is ``moved`` [W, M] by each move, without the score of the cell itself, and ``expected`` [T, W] in all.
    """
    steps = grid.steps
    begin, end = _span(grid, t)
    for j in range(begin, end):
        expected[t, j] = directions[t, j]
        for m in range(steps.shape[0]):
            moved[j, m] = 0.0
            if shares[j, m] > 0.0:
                moved[j, m] = expected[t - steps[m, 0], j + _shift(grid, t, m)]
                if entering.shape[0] > 0:
                    moved[j, m] += entering[t, j, m]
                expected[t, j] += shares[j, m] * moved[j, m]


@compiled
def _change_row(grid, t, shares, moved, weight, change, cells, moves):
    """Derivatives of the probabilities of the cells of row t, and of the moves into them.

    The share p of a move among those into its cell has the derivative p (dv - Σ p dv), with the change dv of its score
    and of all before it. ``weight`` and ``change`` [T, W] are probabilities of cells and their derivatives.
    """
    steps = grid.steps
    begin, end = _span(grid, t)
    for j in range(end - 1, begin - 1, -1):  # moves along a row lead to the right
        cells[t, j] = change[t, j]
        mean = (shares[j] * moved[j]).sum()
        for m in range(steps.shape[0]):
            if shares[j, m] > 0.0:
                added = shares[j, m] * (change[t, j] + weight[t, j] * (moved[j, m] - mean))
                change[t - steps[m, 0], j + _shift(grid, t, m)] += added
                weight[t - steps[m, 0], j + _shift(grid, t, m)] += shares[j, m] * weight[t, j]
                if moves.shape[0] > 0:
                    moves[t, j, m] = added
