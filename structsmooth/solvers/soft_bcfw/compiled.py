"""Block-coordinate Frank-Wolfe over the nodes and edges of factor graphs (Meshi et al. 2015, Algorithm 1), in place.

Edges stay as they are given, which examples may share: a link is an edge of one example. Tests have the same steps in
plain torch, in ``soft_reference.py``.
"""

import numpy as np

from structsmooth.compiled.jit import compiled, entry_point, uncounted
from structsmooth.solvers.soft_bcfw.compiled_binary import binary_deltas, binary_step, binary_values, step_size

# What functions take, for S states, of which the last S' have weights; a step is so short that they make no views:
#   nodes: row of features, type, label and number of edges of each node, int64 [nodes, 4]
#   reals: squared norm of the features of each node, and what it scores in each state without them: [nodes, 1 + S]
#   x: rows of features [R, D]
#   unary: weights of nodes [types, S', D]
#   mu: marginals of nodes [nodes, S]
#   sums: messages that nodes receive, sums of delta over their edges [nodes, S]
#   edges: the two nodes of each edge, by their numbers in the example, and its type, int64 [E, 3]
#   norms, f: squared norms [E] and features [E, De] of edges
#   places: the first node of each example, its first link, and the first of its edges, int64 [n + 1, 3]; the last row
#     ends the others
#   pair: weights of edges [types, De, P]; P is 1 for Potts scores, else S'^2
#   own: marginals of links [links, K], see SoftPoint
#   fixed: multipliers [links, 2, S]
#   scales: 1/(lambda n), 1/rho, the least weight that counts of what a step goes away from, and whether it is pairwise
#   form: the first state that has weights, and whether scores are Potts; the first state alone if links have the short
#     form of compiled_binary.py, whose steps are compiled in that case
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
def _messages(k, a, b, mu, edge_mu, fixed, per_message, work, potts):
    """-delta of the nodes a and b at the ends of a link and its marginals there, to the rows of the workspace."""
    states = mu.shape[1]
    for s in range(states):
        if potts:
            work[2, s] = edge_mu[k, s] + edge_mu[k, states + s]
            work[3, s] = edge_mu[k, s] + edge_mu[k, 2 * states + s]
        else:
            work[2, s], work[3, s] = 0.0, 0.0
            for r in range(states):
                work[2, s] += edge_mu[k, s * states + r]
                work[3, s] += edge_mu[k, r * states + s]
        work[0, s] = (mu[a, s] - work[2, s]) * per_message - fixed[k, 0, s]
        work[1, s] = (mu[b, s] - work[3, s]) * per_message - fixed[k, 1, s]


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
def _longest_beside(k, s, r, edge_mu, states):
    """How far a step can go away from the different states s and r, for the sake of the others.

    What Potts statistics hold off the diagonal has marginals r_a and r_b of equal sums. They are those of a table if
    r_a(t) + r_b(t) is at most this sum for every t.
    """
    total, most = 0.0, 0.0
    for t in range(states):
        total += edge_mu[k, states + t]
        if t not in (s, r):
            most = max(most, edge_mu[k, states + t] + edge_mu[k, 2 * states + t])
    return total - most


@uncounted
def _worst_pair(k, edge_mu, work, tables, parts, first, potts, least):
    """The worst pair of states that the marginals of a link hold, its score, and the longest step away from it."""
    states = work.shape[1]
    worst, other, score, longest = -1, -1, np.inf, 0.0
    for s in range(states):
        if potts and edge_mu[k, s] <= least and edge_mu[k, states + s] <= least:
            continue
        for r in range(states):
            if not potts:
                held = edge_mu[k, s * states + r]
            elif r == s:
                held = edge_mu[k, s]
            else:
                held = min(edge_mu[k, states + s], edge_mu[k, 2 * states + r])
            if held <= least:
                continue
            pair_score = _pair_score(s, r, work, tables, parts, first)
            if pair_score >= score:
                continue
            if potts and r != s and states > 2:
                held = min(held, _longest_beside(k, s, r, edge_mu, states))
                if held <= least:
                    continue
            worst, other, score, longest = s, r, pair_score, held
    return worst, other, score, longest


@uncounted
def _mean_parts(k, edge_mu, states, parts, first, potts, out):
    """Statistics of the parts of a link."""
    for p in range(parts):
        out[1, p] = 0.0
    for s in range(first, states):
        for r in range(s if potts else first, s + 1 if potts else states):
            out[1, part(s, r, states, parts, first)] += edge_mu[k, s if potts else s * states + r]


@uncounted
def add_pair(k, s, r, amount, edge_mu, states, potts):
    """Add weight to a pair of states."""
    if not potts:
        edge_mu[k, s * states + r] += amount
    elif s == r:
        edge_mu[k, s] += amount
    else:
        edge_mu[k, states + s] += amount
        edge_mu[k, 2 * states + r] += amount


@uncounted
def _edge_step(c, k, i0, edges, norms, f, pair, mu, edge_mu, fixed, sums, work, tables, scales, form):
    """A step on the marginals of a link (lines 8 to 13)."""
    per_weight, per_message, least, pairwise = scales
    (states, parts), (first, potts) = (mu.shape[1], pair.shape[2]), form
    a, b, kind = i0 + edges[c, 0], i0 + edges[c, 1], edges[c, 2]
    _messages(k, a, b, mu, edge_mu, fixed, per_message, work, potts)
    part_scores(c, edges, f, pair, tables)
    s, r, gain = _best_pair(work, tables, parts, first, potts)
    v, u, longest = -1, -1, 1.0
    if pairwise:
        v, u, worst, longest = _worst_pair(k, edge_mu, work, tables, parts, first, potts, least)
        gain -= worst
        for p in range(parts):
            tables[1, p] = 0.0
    else:
        _mean_parts(k, edge_mu, states, parts, first, potts, tables)
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
        add_pair(k, v, u, -size, edge_mu, states, potts)
    else:
        for j in range(edge_mu.shape[1]):
            edge_mu[k, j] *= 1.0 - size
    add_pair(k, s, r, size, edge_mu, states, potts)
    for t in range(states):
        sums[a, t] += size * per_message * work[2, t]
        sums[b, t] += size * per_message * work[3, t]
    for p in range(parts):
        if tables[1, p] != 0.0:
            change = size * per_weight * tables[1, p]
            for j in range(f.shape[1]):
                pair[kind, j, p] -= change * f[c, j]


@compiled
def workspaces(states, parts):
    """Scratch arrays that steps write on, for the states of nodes and the parts of links."""
    return np.zeros((4, states)), np.zeros((2, parts))


@uncounted
def _receive(m, places, edges, mu, edge_mu, fixed, sums, per_message, work, form):
    """Add the messages of the links of an example to those that its nodes receive."""
    i0, k0, c0 = places[m]
    for k in range(k0, places[m + 1, 1]):
        c = c0 + k - k0
        a, b = i0 + edges[c, 0], i0 + edges[c, 1]
        if len(form) == 1:
            delta_a, delta_b = binary_deltas(k, a, b, mu, edge_mu, fixed, per_message)
            sums[a, 0] -= delta_a
            sums[a, 1] += delta_a
            sums[b, 0] -= delta_b
            sums[b, 1] += delta_b
        else:
            _messages(k, a, b, mu, edge_mu, fixed, per_message, work, form[1])
            for s in range(sums.shape[1]):
                sums[a, s] -= work[0, s]
                sums[b, s] -= work[1, s]


@uncounted
def _link_step(c, k, i0, edges, norms, f, pair, mu, edge_mu, fixed, sums, work, tables, scales, form):
    """A step on link k, which is edge c in the example with the first node i0."""
    if len(form) == 1:
        binary_step(c, k, i0, edges, norms, f, pair, mu, edge_mu, fixed, sums, scales, form[0])
    else:
        _edge_step(c, k, i0, edges, norms, f, pair, mu, edge_mu, fixed, sums, work, tables, scales, form)


@entry_point
def sweep_examples(order, sweeps, node_data, edge_data, weights, point, scales, form):
    """Steps on all blocks of each example in turn, its nodes first."""
    (nodes, reals, x), (edges, norms, f, places) = node_data, edge_data
    (unary, pair), (mu, edge_mu, fixed, sums) = weights, point
    work, tables = workspaces(mu.shape[1], pair.shape[2])
    for m in order:
        (i0, k0, c0), (i1, k1, _) = places[m], places[m + 1]
        _receive(m, places, edges, mu, edge_mu, fixed, sums, scales[1], work, form)
        for _ in range(sweeps):
            for i in range(i0, i1):
                node_step(i, nodes, reals, x, unary, mu, sums, work, scales)
            for k in range(k0, k1):
                c = c0 + k - k0
                _link_step(c, k, i0, edges, norms, f, pair, mu, edge_mu, fixed, sums, work, tables, scales, form)


@entry_point
def sweep_blocks(order, node_data, edge_data, weights, point, scales, form):
    """Steps on blocks, of which the nodes of all examples come first, then the links."""
    (nodes, reals, x), (edges, norms, f, places) = node_data, edge_data
    (unary, pair), (mu, edge_mu, fixed, sums) = weights, point
    work, tables = workspaces(mu.shape[1], pair.shape[2])
    examples = np.searchsorted(places[:, 1].copy(), order - mu.shape[0], side="right") - 1
    for m in range(places.shape[0] - 1):
        _receive(m, places, edges, mu, edge_mu, fixed, sums, scales[1], work, form)
    for j in range(order.shape[0]):
        k = order[j] - mu.shape[0]
        if k < 0:
            node_step(order[j], nodes, reals, x, unary, mu, sums, work, scales)
        else:
            i0, k0, c0 = places[examples[j]]
            _link_step(c0 + k - k0, k, i0, edges, norms, f, pair, mu, edge_mu, fixed, sums, work, tables, scales, form)


@uncounted
def _link_values(c, k, a, b, nodes, edges, f, pair, mu, edge_mu, fixed, sums, per_message, work, tables, form):
    """What a link adds to :func:`values`; its messages are added to those that nodes receive."""
    (first, potts), states, parts = form, mu.shape[1], pair.shape[2]
    _messages(k, a, b, mu, edge_mu, fixed, per_message, work, potts)
    part_scores(c, edges, f, pair, tables)
    _, _, best = _best_pair(work, tables, parts, first, potts)
    label = part(nodes[a, 2], nodes[b, 2], states, parts, first)
    hinge, gap, squares, product = best - (tables[0, label] if label >= 0 else 0.0), best, 0.0, 0.0
    _mean_parts(k, edge_mu, states, parts, first, potts, tables)
    for p in range(parts):
        gap -= tables[0, p] * tables[1, p]
    for s in range(states):
        sums[a, s] -= work[0, s]
        sums[b, s] -= work[1, s]
        gap -= work[0, s] * work[2, s] + work[1, s] * work[3, s]
        e_a, e_b = work[2, s] - mu[a, s], work[3, s] - mu[b, s]
        squares += e_a * e_a + e_b * e_b
        product += fixed[k, 0, s] * e_a + fixed[k, 1, s] * e_b
    return hinge, gap, squares, product


@entry_point
def values(node_data, edge_data, weights, point, per_message, form, out):
    """Sums over all blocks of all examples, to ``out``.

    These are the maxima less the scores of labels; the block gaps; the expected costs; and |e|^2 and <fixed, e> with e
    the marginals of links minus those of nodes.
    """
    (nodes, reals, x), (edges, _, f, places) = node_data, edge_data
    (unary, pair), (mu, edge_mu, fixed, sums) = weights, point
    work, tables = workspaces(mu.shape[1], pair.shape[2])
    hinge, gaps, cost, squares, product = 0.0, 0.0, 0.0, 0.0, 0.0
    for m in range(places.shape[0] - 1):
        i0, k0, c0 = places[m]
        for k in range(k0, places[m + 1, 1]):
            c = c0 + k - k0
            a, b = i0 + edges[c, 0], i0 + edges[c, 1]
            if len(form) == 1:
                found = binary_values(c, k, a, b, nodes, edges, f, pair, mu, edge_mu, fixed, sums, per_message, form[0])
            else:
                found = _link_values(
                    c, k, a, b, nodes, edges, f, pair, mu, edge_mu, fixed, sums, per_message, work, tables, form
                )
            hinge += found[0]
            gaps += found[1]
            squares += found[2]
            product += found[3]
    for i in range(mu.shape[0]):
        label_score = node_scores(i, nodes, reals, x, unary, sums, work)
        best = work[0, best_state(work)]
        hinge += best - label_score
        gaps += best
        for s in range(mu.shape[1]):
            gaps -= mu[i, s] * work[0, s]
            cost += mu[i, s] * reals[i, 1 + s]
    out[:] = (hinge, gaps, cost, squares, product)
