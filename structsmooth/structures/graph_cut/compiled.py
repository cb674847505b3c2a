"""Inference in one binary graph by minimum cuts, and loops over a batch of graphs.

Scores are float64 arrays: ``unary`` [N, 2] and ``pairwise`` [E, 2, 2], whose entries may be minus infinity, for
``edges`` [E, 2]. Nodes labelled 1 are those on the side of the source. ``excess`` [N] is what the source can still
send to a node or, where negative, what the node can still send to the sink. ``residual`` [2E] is what an arc can
still carry. Arcs lead along each edge and back, and are sorted by the node that they leave. Capacities may be infinite.

Flows in floating point are safe here. A path takes from each of its arcs the least of their capacities, so that one
becomes exactly zero, and the flow is maximal after as many steps as in exact arithmetic. Roundings are relative
to the capacity of each arc by itself, and a reported score is that of the labels, summed anew.
"""

import numpy as np

from structsmooth.compiled.jit import compiled, entry_point, inlined
from structsmooth.structures.best_max_marginal_first.compiled import search_with
from structsmooth.structures.graph_cut.compiled_flow import maximize_flow, new_work

# Tuples that the functions take:
#   graph: offsets [N + 1] of the arcs that leave each node, the reverse of each arc [2E], heads of the arcs [2E], and
#          arcs from the first and from the second end of each edge [E, 2]
#   flow: excess, residual, and closed [N]: whether no path leads on from a node to the sink
#   work: see .compiled_flow
#   problem: unary, pairwise, edges, graph, maximal flow, flow of a constrained problem, work


@compiled
def adjacency(nodes, edges):
    """The graph of the edges."""
    count = 2 * edges.shape[0]
    offsets, arcs = np.zeros(nodes + 1, np.int32), np.empty((edges.shape[0], 2), np.int32)
    sisters, heads = np.empty(count, np.int32), np.empty(count, np.int32)
    for e in range(edges.shape[0]):
        offsets[edges[e, 0] + 1] += 1
        offsets[edges[e, 1] + 1] += 1
    for v in range(nodes):
        offsets[v + 1] += offsets[v]
    position = offsets[:nodes].copy()
    for e in range(edges.shape[0]):
        for end in range(2):
            tail = edges[e, end]
            arcs[e, end] = position[tail]
            heads[position[tail]] = edges[e, 1 - end]
            position[tail] += 1
        sisters[arcs[e, 0]], sisters[arcs[e, 1]] = arcs[e, 1], arcs[e, 0]
    return offsets, sisters, heads, arcs


@compiled
def new_flow(graph):
    """Arrays for a flow."""
    nodes = graph[0].shape[0] - 1
    return np.empty(nodes), np.empty(graph[1].shape[0]), np.empty(nodes, np.bool_)


@inlined
def _gain(first, second):
    """Difference of the first pair of scores that has one."""
    if first[0] > -np.inf and first[1] > -np.inf:
        return first[0] - first[1]
    return second[0] - second[1] if second[0] > -np.inf and second[1] > -np.inf else 0.0


@inlined
def _forced(zeros, ones):
    """Infinite gain of label 1 where both scores with label 0 are forbidden, or the reverse; NaN where both hold."""
    gain = 0.0
    if max(zeros[0], zeros[1]) == -np.inf:
        gain += np.inf
    if max(ones[0], ones[1]) == -np.inf:
        gain -= np.inf
    return gain


@inlined
def normal_form(s00, s01, s10, s11):
    """Gains of label 1 at both nodes and penalties of labels (1, 0) and (0, 1): the scores, up to a constant.

    Among the ways to decompose a supermodular table (Kolmogorov and Zabih 2004) this is the one with a gain of zero
    or, failing that, a penalty of zero. It never takes the difference of two sums with a common large term, so a huge
    penalty does not cost the gains any digits.
    """
    if s00 == -np.inf or s11 == -np.inf:  # then a label is forced, and scores add up
        first = _gain((s11, s01), (s10, s00)) + _forced((s00, s01), (s10, s11))
        second = _gain((s11, s10), (s01, s00)) + _forced((s00, s10), (s01, s11))
        return first, second, 0.0, 0.0
    if s10 >= s00:
        return s10 - s00, s11 - s10, 0.0, max(0.0, (s00 - s10) + (s11 - s01))
    if s01 >= s11:
        return s11 - s01, s01 - s00, max(0.0, (s00 - s10) + (s11 - s01)), 0.0
    return 0.0, s11 - s00, s00 - s10, s11 - s01


@compiled
def _build(unary, pairwise, edges, arcs, flow):
    """Capacities of the graph whose cuts are labelings; the size of a cut is a constant minus its score."""
    excess, residual, closed = flow
    for v in range(unary.shape[0]):
        excess[v] = unary[v, 1] - unary[v, 0]
        closed[v] = False
    for e in range(edges.shape[0]):
        table = pairwise[e]
        first, second, forward, backward = normal_form(table[0, 0], table[0, 1], table[1, 0], table[1, 1])
        excess[edges[e, 0]] += first
        excess[edges[e, 1]] += second
        residual[arcs[e, 0]], residual[arcs[e, 1]] = forward, backward


@compiled
def _score(problem, labels):
    unary, pairwise, edges = problem[:3]
    total = 0.0
    for v in range(unary.shape[0]):
        total += unary[v, int(labels[v])]
    for e in range(edges.shape[0]):
        total += pairwise[e, int(labels[edges[e, 0]]), int(labels[edges[e, 1]])]
    return total


@compiled
def _solve(problem):
    """Max oracle: labels are ``closed`` of the maximal flow. Returns the score, -inf if there are no outputs."""
    unary, pairwise, edges, graph, flow, _, work = problem
    excess, _, closed = flow
    _build(unary, pairwise, edges, graph[3], flow)
    for v in range(excess.shape[0]):
        if np.isnan(excess[v]):  # forced to both labels
            return -np.inf
    return _score(problem, closed) if maximize_flow(graph, flow, work) else -np.inf


@compiled
def _copy(flow, other):
    other[0][:] = flow[0]
    other[1][:] = flow[1]
    other[2][:] = flow[2]


@compiled
def _mirror(graph, flow, mirrored, work):
    """The same maximal flow with the labels exchanged: from sink to source."""
    sisters = graph[1]
    excess, residual, _ = flow
    other_excess, other_residual, closed = mirrored
    for v in range(excess.shape[0]):
        other_excess[v] = -excess[v]
        closed[v] = False
    for arc in range(residual.shape[0]):
        other_residual[arc] = residual[sisters[arc]]
    maximize_flow(graph, mirrored, work)  # it is maximal: this only closes


@compiled
def _flip(v, problem, mirrored):
    """Best labels with the other label at ``v`` go to ``closed`` of the constrained flow; returns their score.

    For label 1 it continues the maximal flow, for label 0 the mirrored one; all excess is at ``v``.
    """
    graph, flow, constrained, work = problem[3:]
    to_zero = flow[2][v]
    _copy(mirrored if to_zero else flow, constrained)
    excess, _, closed = constrained
    if excess[v] == -np.inf:
        return -np.inf
    excess[v] = np.inf
    if not maximize_flow(graph, constrained, work):
        return -np.inf
    if to_zero:
        for i in range(closed.shape[0]):
            closed[i] = not closed[i]
    return _score(problem, closed)


@compiled
def _max_marginals(problem, best, out):
    """Fill ``out`` [N, 2] for a problem that is solved, with score ``best``: a maximal flow continued N times."""
    graph, flow, _, work = problem[3:]
    if best == -np.inf:
        out[:] = -np.inf
        return
    labels, mirrored = flow[2], new_flow(graph)
    _mirror(graph, flow, mirrored, work)
    for v in range(out.shape[0]):
        label = int(labels[v])
        out[v, label], out[v, 1 - label] = best, _flip(v, problem, mirrored)


@compiled
def _maximize(problem, allowed, y):
    """Max oracle under constraints, for best max-marginal first; continues the maximal flow."""
    graph, flow, constrained, work = problem[3:]
    _copy(flow, constrained)
    excess, _, closed = constrained
    closed[:] = False  # the sink may have come nearer
    for v in range(y.shape[0]):
        for label in range(2):
            forced = np.inf if label == 1 else -np.inf
            if not allowed[v, 1 - label]:
                if excess[v] == -forced:
                    return -np.inf
                excess[v] = forced
    if not maximize_flow(graph, constrained, work):
        return -np.inf
    for v in range(y.shape[0]):
        y[v] = int(closed[v])
    return _score(problem, closed)


_search = search_with(_maximize)


@compiled
def _problem(unary, pairwise, edges, graph):
    return unary, pairwise, edges, graph, new_flow(graph), new_flow(graph), new_work(unary.shape[0])


@entry_point
def batch_top_k(unary, pairwise, edges, values, y, begin, end):
    """Top-K of examples ``begin`` to ``end``: ``values`` [B, k] and ``y`` [B, k, N], which must be -inf and zero."""
    nodes, k = unary.shape[1], values.shape[1]
    graph, table = adjacency(nodes, edges), np.empty((nodes, 2))
    for b in range(begin, end):
        problem = _problem(unary[b], pairwise[b], edges, graph)
        best = _solve(problem)
        if best == -np.inf:
            continue
        values[b, 0], labels = best, problem[4][2]
        for v in range(nodes):
            y[b, 0, v] = int(labels[v])
        if k > 1:
            _max_marginals(problem, best, table)
            _search(problem, table, values[b], y[b])


@entry_point
def half_integral(unary, pairwise, edges, node, edge, deltas):
    """Add the optimum of the relaxation of one graph of finite scores to ``node`` [N, 2] and ``edge`` [E, 2, 2].

    It is the mean of the labels of nodes and of their twins; see
    :mod:`structsmooth.structures.factor_graph.roof_duality`. A solution of the dual goes to ``deltas`` [E, 2, 2], what
    edges give to the labels of both ends and take from their tables; [0, 2, 2] asks for none.
    """
    nodes, pairs = unary.shape[0], edges.shape[0]
    scores, tables, ends = np.empty((2 * nodes, 2)), np.empty((2 * pairs, 2, 2)), np.empty((2 * pairs, 2), np.int64)
    crossed = np.empty(pairs, np.int64)
    for v in range(nodes):
        for s in range(2):
            scores[v, s] = scores[nodes + v, 1 - s] = unary[v, s] / 2
    for e in range(pairs):
        table, (a, b) = pairwise[e], edges[e]
        crossed[e] = int(table[0, 0] + table[1, 1] < table[0, 1] + table[1, 0])
        ends[e, 0], ends[e, 1] = a, b + nodes * crossed[e]
        ends[pairs + e, 0], ends[pairs + e, 1] = a + nodes, b + nodes * (1 - crossed[e])
        for s in range(2):
            for r in range(2):
                tables[e, s, r ^ crossed[e]] = table[s, r] / 2
                tables[pairs + e, 1 - s, r ^ 1 ^ crossed[e]] = table[s, r] / 2
    problem = _problem(scores, tables, ends, adjacency(2 * nodes, ends))
    arcs = problem[3][3]
    _build(scores, tables, ends, arcs, problem[5])
    _solve(problem)
    labels, residual, capacity = problem[4][2], problem[4][1], problem[5][1]
    for v in range(nodes):
        node[v, int(labels[v])] += 0.5
        node[v, 1 - int(labels[nodes + v])] += 0.5
    for e in range(pairs):
        edge[e, int(labels[ends[e, 0]]), int(labels[ends[e, 1]]) ^ crossed[e]] += 0.5
        twins = 1 - int(labels[ends[pairs + e, 0]]), int(labels[ends[pairs + e, 1]]) ^ 1 ^ crossed[e]
        edge[e, twins[0], twins[1]] += 0.5
    for e in range(deltas.shape[0]):
        deltas[e] = 0.0
        for half, twin in ((e, 0), (pairs + e, 1)):
            table = tables[half]
            first, second, _, _ = normal_form(table[0, 0], table[0, 1], table[1, 0], table[1, 1])
            sent = capacity[arcs[half, 0]] - residual[arcs[half, 0]]
            # A gain of label 1 is one of label 0 where labels are exchanged.
            deltas[e, 0, 1] += first - sent if twin == 0 else sent - first
            deltas[e, 1, 1] += second + sent if twin == crossed[e] else -second - sent


@entry_point
def batch_max_marginals(unary, pairwise, edges, out, begin, end):
    """Max-marginals of examples ``begin`` to ``end`` into ``out`` [B, N, 2]."""
    graph = adjacency(unary.shape[1], edges)
    for b in range(begin, end):
        problem = _problem(unary[b], pairwise[b], edges, graph)
        _max_marginals(problem, _solve(problem), out[b])


@compiled
def _add_parts(labels, edges, weight, node, edge):
    for v in range(node.shape[0]):
        node[v, int(labels[v])] += weight
    for e in range(edges.shape[0]):
        edge[e, int(labels[edges[e, 0]]), int(labels[edges[e, 1]])] += weight


@entry_point
def batch_max_marginals_gradient(unary, pairwise, edges, weights, node, edge, begin, end):
    """Add to ``node`` [B, N, 2], ``edge`` [B, E, 2, 2] the gradient of the sum of ``weights`` times max-marginals."""
    nodes = unary.shape[1]
    graph = adjacency(nodes, edges)
    for b in range(begin, end):
        problem = _problem(unary[b], pairwise[b], edges, graph)
        if _solve(problem) == -np.inf:
            continue
        labels, other, mirrored = problem[4][2], problem[5][2], new_flow(graph)
        _mirror(graph, problem[4], mirrored, problem[6])
        total = 0.0
        for v in range(nodes):
            label = int(labels[v])
            total += weights[b, v, label]
            weight = weights[b, v, 1 - label]
            if weight != 0.0 and _flip(v, problem, mirrored) > -np.inf:
                _add_parts(other, edges, weight, node[b], edge[b])
        _add_parts(labels, edges, total, node[b], edge[b])
