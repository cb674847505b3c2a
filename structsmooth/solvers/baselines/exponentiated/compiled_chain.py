"""Exponentiated gradient steps over linear chains, in the space of parts.

Log-potentials are laid out as statistics: [tokens + n * S, S], T rows of nodes and S of edges for each example. A step
touches the rows of the example's features alone, and the transitions. Examples, weights and workspaces are those of
:mod:`structsmooth.problems.linear.chain.compiled_primal`.
"""

import numpy as np

from structsmooth.compiled.jit import compiled, entry_point, inlined
from structsmooth.problems.linear.chain.compiled_dual import (
    add_gathered,
    add_statistics,
    block,
    gather,
    gathered,
    squared_norm,
)
from structsmooth.problems.linear.chain.compiled_edges import use_all
from structsmooth.problems.linear.chain.compiled_features import entries, entry
from structsmooth.problems.linear.chain.compiled_primal import sum_product, workspace


@compiled
def _gibbs(logs, length, work):
    """Log-partition function under log-potentials [T + S, S]; statistics go to ``work.node`` and ``work.edge``."""
    states = logs.shape[1]
    edges = logs[length:].reshape((1, states, states))
    work.edge[:] = 0.0
    return sum_product(logs, edges, length, work)


@inlined
def add_forbidden(forbidden, length, out):
    """Scores of what is forbidden, added to potentials [T + S, S]."""
    states = out.shape[1]
    for s in range(states):
        out[0, s] += forbidden[states, s]
        out[length - 1, s] += forbidden[states + 1, s]
        for p in range(states):
            out[length + p, s] += forbidden[p, s]


@entry_point
def gibbs_pass(data, logs, statistics, log_partitions):
    """Statistics and log-partition functions of all examples under their log-potentials.

    Log-potentials of what is forbidden are set.
    """
    states, forbidden = logs.shape[1], data.forbidden
    work = workspace(data, states, ())
    for i in range(log_partitions.shape[0]):
        _, length, log = block(i, data, logs)
        _, _, m = block(i, data, statistics)
        if forbidden.shape[0] > 0:
            add_forbidden(forbidden, length, log)
        log_partitions[i] = _gibbs(log, length, work)
        m[:length] = work.node[:length]
        m[length:] = work.edge[0]


@compiled
def _augmented(i, data, weights, lead, lead_scale, out):
    """Cost-augmented potentials [T + S, S] of example i at weights + lead_scale * lead."""
    features, labels, costs, forbidden = data.features, data.labels, data.costs, data.forbidden
    rows, states = weights.shape
    first, end, transition_scale = data.offsets[i], data.offsets[i + 1], data.transition_scale
    for token in range(first, end):
        t = token - first
        for s in range(states):
            out[t, s] = costs[token]
        out[t, labels[token]] = 0.0
        begin, stop = entries(features, token)
        for q in range(begin, stop):
            r, value = entry(features, token, q)
            for s in range(states):
                out[t, s] += value * (weights[r, s] + lead_scale * lead[r, s])
    for s in range(states):
        out[0, s] += weights[rows - 2, s] + lead_scale * lead[rows - 2, s]
        out[end - first - 1, s] += weights[rows - 1, s] + lead_scale * lead[rows - 1, s]
    for p in range(states):
        r = rows - states - 2 + p
        for s in range(states):
            out[end - first + p, s] = transition_scale * (weights[r, s] + lead_scale * lead[r, s])
    if forbidden.shape[0] > 0:
        add_forbidden(forbidden, end - first, out)


@inlined
def _tilt(log, augmented, c, level, size, out):
    """``out`` = the log-potentials of the distribution that a step goes to, [T + S, S]."""
    for t in range(size):
        for s in range(log.shape[1]):
            out[t, s] = (c * log[t, s] + augmented[t, s]) / (c + level)


@compiled
def _change(before, length, log, towards, work):
    """The statistics in ``work`` become their change from ``before``.

    Returns <towards - log, statistics>, <towards, statistics> and <|towards|, statistics>.
    """
    node, edge, states = work.node, work.edge[0], before.shape[1]
    rise, score, scale = 0.0, 0.0, 0.0
    for t in range(length):
        for s in range(states):
            rise += (towards[t, s] - log[t, s]) * node[t, s]
            score += towards[t, s] * node[t, s]
            scale += abs(towards[t, s]) * node[t, s]
            node[t, s] -= before[t, s]
    for p in range(states):
        for s in range(states):
            rise += (towards[length + p, s] - log[length + p, s]) * edge[p, s]
            score += towards[length + p, s] * edge[p, s]
            scale += abs(towards[length + p, s]) * edge[p, s]
            edge[p, s] -= before[length + p, s]
    return rise, score, scale


@inlined
def _inner(a, b, size):
    """<a, b> of the first rows."""
    total = 0.0
    for t in range(size):
        for s in range(a.shape[1]):
            total += a[t, s] * b[t, s]
    return total


@entry_point
def exponentiated_epoch(order, taus, lead_scales, data, vectors, gibbs, curvatures, values, settings):
    """Steps of exponentiated gradient, in place; returns the number of oracle calls.

    vectors: weights and lead; gibbs: log-potentials, statistics and log-partition functions; settings: lam, level of
    entropy, shrink and rounding.
    """
    (weights, lead), (logs, statistics, log_partitions), (lam, level, shrink, rounding) = vectors, gibbs, settings
    labels, costs, transition_scale, of_examples = data.labels, data.costs, data.transition_scale, data.example_weights
    states = weights.shape[1]
    work, calls = workspace(data, states, ()), 0
    node, edge = work.node, work.edge[0]
    use_all(work.used)
    slots, rows, sums = gathered(data, weights)
    augmented = np.empty((node.shape[0] + states, states))
    towards = np.empty_like(augmented)
    for step in range(order.shape[0]):
        i = order[step]
        example_weight = of_examples[i]
        first, length, m = block(i, data, statistics)
        _, _, log = block(i, data, logs)
        size, curvature, log_z = length + states, curvatures[i], log_partitions[i]
        _augmented(i, data, weights, lead, lead_scales[step], augmented)
        # KL(m || z_i) = <towards - log, m> - log Z(towards) + log Z(log), which cancels to rounding near the optimum:
        # without ``rounding`` the constant would double for ever.
        while True:
            _tilt(log, augmented, taus[step] * curvature * example_weight / lam, level, size, towards)
            new_z, calls = _gibbs(towards[:size], length, work), calls + 1
            rise, score, scale = _change(m, length, log, towards, work)
            count = gather(first, length, data, node, slots, rows, sums)
            norm2 = squared_norm(count, length, sums, node, edge, work.used, transition_scale)
            if not norm2 > 2 * curvature * (rise - new_z + log_z + rounding * (1.0 + scale)):
                break
            curvature *= 2.0
        gain = 0.0
        for t in range(length):
            gain -= costs[first + t] * node[t, labels[first + t]]
        # H(m) - H(z_i), the entropy being log Z(Q) - <Q, m> for the log-potentials Q; ``node`` and ``edge`` hold m -
        # z_i, and m is still that of z_i.
        if level > 0.0:
            gain += level * (new_z - score - log_z + _inner(log, m, size))
        # The lead is kept divided by its scale, so that shrinking it takes no pass over all weights.
        momentum, change = (taus[step] - 1.0) / lead_scales[step], -example_weight / lam
        add_gathered(count, length, rows, sums, node, edge, work.used, change, transition_scale, weights)
        add_gathered(count, length, rows, sums, node, edge, work.used, change * momentum, transition_scale, lead)
        values[0] += gain * example_weight
        values[1] += momentum * gain * example_weight
        add_statistics(length, 1.0, node, edge, work.used, m, m[length:])
        log[:] = towards[:size]
        log_partitions[i], curvatures[i] = new_z, shrink * curvature
    return calls
