"""Recursions over the rows of a grid for one example, and loops over a batch of them.

A grid is a tuple of ``scores`` [T, W] of the cells that it stores; ``entries`` [T, W, M] or [1, 1, M], scores of
entering a cell by a move, for each cell or for all cells alike; ``offset``, a score of all paths; ``allowed`` [U, M] or
[0, M], whether a move may enter a column; ``band`` [T] or [0], the column that each row's stored cells begin at, or 0;
``size`` [2], the numbers of rows and columns; and ``steps`` [M, 2] along rows and columns. A path leads from cell
(0, 0) to the last one, and a cell is entered by move m, or is the first, which counts as M.

Recursions hold the values of D rows, one more than the longest step, in a ring [D, W]: row t is ring[t % D]. All sums
are float64. Best paths and sums each spell out how a move scores: as a function of arrays, called for each cell and
move, it would double the time.
"""

import numpy as np

from structsmooth.compiled.jit import compiled, entry_point, inlined


@inlined
def _start(band, t):
    """The column of the first stored cell of row t."""
    return band[t] if band.shape[0] > 0 else 0


@compiled
def _find_sources(grid, t, depth, slot, shift):
    """For each move into row t, the ring's row that it comes from, -1 for none, and how far stored cells shift."""
    band, steps = grid[4], grid[6]
    for m in range(steps.shape[0]):
        before = t - steps[m, 0]
        slot[m] = before % depth if before >= 0 else -1
        shift[m] = _start(band, t) - steps[m, 1] - _start(band, before) if before >= 0 else 0


@inlined
def _span(grid, t):
    """The stored cells of row t that the grid has: from, to."""
    start = _start(grid[4], t)
    return max(0, -start), min(grid[0].shape[1], grid[5][1] - start)


@compiled
def _best_row(grid, t, slot, shift, ring, entered):
    """Fills row t of the ring, and the moves ``entered`` [W] by which the best paths reach its cells."""
    scores, entries, allowed = grid[0], grid[1], grid[3]
    width, moves, row = scores.shape[1], slot.shape[0], t % ring.shape[0]
    limited, by_row, by_place = allowed.shape[0] > 0, entries.shape[0] > 1, entries.shape[1] > 1
    start = _start(grid[4], t)
    begin, end = _span(grid, t)
    ring[row] = -np.inf
    for j in range(begin, end):
        best, by = -np.inf, moves
        if t == 0 and start + j == 0:
            best = scores[t, j] + grid[2]
        for m in range(moves):
            k = j + shift[m]
            if slot[m] >= 0 and 0 <= k < width:
                value = scores[t, j] + entries[t if by_row else 0, j if by_place else 0, m] + ring[slot[m], k]
                if value > best and not (limited and not allowed[start + j, m]):
                    best, by = value, m
        ring[row, j] = best
        entered[j] = by


@compiled
def _sum_row(grid, t, slot, shift, ring, shares):
    """Fills row t of the ring with log-sums, and of its cells the ``shares`` [W, M] of the moves that enter them."""
    scores, entries, allowed = grid[0], grid[1], grid[3]
    width, moves, row = scores.shape[1], slot.shape[0], t % ring.shape[0]
    limited, by_row, by_place = allowed.shape[0] > 0, entries.shape[0] > 1, entries.shape[1] > 1
    start = _start(grid[4], t)
    begin, end = _span(grid, t)
    ring[row] = -np.inf
    for j in range(begin, end):
        largest = -np.inf
        for m in range(moves):
            k = j + shift[m]
            value = -np.inf
            if slot[m] >= 0 and 0 <= k < width and not (limited and not allowed[start + j, m]):
                value = entries[t if by_row else 0, j if by_place else 0, m] + ring[slot[m], k]
            shares[j, m] = value
            largest = max(largest, value)
        if t == 0 and start + j == 0:
            ring[row, j] = scores[t, j] + grid[2]
        elif largest > -np.inf:
            total = 0.0
            for m in range(moves):
                shares[j, m] = np.exp(shares[j, m] - largest)
                total += shares[j, m]
            scale = 1.0 / total
            for m in range(moves):
                shares[j, m] *= scale
            ring[row, j] = largest + np.log(total) + scores[t, j]
        if not largest > -np.inf:
            shares[j] = 0.0


@compiled
def _last_place(grid):
    """The place of the last cell in its row; -1 if it is not stored, or if there are no cells."""
    size = grid[5]
    if size[0] == 0 or size[1] == 0:
        return -1
    place = size[1] - 1 - _start(grid[4], size[0] - 1)
    return place if 0 <= place < grid[0].shape[1] else -1


@compiled
def _follow(grid, entered, place, cells, moves):
    """Writes the cells and moves of the best path, from the last cell to the first."""
    band, steps, width = grid[4], grid[6], grid[0].shape[1]
    t, j, count = grid[5][0] - 1, place, 0
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
def _grid(scores, entries, offset, allowed, band, sizes, steps, b):
    """The grid of an example."""
    return scores[b], entries[b], offset[b], allowed[b], band[b], sizes[b], steps


@entry_point
def batch_best(scores, entries, offset, allowed, band, sizes, steps, values, cells, moves, begin, end):
    """Best scores [B], and the cells [B, L] and moves [B, L] of paths that have them, the last cell first.

    Places behind a path stay as they are.
    """
    count, depth = steps.shape[0], 1 + steps[:, 0].max()
    slot, shift = np.empty(count, np.int64), np.empty(count, np.int64)
    ring = np.empty((depth, scores.shape[2]))
    entered = np.empty(scores.shape[1:], np.uint8)
    for b in range(begin, end):
        grid = _grid(scores, entries, offset, allowed, band, sizes, steps, b)
        place = _last_place(grid)
        values[b] = offset[b] if sizes[b].min() == 0 else -np.inf
        if place >= 0:
            for t in range(sizes[b, 0]):
                _find_sources(grid, t, depth, slot, shift)
                _best_row(grid, t, slot, shift, ring, entered[t])
            values[b] = ring[(sizes[b, 0] - 1) % depth, place]
            if values[b] > -np.inf:
                _follow(grid, entered, place, cells[b], moves[b])


@compiled
def _leave_row(grid, t, ring):
    """The largest score of ways to cells in the ring from which a move leads into row t, but beyond its band."""
    allowed, steps, width, start = grid[3], grid[6], grid[0].shape[1], _start(grid[4], t)
    largest = -np.inf
    for m in range(steps.shape[0]):
        before = t - steps[m, 0]
        if before >= 0:
            begin, end = _span(grid, before)
            for j in range(begin, end):
                column = _start(grid[4], before) + j + steps[m, 1]
                is_beyond = column < grid[5][1] and not 0 <= column - start < width
                if is_beyond and (allowed.shape[0] == 0 or allowed[column, m]):
                    largest = max(largest, ring[before % ring.shape[0], j])
    return largest


@compiled
def _return_row(grid, t, slot, shift, ring, outside):
    """Fills row t of the ring with bounds of ways that have left the band, which is where ``outside`` [T] has them."""
    scores, entries, allowed, steps = grid[0], grid[1], grid[3], grid[6]
    width, row = scores.shape[1], t % ring.shape[0]
    by_row, by_place = entries.shape[0] > 1, entries.shape[1] > 1
    start = _start(grid[4], t)
    begin, end = _span(grid, t)
    for j in range(begin, end):
        for m in range(steps.shape[0]):
            if slot[m] >= 0 and start + j >= steps[m, 1] and (allowed.shape[0] == 0 or allowed[start + j, m]):
                k = j + shift[m]
                before = ring[slot[m], k] if 0 <= k < width else outside[t - steps[m, 0]]
                value = scores[t, j] + entries[t if by_row else 0, j if by_place else 0, m] + before
                ring[row, j] = max(ring[row, j], value)


@entry_point
def batch_bound_outside(scores, entries, offset, allowed, band, sizes, steps, cells, values, begin, end):
    """Bounds [B] of the scores of paths beyond the band, from those of the ``cells`` [B, T] of each row there.

    A way beyond the band forgets its column: it goes on to any cell of a later row, and returns by any move. So there
    is one bound for each row, ``outside``, beside rings of the ways that never left the band, and that have returned.
    """
    count, depth, width = steps.shape[0], 1 + steps[:, 0].max(), scores.shape[2]
    slot, shift = np.empty(count, np.int64), np.empty(count, np.int64)
    ring, returned = np.empty((depth, width)), np.empty((depth, width))
    entered, outside = np.empty(width, np.uint8), np.empty(scores.shape[1])
    along = steps[:, 0].min() == 0
    for b in range(begin, end):
        grid = _grid(scores, entries, offset, allowed, band, sizes, steps, b)
        values[b] = -np.inf
        if sizes[b].min() == 0:
            continue
        for t in range(sizes[b, 0]):
            _find_sources(grid, t, depth, slot, shift)
            _best_row(grid, t, slot, shift, ring, entered)
            returned[t % depth] = -np.inf
            # A path has one cell of a row, or more where moves lead along it.
            own = cells[b, t] * (sizes[b, 1] if along and cells[b, t] > 0.0 else 1)
            way = offset[b] if t == 0 and not 0 <= -_start(grid[4], 0) < width else -np.inf
            for m in range(count):
                if 0 < steps[m, 0] <= t:
                    way = max(way, outside[t - steps[m, 0]])
            outside[t] = own + max(way, _leave_row(grid, t, ring), _leave_row(grid, t, returned))
            _return_row(grid, t, slot, shift, returned, outside)
            outside[t] = max(outside[t], own + _leave_row(grid, t, returned))  # by moves along the row
        last, place = sizes[b, 0] - 1, _last_place(grid)
        values[b] = returned[last % depth, place] if place >= 0 else outside[last]


@entry_point
def batch_log_partition(scores, entries, offset, allowed, band, sizes, steps, values, kept, begin, end):
    """Log-partitions [B], and the rows before each block of rows, ``kept`` [B, blocks, D - 1, W], for the way back."""
    count, depth = steps.shape[0], 1 + steps[:, 0].max()
    slot, shift = np.empty(count, np.int64), np.empty(count, np.int64)
    ring, shares = np.empty((depth, scores.shape[2])), np.empty((scores.shape[2], count))
    rows = -(-scores.shape[1] // kept.shape[1])
    for b in range(begin, end):
        grid = _grid(scores, entries, offset, allowed, band, sizes, steps, b)
        place = _last_place(grid)
        values[b] = offset[b] if sizes[b].min() == 0 else -np.inf
        if place >= 0:
            for t in range(sizes[b, 0]):
                if t % rows == 0:
                    for back in range(1, min(depth, t + 1)):
                        kept[b, t // rows, back - 1] = ring[(t - back) % depth]
                _find_sources(grid, t, depth, slot, shift)
                _sum_row(grid, t, slot, shift, ring, shares)
            values[b] = ring[(sizes[b, 0] - 1) % depth, place]


@compiled
def _sum_block(grid, kept, block, rows, slot, shift, ring, shares):
    """Computes the rows of a block again; their ``shares`` are [rows, W, M]. Returns where the block ends."""
    begin, end = block * rows, min((block + 1) * rows, grid[5][0])
    for back in range(1, ring.shape[0]):
        ring[(begin - back) % ring.shape[0]] = kept[block, back - 1]
    for t in range(begin, end):
        _find_sources(grid, t, ring.shape[0], slot, shift)
        _sum_row(grid, t, slot, shift, ring, shares[t - begin])
    return end


@compiled
def _spread_row(grid, t, slot, shift, shares, flow, cells, moves):
    """Probabilities of the cells of row t and of the moves into them, from those in the ring ``flow`` [D, W].

    Cells give theirs to those that they are entered from, and leave zeros in the ring.
    """
    begin, end = _span(grid, t)
    row = t % flow.shape[0]
    for j in range(end - 1, begin - 1, -1):  # moves along a row lead to the right
        weight = flow[row, j]
        flow[row, j] = 0.0
        cells[t, j] = weight
        if weight > 0.0:
            for m in range(slot.shape[0]):
                if shares[j, m] > 0.0:
                    flow[slot[m], j + shift[m]] += weight * shares[j, m]
                    if moves.shape[0] > 0:
                        moves[t, j, m] = weight * shares[j, m]


@entry_point
def batch_marginals(scores, entries, offset, allowed, band, sizes, steps, values, kept, cells, moves, begin, end):
    """Adds probabilities of cells [B, T, W] and of moves, [B, T, W, M] or nothing, given what the sums have kept."""
    count, depth = steps.shape[0], 1 + steps[:, 0].max()
    slot, shift = np.empty(count, np.int64), np.empty(count, np.int64)
    rows = -(-scores.shape[1] // kept.shape[1])
    ring, flow = np.empty((depth, scores.shape[2])), np.zeros((depth, scores.shape[2]))
    shares = np.empty((rows, scores.shape[2], count))
    for b in range(begin, end):
        grid = _grid(scores, entries, offset, allowed, band, sizes, steps, b)
        place = _last_place(grid)
        if place >= 0 and -np.inf < values[b] < np.inf:
            flow[(sizes[b, 0] - 1) % depth, place] = 1.0
            for block in range((sizes[b, 0] - 1) // rows, -1, -1):
                last = _sum_block(grid, kept[b], block, rows, slot, shift, ring, shares)
                for t in range(last - 1, block * rows - 1, -1):
                    _find_sources(grid, t, depth, slot, shift)
                    _spread_row(grid, t, slot, shift, shares[t - block * rows], flow, cells[b], moves[b])


@entry_point
def batch_tangents(
    scores, entries, offset, allowed, band, sizes, steps, directions, entering, cells, moves, begin, end
):
    """Derivatives of the probabilities of cells [B, T, W] and moves, [B, T, W, M] or nothing, shaped as directions.

    Those are directions of the scores of cells [B, T, W] and of ``entering`` them, [B, T, W, M] or nothing.
    """
    count, depth, (rows, width) = steps.shape[0], 1 + steps[:, 0].max(), scores.shape[1:]
    slot, shift = np.empty((rows, count), np.int64), np.empty((rows, count), np.int64)
    ring, shares = np.empty((depth, width)), np.zeros((rows, width, count))
    moved, expected = np.empty((rows, width, count)), np.empty((rows, width))
    weight, change = np.empty((rows, width)), np.empty((rows, width))
    for b in range(begin, end):
        grid = _grid(scores, entries, offset, allowed, band, sizes, steps, b)
        place, height = _last_place(grid), sizes[b, 0]
        if place < 0:
            continue
        for t in range(height):
            _find_sources(grid, t, depth, slot[t], shift[t])
            _sum_row(grid, t, slot[t], shift[t], ring, shares[t])
            _move_row(grid, t, shift[t], shares[t], directions[b], entering[b], moved[t], expected)
        if -np.inf < ring[(height - 1) % depth, place] < np.inf:
            weight[:height], change[:height] = 0.0, 0.0
            weight[height - 1, place] = 1.0
            for t in range(height - 1, -1, -1):
                _change_row(grid, t, shift[t], shares[t], moved[t], weight, change, cells[b], moves[b])


@compiled
def _move_row(grid, t, shift, shares, directions, entering, moved, expected):
    """How the scores of the cells of row t, with all before them, change in a direction.

    That is ``moved`` [W, M] by each move, without the score of the cell itself, and ``expected`` [T, W] in all.
    """
    steps = grid[6]
    begin, end = _span(grid, t)
    for j in range(begin, end):
        expected[t, j] = directions[t, j]
        for m in range(steps.shape[0]):
            moved[j, m] = 0.0
            if shares[j, m] > 0.0:
                moved[j, m] = expected[t - steps[m, 0], j + shift[m]]
                if entering.shape[0] > 0:
                    moved[j, m] += entering[t, j, m]
                expected[t, j] += shares[j, m] * moved[j, m]


@compiled
def _change_row(grid, t, shift, shares, moved, weight, change, cells, moves):
    """Derivatives of the probabilities of the cells of row t, and of the moves into them.

    The share p of a move among those into its cell has the derivative p (dv - Σ p dv), with the change dv of its score
    and of all before it. ``weight`` and ``change`` [T, W] are probabilities of cells and their derivatives.
    """
    steps = grid[6]
    begin, end = _span(grid, t)
    for j in range(end - 1, begin - 1, -1):  # moves along a row lead to the right
        cells[t, j] = change[t, j]
        mean = (shares[j] * moved[j]).sum()
        for m in range(steps.shape[0]):
            if shares[j, m] > 0.0:
                added = shares[j, m] * (change[t, j] + weight[t, j] * (moved[j, m] - mean))
                change[t - steps[m, 0], j + shift[m]] += added
                weight[t - steps[m, 0], j + shift[m]] += shares[j, m] * weight[t, j]
                if moves.shape[0] > 0:
                    moves[t, j, m] = added
