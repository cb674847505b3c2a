"""The dual of linear chains in the space of parts: what passes and the steps of solvers compute.

Statistics are T rows of nodes and S of summed edges for each example, packed as in
:mod:`structsmooth.problems.linear.chain.compiled_packed` or all together, [tokens + n * S, S]. Examples, weights and
workspaces are those of :mod:`structsmooth.problems.linear.chain.compiled_primal`, and so is ``smoothing``.
"""

import numpy as np

from structsmooth.compiled.jit import compiled, entry_point, inlined
from structsmooth.problems.linear.chain.compiled_features import attributes, entry, gather_block, most_entries
from structsmooth.problems.linear.chain.compiled_packed import clear_read, read, rows_of
from structsmooth.problems.linear.chain.compiled_primal import (
    add_label_parts,
    add_parts,
    add_row,
    is_zero,
    max_oracle,
    potentials,
    score_transitions,
    subtract_labels,
    workspace,
)


@compiled
def block(i, data, statistics):
    """Where the tokens of example i start, their number, and a view of its rows of statistics."""
    offsets, states = data.offsets, statistics.shape[1]
    first = offsets[i]
    length = offsets[i + 1] - first
    return first, length, statistics[first + i * states : first + length + (i + 1) * states]


@compiled
def zero_statistics(work, states):
    """An array for the statistics of any one example: nodes [T, S], then transitions [S, S]."""
    return np.zeros((work.node.shape[0] + states, states))


@compiled
def read_block(i, offsets, packed, rows, used):
    """Where the tokens of example i start, and their number; its statistics are unpacked into ``rows``."""
    starts, kinds, columns, values = packed
    begin, end = rows_of(i, offsets, rows.shape[1])
    length = offsets[i + 1] - offsets[i]
    read(kinds[begin:end], columns, values, starts[i], length, rows, used)
    return offsets[i], length


@compiled
def mean_score(transition, length, unary, statistics, used):
    """Score of the statistics of an example."""
    states, score = unary.shape[1], 0.0
    numbers, _, count = used
    for t in range(length):
        for s in range(states):
            score += unary[t, s] * statistics[t, s]
    for j in range(count[0]):
        p = numbers[j]
        for s in range(states):
            score += transition[p, s] * statistics[length + p, s]
    return score


@compiled
def gathered(data, weights):
    """Slots, rows and sums for :func:`gather`."""
    most = most_entries(data.features, data.offsets)
    return np.full(weights.shape[0], -1, np.int32), np.empty(most, np.int32), np.empty((most, weights.shape[1]))


@compiled
def gather(first, length, data, node, slots, rows, sums):
    """B^T node by feature: numbers of the rows go to ``rows``, the rows to ``sums``; returns their number.

    A feature that several tokens have gives one row, as norms need it; tokens whose nodes are all zero give none.
    ``slots`` is -1 everywhere, before and after.
    """
    features, states, count = data.features, node.shape[1], 0
    for t in range(length):
        if is_zero(node[t]):
            continue
        begin, end = attributes(features, first + t)
        for q in range(begin, end):
            r, value = entry(features, first + t, q)
            j = slots[r]
            if j < 0:
                j, count = count, count + 1
                slots[r] = j
                rows[j] = r
                for s in range(states):
                    sums[j, s] = 0.0
            add_row(value, node, t, sums, j)
    # Only the slots in use are cleared: there are as many as features in all.
    for j in range(count):
        slots[rows[j]] = -1
    return gather_block(features, first, length, node, rows, sums, count)


@inlined
def _squared_sum(matrix, rows):
    total = 0.0
    for r in range(rows):
        for s in range(matrix.shape[1]):
            total += matrix[r, s] * matrix[r, s]
    return total


@inlined
def squared_norm(count, length, sums, node, edge, used, transition_scale):
    """|B^T (node, edge)|^2, with the rows of features from :func:`gather`."""
    # B^T has a row for the label of the first token, and one for that of the last: the nodes themselves.
    ends, edges, numbers = _squared_sum(node, 1) + _squared_sum(node[length - 1 :], 1), 0.0, used[0]
    for j in range(used[2][0]):
        p = numbers[j]
        for s in range(edge.shape[1]):
            edges += edge[p, s] * edge[p, s]
    return _squared_sum(sums, count) + transition_scale**2 * edges + ends


@inlined
def add_gathered(count, length, rows, sums, node, edge, used, factor, transition_scale, out):
    """out += factor * B^T (node, edge), with the rows of features from :func:`gather`."""
    for j in range(count):
        add_row(factor, sums, j, out, rows[j])
    add_label_parts(length, node, edge, used, factor, transition_scale, out)


@compiled
def add_statistics(length, factor, node, edge, used, out_node, out_edge):
    """(out_node, out_edge) += factor * (node, edge), statistics of an example."""
    numbers, _, count = used
    for t in range(length):
        add_row(factor, node, t, out_node, t)
    for j in range(count[0]):
        add_row(factor, edge, numbers[j], out_edge, numbers[j])


@entry_point
def block_values(data, weights, packed, from_labels, values):
    """Block gaps of examples, or block margins: what the score of the statistics is above that of the labels."""
    work = workspace(data, weights.shape[1], ())
    offsets, example_weights, transition, used = data.offsets, data.example_weights, work.transition, work.used
    statistics = zero_statistics(work, weights.shape[1])
    score_transitions(data, weights, 1.0, work)
    for i in range(values.shape[0]):
        _, length = read_block(i, offsets, packed, statistics, used)
        labels = potentials(i, data, weights, 1.0, work.unary, transition)
        mean = mean_score(transition, length, work.unary, statistics, used)
        clear_read(length, statistics, used)
        # Block gap g_i = max <theta + l, nu(y)> - <theta + l, m>.
        value = mean - labels if from_labels else max_oracle(transition, length, work) - mean
        values[i] = value * example_weights[i]


@entry_point
def expected_cost(data, states, packed):
    """Sum of the costs under the statistics, each times the weight of its example."""
    labels, costs, example_weights = data.labels, data.costs, data.example_weights
    work, total = workspace(data, states, ()), 0.0
    statistics = zero_statistics(work, states)
    for i in range(example_weights.shape[0]):
        first, length = read_block(i, data.offsets, packed, statistics, work.used)
        cost = 0.0
        for t in range(length):
            cost += costs[first + t] * (1.0 - statistics[t, labels[first + t]])
        clear_read(length, statistics, work.used)
        total += example_weights[i] * cost
    return total


@entry_point
def dual_weights(data, packed, factor, out):
    """out += factor * the sum of B^T(m - labels), each times the weight of its example."""
    states, offsets, example_weights = out.shape[1], data.offsets, data.example_weights
    work = workspace(data, states, ())
    statistics, used = zero_statistics(work, states), work.used
    for i in range(example_weights.shape[0]):
        first, length = read_block(i, offsets, packed, statistics, used)
        node, edge = statistics[:length], statistics[length:]
        subtract_labels(first, length, data.labels, node, edge, used)
        add_parts(first, length, data, node, edge, used, factor * example_weights[i], out)
        clear_read(length, statistics, used)
