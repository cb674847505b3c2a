"""Exact inference by enumeration of all outputs, one node at a time."""

import numpy as np

from structsmooth.compiled.jit import entry_point


@entry_point
def best_output(unary, edges, pairwise, labels):
    """The largest score of an output; it goes to ``labels``.

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
    rest = best
    for k in range(nodes):
        labels[k] = rest % states
        rest //= states
    return scores[best]
