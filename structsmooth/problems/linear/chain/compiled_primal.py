"""Passes over linear chains in the space of parts.

A sentence is a range of tokens, a token a row of features. Statistics of an example are node marginals [T, S]
and summed edges [S, S]. Weights, and all shaped like them (gradients, drifts, sums), are [F + S + 2, S]: one row
of states per feature, then the transitions, then the scores of the first and of the last label. Features of transitions
are ``transition_scale`` where they occur, those of the ends are 1.
Compiled passes unpack their tuples before they loop: reading a member of a tuple costs a reference count each time.
"""

from collections import namedtuple

import numpy as np

from structsmooth.compiled.atomic import add_atomically
from structsmooth.compiled.jit import compiled, entry_point, inlined, uncounted
from structsmooth.compiled.rows import copy_rows, divide_rows, fill_rows
from structsmooth.problems.linear.chain.compiled_edges import clear, no_edges, use, use_all, use_none
from structsmooth.problems.linear.chain.compiled_features import (
    add_block_parts,
    add_block_scores,
    attributes,
    entry,
)
from structsmooth.structures.chain.compiled import (
    exponentiate,
    largest_entry,
    log_partition,
    marginals,
    room_for_maxima,
    top_k,
    viterbi,
)

# Tuples that compiled passes take:
#   data: ChainArrays
#   smoothing: () for the max oracle, (mu,) for the exp oracle, (mu, k) for the top-K oracle. Only the oracle of that
#       length is compiled.

# Finite, so that its product with statistics, which are 0 there, is 0. No score of a weight comes near.
FORBIDDEN = -1e30
_LEAST = -1e20  # scores below it are forbidden
# Numbers of a row that are looked at together: rows of fewer labels are not looked at.
_PIECE = 64

Workspace = namedtuple(
    "Workspace",
    "unary transition most node edge used score back values labels simplex alpha scaled total exponential shift",
)


@compiled
def workspace(data, states, smoothing):
    """Scratch arrays for the longest example and the outputs of its oracle."""
    steps, offsets = 0, data.offsets
    for i in range(offsets.shape[0] - 1):
        steps = max(steps, offsets[i + 1] - offsets[i])
    slots = smoothing[1] if len(smoothing) == 2 else 1
    return Workspace(
        np.empty((steps, states)),
        np.empty((states, states)),
        room_for_maxima(states),
        np.empty((steps, states)),
        np.zeros((1, states, states)),
        no_edges(states),
        np.empty((steps, states, slots)),
        np.zeros((steps, states, slots), np.int64),
        np.empty(slots),
        np.empty((slots, steps), np.int64),
        np.empty(slots),
        np.empty((steps, states)),
        np.empty((steps, states)),
        np.empty((steps, states)),
        np.empty((1, states, states)),
        np.empty((1, states)),
    )


@inlined
def transition_of(weights):
    """The rows of the weights that score transitions: a view [S, S]."""
    states = weights.shape[1]
    return weights[weights.shape[0] - states - 2 : weights.shape[0] - 2]


@inlined
def _score_transitions_from(p, weights, factor, forbidden, transition, most):
    """Scores of the transitions from label p, and the largest of them."""
    states, rows = transition.shape[1], transition_of(weights)
    for s in range(states):
        transition[p, s] = factor * rows[p, s]
    if forbidden.shape[0] > 0:
        for s in range(states):
            transition[p, s] += forbidden[p, s]
    if most.shape[0] > 0:
        most[p] = largest_entry(transition[p])


@compiled
def score_transitions(data, weights, scale, work):
    """Scores of all transitions under ``scale * weights``.

    They are a copy: several threads may change the weights, and a step that saw different transitions at different
    times would not know its gap.
    """
    transition, most, factor, forbidden = work.transition, work.most, scale * data.transition_scale, data.forbidden
    for p in range(transition.shape[0]):
        _score_transitions_from(p, weights, factor, forbidden, transition, most)


@compiled
def score_used_transitions(data, weights, work):
    """:func:`score_transitions` from the labels whose edges are in use, where no other weights have changed."""
    transition, most, factor, forbidden = work.transition, work.most, data.transition_scale, data.forbidden
    numbers, _, count = work.used
    for j in range(count[0]):
        _score_transitions_from(numbers[j], weights, factor, forbidden, transition, most)


@compiled
def potentials(i, data, weights, scale, unary, transition):
    """Cost-augmented unary potentials of example i under ``scale * weights``; returns the score of its labels.

    That of the transitions is taken from their scores, as :func:`score_transitions` gives them.
    """
    features, labels, costs, forbidden, states = data.features, data.labels, data.costs, data.forbidden, unary.shape[1]
    ends = weights[-2:]
    first, last = data.offsets[i], data.offsets[i + 1] - 1
    nodes, edges = 0.0, 0.0
    for token in range(first, last + 1):
        t = token - first
        for s in range(states):
            unary[t, s] = 0.0
        begin, end = attributes(features, token)
        for q in range(begin, end):
            r, value = entry(features, token, q)
            for s in range(states):
                unary[t, s] += value * weights[r, s]
    add_block_scores(features, first, last + 1 - first, weights, unary)
    for s in range(states):
        unary[0, s] += ends[0, s]
        unary[last - first, s] += ends[1, s]
    for token in range(first, last + 1):
        t, label = token - first, labels[token]
        nodes += unary[t, label]
        if token > first:
            edges += transition[labels[token - 1], label]
        right = scale * unary[t, label]
        for s in range(states):
            unary[t, s] = scale * unary[t, s] + costs[token]
        # Costs of -inf forbid the wrong labels of partial ones; -inf - (-inf) would be NaN.
        if costs[token] > -np.inf:
            unary[t, label] -= costs[token]
        else:
            unary[t, label] = right
    if forbidden.shape[0] > 0:
        for s in range(states):
            unary[0, s] += forbidden[states, s]
            unary[last - first, s] += forbidden[states + 1, s]
    return scale * nodes + edges


@compiled
def _simplex_weights(values, mu, simplex):
    """Projection of values / mu, sorted downwards, onto the simplex (Prop. 3); returns the size of the support."""
    size, total = 0, 0.0
    for j in range(values.shape[0]):
        # Of a support of j + 1, u_j = (values[j] - their mean) / μ + 1 / (j + 1) > 0 if and only if total - j values[j]
        # < μ.
        if values[j] == -np.inf or total - j * values[j] >= mu:
            break
        total += values[j]
        size = j + 1
    for j in range(size):
        simplex[j] = (values[j] - total / size) / mu + 1.0 / size
    return size


@compiled
def smoothed_max(transition, length, smoothing, work):
    """Smoothed max of the potentials in ``work.unary``; statistics go to ``work.node`` and ``work.edge``.

    Returns the smoothed value and the maximum.
    """
    clear(work.edge[0], work.used)
    use_none(work.used)
    if len(smoothing) == 1:
        use_all(work.used)
        return _exp_oracle(transition, length, smoothing[0], work)
    fill_rows(work.node, length, 0.0)
    if len(smoothing) == 2:
        return _top_k_oracle(transition, length, smoothing, work)
    value = max_oracle(transition, length, work)
    if value > -np.inf:
        _add_output(work.labels[0], length, 1.0, work)
    return value, value


@compiled
def max_oracle(transition, length, work):
    """Score of the best output under the potentials in ``work.unary``; it goes to ``work.labels``."""
    edges = transition.reshape((1, *transition.shape))
    return viterbi(work.unary, edges, work.most, length, work.alpha, work.labels[0])


@inlined
def _add_output(labels, length, weight, work):
    """Add an output to the statistics."""
    node, edge, used = work.node, work.edge, work.used
    for t in range(length):
        node[t, labels[t]] += weight
        if t > 0:
            use(used, labels[t - 1])
            edge[0, labels[t - 1], labels[t]] += weight


@compiled
def _top_k_oracle(transition, length, smoothing, work):
    """The smoothed max over the K best outputs, which Algorithm 2 of Pillutla et al. (2019) finds, and the max."""
    (mu, k), values, simplex = smoothing, work.values, work.simplex
    edges = transition.reshape((1, *transition.shape))
    top_k(work.unary, edges, length, k, work.score, work.back, values, work.labels)
    smoothed, norm2 = 0.0, 0.0
    for j in range(_simplex_weights(values, mu, simplex)):
        smoothed += simplex[j] * values[j]
        norm2 += simplex[j] * simplex[j]
        _add_output(work.labels[j], length, simplex[j], work)
    # h_μ = max over u of {<u, values> - μ/2 (|u|² - 1)}.
    return smoothed - mu / 2 * (norm2 - 1.0), values[0]


@compiled
def _exp_oracle(transition, length, mu, work):
    """The max smoothed by the entropy, by sum-product on the potentials divided by mu (Algorithm 3), and the max."""
    # Before the potentials are divided, which is in place.
    best = max_oracle(transition, length, work)
    edges = np.empty((1, *transition.shape))
    divide_rows(transition, transition.shape[0], mu, edges[0])
    divide_rows(work.unary, length, mu, work.unary)
    return mu * sum_product(work.unary, edges, length, work), best


@inlined
def _forbid(row, score):
    """Forbidden scores of a row become ``score``: −inf tells the recursion that nothing is lost by them."""
    for s in range(row.shape[0]):
        if row[s] < _LEAST:
            row[s] = score


@compiled
def sum_product(unary, edges, length, work):
    """Log-partition function; statistics are added to ``work.edge`` and go to ``work.node``."""
    _forbid(unary[0], -np.inf)
    _forbid(unary[length - 1], -np.inf)
    exponentiate(edges, work.shift, work.exponential)
    tables = (work.exponential, work.shift)
    log_z = log_partition(unary, edges, tables[0], tables[1], length, work.alpha, work.scaled, work.total)
    marginals(edges, tables[0], length, work.alpha, work.scaled, work.total, work.node, work.edge)
    _forbid(unary[0], FORBIDDEN)
    _forbid(unary[length - 1], FORBIDDEN)
    return log_z


@inlined
def is_zero(row):
    """Whether a row has nothing but zeros."""
    others = 0
    for s in range(row.shape[0]):  # without branches, by vector instructions
        others += row[s] != 0.0
    return others == 0


@uncounted
def add_row(factor, rows, i, out, r):
    """out[r] += factor * rows[i]. Pieces of long rows that are zero are left out, and take no memory."""
    states = rows.shape[1]
    if states <= _PIECE:
        for s in range(states):
            out[r, s] += factor * rows[i, s]
        return
    for begin in range(0, states, _PIECE):
        end, others = min(begin + _PIECE, states), 0
        for s in range(begin, end):
            others += rows[i, s] != 0.0
        if others > 0:
            for s in range(begin, end):
                out[r, s] += factor * rows[i, s]


@inlined
def add_label_parts(length, node, edge, used, factor, transition_scale, out):
    """out += factor * B^T (node, edge) in the rows of transitions and of first and last labels, of all examples."""
    states = node.shape[1]
    transition, ends = transition_of(out), out[-2:]
    numbers, _, count = used
    for s in range(states):
        ends[0, s] += factor * node[0, s]
        ends[1, s] += factor * node[length - 1, s]
    for j in range(count[0]):
        add_row(factor * transition_scale, edge, numbers[j], transition, numbers[j])


@inlined
def add_label_parts_atomically(length, node, edge, used, factor, transition_scale, out):
    """:func:`add_label_parts` while other threads do the same; most entries are zero, and cost nothing."""
    states, ends = node.shape[1], out.shape[0] - 2
    numbers, _, count = used
    for s in range(states):
        if node[0, s] != 0.0:
            add_atomically(out, ends, s, factor * node[0, s])
        if node[length - 1, s] != 0.0:
            add_atomically(out, ends + 1, s, factor * node[length - 1, s])
    for j in range(count[0]):
        p = numbers[j]
        for s in range(states):
            if edge[p, s] != 0.0:
                add_atomically(out, ends - states + p, s, factor * transition_scale * edge[p, s])


@compiled
def add_parts(first, length, data, node, edge, used, factor, out):
    """out += factor * B^T (node, edge) for the example whose tokens start at ``first``."""
    features = data.features
    for t in range(length):
        if not is_zero(node[t]):
            begin, end = attributes(features, first + t)
            for q in range(begin, end):
                r, value = entry(features, first + t, q)
                add_row(factor * value, node, t, out, r)
    add_block_parts(features, first, length, node, factor, out)
    add_label_parts(length, node, edge, used, factor, data.transition_scale, out)


@compiled
def subtract_labels(first, length, labels, node, edge, used):
    """Statistics minus the parts of the labels."""
    for t in range(length):
        node[t, labels[first + t]] -= 1.0
        if t > 0:
            use(used, labels[first + t - 1])
            edge[labels[first + t - 1], labels[first + t]] -= 1.0


@entry_point
def full_pass(data, weights, smoothing, node, edge, gradient):
    """One oracle call on every example; statistics go to ``node`` [tokens, S] and ``edge`` [examples, S, S], if any.

    Returns the sums of the smoothed loss, of the loss and of the expected cost, each times the weight of its example,
    and adds that of the gradient to ``gradient``, if it has rows.
    """
    offsets, labels, costs, states = data.offsets, data.labels, data.costs, weights.shape[1]
    work = workspace(data, states, smoothing)
    statistics, edge_statistics = work.node, work.edge[0]
    smoothed_loss, loss, cost = 0.0, 0.0, 0.0
    score_transitions(data, weights, 1.0, work)
    for i in range(offsets.shape[0] - 1):
        first = offsets[i]
        length = offsets[i + 1] - first
        score = potentials(i, data, weights, 1.0, work.unary, work.transition)
        smoothed, best = smoothed_max(work.transition, length, smoothing, work)
        example_weight = data.example_weights[i]
        smoothed_loss += example_weight * (smoothed - score)
        loss += example_weight * (best - score)
        for t in range(length):
            if costs[first + t] > -np.inf:
                cost += example_weight * costs[first + t] * (1.0 - statistics[t, labels[first + t]])
        if edge.shape[0] > 0:
            copy_rows(statistics, node[first:], length)
            copy_rows(edge_statistics, edge[i], states)
        if gradient.shape[0] > 0:
            subtract_labels(first, length, labels, statistics, edge_statistics, work.used)
            add_parts(first, length, data, statistics, edge_statistics, work.used, example_weight, gradient)
    return smoothed_loss, loss, cost
