"""Generalized distance transforms of maps: value[q] = max_r scores[r] − cost(r − q), a dimension at a time.

The cost of an offset is a parabola, so candidates far from the rest position are soon ruled out: of the offsets that a
window around the cheapest one leaves, the least costs ``bar``, and no position can gain from them once it has the
largest score of its line, less ``bar``. A window grows until that is so for a block of positions at once. Neighbours
in memory are on neighbouring lines and share the costs of offsets, so that vector instructions compare many positions
with four candidates each, without branches. Where windows become too wide, lines are transformed one by one, by the
envelope of their parabolas (Felzenszwalb and Huttenlocher 2012), which is linear in the number of positions whatever
the costs are.

Maps are flat, row by row. Tuples that the functions take:
  grid: height, width, the axis of rows and the one of columns, and a map that is turned (columns become rows)
  axis: length n; padded scores [3n − 2, lanes], -inf but in the n rows of the map in the middle; costs of the offsets
    -(n - 1) to n - 1, at shifts 0 to 2n - 2; the largest score of each lane, repeated for each row of a block; and
    scratch of an envelope
"""

import numpy as np

from structsmooth.compiled.jit import compiled, inlined, vectorized

# Positions that share a window: enough to fill the vector units, few enough to be done at about the same time.
_BLOCK = 256
# Offsets from which the envelope takes less time than a window.
_WIDEST = 128


@compiled
def new_grid(height, width):
    """Scratch of :func:`transform`."""
    return height, width, _new_axis(height, width), _new_axis(width, height), np.empty(height * width)


@compiled
def transform(scores, deformation, anchor, sign, grid, half, message):
    """Fills ``message`` [S] with the best score, less its cost, for each position; ``half`` [S] is that over rows only.

    With ``sign`` 1 scores are those of a node and the message is to its parent, with -1 the other way round.
    """
    height, width, rows, columns, turned = grid
    _padded(rows, width)[:] = scores
    _dilate(rows, width, sign * deformation[2], deformation[3], sign * anchor[1], half)
    _turn(half, height, width, _padded(columns, height))
    _dilate(columns, height, sign * deformation[0], deformation[1], sign * anchor[0], turned)
    _turn(turned, width, height, message)


@compiled
def best_place(scores, half, deformation, anchor, grid, parent):
    """The position that attains the message at position ``parent``; the first column among equals, then the first row.

    ``scores`` and ``half`` are those of :func:`transform` with sign 1.
    """
    width = grid[1]
    y, x = parent // width, parent % width
    column = _best(half[y * width : (y + 1) * width], deformation[0], deformation[1], x + anchor[0])
    return _best(scores[column::width], deformation[2], deformation[3], y + anchor[1]) * width + column


@inlined
def _best(scores, linear, square, rest):
    """The first r of the largest scores[r], less the cost of r − rest."""
    best, place = -np.inf, 0
    for r in range(scores.shape[0]):
        value = scores[r] - _cost(linear, square, r - rest)
        if value > best:
            best, place = value, r
    return place


@inlined
def _cost(linear, square, d):
    return (linear + square * d) * d


@compiled
def _new_axis(length, lanes):
    padded = np.full((3 * length - 2) * lanes, -np.inf)
    tops = np.empty(max(_BLOCK, lanes))
    line, values, hull, starts = np.empty(length), np.empty(length), np.empty(length, np.int64), np.empty(length)
    return length, padded, np.empty(2 * length - 1), tops, (line, values, hull, starts)


@inlined
def _padded(axis, lanes):
    """The scores of an axis without the rows around them."""
    length, padded = axis[0], axis[1]
    return padded[(length - 1) * lanes : (2 * length - 1) * lanes]


@compiled
def _turn(scores, height, width, turned):
    """Fills ``turned`` [width, height] with the transpose of ``scores`` [height, width], eight rows at a time."""
    target = turned.reshape((width, height))
    whole = height - height % 8
    for y in range(0, whole, 8):
        rows, cells = scores[y * width : (y + 8) * width].reshape((8, width)), target[:, y : y + 8]
        a, b, c, d, e, f, g, h = rows[0], rows[1], rows[2], rows[3], rows[4], rows[5], rows[6], rows[7]
        for x in range(width):
            cells[x, 0], cells[x, 1], cells[x, 2], cells[x, 3] = a[x], b[x], c[x], d[x]
            cells[x, 4], cells[x, 5], cells[x, 6], cells[x, 7] = e[x], f[x], g[x], h[x]
    for y in range(whole, height):
        row, column = scores[y * width : (y + 1) * width], target[:, y]
        for x in range(width):
            column[x] = row[x]


@compiled
def _dilate(axis, lanes, linear, square, anchor, values):
    """values[q, lane] = max_r scores[r, lane] − cost of r − q, for the scores of an axis."""
    length, costs = axis[0], axis[2]
    for shift in range(costs.shape[0]):
        costs[shift] = _cost(linear, square, shift - (length - 1) - anchor)
    cheapest = length - 1 + anchor - (linear / (2 * square) if linear != 0 else 0.0)
    rows = max(1, min(length, _BLOCK // lanes))
    _find_tops(axis, lanes, rows)
    for first in range(0, length, rows):
        last = min(length, first + rows)
        # An envelope is that of a whole line: it fills the values of the blocks before, too.
        if not _dilate_block(axis, lanes, cheapest, first, last, values[first * lanes : last * lanes]):
            _dilate_lines(axis, lanes, linear, square, anchor, values)
            return


@compiled
def _find_tops(axis, lanes, rows):
    """The largest score of each lane, repeated for a block of rows."""
    scores, tops = _padded(axis, lanes), axis[3]
    top = tops[:lanes]
    top[:] = scores[:lanes]
    for q in range(1, axis[0]):
        row = scores[q * lanes : (q + 1) * lanes]
        for i in range(lanes):
            top[i] = row[i] if row[i] > top[i] else top[i]
    for r in range(1, rows):
        tops[r * lanes : (r + 1) * lanes] = top


@compiled
def _dilate_block(axis, lanes, cheapest, first, last, values):
    """Rows ``first`` to ``last``, [last − first, lanes]; false if that takes a window of more than ``_WIDEST``."""
    length, costs = axis[0], axis[2]
    # Shifts that lead from one of these rows to another one of the map.
    least, most = length - last, 2 * length - 2 - first
    low = int(max(least, min(np.floor(cheapest) - 1, most - 3)))
    high = min(low + 3, most)
    shifts = low, min(low + 1, most), min(low + 2, most), high
    values[:] = -np.inf
    while high - low <= _WIDEST:
        below = costs[low - 1] if low > least else np.inf
        above = costs[high + 1] if high < most else np.inf
        if _raise(axis, lanes, first, shifts, min(below, above), values) == 0:
            return True
        # Two more on both sides; a shift that the limits repeat raises nothing.
        shifts = max(low - 2, least), max(low - 1, least), min(high + 1, most), min(high + 2, most)
        low, high = shifts[0], shifts[3]
    return False


@vectorized
def _raise(axis, lanes, first, shifts, bar, values):
    """Raises ``values`` of rows from ``first`` to candidates at four shifts.

    Returns the number of values that a candidate of cost ``bar`` could still raise.
    """
    size, open_ones = values.shape[0], 0
    a, b, c, d = shifts
    of_a, of_b = _candidates(axis, lanes, first + a, size), _candidates(axis, lanes, first + b, size)
    of_c, of_d = _candidates(axis, lanes, first + c, size), _candidates(axis, lanes, first + d, size)
    costs, tops = axis[2], axis[3][:size]
    cost_a, cost_b, cost_c, cost_d = costs[a], costs[b], costs[c], costs[d]
    for i in range(size):
        left, right = of_a[i] - cost_a, of_c[i] - cost_c
        candidate = of_b[i] - cost_b
        left = candidate if candidate > left else left
        candidate = of_d[i] - cost_d
        right = candidate if candidate > right else right
        left = right if right > left else left
        value = left if left > values[i] else values[i]
        values[i] = value
        open_ones += value + bar < tops[i]
    return open_ones


@inlined
def _candidates(axis, lanes, row, size):
    return axis[1][row * lanes : row * lanes + size]


@compiled
def _dilate_lines(axis, lanes, linear, square, anchor, values):
    """The same as :func:`_dilate`, by the envelope of each lane."""
    line, transformed, hull, starts = axis[4]
    scores = _padded(axis, lanes)
    for lane in range(lanes):
        line[:] = scores[lane::lanes]
        _envelope(line, linear, square, anchor, transformed, hull, starts)
        values[lane::lanes] = transformed


@inlined
def _envelope(scores, linear, square, anchor, values, hull, starts):
    """values[q] = max_r scores[r] − linear · d − square · d² with d = r − q − anchor.

    With p = 2 · square · (q + anchor) − linear, the best r is that of the largest scores[r] − square · r² + p · r: the
    vertex of the upper hull of the points (r, scores[r] − square · r²) with the slope −p. Since p does not fall with q,
    one pass from left to right finds the hull, and another one the vertices; squares of weight 0 are no exception.
    ``hull`` and ``starts`` [n] are scratch: vertices, and the least p of each.
    """
    length, last = scores.shape[0], -1
    for r in range(length):
        if scores[r] == -np.inf:
            continue
        start = -np.inf
        while last >= 0:
            s = hull[last]
            start = (scores[s] - scores[r]) / (r - s) + square * (r + s)
            if start > starts[last]:
                break
            last -= 1
            start = -np.inf
        last += 1
        hull[last], starts[last] = r, start
    vertex = 0
    for q in range(length):
        if last < 0:
            values[q] = -np.inf
            continue
        middle = q + anchor
        slope = 2 * square * middle - linear
        while vertex < last and starts[vertex + 1] < slope:
            vertex += 1
        r = hull[vertex]
        values[q] = scores[r] - _cost(linear, square, r - middle)
