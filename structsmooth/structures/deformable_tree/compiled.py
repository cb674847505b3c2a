"""Messages by generalized distance transforms, and inference in one tree.

All functions take float64 arrays: ``unary`` [N, S], scores of the S = H · W positions of a grid, row by row, which may
be minus infinity; ``deformation`` [N, 4], weights of dx, dx², dy and dy², those of the squares at least 0; and
``anchors`` [N, 2], x and y. Positions q of the parent of v and r of v cost ⟨deformation[v], (dx, dx², dy, dy²)⟩, where
(dx, dy) = r − q − anchors[v].

Messages are values alone. Which positions attain them is found on the way back from the root, for the single position
of the parent that is the best one.

Tuples that the functions take:
  scratch: grid of the distance transforms, scores [N, S], messages by rows alone [N, S], message [S]
  problem: unary, deformation, anchors, parents [N], nodes with parents before children [n], scratch
"""

import numpy as np

from structsmooth.compiled.jit import compiled, entry_point
from structsmooth.structures.best_max_marginal_first.compiled import search_with
from structsmooth.structures.deformable_tree.compiled_transform import best_place, new_grid, transform
from structsmooth.structures.tree.compiled import parent_of, topological_order


@compiled
def new_order(parents):
    """The nodes of the trees, parents before children."""
    nodes = parents.shape[0]
    order, first, following = np.empty(nodes, np.int64), np.empty(nodes + 1, np.int64), np.empty(nodes, np.int64)
    count = topological_order(parents, np.ones(nodes, np.bool_), order, first, following)
    return order[:count]


@compiled
def new_scratch(nodes, height, width):
    """Scratch of a problem."""
    positions = height * width
    return new_grid(height, width), np.empty((nodes, positions)), np.empty((nodes, positions)), np.empty(positions)


@compiled
def maximize_scores(problem, y):
    """Max oracle for the unary scores that the scratch of the problem holds, which it changes: fills ``y`` [N]."""
    _, deformation, anchors, parents, order, (grid, scores, halves, message) = problem
    nodes, total = scores.shape[0], 0.0
    for v in order[::-1]:
        p = parent_of(parents, v)
        if p == nodes:
            y[v] = np.argmax(scores[v])
            total += scores[v, y[v]]
            continue
        transform(scores[v], deformation[v], anchors[v], 1, grid, halves[v], message)
        scores[p] += message
    if total == -np.inf:
        y[:] = 0
        return total
    for v in order:
        p = parent_of(parents, v)
        if p < nodes:
            y[v] = best_place(scores[v], halves[v], deformation[v], anchors[v], grid, y[p])
    return total


@compiled
def maximize_allowed(problem, allowed, y):
    """Max oracle over the positions ``allowed`` [N, S]."""
    unary, scores = problem[0], problem[5][1]
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
    unary, deformation, anchors, parents, order, (grid, scores, halves, message) = problem
    nodes, positions = unary.shape
    sent, before, rest = np.empty((nodes, positions)), np.empty((nodes, positions)), np.empty((nodes, positions))
    gathered, behind = 0.0, 0.0  # of the roots
    scores[:] = unary
    for v in order[::-1]:
        p = parent_of(parents, v)
        if p == nodes:
            before[v], sent[v] = gathered, scores[v].max()
            gathered += sent[v, 0]
            continue
        transform(scores[v], deformation[v], anchors[v], 1, grid, halves[v], sent[v])
        before[v] = scores[p]
        scores[p] += sent[v]
    # ψ_{v;q} (Definition 13) = the branch of v with v at q + the rest. The message from above leaves out what v has
    # sent, as what came before it and after it, since differences of -inf would be NaN.
    for v in order:
        p = parent_of(parents, v)
        if p == nodes:
            rest[v] = behind + before[v]
            behind += sent[v, 0]
        else:
            message[:] = rest[p] + before[v]
            rest[p] += sent[v]
            transform(message, deformation[v], anchors[v], -1, grid, halves[v], rest[v])
        table[v] = scores[v] + rest[v]


@entry_point
def batch_top_k(unary, deformation, anchors, parents, shape, values, y, begin, end):
    """Top-K of examples ``begin`` to ``end``: ``values`` [B, k] and ``y`` [B, k, N], which must be -inf and zero."""
    _, nodes, positions = unary.shape
    order, scratch = new_order(parents), new_scratch(nodes, shape[0], shape[1])
    table = np.empty((nodes, positions if values.shape[1] > 1 else 0))
    for b in range(begin, end):
        problem = unary[b], deformation[b], anchors, parents, order, scratch
        scratch[1][:] = unary[b]
        values[b, 0] = maximize_scores(problem, y[b, 0])
        if values[b, 0] > -np.inf and values.shape[1] > 1:
            max_marginals(problem, table)
            _search(problem, table, values[b], y[b])


@entry_point
def batch_max_marginals(unary, deformation, anchors, parents, shape, table, begin, end):
    """Max-marginals [B, N, S] of examples ``begin`` to ``end``."""
    order, scratch = new_order(parents), new_scratch(unary.shape[1], shape[0], shape[1])
    for b in range(begin, end):
        max_marginals((unary[b], deformation[b], anchors, parents, order, scratch), table[b])
