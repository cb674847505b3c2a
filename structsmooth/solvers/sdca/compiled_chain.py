"""Steps of dual coordinate ascent over linear chains, with the arrays of the compiled passes over them."""

from structsmooth.compiled.jit import compiled, entry_point
from structsmooth.problems.linear.chain.compiled_dual import (
    add_gathered,
    add_statistics,
    block,
    gather,
    gathered,
    mean_score,
    squared_norm,
)
from structsmooth.problems.linear.chain.compiled_edges import use_all
from structsmooth.problems.linear.chain.compiled_primal import potentials, score_transitions, smoothed_max, workspace


@compiled
def _smoothed_answer(transition, length, m, smoothing_offset, smoothing, work):
    """One call of a smoothed oracle on the potentials in ``work.unary``; s - m goes to ``work.node`` and ``work.edge``.

    Returns the gap of the statistics m with their offset, and the offset of the answer s.
    """
    unary, node, edge = work.unary, work.node, work.edge[0]
    use_all(work.used)
    states, mean = unary.shape[1], mean_score(transition, length, unary, m, work.used)
    value, _ = smoothed_max(transition, length, smoothing, work)
    use_all(work.used)
    rise, scale = 0.0, smoothing[0] if len(smoothing) == 1 else 1.0  # the exp oracle has divided its potentials
    for t in range(length):
        for s in range(states):
            node[t, s] -= m[t, s]
            rise += scale * unary[t, s] * node[t, s]
    for p in range(states):
        for s in range(states):
            edge[p, s] -= m[length + p, s]
            rise += transition[p, s] * edge[p, s]
    return value - mean - smoothing_offset, value - mean - rise


@entry_point
def sdca_epoch(order, data, weights, statistics, smoothing_offset, smoothing, lam):
    """Steps of stochastic dual coordinate ascent towards the answers of a smoothed oracle, in place."""
    transition_scale, example_weights = data.transition_scale, data.example_weights
    work = workspace(data, weights.shape[1], smoothing)
    transition, node, edge = work.transition, work.node, work.edge[0]
    slots, rows, sums = gathered(data, weights)
    for step in range(order.shape[0]):
        i = order[step]
        first, length, m = block(i, data, statistics)
        score_transitions(data, weights, 1.0, work)
        potentials(i, data, weights, 1.0, work.unary, transition)
        gain, answered = _smoothed_answer(transition, length, m, smoothing_offset[i], smoothing, work)
        if gain <= 0.0:
            continue
        count = gather(first, length, data, node, slots, rows, sums)
        norm2 = squared_norm(count, length, sums, node, edge, work.used, transition_scale)
        # The bound along the direction is γ gain - γ² norm2 scale / 2, and γ at most 1.
        scale = example_weights[i] / lam
        size = 1.0 if gain >= norm2 * scale else gain / (norm2 * scale)
        add_gathered(count, length, rows, sums, node, edge, work.used, -size * scale, transition_scale, weights)
        add_statistics(length, size, node, edge, work.used, m, m[length:])
        smoothing_offset[i] += size * (answered - smoothing_offset[i])
