"""Steps of SVRG over linear chains; arrays are those of :mod:`structsmooth.problems.linear.chain.compiled_primal`."""

import numpy as np

from structsmooth.compiled.jit import entry_point, inlined
from structsmooth.problems.linear.chain.compiled_edges import use_all
from structsmooth.problems.linear.chain.compiled_features import entries, entry
from structsmooth.problems.linear.chain.compiled_primal import (
    add_parts,
    potentials,
    score_transitions,
    smoothed_max,
    workspace,
)


@inlined
def _catch_up(weights, drift, r, lag, step_size, shrink, sums):
    """Apply ``lag`` dense steps w <- c w - step_size * drift to row r."""
    power, shift = 1.0 - shrink * sums[lag], step_size * sums[lag]
    for s in range(weights.shape[1]):
        weights[r, s] = power * weights[r, s] - shift * drift[r, s]


@entry_point
def svrg_epoch(order, data, weights, drift, total, smoothing, node, edge, decay):
    """SVRG steps w <- c w - step_size * (drift + B^T(statistics - stored statistics)), dense terms just in time.

    ``decay`` is the step size, shrink = 1 - c, and sums[g] = 1 + c + ... + c^(g-1).

    Changes ``weights`` in place, and adds to ``total`` what the sparse terms contribute to the sum of the iterates.
    """
    features, sentence_offsets, of_examples = data.features, data.offsets, data.example_weights
    step_size, shrink, sums = decay
    (rows, states), n = weights.shape, of_examples.shape[0]
    work = workspace(data, states, smoothing)
    statistics, edge_statistics, used = work.node, work.edge[0], work.used
    seen = np.zeros(rows, np.int32)
    for step in range(order.shape[0]):
        i = order[step]
        first, end = sentence_offsets[i], sentence_offsets[i + 1]
        length = end - first
        for token in range(first, end):
            begin, stop = entries(features, token)
            for q in range(begin, stop):
                r, _ = entry(features, token, q)
                lag = step - seen[r]
                if lag > 0:
                    _catch_up(weights, drift, r, lag, step_size, shrink, sums)
                    seen[r] = step
        for r in range(rows - states - 2, rows):
            _catch_up(weights, drift, r, step - seen[r], step_size, shrink, sums)
            seen[r] = step
        score_transitions(data, weights, 1.0, work)
        potentials(i, data, weights, 1.0, work.unary, work.transition)
        smoothed_max(work.transition, length, smoothing, work)
        use_all(used)
        for t in range(length):
            for s in range(states):
                statistics[t, s] -= node[first + t, s]
        for p in range(states):
            for s in range(states):
                edge_statistics[p, s] -= edge[i, p, s]
        example_step = step_size * n * of_examples[i]
        # The next dense step will shrink these terms, which it should not.
        add_parts(first, length, data, statistics, edge_statistics, used, -example_step / (1.0 - shrink), weights)
        # They live on, shrinking, in all iterates to come.
        remaining = order.shape[0] - step
        add_parts(first, length, data, statistics, edge_statistics, used, -example_step * sums[remaining], total)
    for r in range(rows):
        _catch_up(weights, drift, r, order.shape[0] - seen[r], step_size, shrink, sums)
