"""Block-coordinate Frank-Wolfe over linear chains (Osokin et al. 2016), in the space of parts.

Statistics are T rows of nodes and S of summed edges for each example, packed as in
:mod:`structsmooth.problems.linear.chain.compiled_packed` or all together, [tokens + n * S, S]. An example holds C
outputs at most: its active set are those of weight alpha > 0, its cache those with a stamp. Examples, weights and
workspaces are those of :mod:`structsmooth.problems.linear.chain.compiled_primal`.
"""

import numpy as np

from structsmooth.compiled.atomic import add_atomically, take
from structsmooth.compiled.jit import compiled, entry_point, inlined
from structsmooth.compiled.sampling import draw, set_weight, sum_tree
from structsmooth.problems.linear.chain.compiled_features import entries, entry, most_entries
from structsmooth.problems.linear.chain.compiled_packed import read, read_changed, rows_of, write_changed
from structsmooth.problems.linear.chain.compiled_primal import (
    add_label_parts,
    add_label_parts_atomically,
    add_parts,
    potentials,
    smoothed_max,
    subtract_labels,
    workspace,
)
from structsmooth.problems.linear.compiled_active_set import NO_ATOM, choice, reweight, slot
from structsmooth.structures.chain.compiled import viterbi

# Tuples that compiled passes take:
#   sets: outputs that are held [tokens * C], their weights [n, C], and their stamps [n, C]: 0 for what is not in the
#       cache, and the larger, the later it was of use; or one row of zeros for all, if there are no caches
#   steps: 0 for Frank-Wolfe, 1 for pairwise, 2 for away steps, and the least weight that counts of what no slot holds
#   smoothing: as in compiled_primal
#   cache: whether there is one, the factor of the block gap as last seen and the least gap that its outputs must have
# The queue of an epoch is a counter of the steps that threads have taken [1], or None for one thread, which is compiled
# apart: it neither counts nor adds atomically.


@compiled
def block(i, data, statistics):
    """Where the tokens of example i start, their number, and its own statistics."""
    offsets, states = data[1], statistics.shape[1]
    first = offsets[i]
    length = offsets[i + 1] - first
    return first, length, statistics[first + i * states : first + length + (i + 1) * states]


@compiled
def room(work, states):
    """Room for the statistics of the longest example."""
    return np.empty((work.node.shape[0] + states, states))


@compiled
def read_block(i, offsets, packed, rows):
    """Where the tokens of example i start, their number, and its own statistics, in ``rows``."""
    starts, kinds, columns, values = packed
    begin, end = rows_of(i, offsets, rows.shape[1])
    read(kinds[begin:end], columns, values, starts[i], rows)
    return offsets[i], offsets[i + 1] - offsets[i]


@compiled
def _oracle(transition, length, work):
    """Score of the best output under the potentials in ``work.unary``; it goes to ``work.labels``."""
    edges = transition.reshape((1, *transition.shape))
    return viterbi(work.unary, edges, length, work.alpha, work.labels[0])


@compiled
def _mean_score(transition, length, unary, own):
    """Score of the statistics of an example."""
    states, score = unary.shape[1], 0.0
    for t in range(length):
        for s in range(states):
            score += unary[t, s] * own[t, s]
    for p in range(states):
        for s in range(states):
            score += transition[p, s] * own[length + p, s]
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

    A feature that several tokens have gives one row, as norms need it. ``slots`` is -1 everywhere, before and after.
    """
    features, _, _, _, _, _, _ = data
    states, count = node.shape[1], 0
    for t in range(length):
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


@compiled
def _add_gathered_atomically(count, length, rows, sums, node, edge, factor, transition_scale, out):
    """:func:`add_gathered` while other threads do the same."""
    states = node.shape[1]
    for j in range(count):
        for s in range(states):
            if sums[j, s] != 0.0:
                add_atomically(out, rows[j], s, factor * sums[j, s])
    add_label_parts_atomically(length, node, edge, factor, transition_scale, out)


@inlined
def _add(queue, count, length, rows, sums, node, edge, factor, transition_scale, out):
    """:func:`add_gathered`, as the number of threads needs it."""
    if queue is None:
        add_gathered(count, length, rows, sums, node, edge, factor, transition_scale, out)
    else:
        _add_gathered_atomically(count, length, rows, sums, node, edge, factor, transition_scale, out)


@inlined
def _next_step(queue, turn):
    """The step that a thread makes when it is its turn."""
    return turn if queue is None else take(queue, 1)


@compiled
def _held_scores(transition, unary, held, alpha, stamps, scores):
    """Scores of the outputs that are held; returns the best of the cache, or none."""
    length, best = held.shape[1], NO_ATOM
    for c in range(held.shape[0]):
        if alpha[c] > 0.0 or stamps[c] > 0:
            y = held[c]
            score = unary[0, y[0]]
            for t in range(1, length):
                score += transition[y[t - 1], y[t]] + unary[t, y[t]]
            scores[c] = score
            if stamps[c] > 0 and (best == NO_ATOM or score > scores[best]):
                best = c
    return best


@inlined
def _add_output(y, length, factor, node, edge):
    """(node, edge) += factor * the parts of an output."""
    for t in range(length):
        node[t, y[t]] += factor
        if t > 0:
            edge[y[t - 1], y[t]] += factor


@inlined
def _add_own(own, length, factor, node, edge):
    """(node, edge) += factor * own statistics."""
    states = node.shape[1]
    for t in range(length):
        for s in range(states):
            node[t, s] += factor * own[t, s]
    for p in range(states):
        for s in range(states):
            edge[p, s] += factor * own[length + p, s]


@compiled
def _add_atom(c, length, own, held, alpha, factor, weight, node, edge):
    """(node, edge) += factor * atom c, an output that is held or what no slot holds, of that weight."""
    if c < alpha.shape[0]:
        _add_output(held[c], length, factor, node, edge)
        return
    _add_own(own, length, factor / weight, node, edge)
    for other in range(alpha.shape[0]):
        if alpha[other] > 0.0:
            _add_output(held[other], length, -factor * alpha[other] / weight, node, edge)


@compiled
def _direction(y, length, own, held, alpha, atom, towards, node, edge):
    """(node, edge) = s - m, s - a or m - a, with the output s, the statistics m and the atom a = (number, weight)."""
    away, weight = atom
    factor = 1.0 if not towards else 0.0 if away != NO_ATOM else -1.0
    for t in range(length):
        for s in range(node.shape[1]):
            node[t, s] = factor * own[t, s]
    for p in range(edge.shape[0]):
        for s in range(edge.shape[1]):
            edge[p, s] = factor * own[length + p, s]
    if towards:
        _add_output(y, length, 1.0, node, edge)
    if away != NO_ATOM:
        _add_atom(away, length, own, held, alpha, -1.0, weight, node, edge)


@inlined
def move(own, length, size, node, edge):
    """Own statistics += size * (node, edge)."""
    states = node.shape[1]
    for t in range(length):
        for s in range(states):
            own[t, s] += size * node[t, s]
    for p in range(states):
        for s in range(states):
            own[length + p, s] += size * edge[p, s]


@entry_point
def frank_wolfe_epoch(
    order, draws, data, weights, total, packed, changes, gaps, lam, remaining, sets, steps, cache, queue
):
    """Block-coordinate Frank-Wolfe steps (Algorithms 1 to 5), in place; returns the number of oracle calls.

    ``changes`` have what becomes of the packed statistics, which stay as they are.
    ``order`` has the example of each step; with ``draws``, these choose among its examples by their gaps. ``total``
    becomes the sum of what each step changes, times ``remaining``; without ``remaining`` it stays as it is.

    With a queue, several threads make the steps of one epoch: they add to the same weights, and each takes the next
    step that is left. No two of them may have the same example.
    """
    outputs, alphas, used = sets
    (kind, least), (caching, factor, least_gap) = steps, cache
    states, capacity = weights.shape[1], alphas.shape[1]
    work = workspace(data, states, 1)
    node, edge, unary, y = work.node, work.edge[0], work.unary, work.labels[0]
    transition, offsets, transition_scale, shares = work.transition, data[1], data[4], data[5]
    slots, rows, sums = gathered(data, weights)
    own = room(work, states)
    by_gap, averaged = draws.shape[0] > 0, remaining.shape[0] > 0
    tree, scores, calls = sum_tree(gaps[order] if by_gap else gaps[:0]), np.zeros(capacity), 0
    end = draws.shape[0] if by_gap else order.shape[0]
    for turn in range(end):
        step = _next_step(queue, turn)
        if step >= end:
            break
        chosen = draw(tree, order.shape[0], draws[step]) if by_gap else step
        i = order[chosen]
        share = shares[i]
        begin, past = rows_of(i, offsets, states)
        first, length = offsets[i], offsets[i + 1] - offsets[i]
        read_changed(i, begin, past, packed, changes, own)
        held, alpha = outputs[first * capacity : (first + length) * capacity], alphas[i]
        stamps = used[i if used.shape[0] > 1 else 0]
        held = held.reshape((capacity, length))
        potentials(i, data, weights, 1.0, unary, transition)
        mean = _mean_score(transition, length, unary, own)
        hit = _held_scores(transition, unary, held, alpha, stamps, scores)
        if caching and hit != NO_ATOM and share * (scores[hit] - mean) >= max(factor * gaps[i], least_gap):
            gain = scores[hit] - mean
            y[:length] = held[hit]
        else:
            gain, calls = _oracle(transition, length, work) - mean, calls + 1
            gaps[i] = max(gain, 0.0) * share
            if by_gap:
                set_weight(tree, chosen, gaps[i])
        longest, away, weight, towards = 1.0, NO_ATOM, 1.0, True
        if kind > 0:
            gain, longest, away, weight, towards = choice(kind, gain, mean, alpha, scores, least)
        if gain <= 0.0:
            continue
        _direction(y, length, own, held, alpha, (away, weight), towards, node, edge)
        count = gather(first, length, data, node, slots, rows, sums)
        norm2 = squared_norm(count, length, sums, node, edge, transition_scale)
        curvature = norm2 * share / lam
        size = longest if gain >= longest * curvature else gain / curvature
        change = -size * share / lam
        _add(queue, count, length, rows, sums, node, edge, change, transition_scale, weights)
        if averaged:
            _add(queue, count, length, rows, sums, node, edge, change * remaining[step], transition_scale, total)
        move(own, length, size, node, edge)
        write_changed(i, begin, past, own, changes)
        if kind > 0:
            reweight(y, away, towards, size, longest, held, alpha, stamps)
        if caching:
            place = slot(y, held, alpha, stamps)  # which may clear a stamp
            stamps[place] = stamps.max() + 1
    return calls


@compiled
def _smoothed_answer(transition, length, own, surplus, smoothing, work):
    """One call of a smoothed oracle on the potentials in ``work.unary``; s - m goes to ``work.node`` and ``work.edge``.

    Returns the gap of the own statistics m and their surplus, and the surplus of the answer s.
    """
    unary, node, edge = work.unary, work.node, work.edge[0]
    states, mean = unary.shape[1], _mean_score(transition, length, unary, own)
    value, _ = smoothed_max(transition, length, smoothing, work)
    rise, scale = 0.0, smoothing[0] if smoothing[1] == 0 else 1.0  # the exp oracle has divided its potentials
    for t in range(length):
        for s in range(states):
            node[t, s] -= own[t, s]
            rise += scale * unary[t, s] * node[t, s]
    for p in range(states):
        for s in range(states):
            edge[p, s] -= own[length + p, s]
            rise += transition[p, s] * edge[p, s]
    return value - mean - surplus, value - mean - rise


@entry_point
def sdca_epoch(order, data, weights, statistics, surplus, smoothing, lam):
    """Steps of stochastic dual coordinate ascent towards the answers of a smoothed oracle, in place."""
    transition_scale, shares = data[4], data[5]
    work = workspace(data, weights.shape[1], smoothing[1])
    transition, node, edge = work.transition, work.node, work.edge[0]
    slots, rows, sums = gathered(data, weights)
    for step in range(order.shape[0]):
        i = order[step]
        first, length, own = block(i, data, statistics)
        potentials(i, data, weights, 1.0, work.unary, transition)
        gain, answered = _smoothed_answer(transition, length, own, surplus[i], smoothing, work)
        if gain <= 0.0:
            continue
        count = gather(first, length, data, node, slots, rows, sums)
        norm2 = squared_norm(count, length, sums, node, edge, transition_scale)
        scale = shares[i] / lam
        size = 1.0 if gain >= norm2 * scale else gain / (norm2 * scale)
        add_gathered(count, length, rows, sums, node, edge, -size * scale, transition_scale, weights)
        move(own, length, size, node, edge)
        surplus[i] += size * (answered - surplus[i])


@entry_point
def block_gaps(data, weights, packed, gaps):
    """Block gaps of examples."""
    work = workspace(data, weights.shape[1], 1)
    own, transition, offsets, shares = room(work, weights.shape[1]), work.transition, data[1], data[5]
    for i in range(gaps.shape[0]):
        _, length = read_block(i, offsets, packed, own)
        potentials(i, data, weights, 1.0, work.unary, transition)
        mean = _mean_score(transition, length, work.unary, own)
        gaps[i] = (_oracle(transition, length, work) - mean) * shares[i]


@entry_point
def block_margins(data, weights, packed, margins):
    """Means of theta + costs under the statistics, less the scores of the labels, times the shares of examples."""
    work = workspace(data, weights.shape[1], 1)
    own, transition, offsets, shares = room(work, weights.shape[1]), work.transition, data[1], data[5]
    for i in range(margins.shape[0]):
        _, length = read_block(i, offsets, packed, own)
        labels = potentials(i, data, weights, 1.0, work.unary, transition)
        margins[i] = (_mean_score(transition, length, work.unary, own) - labels) * shares[i]


@entry_point
def expected_cost(data, states, packed):
    """Sum of the costs under the statistics, each times the share of its example."""
    _, offsets, labels, costs, _, shares, _ = data
    own, total = room(workspace(data, states, 1), states), 0.0
    for i in range(shares.shape[0]):
        first, length = read_block(i, offsets, packed, own)
        cost = 0.0
        for t in range(length):
            cost += costs[first + t] * (1.0 - own[t, labels[first + t]])
        total += shares[i] * cost
    return total


@entry_point
def dual_weights(data, packed, factor, out):
    """out += factor * the sum of B^T(m - labels), each times the share of its example."""
    states, offsets, shares = out.shape[1], data[1], data[5]
    work = workspace(data, states, 1)
    own, node, edge = room(work, states), work.node, work.edge[0]
    for i in range(shares.shape[0]):
        first, length = read_block(i, offsets, packed, own)
        node[:length] = own[:length]
        edge[:] = own[length : length + states]
        subtract_labels(first, length, data[2], node, edge)
        add_parts(first, length, data, node, edge, factor * shares[i], out)
