"""The dual of linear chains in the space of parts: what passes and the steps of solvers compute.

Statistics are T rows of nodes and S of summed edges for each example, packed as in
:mod:`structsmooth.problems.linear.chain.compiled_packed` or all together, [tokens + n * S, S]. Examples, weights and
workspaces are those of :mod:`structsmooth.problems.linear.chain.compiled_primal`, and so is ``smoothing``.
"""

import numpy as np

from structsmooth.compiled.jit import compiled, entry_point, inlined
from structsmooth.compiled.rows import copy_rows
from structsmooth.problems.linear.chain.compiled_features import entries, entry, most_entries
from structsmooth.problems.linear.chain.compiled_packed import read, rows_of
from structsmooth.problems.linear.chain.compiled_primal import (
    add_label_parts,
    add_parts,
    is_zero,
    max_oracle,
    potentials,
    subtract_labels,
    workspace,
)


@compiled
def block(i, data, statistics):
    """Where the tokens of example i start, their number, and a view of its rows of statistics."""
    offsets, states = data[1], statistics.shape[1]
    first = offsets[i]
    length = offsets[i + 1] - first
    return first, length, statistics[first + i * states : first + length + (i + 1) * states]


@compiled
def empty_statistics(work, states):
    """An array for the statistics of any one example, of unknown values: nodes [T, S], then transitions [S, S]."""
    return np.empty((work.node.shape[0] + states, states))


@compiled
def read_block(i, offsets, packed, rows):
    """Where the tokens of example i start, and their number; its statistics are unpacked into ``rows``."""
    starts, kinds, columns, values = packed
    begin, end = rows_of(i, offsets, rows.shape[1])
    read(kinds[begin:end], columns, values, starts[i], rows)
    return offsets[i], offsets[i + 1] - offsets[i]


@compiled
def mean_score(transition, length, unary, statistics):
    """Score of the statistics of an example."""
    states, score = unary.shape[1], 0.0
    for t in range(length):
        for s in range(states):
            score += unary[t, s] * statistics[t, s]
    for p in range(states):
        for s in range(states):
            score += transition[p, s] * statistics[length + p, s]
    return score


@compiled
def gathered(data, weights):
    """Slots, rows and sums for :func:`gather`."""
    features, sentence_offsets, _, _, _, _, _ = data
    most = most_entries(features, sentence_offsets)
    return np.full(weights.shape[0], -1, np.int32), np.empty(most, np.int32), np.empty((most, weights.shape[1]))


@compiled
def gather(first, length, data, node, slots, rows, sums):
    """B^T node by feature: numbers of the rows go to ``rows``, the rows to ``sums``; returns their number.

    A feature that several tokens have gives one row, as norms need it; tokens whose nodes are all zero give none.
    ``slots`` is -1 everywhere, before and after.
    """
    features, _, _, _, _, _, _ = data
    states, count = node.shape[1], 0
    for t in range(length):
        if is_zero(node[t]):
            continue
        begin, end = entries(features, first + t)
        for q in range(begin, end):
            r, value = entry(features, first + t, q)
            j = slots[r]
            if j < 0:
                j, count = count, count + 1
                slots[r] = j
                rows[j] = r
                for s in range(states):
                    sums[j, s] = 0.0
            for s in range(states):
                sums[j, s] += value * node[t, s]
    for j in range(count):
        slots[rows[j]] = -1
    return count


@inlined
def _squared_sum(matrix, rows):
    total = 0.0
    for r in range(rows):
        for s in range(matrix.shape[1]):
            total += matrix[r, s] * matrix[r, s]
    return total


@inlined
def squared_norm(count, length, sums, node, edge, transition_scale):
    """|B^T (node, edge)|^2, with the rows of features from :func:`gather`."""
    ends = _squared_sum(node, 1) + _squared_sum(node[length - 1 :], 1)
    return _squared_sum(sums, count) + transition_scale**2 * _squared_sum(edge, edge.shape[0]) + ends


@inlined
def add_gathered(count, length, rows, sums, node, edge, factor, transition_scale, out):
    """out += factor * B^T (node, edge), with the rows of features from :func:`gather`."""
    states = node.shape[1]
    for j in range(count):
        r = rows[j]
        for s in range(states):
            out[r, s] += factor * sums[j, s]
    add_label_parts(length, node, edge, factor, transition_scale, out)


@inlined
def move(statistics, length, size, node, edge):
    """statistics += size * (node, edge)."""
    states = node.shape[1]
    for t in range(length):
        for s in range(states):
            statistics[t, s] += size * node[t, s]
    for p in range(states):
        for s in range(states):
            statistics[length + p, s] += size * edge[p, s]


@entry_point
def block_values(data, weights, packed, from_labels, values):
    """Block gaps of examples, or block margins: what the score of the statistics is above that of the labels."""
    work = workspace(data, weights.shape[1], ())
    offsets, example_weights, transition = data[1], data[5], work.transition
    statistics = empty_statistics(work, weights.shape[1])
    for i in range(values.shape[0]):
        _, length = read_block(i, offsets, packed, statistics)
        labels = potentials(i, data, weights, 1.0, work.unary, transition)
        mean = mean_score(transition, length, work.unary, statistics)
        value = mean - labels if from_labels else max_oracle(transition, length, work) - mean
        values[i] = value * example_weights[i]


@entry_point
def expected_cost(data, states, packed):
    """Sum of the costs under the statistics, each times the weight of its example."""
    _, offsets, labels, costs, _, example_weights, _ = data
    statistics, total = empty_statistics(workspace(data, states, ()), states), 0.0
    for i in range(example_weights.shape[0]):
        first, length = read_block(i, offsets, packed, statistics)
        cost = 0.0
        for t in range(length):
            cost += costs[first + t] * (1.0 - statistics[t, labels[first + t]])
        total += example_weights[i] * cost
    return total


@entry_point
def dual_weights(data, packed, factor, out):
    """out += factor * the sum of B^T(m - labels), each times the weight of its example."""
    states, offsets, example_weights = out.shape[1], data[1], data[5]
    work = workspace(data, states, ())
    statistics, node, edge = empty_statistics(work, states), work.node, work.edge[0]
    for i in range(example_weights.shape[0]):
        first, length = read_block(i, offsets, packed, statistics)
        copy_rows(statistics, node, length)
        copy_rows(statistics[length:], edge, states)
        subtract_labels(first, length, data[2], node, edge)
        add_parts(first, length, data, node, edge, factor * example_weights[i], out)
