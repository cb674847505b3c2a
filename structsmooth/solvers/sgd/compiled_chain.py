"""Steps of SGD over linear chains; arrays are those of :mod:`structsmooth.problems.linear.chain.compiled_primal`."""

from structsmooth.compiled.atomic import add_atomically, take
from structsmooth.compiled.jit import compiled, entry_point
from structsmooth.problems.linear.chain.compiled_edges import use
from structsmooth.problems.linear.chain.compiled_features import entries, entry
from structsmooth.problems.linear.chain.compiled_primal import (
    add_label_parts_atomically,
    add_parts,
    potentials,
    score_transitions,
    smoothed_max,
    subtract_labels,
    workspace,
)


@compiled
def _add_parts_atomically(first, length, data, node, edge, used, factor, out):
    """:func:`add_parts` while other threads do the same."""
    features, transition_scale = data.features, data.transition_scale
    for t in range(length):
        begin, end = entries(features, first + t)
        for s in range(node.shape[1]):
            if node[t, s] != 0.0:
                for q in range(begin, end):
                    r, value = entry(features, first + t, q)
                    add_atomically(out, r, s, factor * value * node[t, s])
    add_label_parts_atomically(length, node, edge, used, factor, transition_scale, out)


@compiled
def _subtract_agreeing(i, length, data, weights, scale, smoothing, work, node, edge, used):
    """Statistics minus those among the outputs that agree with the labels, whose wrong ones cost -inf in ``data``."""
    score_transitions(data, weights, scale, work)
    potentials(i, data, weights, scale, work.unary, work.transition)
    smoothed_max(work.transition, length, smoothing, work)
    node[:length] -= work.node[:length]
    numbers, _, count = work.used
    for j in range(count[0]):
        use(used, numbers[j])
        edge[numbers[j]] -= work.edge[0, numbers[j]]


@entry_point
def sgd_epoch(order, data, agreeing, weights, total, smoothing, lam, steps, averaging_weights):
    """Stochastic (sub)gradient steps w <- (1 - steps[t] lam) w - steps[t] n share B^T(statistics - labels), in place.

    For partial labels ``agreeing`` are data for the outputs that agree with them, whose statistics take the place of
    those of the labels; else None.
    ``total`` (zero on entry) becomes the sum of averaging_weights[t] times the iterate after step t. Iterates are kept
    as scale * v, so that shrinking is free; ``total`` is corrected by what each step adds to v.
    """
    sentence_offsets, labels, of_examples = data.offsets, data.labels, data.example_weights
    work, n = workspace(data, weights.shape[1], smoothing), of_examples.shape[0]
    among = workspace(data, weights.shape[1], smoothing)
    node, edge, used = work.node, work.edge[0], work.used
    scale, weight = 1.0, 0.0
    for step in range(order.shape[0]):
        i = order[step]
        first = sentence_offsets[i]
        length = sentence_offsets[i + 1] - first
        score_transitions(data, weights, scale, work)
        potentials(i, data, weights, scale, work.unary, work.transition)
        smoothed_max(work.transition, length, smoothing, work)
        if agreeing is None:
            subtract_labels(first, length, labels, node, edge, used)
        else:
            _subtract_agreeing(i, length, agreeing, weights, scale, smoothing, among, node, edge, used)
        scale *= 1.0 - steps[step] * lam
        if abs(scale) < 1e-3:  # smaller scales would cost the total its digits
            total[:] += weight * weights
            weights[:] *= scale
            scale, weight = 1.0, 0.0
        factor = -steps[step] * n * of_examples[i] / scale
        add_parts(first, length, data, node, edge, used, factor, weights)
        # ``weight`` is what the iterates so far give v in the total; what is added to v now was in none of them.
        if averaging_weights[step] != 0.0 or weight != 0.0:
            add_parts(first, length, data, node, edge, used, -weight * factor, total)
            weight += averaging_weights[step] * scale
    total[:] += weight * weights
    weights[:] *= scale


@entry_point
def shared_sgd_epoch(order, data, weights, total, smoothing, scales, changes, remaining, counter):
    """Steps of :func:`sgd_epoch` that several threads make at the same time, each the next one that is left.

    The weights stay as v, and nothing but ``counter`` [1], the number of steps taken, says what step comes next: step t
    sees scales[t] * v, adds changes[t] * B^T(statistics - labels) to v, and remaining[t] times that to ``total``.
    """
    sentence_offsets, labels, of_examples = data.offsets, data.labels, data.example_weights
    work, n = workspace(data, weights.shape[1], smoothing), of_examples.shape[0]
    node, edge, used = work.node, work.edge[0], work.used
    for _ in range(order.shape[0]):
        step = take(counter, 1)
        if step >= order.shape[0]:
            break
        i = order[step]
        first = sentence_offsets[i]
        length = sentence_offsets[i + 1] - first
        score_transitions(data, weights, scales[step], work)
        potentials(i, data, weights, scales[step], work.unary, work.transition)
        smoothed_max(work.transition, length, smoothing, work)
        subtract_labels(first, length, labels, node, edge, used)
        change = changes[step] * n * of_examples[i]
        _add_parts_atomically(first, length, data, node, edge, used, change, weights)
        if remaining[step] != 0.0:
            _add_parts_atomically(first, length, data, node, edge, used, change * remaining[step], total)
