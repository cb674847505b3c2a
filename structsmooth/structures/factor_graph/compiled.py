"""Message passing on the dual of the relaxation, compiled; see :mod:`structsmooth.structures.factor_graph.messages`."""

import numpy as np

from structsmooth.compiled.jit import compiled, entry_point


@compiled
def _message(table, first, deltas, tau, out):
    """What is left of an edge, maximized (or soft-maximized) over the states of its other end."""
    states = out.shape[0]
    for s in range(states):
        best = -np.inf
        for t in range(states):
            value = (table[s, t] if first else table[t, s]) - deltas[t]
            best = max(best, value)
        if tau > 0.0:
            total = 0.0
            for t in range(states):
                total += np.exp(((table[s, t] if first else table[t, s]) - deltas[t] - best) / tau)
            best += tau * np.log(total)
        out[s] = best


@compiled
def _star(unary, pairwise, edges, ports, tau, deltas, messages, total):
    """Exact minimization over all messages to one node; ``ports`` are 2e or 2e + 1 for its end of each edge e."""
    states = unary.shape[0]
    total[:] = unary
    for p in range(ports.shape[0]):
        e, side = ports[p] // 2, ports[p] % 2
        _message(pairwise[e], side == 0, deltas[e, 1 - side], tau, messages[p])
        for s in range(states):
            total[s] += messages[p, s]
    for p in range(ports.shape[0]):
        e, side = ports[p] // 2, ports[p] % 2
        for s in range(states):
            deltas[e, side, s] = messages[p, s] - total[s] / (1 + ports.shape[0])


@entry_point
def batch_sweeps(unary, pairwise, edges, edge_mask, order, nodes, tau, deltas, count, begin, end):
    """Sweeps over the nodes of examples ``begin`` to ``end``, the first ``nodes`` of their ``order``, in place."""
    size, states = unary.shape[1:]
    total = np.empty(states)
    for b in range(begin, end):
        offsets = np.zeros(size + 1, np.int64)
        for e in range(edges.shape[1]):
            if edge_mask[b, e]:
                for side in range(2):
                    offsets[edges[b, e, side] + 1] += 1
        for v in range(size):
            offsets[v + 1] += offsets[v]
        ports, position = np.empty(offsets[size], np.int64), offsets[:size].copy()
        for e in range(edges.shape[1]):
            if edge_mask[b, e]:
                for side in range(2):
                    v = edges[b, e, side]
                    ports[position[v]] = 2 * e + side
                    position[v] += 1
        most = 0
        for v in range(size):
            most = max(most, offsets[v + 1] - offsets[v])
        messages = np.empty((most, states))
        for _ in range(count):
            for i in range(nodes[b]):
                v = order[b, i]
                own = ports[offsets[v] : offsets[v + 1]]
                _star(unary[b, v], pairwise[b], edges[b], own, tau[b], deltas[b], messages, total)
