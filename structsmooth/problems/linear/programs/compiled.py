"""Passes over examples whose outputs are derivations of a program, with sparse features of their parts.

Statistics are a number for each part, those of all examples end to end. Outputs are the numbers of their parts within
the example, in rising order, with -1 in front where there are fewer than the most that an output may have.
"""

from collections import namedtuple

import numpy as np

from structsmooth.compiled.jit import compiled, entry_point
from structsmooth.problems.linear.programs.compiled_features import add_features, clear, columns_of, squared_norm
from structsmooth.structures.programs.compiled import follow, max_product
from structsmooth.structures.spanning_trees.compiled import best_tree, scratch

# ``data`` are ProgramArrays.

Work = namedtuple("Work", "theta parts value choices stack used scores direction touched y columns tree")


@compiled
def workspace(data):
    """Scratch arrays for one example at a time, in which all scores of the program are forbidden."""
    scores, offsets, output_offsets = data.sizes.scores, data.examples.offsets, data.examples.output_offsets
    nodes, largest, length = data.program[0].shape[0] - 1, 0, 0
    for i in range(offsets.shape[0] - 1):
        largest = max(largest, offsets[i + 1] - offsets[i])
        length = max(length, output_offsets[i + 1] - output_offsets[i])
    theta = np.full(scores + 1, -np.inf)
    theta[scores] = 0.0
    return Work(
        theta,
        np.full(scores + 1, -1, np.int32),
        np.empty(nodes + 1),
        np.empty(nodes, np.int32),
        np.empty(data.sizes.depth + 1, np.int32),
        np.empty(data.sizes.longest, np.int32),
        np.empty(largest),
        np.empty(largest),
        np.empty(largest, np.int32),
        np.empty(length, np.int32),
        np.empty(max(data.most, 1), np.int32),
        tree_scratch(nodes + 1 if data.sizes.spanning else 1),
    )


@compiled
def augmented(i, data, weights, scale, work):
    """Scores of the parts of example i plus ``scale`` times their costs, in ``work.scores``; returns their number."""
    features, offsets, costs = data.features, data.examples.offsets, data.examples.costs
    begin, count = offsets[i], offsets[i + 1] - offsets[i]
    for p in range(count):
        score = scale * costs[begin + p]
        for q in range(columns_of(features, begin + p, work.columns)):
            score += weights[work.columns[q]]
        work.scores[p] = score
    return count


@compiled
def best_spanning(length, single_root, work):
    """The score of the best spanning tree of ``length`` words, or -inf; its arcs go to ``work.used``."""
    theta, (arcs, graph, forest, found) = work.theta, work.tree
    words = graph[0].shape[0] // 2 - 1
    for m in range(1, length + 1):
        arcs[0, m] = theta[words * words + m - 1]
        for h in range(1, length + 1):
            arcs[h, m] = theta[(h - 1) * words + m - 1]
    if not best_tree(arcs[: length + 1, : length + 1], single_root, graph, forest, found):
        return -np.inf
    total = 0.0
    for m in range(1, length + 1):
        h = found[m]
        total += arcs[h, m]
        work.used[m - 1] = words * words + m - 1 if h == 0 else (h - 1) * words + m - 1
    return total


@compiled
def tree_scratch(nodes):
    """Scratch arrays for the best tree of ``nodes`` nodes, with the root."""
    graph, forest = scratch(nodes)
    return np.empty((nodes, nodes)), graph, forest, np.empty(nodes, np.int64)


@compiled
def best(i, data, work):
    """The largest score of an output under ``work.scores``; the output goes to ``work.y``."""
    program, sizes, examples = data.program, data.sizes, data.examples
    begin, root, missing, alternatives = examples.offsets[i], examples.roots[i], sizes.scores, sizes.alternatives
    places, choices = examples.places, examples.choices[i]
    length = examples.output_offsets[i + 1] - examples.output_offsets[i]
    count, program_parts = examples.offsets[i + 1] - begin - choices * alternatives, length - choices
    theta, parts, used, y = work.theta, work.parts, work.used, work.y
    for p in range(count):
        theta[places[begin + p]] = work.scores[p]
        parts[places[begin + p]] = p
    # Outputs with fewer parts have ``missing``, whose part is -1, and so comes first.
    for j in range(program_parts):
        used[j] = missing
    if sizes.spanning > 0:
        total = best_spanning(root + 1, sizes.spanning == 1, work)
    else:
        max_product(program, theta, root, work.value, work.choices)
        total = work.value[root]
        if total > -np.inf:
            follow(program, missing, work.choices, root, work.stack, used)
    for j in range(program_parts):  # sorted by insertion
        part, k = parts[used[j]], j
        while k > 0 and y[k - 1] > part:
            y[k] = y[k - 1]
            k -= 1
        y[k] = part
    for p in range(count):
        # The next example may have other parts: what it lacks is forbidden, as ``workspace`` left it.
        theta[places[begin + p]] = -np.inf
    # Choices are no parts of the program: each is independent of all else, so that its best alternative is its own.
    for j in range(choices):
        first = count + j * alternatives
        part = first
        for p in range(first + 1, first + alternatives):
            if work.scores[p] > work.scores[part]:
                part = p
        y[program_parts + j] = part
        total += work.scores[part]
    return total


@compiled
def add_output(y, length, factor, direction):
    """direction += factor * the parts of an output."""
    for j in range(length):
        if y[j] >= 0:
            direction[y[j]] += factor


@compiled
def output_score(y, length, scores):
    """Score of an output."""
    total = 0.0
    for j in range(length):
        if y[j] >= 0:
            total += scores[y[j]]
    return total


@compiled
def mean_score(scores, statistics, count):
    """Score of the statistics of an example."""
    total = 0.0
    for p in range(count):
        total += scores[p] * statistics[p]
    return total


@compiled
def touch(work, count):
    """Which parts the direction moves, in ``work.touched``; returns their number."""
    number = 0
    for p in range(count):
        if work.direction[p] != 0.0:
            work.touched[number] = p
            number += 1
    return number


@entry_point
def full_pass(data, weights, gradient, begin, end):
    """Sums of losses and of costs of the best outputs, times weights of examples; adds to the gradient if it has rows.

    The losses are f(w) = max <theta + costs, s> - <theta, labels>.
    """
    features, example_weights, examples = data.features, data.example_weights, data.examples
    offsets, output_offsets, labels, costs = examples.offsets, examples.output_offsets, examples.labels, examples.costs
    work, loss, cost = workspace(data), 0.0, 0.0
    for i in range(begin, end):
        first, length = output_offsets[i], output_offsets[i + 1] - output_offsets[i]
        gold, example_costs = labels[first : first + length], costs[offsets[i] : offsets[i + 1]]
        count = augmented(i, data, weights, 1.0, work)
        margin = output_score(gold, length, work.scores) - output_score(gold, length, example_costs)
        loss += example_weights[i] * (best(i, data, work) - margin)
        cost += example_weights[i] * output_score(work.y, length, example_costs)
        if gradient.shape[0] > 0:
            work.direction[:count] = 0.0
            add_output(work.y, length, 1.0, work.direction)
            add_output(gold, length, -1.0, work.direction)
            number = touch(work, count)
            add_features(
                features, offsets[i], work.direction, work.touched, number, work.columns, gradient, example_weights[i]
            )
    return loss, cost


@entry_point
def largest_scores(data, scores, values):
    """The largest score of an output of each example, given scores of all parts."""
    work, offsets = workspace(data), data.examples.offsets
    for i in range(values.shape[0]):
        work.scores[: offsets[i + 1] - offsets[i]] = scores[offsets[i] : offsets[i + 1]]
        values[i] = best(i, data, work)


@entry_point
def best_parts(data, weights, counts):
    """How often the best output of each example has each part, with costs."""
    work, offsets, ends = workspace(data), data.examples.offsets, data.examples.output_offsets
    for i in range(ends.shape[0] - 1):
        augmented(i, data, weights, 1.0, work)
        best(i, data, work)
        for part in work.y[: ends[i + 1] - ends[i]]:
            if part >= 0:
                counts[offsets[i] + part] += 1


@entry_point
def block_gaps(data, weights, statistics, gaps):
    """Block gaps of examples."""
    work, offsets, example_weights = workspace(data), data.examples.offsets, data.example_weights
    for i in range(gaps.shape[0]):
        count = augmented(i, data, weights, 1.0, work)
        mean = mean_score(work.scores, statistics[offsets[i] : offsets[i + 1]], count)
        gaps[i] = (best(i, data, work) - mean) * example_weights[i]


@entry_point
def dual_weights(data, statistics, factor, out):
    """out += factor * the sum of B^T(m - labels), each times the weight of its example."""
    features, example_weights, offsets = data.features, data.example_weights, data.examples.offsets
    labels, output_offsets, work = data.examples.labels, data.examples.output_offsets, workspace(data)
    for i in range(example_weights.shape[0]):
        count = offsets[i + 1] - offsets[i]
        work.direction[:count] = statistics[offsets[i] : offsets[i + 1]]
        gold = labels[output_offsets[i] : output_offsets[i + 1]]
        add_output(gold, gold.shape[0], -1.0, work.direction)
        number = touch(work, count)
        add_features(
            features, offsets[i], work.direction, work.touched, number, work.columns, out, factor * example_weights[i]
        )


@entry_point
def expected_cost(data, statistics):
    """Sum of the costs under the statistics, each times the weight of its example."""
    offsets, costs, example_weights, total = data.examples.offsets, data.examples.costs, data.example_weights, 0.0
    for i in range(example_weights.shape[0]):
        begin, end = offsets[i], offsets[i + 1]
        total += example_weights[i] * mean_score(costs[begin:end], statistics[begin:end], end - begin)
    return total


@entry_point
def part_scores(features, most, begin, weights, scores):
    """Scores of parts from number ``begin`` on."""
    columns = np.empty(max(most, 1), np.int32)
    for p in range(scores.shape[0]):
        total = 0.0
        for q in range(columns_of(features, begin + p, columns)):
            total += weights[columns[q]]
        scores[p] = total


@entry_point
def add_adjoint(features, most, begin, direction, factor, out):
    """out += factor * B^T direction of parts from number ``begin`` on."""
    columns = np.empty(max(most, 1), np.int32)
    touched = np.flatnonzero(direction).astype(np.int32)
    add_features(features, begin, direction, touched, touched.shape[0], columns, out, factor)


@entry_point
def norm_of_adjoint(features, most, begin, direction, sums):
    """|B^T direction|^2 of parts from number ``begin`` on; ``sums`` [dim] is zero before and after."""
    columns = np.empty(max(most, 1), np.int32)
    touched = np.flatnonzero(direction).astype(np.int32)
    add_features(features, begin, direction, touched, touched.shape[0], columns, sums, 1.0)
    total = squared_norm(features, begin, direction, touched, touched.shape[0], columns, sums)
    clear(features, begin, touched, touched.shape[0], columns, sums)
    return total
