"""Matchings of rows and columns with several places: flows of least cost, and loops over a batch of them.

Places that stay free are pairs, too: a last row takes those of columns, and a last column those of rows. So each row
sends, and each column receives, as many units as it has places. ``cost`` [n + 1, m + 1] is minus the scores, and
``flow`` [n + 1, m + 1] the units that a row sends to a column, from ``low`` to ``high``. A node's ``excess``
[n + m + 2], rows first, is what it still has to pass on, and negative where it lacks some. Prices ``u`` [n + 1] and
``v`` [m + 1] prove a flow to be the best: reduced costs, which are cost - u - v, are not negative where the flow could
be larger, and not positive where it could be smaller.
"""

import numpy as np

from structsmooth.compiled.jit import compiled, entry_point, inlined
from structsmooth.structures.best_max_marginal_first.compiled import search_with

# Tuples that the functions take:
#   network: cost, low, high
#   state: flow, excess, u, v
#   work: distance to each node, node before it, nodes in the order they are reached


@compiled
def _new_network(scores, rows, columns):
    """Network and state of one example with ``rows`` [n] and ``columns`` [m] places; no unit has been sent.

    Pairs have one unit. The last column has the places of all rows, and the last row those of all columns, of which
    each leaves to the other what it does not use.
    """
    n, m = rows.shape[0], columns.shape[0]
    units = rows.sum() + columns.sum()
    cost, high = -scores, np.zeros((n + 1, m + 1), np.int64)
    for i in range(n + 1):
        for j in range(m + 1):
            if cost[i, j] < np.inf:
                high[i, j] = 1 if i < n and j < m else units
    excess = np.empty(n + m + 2, np.int64)
    excess[:n] = rows
    excess[n] = columns.sum()
    excess[n + 1 : -1] = -columns
    excess[-1] = -rows.sum()
    return (cost, np.zeros((n + 1, m + 1), np.int64), high), (
        np.zeros((n + 1, m + 1), np.int64),
        excess,
        np.zeros(n + 1),
        np.zeros(m + 1),
    )


@compiled
def _new_work(nodes):
    return np.empty(nodes), np.empty(nodes, np.int64), np.empty(nodes, np.int64)


@inlined
def _reduced(network, state, i, j):
    return network[0][i, j] - state[2][i] - state[3][j]


@compiled
def _reach(start, to_all, network, state, work):
    """Shortest paths of units from ``start`` by reduced costs, ``to_all`` nodes or the first that lacks one (Dijkstra).

    Returns how many nodes were reached before that one or, if there is none, how many there are within reach.
    """
    _, low, high = network
    flow, excess, _, _ = state
    distance, before, order = work
    rows, nodes = flow.shape[0], distance.shape[0]
    for node in range(nodes):
        distance[node], before[node], order[node] = np.inf, -1, node
    distance[start] = 0.0
    for reached in range(nodes):
        nearest, at = np.inf, reached
        for q in range(reached, nodes):
            if distance[order[q]] < nearest:
                nearest, at = distance[order[q]], q
        if nearest == np.inf:
            return reached
        node = order[at]
        order[at], order[reached] = order[reached], node
        if excess[node] < 0 and not to_all:
            return reached
        # Nodes that have been reached are not farther than this one, and keep their distances.
        if node < rows:
            for j in range(nodes - rows):
                # Rounding may leave a reduced cost a little below zero, with which Dijkstra's order would not hold.
                through = nearest + max(0.0, _reduced(network, state, node, j))
                if through < distance[rows + j] and flow[node, j] < high[node, j]:
                    distance[rows + j], before[rows + j] = through, node
        else:
            j = node - rows
            for i in range(rows):
                if flow[i, j] > low[i, j]:
                    through = nearest + max(0.0, -_reduced(network, state, i, j))
                    if through < distance[i]:
                        distance[i], before[i] = through, node
    return nodes


@inlined
def _arc(node, before, rows):
    """Row and column of a step of a path, and whether it sends a unit (1) or takes one back (-1)."""
    if before < rows:
        return before, node - rows, 1
    return node, before - rows, -1


@compiled
def _send(start, network, state, work):
    """Send what ``start`` has in excess along shortest paths to nodes that lack some; false if that is impossible."""
    _, low, high = network
    flow, excess, u, v = state
    distance, before, order = work
    rows = flow.shape[0]
    while excess[start] > 0:
        reached = _reach(start, False, network, state, work)
        if reached == order.shape[0] or distance[order[reached]] == np.inf:
            return False
        end = order[reached]
        # Prices move by what a node is nearer than the end. This keeps reduced costs of all arcs from falling below
        # zero, and makes those along the path zero, so that the way back may be opened.
        for q in range(reached):
            node = order[q]
            if node < rows:
                u[node] += distance[end] - distance[node]
            else:
                v[node - rows] -= distance[end] - distance[node]
        units, node = min(excess[start], -excess[end]), end
        while node != start:
            i, j, sign = _arc(node, before[node], rows)
            units = min(units, high[i, j] - flow[i, j] if sign > 0 else flow[i, j] - low[i, j])
            node = before[node]
        excess[start] -= units
        excess[end] += units
        node = end
        while node != start:
            i, j, sign = _arc(node, before[node], rows)
            flow[i, j] += sign * units
            node = before[node]
    return True


@compiled
def _weight(cost, flow):
    total = 0.0
    for i in range(flow.shape[0]):
        for j in range(flow.shape[1]):
            if flow[i, j] > 0:
                total -= flow[i, j] * cost[i, j]
    return total


@compiled
def _solve(network, state, work):
    """Max oracle: fill the flow of ``state``, path by path; returns its score, -inf if there is none."""
    cost, _, high = network
    flow, _, u, v = state
    for i in range(flow.shape[0]):
        # The largest price with which no pair of the row has a negative reduced cost, whatever signs the scores have.
        u[i] = np.inf
        for j in range(flow.shape[1]):
            if high[i, j] > 0:
                u[i] = min(u[i], cost[i, j] - v[j])
        if u[i] == np.inf:
            u[i] = 0.0
        if not _send(i, network, state, work):
            return -np.inf
    return _weight(cost, flow)


@compiled
def _maximize(problem, allowed, y):
    """Max oracle under constraints, for best max-marginal first: ``allowed`` [n m, 2] of pairs left out and taken.

    The best flow of all is kept but for pairs that are now forbidden or required, whose units are sent anew.
    """
    network, best, low, high, state, work = problem
    flow, excess, u, v = state
    flow[:] = best[0]
    excess[:] = best[1]
    u[:] = best[2]
    v[:] = best[3]
    low[:] = network[1]
    high[:] = network[2]
    rows, columns = flow.shape[0] - 1, flow.shape[1] - 1
    for pair in range(allowed.shape[0]):
        i, j = pair // columns, pair % columns
        if not allowed[pair, 0]:
            low[i, j] = 1
        if not allowed[pair, 1]:
            high[i, j] = 0
        if low[i, j] > high[i, j]:
            return -np.inf
        change = min(max(flow[i, j], low[i, j]), high[i, j]) - flow[i, j]
        flow[i, j] += change
        excess[i] -= change
        excess[rows + 1 + j] += change
    constrained = network[0], low, high
    for node in range(excess.shape[0]):
        if not _send(node, constrained, state, work):
            return -np.inf
    for pair in range(y.shape[0]):
        y[pair] = flow[pair // columns, pair % columns]
    return _weight(network[0], flow)


_search = search_with(_maximize)


@compiled
def _table(network, state, work, best, table):
    """Fill ``table`` [n m, 2] with the best scores without and with each pair (Theorem 46's max-marginals).

    A pair changes along a cycle: a unit more is sent, and the rest of the cycle is a shortest path back.
    """
    flow = state[0]
    rows, columns = flow.shape[0] - 1, flow.shape[1] - 1
    distance = work[0]
    table[:] = -np.inf
    for start in range(rows + 1 + columns):
        if start == rows:
            continue
        _reach(start, True, network, state, work)
        for other in range(columns if start < rows else rows):
            i, j = (start, other) if start < rows else (other, start - rows - 1)
            back = distance[rows + 1 + j] if start < rows else distance[i]
            if flow[i, j] == (start < rows):
                table[i * columns + j, 1 - flow[i, j]] = best - abs(_reduced(network, state, i, j)) - back
                table[i * columns + j, flow[i, j]] = best


@entry_point
def batch_top_k(scores, rows, columns, values, y, begin, end):
    """Top-K of examples ``begin`` to ``end``: ``values`` [B, k] and ``y`` [B, k, n m], which must be -inf and zero."""
    for b in range(begin, end):
        network, state = _new_network(scores[b], rows[b], columns[b])
        work = _new_work(state[1].shape[0])
        best = _solve(network, state, work)
        if best == -np.inf:
            continue
        values[b, 0] = best
        y[b, 0] = state[0][:-1, :-1].copy().reshape(-1)
        if values.shape[1] > 1:
            table = np.empty((y.shape[2], 2))
            _table(network, state, work, best, table)
            changed = state[0].copy(), state[1].copy(), state[2].copy(), state[3].copy()
            problem = network, state, network[1].copy(), network[2].copy(), changed, work
            _search(problem, table, values[b], y[b])


@entry_point
def batch_max_marginals(scores, rows, columns, out, begin, end):
    """Best scores ``out`` [B, n, m] with each pair; -inf where no matching has it."""
    for b in range(begin, end):
        network, state = _new_network(scores[b], rows[b], columns[b])
        work = _new_work(state[1].shape[0])
        best = _solve(network, state, work)
        if best == -np.inf:
            out[b] = -np.inf
            continue
        table = np.empty((out[b].size, 2))
        _table(network, state, work, best, table)
        out[b] = table[:, 1].copy().reshape(out[b].shape)


@entry_point
def batch_max_marginals_gradient(scores, rows, columns, shares, gradient, begin, end):
    """Add to ``gradient`` [B, n + 1, m + 1] the gradient of the sum of ``shares`` times max-marginals."""
    for b in range(begin, end):
        network, state = _new_network(scores[b], rows[b], columns[b])
        work = _new_work(state[1].shape[0])
        if _solve(network, state, work) == -np.inf:
            continue
        flow, (distance, before, _) = state[0], work
        n, m = shares[b].shape
        total = 0.0
        for j in range(m):
            start = n + 1 + j
            _reach(start, True, network, state, work)
            for i in range(n):
                share = shares[b, i, j]
                if flow[i, j] == 1:
                    total += share
                elif share != 0.0 and network[2][i, j] > 0 and distance[i] < np.inf:
                    total += share
                    gradient[b, i, j] += share
                    node = i
                    while node != start:
                        r, c, sign = _arc(node, before[node], n + 1)
                        gradient[b, r, c] += sign * share
                        node = before[node]
        # Each max-marginal is the score of the best flow, changed along a cycle.
        gradient[b] += total * flow
