"""Enumeration of all outputs; message passing and search, see :mod:`.relaxation_dual`."""

import numpy as np

from structsmooth.compiled.jit import compiled, entry_point


@entry_point
def best_output(unary, pairwise, edges, labels):
    """The largest score of an output of one graph, by enumeration of all; it goes to ``labels``, zeros at -inf.

    Ties go to the lowest state of the last node, then of the one before it.

    The scores of all labellings of the first k nodes are those of the first k - 1, once for each state of node k, plus
    what that state adds. This in turn is built by doubling: it is a sum over the earlier nodes.
    """
    nodes, states = unary.shape
    pairs = np.zeros((nodes, nodes, states, states))  # scores of (earlier node, later node)
    for e in range(edges.shape[0]):
        a, b = edges[e, 0], edges[e, 1]
        for s in range(states):
            for r in range(states):
                if a < b:
                    pairs[a, b, s, r] += pairwise[e, s, r]
                else:
                    pairs[b, a, r, s] += pairwise[e, s, r]
    scores, added = np.zeros(states**nodes), np.zeros(states ** max(nodes - 1, 0))
    size = 1
    for k in range(nodes):
        # scores(y_1 ... y_k) = scores(y_1 ... y_{k-1}) + ψ_k(t) + Σ_j pairs(j, k, y_j, t); the number of a labelling is
        # Σ_j y_j S^j.
        for t in range(states - 1, -1, -1):  # state 0 overwrites the scores that the others need
            added[0], built = unary[k, t], 1
            for j in range(k):
                for s in range(states - 1, -1, -1):
                    more = pairs[j, k, s, t]
                    for y in range(built):
                        added[s * built + y] = added[y] + more
                built *= states
            for y in range(size):
                scores[t * size + y] = scores[y] + added[y]
        size *= states
    best = 0
    for y in range(1, size):
        if scores[y] > scores[best]:
            best = y
    rest = best if scores[best] > -np.inf else 0
    for k in range(nodes):
        labels[k] = rest % states
        rest //= states
    return scores[best]


# Beside a sum of exponentials that is larger, those that underflow are nothing.
_LEAST_SUM = 1e-200


@compiled
def exponentials_of(pairwise, edge_mask, tau, kernels, tops):
    """Of the tables of one example at a temperature, over the largest entry of each state of an end, from both sides.

    ``kernels`` are [2, E, S, S]: entry [side, e, t, s] is for state s of the end of that side, and t of the other. The
    largest entries go to ``tops``, [2, E, S].
    """
    states = pairwise.shape[1]
    for e in range(pairwise.shape[0]):
        if edge_mask[e]:
            tops[:, e] = -np.inf
            for s in range(states):
                for t in range(states):
                    tops[0, e, s] = max(tops[0, e, s], pairwise[e, s, t])
                    tops[1, e, t] = max(tops[1, e, t], pairwise[e, s, t])
            for s in range(states):
                for t in range(states):
                    kernels[0, e, t, s] = np.exp((pairwise[e, s, t] - tops[0, e, s]) / tau)
                    kernels[1, e, s, t] = np.exp((pairwise[e, s, t] - tops[1, e, t]) / tau)


@compiled
def _largest(table, first, s, deltas):
    """What is left of an edge in state s of one end, maximized over the states of the other."""
    best = -np.inf
    for t in range(deltas.shape[0]):
        best = max(best, (table[s, t] if first else table[t, s]) - deltas[t])
    return best


@compiled
def _soft_maxima(table, first, kernel, tops, deltas, tau, out):
    """The same soft-maximized, for all states: a product, but where all that is in a sum underflows."""
    states, least = deltas.shape[0], deltas.min()
    out[:] = 0.0
    # out(s) = τ log Σ_t exp{(table(s, t) - delta(t)) / τ}, with the largest entry of s and the least delta taken out.
    for t in range(states):
        weight = np.exp((least - deltas[t]) / tau)
        for s in range(states):
            out[s] += kernel[t, s] * weight
    for s in range(states):
        if out[s] > _LEAST_SUM:
            out[s] = tops[s] - least + tau * np.log(out[s])
            continue
        best, total = _largest(table, first, s, deltas), 0.0
        for t in range(states):
            total += np.exp(((table[s, t] if first else table[t, s]) - deltas[t] - best) / tau)
        out[s] = best + tau * np.log(total)


@compiled
def star(unary, pairwise, exponentials, ports, tau, deltas, messages, total):
    """Exact minimization over all messages to one node; ``ports`` are 2e or 2e + 1 for its end of each edge e."""
    (kernels, tops), states = exponentials, unary.shape[0]
    total[:] = unary
    for p in range(ports.shape[0]):
        e, side = ports[p] // 2, ports[p] % 2
        other = deltas[e, 1 - side]
        if tau > 0.0:
            _soft_maxima(pairwise[e], side == 0, kernels[side, e], tops[side, e], other, tau, messages[p])
        else:
            for s in range(states):
                messages[p, s] = _largest(pairwise[e], side == 0, s, other)
        for s in range(states):
            total[s] += messages[p, s]
    # The node and each of its edges keep the same share of the total, so that all have their maxima at the same states:
    # the star update of Meshi et al. (2010).
    for p in range(ports.shape[0]):
        e, side = ports[p] // 2, ports[p] % 2
        for s in range(states):
            deltas[e, side, s] = messages[p, s] - total[s] / (1 + ports.shape[0])


@compiled
def ports_of(edges, edge_mask, size):
    """The edges of each node, from offsets[v] to offsets[v + 1]: 2e or 2e + 1 for its end of edge e."""
    offsets = np.zeros(size + 1, np.int64)
    for e in range(edges.shape[0]):
        if edge_mask[e]:
            for side in range(2):
                offsets[edges[e, side] + 1] += 1
    for v in range(size):
        offsets[v + 1] += offsets[v]
    ports, position = np.empty(offsets[size], np.int64), offsets[:size].copy()
    for e in range(edges.shape[0]):
        if edge_mask[e]:
            for side in range(2):
                v = edges[e, side]
                ports[position[v]] = 2 * e + side
                position[v] += 1
    return offsets, ports


@entry_point
def batch_sweeps(unary, pairwise, edges, edge_mask, order, nodes, tau, deltas, count, begin, end):
    """Sweeps over the nodes of examples ``begin`` to ``end``, the first ``nodes`` of their ``order``, in place."""
    states = pairwise.shape[2]
    warm = pairwise.shape[1] if np.any(tau[begin:end] > 0.0) else 0
    total, exponentials = np.empty(states), (np.empty((2, warm, states, states)), np.empty((2, warm, states)))
    for b in range(begin, end):
        offsets, ports = ports_of(edges[b], edge_mask[b], unary.shape[1])
        messages = np.empty((ports.shape[0], states))
        if tau[b] > 0.0:
            exponentials_of(pairwise[b], edge_mask[b], tau[b], *exponentials)
        for _ in range(count):
            for i in range(nodes[b]):
                v = order[b, i]
                node_ports = ports[offsets[v] : offsets[v + 1]]
                star(unary[b, v], pairwise[b], exponentials, node_ports, tau[b], deltas[b], messages, total)


@entry_point
def batch_improvements(unary, pairwise, edges, edge_mask, order, nodes, y, sweeps, begin, end):
    """Sweeps in which each node takes the best label given those of its neighbours, until none changes, in place."""
    states = unary.shape[2]
    total = np.empty(states)
    for b in range(begin, end):
        offsets, ports = ports_of(edges[b], edge_mask[b], unary.shape[1])
        for _ in range(sweeps):
            changed = False
            for i in range(nodes[b]):
                v = order[b, i]
                total[:] = unary[b, v]
                for p in range(offsets[v], offsets[v + 1]):
                    e, side = ports[p] // 2, ports[p] % 2
                    label = y[b, edges[b, e, 1 - side]]
                    for s in range(states):
                        total[s] += pairwise[b, e, label, s] if side else pairwise[b, e, s, label]
                best = np.argmax(total)
                if total[best] > total[y[b, v]]:
                    y[b, v], changed = best, True
            if not changed:
                break


@entry_point
def batch_forests(edges, edge_mask, is_forest, parents, above, below, flipped, order, begin, end):
    """Forests of examples ``begin`` to ``end``: leaves are removed with their edges, round by round.

    The nodes that become leaves in a round are those of the next. Of two leaves that are joined, the one of the lower
    index becomes the root. An edge that is left is on a cycle, or between two.
    """
    nodes = parents.shape[1]
    degree, last_edge = np.empty(nodes, np.int64), np.empty(nodes, np.int64)
    leaves, rounds = np.empty(nodes, np.int64), np.empty(nodes, np.int64)
    for b in range(begin, end):
        degree[:] = 0
        last_edge[:] = 0
        count, found, removed = 0, 0, 0
        for e in range(edges.shape[1]):
            if edge_mask[b, e]:
                count += 1
                for v in edges[b, e]:
                    degree[v] += 1
                    last_edge[v] ^= e  # once a node has a single edge, its number is what remains
        for v in range(nodes):
            if degree[v] == 1:
                leaves[found], rounds[v] = v, 0
                found += 1
        taken = 0
        while taken < found:
            v = leaves[taken]
            taken += 1
            e = last_edge[v]
            flip = edges[b, e, 0] == v
            parent = edges[b, e, 1] if flip else edges[b, e, 0]
            if degree[v] == 0 or (degree[parent] == 1 and rounds[parent] == rounds[v] and v < parent):
                continue  # a root, or one as soon as the other leaf has been removed
            parents[b, v], above[b, v], below[b, e], flipped[b, e], order[b, removed] = parent, e, v, flip, e
            removed += 1
            degree[v] = 0
            degree[parent] -= 1
            last_edge[parent] ^= e
            if degree[parent] == 1:
                leaves[found], rounds[parent] = parent, rounds[v] + 1
                found += 1
        is_forest[b] = removed == count


@entry_point
def batch_branches(unary, pairwise, edges, flipped, order, deltas, begin, end):
    """Messages ``deltas`` [B, E, 2, S] of forests, from the leaves: each branch gives all that it has to its parent."""
    states = unary.shape[2]
    for b in range(begin, end):
        inside = unary[b].copy()
        # The child keeps -inside, so that nothing is left at it, and the parent gets max over r of {table(s, r) +
        # inside(r)}.
        for e in order[b]:
            if e < 0:
                break
            child = 0 if flipped[b, e] else 1
            v, parent = edges[b, e, child], edges[b, e, 1 - child]
            for s in range(states):
                deltas[b, e, child, s] = -inside[v, s]
                best = -np.inf
                for r in range(states):
                    best = max(best, (pairwise[b, e, s, r] if child else pairwise[b, e, r, s]) + inside[v, r])
                deltas[b, e, 1 - child, s] = best
            inside[parent] += deltas[b, e, 1 - child]


@compiled
def _with_labels(node, edge, ends, best, roots, labels, inside):
    """Bound of the scores of a graph whose first nodes, the variables, have ``labels``, or -1 where not decided.

    ``edge`` [E, S, S] are the tables of ``ends`` [E, 2]: first those of variables, then those of a variable and another
    node, then those from children to parents among the others, from the leaves to the ``roots`` [N]. ``best`` [E, S]
    are their maxima over the states of the first end. ``inside`` [N, S] becomes what each node and all below it can
    give, by its state.
    """
    variables, states = labels.shape[0], node.shape[1]
    total = 0.0
    inside[:] = node
    for e in range(edge.shape[0]):
        a, b = ends[e]
        first, second = labels[a] if a < variables else -1, labels[b] if b < variables else -1
        if a >= variables:
            for s in range(states):
                largest = -np.inf
                for r in range(states):
                    largest = max(largest, edge[e, r, s] + inside[a, r])
                inside[b, s] += largest
        elif first >= 0 and second >= 0:
            total += edge[e, first, second]
        elif first >= 0:
            inside[b] += edge[e, first]
        elif second >= 0:
            inside[a] += edge[e, :, second]
        # Neither end is decided: the best pair by itself is a bound, whatever the other edges want.
        elif b < variables:
            total += best[e].max()
        else:
            inside[b] += best[e]
    for v in range(node.shape[0]):
        if v < variables and labels[v] >= 0:
            total += node[v, labels[v]]
        elif v < variables or roots[v]:
            total += inside[v].max()
    return total


@entry_point
def bounds_of_states(node, edge, ends, best, roots, labels, variable, bounds):
    """Bounds [S] of the outputs with these labels, for each state of ``variable``; [1] if all are decided."""
    inside = np.empty_like(node)
    if variable == labels.shape[0]:
        bounds[0] = _with_labels(node, edge, ends, best, roots, labels, inside)
        return
    for s in range(node.shape[1]):
        if node[variable, s] > -np.inf:
            labels[variable] = s
            bounds[s] = _with_labels(node, edge, ends, best, roots, labels, inside)


@entry_point
def complete(node, edge, ends, best, roots, variables, labels):
    """Best labels [N] of the nodes after the first ``variables``, which have some."""
    inside = np.empty_like(node)
    _with_labels(node, edge, ends, best, roots, labels[:variables], inside)
    for v in range(variables, node.shape[0]):
        if roots[v]:
            labels[v] = np.argmax(inside[v])
    for e in range(edge.shape[0] - 1, -1, -1):
        a, b = ends[e]
        if a >= variables:
            labels[a] = np.argmax(edge[e, :, labels[b]] + inside[a])
