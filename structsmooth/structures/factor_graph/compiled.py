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
def _exponentials(pairwise, edge_mask, tau, kernels, tops):
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
def _star(unary, pairwise, exponentials, ports, tau, deltas, messages, total):
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
    for p in range(ports.shape[0]):
        e, side = ports[p] // 2, ports[p] % 2
        for s in range(states):
            deltas[e, side, s] = messages[p, s] - total[s] / (1 + ports.shape[0])


@compiled
def _ports(edges, edge_mask, size):
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
        offsets, ports = _ports(edges[b], edge_mask[b], unary.shape[1])
        messages = np.empty((ports.shape[0], states))
        if tau[b] > 0.0:
            _exponentials(pairwise[b], edge_mask[b], tau[b], *exponentials)
        for _ in range(count):
            for i in range(nodes[b]):
                v = order[b, i]
                node_ports = ports[offsets[v] : offsets[v + 1]]
                _star(unary[b, v], pairwise[b], exponentials, node_ports, tau[b], deltas[b], messages, total)


@entry_point
def batch_improvements(unary, pairwise, edges, edge_mask, order, nodes, y, sweeps, begin, end):
    """Sweeps in which each node takes the best label given those of its neighbours, until none changes, in place."""
    states = unary.shape[2]
    total = np.empty(states)
    for b in range(begin, end):
        offsets, ports = _ports(edges[b], edge_mask[b], unary.shape[1])
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
