"""Inference in one matching, and loops over a batch of matchings.

A matching assigns each of n rows a column of its own among m >= n. ``cost`` [n + 1, m] is minus the weights, float64,
where plus infinity forbids a pair; its last row is zero and stands for the owner of all columns that no row takes.
Prices ``u`` [n + 1] and ``v`` [m] prove an assignment optimal: reduced costs, which are cost - u - v, are not negative,
and zero where a column is assigned.
"""

import numpy as np

from structsmooth.compiled.jit import compiled, entry_point, inlined
from structsmooth.structures.best_max_marginal_first.compiled import search_with

# Tuples that the functions take:
#   assignment: column of each row [n], row of each column [m] (n: the owner of the rest, -1: nobody), u, v
#   work: distance to each column [m], row before it [m], columns in the order they are reached [m]


@compiled
def _new_assignment(cost):
    rows, columns = cost.shape[0] - 1, cost.shape[1]
    return np.empty(rows, np.int64), np.empty(columns, np.int64), np.empty(rows + 1), np.empty(columns)


@compiled
def _new_work(columns):
    return np.empty(columns), np.empty(columns, np.int64), np.empty(columns, np.int64)


@compiled
def _weight(cost, column_of):
    total = 0.0
    for row in range(column_of.shape[0]):
        total -= cost[row, column_of[row]]
    return total


@compiled
def _solve(cost, assignment, work):
    """Max oracle: fill ``assignment`` with an optimal one; returns its weight, -inf if there is none. O(n² m)."""
    column_of, row_of, u, v = assignment
    row_of[:] = -1
    u[:] = 0.0
    v[:] = 0.0
    for row in range(column_of.shape[0]):
        if not _assign(row, cost, assignment, work):
            return -np.inf
    for j in range(row_of.shape[0]):
        if row_of[j] < 0:
            row_of[j] = column_of.shape[0]
    return _weight(cost, column_of)


@compiled
def _assign(row, cost, assignment, work):
    """Assign ``row`` along the shortest path, by reduced costs, to a column of nobody (Jonker and Volgenant 1987).

    Rows on the path move on to the next column. False if there is no such path.
    """
    column_of, row_of, u, v = assignment
    distance, before, order = work
    rows, columns = column_of.shape[0], row_of.shape[0]
    for j in range(columns):
        distance[j] = np.inf
        order[j] = j
    length, reached, i, entry = 0.0, 0, row, -1
    while True:
        nearest, at = np.inf, 0
        for q in range(reached, columns):
            j = order[q]
            through = length + (cost[i, j] - u[i] - v[j])
            if through < distance[j]:
                distance[j], before[j] = through, i
            if distance[j] < nearest:
                nearest, at = distance[j], q
        # All other columns are forbidden for the rows that were reached.
        if nearest == np.inf:
            return False
        column, length = order[at], nearest
        order[at], order[reached] = order[reached], column
        i = row_of[column]
        if i < 0:
            break
        # The owner of the rest has several columns, and is reached by the nearest one: its distance is the owner's.
        if i == rows and entry < 0:  # the first column by which the owner of the rest is reached
            entry = column
        reached += 1
    # Prices of reached rows and columns move by what they are nearer than the end: reduced costs stay non-negative, and
    # those along the path become zero (Johnson 1977).
    u[row] += length
    if entry >= 0:
        u[rows] += length - distance[entry]
    for q in range(reached):
        j = order[q]
        if row_of[j] < rows:
            u[row_of[j]] += length - distance[j]
        v[j] -= length - distance[j]
    # Back along the path: each row takes the column that was reached from it, and leaves its own to the one before.
    while True:
        i = before[column]
        row_of[column] = i
        if i == rows:
            column = entry
        else:
            column, column_of[i] = column_of[i], column
        if i == row:
            return True


@inlined
def _reduced(cost, assignment, i, j):
    return max(0.0, cost[i, j] - assignment[2][i] - assignment[3][j])


@compiled
def _exchanges(cost, assignment, step, taken):
    """``step[i, r]`` [n + 1, n + 1]: price at which row r takes over the column of row i; row n owns the rest.

    ``taken`` [n] is the column of the rest that each row would take.
    """
    column_of, row_of, _, _ = assignment
    rows = column_of.shape[0]
    for r in range(rows + 1):
        for i in range(rows):
            step[i, r] = _reduced(cost, assignment, r, column_of[i])
        step[rows, r] = np.inf
    for j in range(row_of.shape[0]):
        if row_of[j] == rows:
            for r in range(rows):
                price = _reduced(cost, assignment, r, j)
                if price < step[rows, r]:
                    step[rows, r], taken[r] = price, j


@compiled
def _takeovers(target, step, price, follower, order):
    """Shortest paths of takeovers to the column of row ``target`` (Dijkstra).

    ``price`` [n + 1] is the least at which a row that has lost its column gets another; it takes over the column of
    its ``follower``, that one the column of its own, until the target's column is taken.
    """
    nodes = step.shape[0]
    for r in range(nodes):
        price[r] = np.inf
        order[r] = r
    price[target] = 0.0
    for reached in range(nodes):
        nearest, at = np.inf, 0
        for q in range(reached, nodes):
            if price[order[q]] < nearest:
                nearest, at = price[order[q]], q
        if nearest == np.inf:
            return
        i = order[at]
        order[at] = order[reached]
        for q in range(reached + 1, nodes):
            r = order[q]
            if nearest + step[i, r] < price[r]:
                price[r], follower[r] = nearest + step[i, r], i


@compiled
def _new_table(rows):
    """Workspace of :func:`_exchanges` and :func:`_takeovers`."""
    nodes = rows + 1
    return (
        np.empty((nodes, nodes)),
        np.empty(nodes, np.int64),
        np.empty(nodes),
        np.empty(nodes, np.int64),
        np.empty(nodes, np.int64),
    )


@compiled
def _max_marginals(cost, assignment, best, out):
    """Fill ``out`` [n, m] from an optimal assignment of weight ``best`` (Algorithm 12), in O(n³ + n m)."""
    column_of, row_of, _, _ = assignment
    rows, columns = out.shape
    if best == -np.inf:
        out[:] = -np.inf
        return
    step, taken, price, follower, order = _new_table(rows)
    _exchanges(cost, assignment, step, taken)
    for r in range(rows):
        _takeovers(r, step, price, follower, order)
        for j in range(columns):
            # With the pair (r, j), the owner of j has lost its column, and r's own column is free for the last
            # takeover.
            out[r, j] = best - (_reduced(cost, assignment, r, j) + price[row_of[j]])
        out[r, column_of[r]] = best


@compiled
def _maximize(problem, allowed, y):
    """Max oracle under constraints, for best max-marginal first.

    Prices stay valid as long as costs only rise, so the optimal assignment is kept except for newly forbidden pairs.
    """
    cost, optimal, constrained, assignment, work = problem
    column_of, row_of, u, v = assignment
    column_of[:] = optimal[0]
    row_of[:] = optimal[1]
    u[:] = optimal[2]
    v[:] = optimal[3]
    for r in range(allowed.shape[0]):
        for j in range(allowed.shape[1]):
            constrained[r, j] = cost[r, j] if allowed[r, j] else np.inf
        # Its column is nobody's until the row, and whoever it pushes on, has another one.
        if not allowed[r, column_of[r]]:
            row_of[column_of[r]] = -1
    for r in range(allowed.shape[0]):
        if not allowed[r, optimal[0][r]] and not _assign(r, constrained, assignment, work):
            return -np.inf
    y[:] = column_of
    return _weight(cost, column_of)


_search = search_with(_maximize)


@compiled
def _costs(weights, size):
    rows, columns = size[0], size[1]
    cost = np.zeros((rows + 1, columns))
    for r in range(rows):
        for j in range(columns):
            cost[r, j] = -weights[r, j]
    return cost


@entry_point
def batch_top_k(weights, sizes, values, y, begin, end):
    """Top-K of examples ``begin`` to ``end``: ``values`` [B, k] and ``y`` [B, k, N], which must be -inf and zero."""
    for b in range(begin, end):
        cost = _costs(weights[b], sizes[b])
        rows, columns = sizes[b]
        optimal, work = _new_assignment(cost), _new_work(columns)
        best = _solve(cost, optimal, work)
        if best == -np.inf:
            continue
        values[b, 0] = best
        y[b, 0, :rows] = optimal[0]
        if values.shape[1] > 1:
            table = np.empty((rows, columns))
            _max_marginals(cost, optimal, best, table)
            problem = cost, optimal, cost.copy(), _new_assignment(cost), work
            _search(problem, table, values[b], y[b, :, :rows])


@entry_point
def batch_max_marginals(weights, sizes, out, begin, end):
    """Max-marginals of examples ``begin`` to ``end`` into ``out`` [B, N, M]; nothing is written at padding."""
    for b in range(begin, end):
        cost = _costs(weights[b], sizes[b])
        rows, columns = sizes[b]
        optimal = _new_assignment(cost)
        best = _solve(cost, optimal, _new_work(columns))
        _max_marginals(cost, optimal, best, out[b, :rows, :columns])


@compiled
def _add_marginal(r, j, weight, assignment, taken, follower, gradient):
    """Add ``weight`` times the difference between the best matching with pair (r, j) and the optimal one."""
    column_of, row_of, _, _ = assignment
    rows = column_of.shape[0]
    gradient[r, column_of[r]] -= weight
    gradient[r, j] += weight
    i = row_of[j]
    while i != r:
        successor = follower[i]
        if i < rows:
            gradient[i, column_of[i]] -= weight
            gradient[i, taken[i] if successor == rows else column_of[successor]] += weight
        i = successor


@entry_point
def batch_max_marginals_gradient(weights, sizes, shares, gradient, begin, end):
    """Add to ``gradient`` [B, N, M] the gradient of the sum of ``shares`` times max-marginals."""
    for b in range(begin, end):
        cost = _costs(weights[b], sizes[b])
        rows, columns = sizes[b]
        optimal = _new_assignment(cost)
        if _solve(cost, optimal, _new_work(columns)) == -np.inf:
            continue
        column_of, row_of, _, _ = optimal
        step, taken, price, follower, order = _new_table(rows)
        _exchanges(cost, optimal, step, taken)
        total = 0.0
        for r in range(rows):
            _takeovers(r, step, price, follower, order)
            for j in range(columns):
                share = shares[b, r, j]
                if cost[r, j] + price[row_of[j]] < np.inf:
                    total += share
                    if j != column_of[r] and share != 0.0:
                        _add_marginal(r, j, share, optimal, taken, follower, gradient[b])
        for r in range(rows):
            gradient[b, r, column_of[r]] += total
