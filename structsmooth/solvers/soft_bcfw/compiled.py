"""Block-coordinate Frank-Wolfe over the nodes and edges of factor graphs (Meshi et al. 2015, Algorithm 1), in place.

Tests have the same steps in plain torch, in ``soft_reference.py``.
"""

import numpy as np

from structsmooth.compiled.jit import compiled, entry_point, uncounted

# What functions take, for S states, of which the last S' have weights; a step is so short that they make no views:
#   nodes: row of features, type, label and number of edges of each node, int64 [nodes, 4]
#   reals: squared norm of the features of each node, and what it scores in each state without them: [nodes, 1 + S]
#   x: rows of features [R, D]
#   unary: weights of nodes [types, S', D]
#   mu: marginals of nodes [nodes, S]
#   sums: messages that nodes receive, sums of delta over their edges [nodes, S]
#   edges: the two nodes of each edge, among those of all examples, and its type, int64 [E, 3]
#   norms, f: squared norms [E] and features [E, De] of edges
#   places: the first node of each example, and its first edge, int64 [n + 1, 3]; the last row ends the others
#   pair: weights of edges [types, De, P]; P is 1 for Potts scores, else S'^2
#   own: marginals of edges [E, K], see SoftPoint
#   fixed: multipliers [E, 2, S]
#   scales: 1/(lambda n), 1/rho, the least weight that counts of what a step goes away from, and whether it is pairwise
#   form: the first state that has weights, and whether scores are Potts
# Workspaces: ``work`` has rows -delta of both ends of an edge and its marginals at both, [4, S]; ``tables`` has scores
# of the parts of an edge and a direction among them, [2, P].


@uncounted
def node_scores(i, nodes, reals, x, unary, sums, work):
    """theta_i + costs + messages of node i; returns the score of its label under the weights alone."""
    row, kind, label = nodes[i, 0], nodes[i, 1], nodes[i, 2]
    states, weighted, label_score = sums.shape[1], unary.shape[1], 0.0
    for s in range(states):
        work[0, s] = sums[i, s] + reals[i, 1 + s]
    for s in range(weighted):
        score = 0.0
        for j in range(x.shape[1]):
            score += unary[kind, s, j] * x[row, j]
        state = states - weighted + s
        work[0, state] += score
        if state == label:
            label_score = score
    return label_score


@uncounted
def best_state(work):
    """The first state with the largest score."""
    best = 0
    for s in range(1, work.shape[1]):
        if work[0, s] > work[0, best]:
            best = s
    return best


@uncounted
def step_size(gain, longest, curvature):
    """The maximum of gain * size - curvature * size^2 / 2 over [0, longest]."""
    return longest if gain >= longest * curvature else gain / curvature


@uncounted
def node_step(i, nodes, reals, x, unary, mu, sums, work, scales):
    """A step on the marginals of a node (lines 4 to 7)."""
    per_weight, per_message, least, pairwise = scales
    node_scores(i, nodes, reals, x, unary, sums, work)
    states, first, best = mu.shape[1], mu.shape[1] - unary.shape[1], best_state(work)
    worst, longest, gain = -1, 1.0, work[0, best]
    if pairwise:
        for s in range(states):
            if mu[i, s] > least and (worst < 0 or work[0, s] < work[0, worst]):
                worst = s
        longest = mu[i, worst]
        gain -= work[0, worst]
    else:
        for s in range(states):
            gain -= mu[i, s] * work[0, s]
    if gain <= 0.0:
        return
    row, kind, per_edges, curvature = nodes[i, 0], nodes[i, 1], nodes[i, 3] * per_message, 0.0
    for s in range(states):
        towards, away = (1.0 if s == best else 0.0), (1.0 if s == worst else 0.0)
        work[1, s] = towards - (away if pairwise else mu[i, s])
        norm = per_edges + (reals[i, 0] * per_weight if s >= first else 0.0)
        curvature += work[1, s] * work[1, s] * norm
    size = step_size(gain, longest, curvature)
    for s in range(states):
        change = size * work[1, s]
        if change != 0.0:
            mu[i, s] += change
            sums[i, s] -= per_edges * change
            if s >= first:
                change *= per_weight
                for j in range(x.shape[1]):
                    unary[kind, s - first, j] -= change * x[row, j]


@uncounted
def _messages(c, edges, mu, own, fixed, per_message, work, potts):
    """-delta of the two ends of an edge and its marginals there, to the rows of the workspace."""
    states = mu.shape[1]
    a, b = edges[c, 0], edges[c, 1]
    for s in range(states):
        if potts:
            work[2, s] = own[c, s] + own[c, states + s]
            work[3, s] = own[c, s] + own[c, 2 * states + s]
        else:
            work[2, s], work[3, s] = 0.0, 0.0
            for r in range(states):
                work[2, s] += own[c, s * states + r]
                work[3, s] += own[c, r * states + s]
        work[0, s] = (mu[a, s] - work[2, s]) * per_message - fixed[c, 0, s]
        work[1, s] = (mu[b, s] - work[3, s]) * per_message - fixed[c, 1, s]


@uncounted
def part_scores(c, edges, f, pair, tables):
    """Scores of the parts of an edge: of agreement, or of the pairs of states that have weights."""
    kind = edges[c, 2]
    for p in range(pair.shape[2]):
        tables[0, p] = 0.0
        for k in range(f.shape[1]):
            tables[0, p] += pair[kind, k, p] * f[c, k]


@uncounted
def part(s, r, states, parts, first):
    """The part that a pair of states has; -1 if none."""
    if s < first or r < first or (parts == 1 and s != r):
        return -1
    return 0 if parts == 1 else (s - first) * (states - first) + r - first


@uncounted
def _pair_score(s, r, work, tables, parts, first):
    """The score of an edge with its ends in these states."""
    p = part(s, r, work.shape[1], parts, first)
    return work[0, s] + work[1, r] + (tables[0, p] if p >= 0 else 0.0)


@uncounted
def _best_apart(work):
    """The pair of different states with the largest sum of messages."""
    i, i2, j, j2 = 0, -1, 0, -1  # the best two states of each end
    for s in range(1, work.shape[1]):
        if work[0, s] > work[0, i]:
            i, i2 = s, i
        elif i2 < 0 or work[0, s] > work[0, i2]:
            i2 = s
        if work[1, s] > work[1, j]:
            j, j2 = s, j
        elif j2 < 0 or work[1, s] > work[1, j2]:
            j2 = s
    if i != j or i2 < 0:
        return i, j
    return (i2, j) if work[0, i2] + work[1, j] >= work[0, i] + work[1, j2] else (i, j2)


@uncounted
def _best_pair(work, tables, parts, first, potts):
    """The best pair of states of an edge, and its score."""
    states = work.shape[1]
    top, bottom = _best_apart(work) if potts else (0, 0)
    best = _pair_score(top, bottom, work, tables, parts, first)
    for s in range(states):
        for r in range(s if potts else 0, s + 1 if potts else states):
            score = _pair_score(s, r, work, tables, parts, first)
            if score > best:
                top, bottom, best = s, r, score
    return top, bottom, best


@uncounted
def _room_beside(c, s, r, own, states):
    """How far a step can go away from the different states s and r, for the sake of the others.

    What Potts statistics hold off the diagonal has marginals r_a and r_b of equal sums. They are those of a table if
    r_a(t) + r_b(t) is at most this sum for every t.
    """
    total, most = 0.0, 0.0
    for t in range(states):
        total += own[c, states + t]
        if t not in (s, r):
            most = max(most, own[c, states + t] + own[c, 2 * states + t])
    return total - most


@uncounted
def _worst_pair(c, own, work, tables, parts, first, potts, least):
    """The worst pair of states that the marginals of an edge hold, its score, and the longest step away from it."""
    states = work.shape[1]
    worst, other, score, longest = -1, -1, np.inf, 0.0
    for s in range(states):
        if potts and own[c, s] <= least and own[c, states + s] <= least:
            continue
        for r in range(states):
            if not potts:
                held = own[c, s * states + r]
            elif r == s:
                held = own[c, s]
            else:
                held = min(own[c, states + s], own[c, 2 * states + r])
            if held <= least:
                continue
            pair_score = _pair_score(s, r, work, tables, parts, first)
            if pair_score >= score:
                continue
            if potts and r != s and states > 2:
                held = min(held, _room_beside(c, s, r, own, states))
                if held <= least:
                    continue
            worst, other, score, longest = s, r, pair_score, held
    return worst, other, score, longest


@uncounted
def _mean_parts(c, own, states, parts, first, potts, out):
    """Statistics of the parts of an edge."""
    for p in range(parts):
        out[1, p] = 0.0
    for s in range(first, states):
        for r in range(s if potts else first, s + 1 if potts else states):
            out[1, part(s, r, states, parts, first)] += own[c, s if potts else s * states + r]


@uncounted
def add_pair(c, s, r, amount, own, states, potts):
    """Add weight to a pair of states."""
    if not potts:
        own[c, s * states + r] += amount
    elif s == r:
        own[c, s] += amount
    else:
        own[c, states + s] += amount
        own[c, 2 * states + r] += amount


@uncounted
def _edge_step(c, edges, norms, f, pair, mu, own, fixed, sums, work, tables, scales, form):
    """A step on the marginals of an edge (lines 8 to 13)."""
    per_weight, per_message, least, pairwise = scales
    (states, parts), (first, potts) = (mu.shape[1], pair.shape[2]), form
    _messages(c, edges, mu, own, fixed, per_message, work, potts)
    part_scores(c, edges, f, pair, tables)
    s, r, gain = _best_pair(work, tables, parts, first, potts)
    v, u, longest = -1, -1, 1.0
    if pairwise:
        v, u, worst, longest = _worst_pair(c, own, work, tables, parts, first, potts, least)
        gain -= worst
        for p in range(parts):
            tables[1, p] = 0.0
    else:
        _mean_parts(c, own, states, parts, first, potts, tables)
        for p in range(parts):
            gain -= tables[1, p] * tables[0, p]
            tables[1, p] = -tables[1, p]
        for t in range(states):
            gain -= work[0, t] * work[2, t] + work[1, t] * work[3, t]
    if gain <= 0.0:
        return
    towards, away, curvature = part(s, r, states, parts, first), part(v, u, states, parts, first), 0.0
    if towards >= 0:
        tables[1, towards] += 1.0
    if away >= 0:
        tables[1, away] -= 1.0
    for p in range(parts):
        curvature += tables[1, p] * tables[1, p]
    curvature *= norms[c] * per_weight
    for t in range(states):
        at_a, at_b = (1.0 if t == s else 0.0), (1.0 if t == r else 0.0)
        work[2, t] = at_a - ((1.0 if t == v else 0.0) if pairwise else work[2, t])
        work[3, t] = at_b - ((1.0 if t == u else 0.0) if pairwise else work[3, t])
        curvature += (work[2, t] * work[2, t] + work[3, t] * work[3, t]) * per_message
    size = step_size(gain, longest, curvature)
    if pairwise:
        add_pair(c, v, u, -size, own, states, potts)
    else:
        for k in range(own.shape[1]):
            own[c, k] *= 1.0 - size
    add_pair(c, s, r, size, own, states, potts)
    a, b, kind = edges[c, 0], edges[c, 1], edges[c, 2]
    for t in range(states):
        sums[a, t] += size * per_message * work[2, t]
        sums[b, t] += size * per_message * work[3, t]
    for p in range(parts):
        if tables[1, p] != 0.0:
            change = size * per_weight * tables[1, p]
            for k in range(f.shape[1]):
                pair[kind, k, p] -= change * f[c, k]


@compiled
def workspaces(states, parts):
    """What steps write on."""
    return np.zeros((4, states)), np.zeros((2, parts))


@uncounted
def _receive(begin, end, edges, mu, own, fixed, sums, per_message, work, potts):
    """Add the messages of a range of edges to those that nodes receive."""
    for c in range(begin, end):
        _messages(c, edges, mu, own, fixed, per_message, work, potts)
        a, b = edges[c, 0], edges[c, 1]
        for s in range(sums.shape[1]):
            sums[a, s] -= work[0, s]
            sums[b, s] -= work[1, s]


@entry_point
def sweep_examples(order, sweeps, node_data, edge_data, weights, point, scales, form):
    """Steps on all blocks of each example in turn, its nodes first."""
    (nodes, reals, x), (edges, norms, f, places) = node_data, edge_data
    (unary, pair), (mu, own, fixed, sums) = weights, point
    work, tables = workspaces(mu.shape[1], pair.shape[2])
    for m in order:
        (i0, c0, _), (i1, c1, _) = places[m], places[m + 1]
        _receive(c0, c1, edges, mu, own, fixed, sums, scales[1], work, form[1])
        for _ in range(sweeps):
            for i in range(i0, i1):
                node_step(i, nodes, reals, x, unary, mu, sums, work, scales)
            for c in range(c0, c1):
                _edge_step(c, edges, norms, f, pair, mu, own, fixed, sums, work, tables, scales, form)


@entry_point
def sweep_blocks(order, node_data, edge_data, weights, point, scales, form):
    """Steps on blocks, of which the nodes of all examples come first, then the edges."""
    (nodes, reals, x), (edges, norms, f, _) = node_data, edge_data
    (unary, pair), (mu, own, fixed, sums) = weights, point
    work, tables = workspaces(mu.shape[1], pair.shape[2])
    _receive(0, edges.shape[0], edges, mu, own, fixed, sums, scales[1], work, form[1])
    for block in order:
        if block < mu.shape[0]:
            node_step(block, nodes, reals, x, unary, mu, sums, work, scales)
        else:
            c = block - mu.shape[0]
            _edge_step(c, edges, norms, f, pair, mu, own, fixed, sums, work, tables, scales, form)


@entry_point
def values(node_data, edge_data, weights, point, per_message, form, out):
    """Sums over all blocks of all examples, to ``out``.

    These are the maxima less the scores of labels; the block gaps; the expected costs; and |e|^2 and <fixed, e> with e
    the marginals of edges minus those of nodes.
    """
    (nodes, reals, x), (edges, _, f, _), (unary, pair), (mu, own, fixed, sums) = node_data, edge_data, weights, point
    states, parts = mu.shape[1], pair.shape[2]
    first, potts = form
    work, tables = workspaces(states, parts)
    hinge, gaps, cost, squares, product = 0.0, 0.0, 0.0, 0.0, 0.0
    for c in range(edges.shape[0]):
        _messages(c, edges, mu, own, fixed, per_message, work, potts)
        part_scores(c, edges, f, pair, tables)
        _, _, best = _best_pair(work, tables, parts, first, potts)
        a, b = edges[c, 0], edges[c, 1]
        label = part(nodes[a, 2], nodes[b, 2], states, parts, first)
        hinge += best - (tables[0, label] if label >= 0 else 0.0)
        _mean_parts(c, own, states, parts, first, potts, tables)
        gaps += best
        for p in range(parts):
            gaps -= tables[0, p] * tables[1, p]
        for s in range(states):
            sums[a, s] -= work[0, s]
            sums[b, s] -= work[1, s]
            gaps -= work[0, s] * work[2, s] + work[1, s] * work[3, s]
            e_a, e_b = work[2, s] - mu[a, s], work[3, s] - mu[b, s]
            squares += e_a * e_a + e_b * e_b
            product += fixed[c, 0, s] * e_a + fixed[c, 1, s] * e_b
    for i in range(mu.shape[0]):
        label_score = node_scores(i, nodes, reals, x, unary, sums, work)
        best = work[0, best_state(work)]
        hinge += best - label_score
        gaps += best
        for s in range(states):
            gaps -= mu[i, s] * work[0, s]
            cost += mu[i, s] * reals[i, 1 + s]
    out[:] = (hinge, gaps, cost, squares, product)
