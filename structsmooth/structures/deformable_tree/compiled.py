"""Messages by generalized distance transforms (Felzenszwalb and Huttenlocher 2012), and inference in one tree.

All functions take float64 arrays: ``unary`` [N, S], scores of the S = H · W positions of a grid, row by row, which may
be minus infinity; ``deformation`` [N, 4], weights of dx, dx², dy and dy², those of the squares at least 0; and
``anchors`` [N, 2], x and y. Positions q of the parent of v and r of v cost ⟨deformation[v], (dx, dx², dy, dy²)⟩, where
(dx, dy) = r − q − anchors[v].

Tuples that the functions take:
  grid: height, width, a map transformed along its rows [W, H] and the columns chosen there [W, H], a line and the
    places chosen there [longer side], and scratch of :func:`transform_line`
  problem: unary, deformation, anchors, parents [N], nodes with parents before children [n], grid, scores [N, S],
    message [S], choices [N, S]
"""

import numpy as np

from structsmooth.compiled.jit import compiled, entry_point, inlined
from structsmooth.structures.best_max_marginal_first.compiled import search_with
from structsmooth.structures.tree.compiled import parent_of, topological_order


@inlined
def transform_line(scores, linear, square, anchor, values, choices, scratch):
    """values[q] = max_r scores[r] − linear · d − square · d² with d = r − q − anchor, and the r that attains it.

    With p = 2 · square · (q + anchor) − linear, the best r is that of the largest scores[r] − square · r² + p · r: the
    vertex of the upper hull of the points (r, scores[r] − square · r²) with the slope −p. Since p does not fall with q,
    one pass from left to right finds the hull, and another one the vertices; squares of weight 0 are no exception.
    ``hull`` and ``starts`` [n] are scratch: vertices, and the least p of each. ``reciprocals[n]`` is 1 / n.
    """
    hull, starts, reciprocals = scratch
    length, last = scores.shape[0], -1
    for r in range(length):
        if scores[r] == -np.inf:
            continue
        start = -np.inf
        while last >= 0:
            s = hull[last]
            start = (scores[s] - scores[r]) * reciprocals[r - s] + square * (r + s)
            if start > starts[last]:
                break
            last -= 1
            start = -np.inf
        last += 1
        hull[last], starts[last] = r, start
    vertex = 0
    for q in range(length):
        if last < 0:
            values[q], choices[q] = -np.inf, 0
            continue
        middle = q + anchor
        slope = 2 * square * middle - linear
        while vertex < last and starts[vertex + 1] < slope:
            vertex += 1
        r = hull[vertex]
        d = r - middle
        values[q], choices[q] = scores[r] - (linear + square * d) * d, r


@compiled
def transform(scores, deformation, anchor, sign, grid, message, choices):
    """Fills ``message`` [S] with the best score, less its cost, for each position; ``choices`` [S] are the positions.

    With ``sign`` 1 scores are those of a node and the message is to its parent, with -1 the other way round.
    """
    height, width, half, columns, line, places, scratch = grid
    linear, square, rest = sign * deformation[0], deformation[1], sign * anchor[0]
    for y in range(height):
        transform_line(scores[y * width : (y + 1) * width], linear, square, rest, line, places, scratch)
        for x in range(width):
            half[x, y], columns[x, y] = line[x], places[x]
    linear, square, rest = sign * deformation[2], deformation[3], sign * anchor[1]
    for x in range(width):
        transform_line(half[x], linear, square, rest, line, places, scratch)
        for y in range(height):
            row = places[y]
            message[y * width + x], choices[y * width + x] = line[y], row * width + columns[x, row]


@compiled
def new_grid(height, width):
    """Scratch of :func:`transform`."""
    longer = max(height, width)
    reciprocals = np.zeros(longer)
    for distance in range(1, longer):
        reciprocals[distance] = 1 / distance
    half, columns = np.empty((width, height)), np.empty((width, height), np.int32)
    line, places = np.empty(longer), np.empty(longer, np.int32)
    return height, width, half, columns, line, places, (np.empty(longer, np.int32), np.empty(longer), reciprocals)


@compiled
def new_order(parents):
    """The nodes of the trees, parents before children."""
    nodes = parents.shape[0]
    order, first, following = np.empty(nodes, np.int64), np.empty(nodes + 1, np.int64), np.empty(nodes, np.int64)
    count = topological_order(parents, np.ones(nodes, np.bool_), order, first, following)
    return order[:count]


@compiled
def new_problem(unary, deformation, anchors, parents, order, grid):
    """A problem with its scratch."""
    nodes, positions = unary.shape
    scores, message = np.empty((nodes, positions)), np.empty(positions)
    choices = np.empty((nodes, positions), np.int32)
    return unary, deformation, anchors, parents, order, grid, scores, message, choices


@compiled
def maximize_scores(problem, y):
    """Max oracle for the unary scores that ``scores`` of the problem hold, which it changes: fills ``y`` [N]."""
    _, deformation, anchors, parents, order, grid, scores, message, choices = problem
    nodes, total = scores.shape[0], 0.0
    for v in order[::-1]:
        p = parent_of(parents, v)
        if p == nodes:
            best = np.argmax(scores[v])
            choices[v, 0] = best
            total += scores[v, best]
            continue
        transform(scores[v], deformation[v], anchors[v], 1, grid, message, choices[v])
        for q in range(message.shape[0]):
            scores[p, q] += message[q]
    if total > -np.inf:
        for v in order:
            p = parent_of(parents, v)
            y[v] = choices[v, y[p] if p < nodes else 0]
    return total


@compiled
def maximize_allowed(problem, allowed, y):
    """Max oracle over the positions ``allowed`` [N, S]."""
    unary, scores = problem[0], problem[6]
    for v in range(unary.shape[0]):
        for q in range(unary.shape[1]):
            scores[v, q] = unary[v, q] if allowed[v, q] else -np.inf
    return maximize_scores(problem, y)


_search = search_with(maximize_allowed)


@compiled
def max_marginals(problem, table):
    """Fills ``table`` [N, S]: the best score of the branch of each node plus the best score of the rest.

    ``before`` is what a parent had gathered before the message of a node; ``rest`` is what a node gets from above and,
    as they are visited, from its children, which come in the reverse of the order in which their messages were sent.
    """
    unary, deformation, anchors, parents, order, grid, scores, message, choices = problem
    nodes, positions = unary.shape
    sent, before, rest = np.zeros((3, nodes, positions))
    gathered, behind = 0.0, 0.0  # of the roots
    scores[:] = unary
    for v in order[::-1]:
        p = parent_of(parents, v)
        if p == nodes:
            before[v], sent[v] = gathered, scores[v].max()
            gathered += sent[v, 0]
            continue
        transform(scores[v], deformation[v], anchors[v], 1, grid, sent[v], choices[v])
        before[v] = scores[p]
        scores[p] += sent[v]
    for v in order:
        p = parent_of(parents, v)
        if p == nodes:
            rest[v] = behind + before[v]
            behind += sent[v, 0]
        else:
            message[:] = rest[p] + before[v]
            rest[p] += sent[v]
            transform(message, deformation[v], anchors[v], -1, grid, rest[v], choices[v])
        table[v] = scores[v] + rest[v]


@entry_point
def batch_top_k(unary, deformation, anchors, parents, shape, values, y, begin, end):
    """Top-K of examples ``begin`` to ``end``: ``values`` [B, k] and ``y`` [B, k, N], which must be -inf and zero."""
    _, nodes, positions = unary.shape
    order, grid = new_order(parents), new_grid(shape[0], shape[1])
    table = np.empty((nodes, positions if values.shape[1] > 1 else 0))
    for b in range(begin, end):
        problem = new_problem(unary[b], deformation[b], anchors, parents, order, grid)
        problem[6][:] = unary[b]
        values[b, 0] = maximize_scores(problem, y[b, 0])
        if values[b, 0] > -np.inf and values.shape[1] > 1:
            max_marginals(problem, table)
            _search(problem, table, values[b], y[b])


@entry_point
def batch_max_marginals(unary, deformation, anchors, parents, shape, table, begin, end):
    """Max-marginals [B, N, S] of examples ``begin`` to ``end``."""
    order, grid = new_order(parents), new_grid(shape[0], shape[1])
    for b in range(begin, end):
        max_marginals(new_problem(unary[b], deformation[b], anchors, parents, order, grid), table[b])
