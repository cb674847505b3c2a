"""Passes over sparse linear chains in the space of parts.

A sentence is a range of tokens, a token a range of attribute ids. Statistics of an example are node marginals [T, S]
and summed edges [S, S]. Weights, and all shaped like them (gradients, drifts, sums), are [F + S + 2, S]: one row
of states per attribute, then the transitions, then the scores of the first and of the last label.
Kernels unpack their tuples before they loop: reading a member of a tuple costs a reference count each time.
"""

from collections import namedtuple

import numpy as np

from structsmooth.kernels.chain import exponentiate, log_partition, marginals, top_k, viterbi
from structsmooth.kernels.jit import entry_point, inlined, kernel
from structsmooth.kernels.sampling import draw, set_weight, sum_tree

# Tuples that kernels take:
#   data: attributes, token offsets, sentence offsets, labels of tokens, costs of mistakes at tokens
#   smoothing: mu and k, the outputs of the top-K oracle (1: max), or 0 for the exp oracle
#   sets: 0 for Frank-Wolfe, 1 for pairwise, 2 for away steps; outputs of the active sets [tokens * C], their weights
#       [n, C] with 0 for a free slot, and the least weight that counts of what is in no slot
#   decay: step size, shrink = 1 - c, and sums[g] = 1 + c + ... + c^(g-1)

Workspace = namedtuple(
    "Workspace", "unary node edge row score back values labels shares alpha scaled total exponential shift"
)


@kernel
def _workspace(data, states, k):
    steps, offsets = 0, data[2]
    for i in range(offsets.shape[0] - 1):
        steps = max(steps, offsets[i + 1] - offsets[i])
    slots = max(k, 1)
    return Workspace(
        np.empty((steps, states)),
        np.empty((steps, states)),
        np.empty((1, states, states)),
        np.empty((2, states)),
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
def _transition(weights):
    states = weights.shape[1]
    return weights[weights.shape[0] - states - 2 : weights.shape[0] - 2]


@kernel
def _potentials(i, data, weights, scale, unary):
    """Cost-augmented unary potentials of example i under ``scale * weights``; returns the score of its labels."""
    attributes, token_offsets, sentence_offsets, labels, costs = data
    states = unary.shape[1]
    transition, ends = _transition(weights), weights[-2:]
    first, last = sentence_offsets[i], sentence_offsets[i + 1] - 1
    score = 0.0
    for token in range(first, last + 1):
        t = token - first
        for s in range(states):
            unary[t, s] = 0.0
        for q in range(token_offsets[token], token_offsets[token + 1]):
            attribute = attributes[q]
            for s in range(states):
                unary[t, s] += weights[attribute, s]
    for s in range(states):
        unary[0, s] += ends[0, s]
        unary[last - first, s] += ends[1, s]
    for token in range(first, last + 1):
        t, label = token - first, labels[token]
        score += unary[t, label]
        if token > first:
            score += transition[labels[token - 1], label]
        for s in range(states):
            unary[t, s] = scale * unary[t, s] + costs[token]
        unary[t, label] -= costs[token]
    return scale * score


@kernel
def _simplex_weights(values, mu, shares):
    """Projection of values / mu, sorted downwards, onto the simplex (Prop. 3); returns the size of the support."""
    size, total = 0, 0.0
    for j in range(values.shape[0]):
        if values[j] == -np.inf or total - j * values[j] >= mu:
            break
        total += values[j]
        size = j + 1
    for j in range(size):
        shares[j] = (values[j] - total / size) / mu + 1.0 / size
    return size


@kernel
def _smoothed_max(transition, length, smoothing, work):
    """Smoothed max of the potentials in ``work.unary``; statistics go to ``work.node`` and ``work.edge``.

    Returns the smoothed value and the maximum.
    """
    mu, k = smoothing
    node, edge, values, labels, shares = work.node, work.edge, work.values, work.labels, work.shares
    edge[:] = 0.0
    if k == 0:
        return _exp_oracle(transition, length, mu, work)
    node[:length] = 0.0
    edges = transition.reshape((1, *transition.shape))
    if k == 1:
        values[0] = viterbi(work.unary, edges, length, work.row, work.back[:, :, 0], labels[0])
    else:
        top_k(work.unary, edges, length, k, work.score, work.back, values, labels)
    size = _simplex_weights(values, mu, shares)
    smoothed, norm2 = 0.0, 0.0
    for j in range(size):
        share = shares[j]
        smoothed += share * values[j]
        norm2 += share * share
        for t in range(length):
            node[t, labels[j, t]] += share
            if t > 0:
                edge[0, labels[j, t - 1], labels[j, t]] += share
    return smoothed - mu / 2 * (norm2 - 1.0), values[0]


@kernel
def _exp_oracle(transition, length, mu, work):
    """Algorithm 3: sum-product on the potentials divided by mu."""
    edges = transition.reshape((1, *transition.shape))
    best = viterbi(work.unary, edges, length, work.row, work.back[:, :, 0], work.labels[0])
    edges = edges / mu
    work.unary[:length] /= mu
    exponentiate(edges, work.shift, work.exponential)
    tables = (work.exponential, work.shift)
    log_z = log_partition(work.unary, edges, tables[0], tables[1], length, work.alpha, work.scaled, work.total)
    marginals(edges, tables[0], length, work.alpha, work.scaled, work.total, work.node, work.edge)
    return mu * log_z, best


@inlined
def _add_label_parts(length, node, edge, factor, out):
    """The rows of transitions and of first and last labels, which every example has."""
    states = node.shape[1]
    transition, ends = _transition(out), out[-2:]
    for s in range(states):
        ends[0, s] += factor * node[0, s]
        ends[1, s] += factor * node[length - 1, s]
        for p in range(states):
            transition[p, s] += factor * edge[p, s]


@kernel
def _add_parts(first, length, data, node, edge, factor, out):
    """out += factor * B^T (node, edge) for the example whose tokens start at ``first``."""
    attributes, token_offsets, _, _, _ = data
    states = node.shape[1]
    for t in range(length):
        nonzero = False
        for s in range(states):
            nonzero = nonzero or node[t, s] != 0.0
        if nonzero:
            for q in range(token_offsets[first + t], token_offsets[first + t + 1]):
                r = attributes[q]
                for s in range(states):
                    out[r, s] += factor * node[t, s]
    _add_label_parts(length, node, edge, factor, out)


@kernel
def _subtract_labels(first, length, labels, node, edge):
    """Statistics minus the parts of the labels."""
    for t in range(length):
        node[t, labels[first + t]] -= 1.0
        if t > 0:
            edge[labels[first + t - 1], labels[first + t]] -= 1.0


@entry_point
def full_pass(data, weights, smoothing, node, edge, gradient):
    """One oracle call on every example; the statistics go to ``node`` [tokens, S] and ``edge`` [n, S, S].

    Returns the means of the smoothed loss, of the loss and of the expected cost, and adds the mean gradient to
    ``gradient``.
    """
    _, _, sentence_offsets, labels, costs = data
    n, states = sentence_offsets.shape[0] - 1, weights.shape[1]
    work = _workspace(data, states, smoothing[1])
    own, own_edge = work.node, work.edge[0]
    smoothed_loss, loss, cost = 0.0, 0.0, 0.0
    for i in range(n):
        first = sentence_offsets[i]
        length = sentence_offsets[i + 1] - first
        score = _potentials(i, data, weights, 1.0, work.unary)
        smoothed, best = _smoothed_max(_transition(weights), length, smoothing, work)
        smoothed_loss += smoothed - score
        loss += best - score
        for t in range(length):
            cost += costs[first + t] * (1.0 - own[t, labels[first + t]])
        node[first : first + length] = own[:length]
        edge[i] = own_edge
        _subtract_labels(first, length, labels, own, own_edge)
        _add_parts(first, length, data, own, own_edge, 1.0 / n, gradient)
    return smoothed_loss / n, loss / n, cost / n


@inlined
def _catch_up(weights, drift, r, lag, step_size, shrink, sums):
    """Apply ``lag`` dense steps w <- c w - step_size * drift to row r."""
    power, shift = 1.0 - shrink * sums[lag], step_size * sums[lag]
    for s in range(weights.shape[1]):
        weights[r, s] = power * weights[r, s] - shift * drift[r, s]


@entry_point
def svrg_epoch(order, data, weights, drift, total, smoothing, node, edge, decay):
    """SVRG steps w <- c w - step_size * (drift + B^T(statistics - stored statistics)), dense terms just in time.

    Changes ``weights`` in place, and adds to ``total`` what the sparse terms contribute to the sum of the iterates.
    """
    attributes, token_offsets, sentence_offsets, _, _ = data
    step_size, shrink, sums = decay
    rows, states = weights.shape
    work = _workspace(data, states, smoothing[1])
    statistics, edge_statistics = work.node, work.edge[0]
    seen = np.zeros(rows, np.int32)
    for step in range(order.shape[0]):
        i = order[step]
        first, end = sentence_offsets[i], sentence_offsets[i + 1]
        length = end - first
        for q in range(token_offsets[first], token_offsets[end]):
            r = attributes[q]
            lag = step - seen[r]
            if lag > 0:
                _catch_up(weights, drift, r, lag, step_size, shrink, sums)
                seen[r] = step
        for r in range(rows - states - 2, rows):
            _catch_up(weights, drift, r, step - seen[r], step_size, shrink, sums)
            seen[r] = step
        _potentials(i, data, weights, 1.0, work.unary)
        _smoothed_max(_transition(weights), length, smoothing, work)
        for t in range(length):
            for s in range(states):
                statistics[t, s] -= node[first + t, s]
        for p in range(states):
            for s in range(states):
                edge_statistics[p, s] -= edge[i, p, s]
        # The next dense step will shrink these terms, which it should not.
        _add_parts(first, length, data, statistics, edge_statistics, -step_size / (1.0 - shrink), weights)
        # They live on, shrinking, in all iterates to come.
        remaining = order.shape[0] - step
        _add_parts(first, length, data, statistics, edge_statistics, -step_size * sums[remaining], total)
    for r in range(rows):
        _catch_up(weights, drift, r, order.shape[0] - seen[r], step_size, shrink, sums)


@entry_point
def sgd_epoch(order, data, weights, total, smoothing, lam, steps, shares):
    """Stochastic (sub)gradient steps w <- (1 - steps[t] lam) w - steps[t] B^T(statistics - labels), in place.

    ``total`` (zero on entry) becomes the sum of shares[t] times the iterate after step t. The weights are kept as
    scale * v, so that shrinking is free; ``total`` is corrected by what each step adds to v.
    """
    _, _, sentence_offsets, labels, _ = data
    work = _workspace(data, weights.shape[1], smoothing[1])
    scale, weight = 1.0, 0.0
    for step in range(order.shape[0]):
        i = order[step]
        first = sentence_offsets[i]
        length = sentence_offsets[i + 1] - first
        _potentials(i, data, weights, scale, work.unary)
        _smoothed_max(_transition(weights) * scale, length, smoothing, work)
        _subtract_labels(first, length, labels, work.node, work.edge[0])
        scale *= 1.0 - steps[step] * lam
        if abs(scale) < 1e-3:  # smaller scales would cost the total its digits
            total[:] += weight * weights
            weights[:] *= scale
            scale, weight = 1.0, 0.0
        factor = -steps[step] / scale
        _add_parts(first, length, data, work.node, work.edge[0], factor, weights)
        if shares[step] != 0.0 or weight != 0.0:
            _add_parts(first, length, data, work.node, work.edge[0], -weight * factor, total)
            weight += shares[step] * scale
    total[:] += weight * weights
    weights[:] *= scale


@kernel
def _block_direction(i, data, weights, statistics, work):
    """Max oracle at example i: s - m goes to ``work.node`` and ``work.edge``; returns n times the block gap."""
    sentence_offsets, states, edge = data[2], weights.shape[1], work.edge[0]
    node, unary, transition = work.node, work.unary, _transition(weights)
    first = sentence_offsets[i]
    length = sentence_offsets[i + 1] - first
    own = statistics[first + i * states : first + length + (i + 1) * states]
    _potentials(i, data, weights, 1.0, unary)
    _smoothed_max(transition, length, (1.0, 1), work)
    gap = 0.0
    for t in range(length):
        for s in range(states):
            node[t, s] -= own[t, s]
            gap += unary[t, s] * node[t, s]
    for p in range(states):
        for s in range(states):
            edge[p, s] -= own[length + p, s]
            gap += transition[p, s] * edge[p, s]
    return gap


@kernel
def _gather(first, length, data, node, slots, rows, sums):
    """B^T node by attribute: ids of the rows go to ``rows``, the rows to ``sums``; returns their number.

    An attribute that several tokens have gives one row, as norms need it. ``slots`` is -1 everywhere, before and after.
    """
    attributes, token_offsets, _, _, _ = data
    states, count = node.shape[1], 0
    for t in range(length):
        for q in range(token_offsets[first + t], token_offsets[first + t + 1]):
            j = slots[attributes[q]]
            if j < 0:
                j, count = count, count + 1
                slots[attributes[q]] = j
                rows[j] = attributes[q]
                for s in range(states):
                    sums[j, s] = 0.0
            for s in range(states):
                sums[j, s] += node[t, s]
    for j in range(count):
        slots[rows[j]] = -1
    return count


@inlined
def _squared_norm(matrix, rows):
    total = 0.0
    for r in range(rows):
        for s in range(matrix.shape[1]):
            total += matrix[r, s] * matrix[r, s]
    return total


@inlined
def _add_gathered(count, length, rows, sums, node, edge, factor, out):
    """out += factor * B^T (node, edge), with the rows of attributes from :func:`_gather`."""
    states = node.shape[1]
    for j in range(count):
        r = rows[j]
        for s in range(states):
            out[r, s] += factor * sums[j, s]
    _add_label_parts(length, node, edge, factor, out)


@kernel
def _atom_scores(first, length, transition, outputs, alpha, scores, work):
    """Scores of the outputs in an active set, under the potentials in ``work.unary``."""
    capacity, unary = alpha.shape[0], work.unary
    for c in range(capacity):
        if alpha[c] > 0.0:
            y = outputs[first * capacity + c * length : first * capacity + (c + 1) * length]
            score = unary[0, y[0]]
            for t in range(1, length):
                score += transition[y[t - 1], y[t]] + unary[t, y[t]]
            scores[c] = score


@kernel
def _away_atom(alpha, scores, mean, least):
    """The worst atom, its weight and its score; atom number ``capacity`` is what the active set has no output for."""
    capacity, total, worst = alpha.shape[0], 0.0, -1
    rest = 1.0
    for c in range(capacity):
        if alpha[c] > 0.0:
            rest -= alpha[c]
            total += alpha[c] * scores[c]
            if worst < 0 or scores[c] < scores[worst]:
                worst = c
    if rest > least and (worst < 0 or (mean - total) / rest < scores[worst]):
        return capacity, rest, (mean - total) / rest
    return worst, alpha[worst], scores[worst]


@inlined
def _add_output(c, first, length, outputs, capacity, factor, node, edge):
    """(node, edge) += factor * the parts of output c of an active set."""
    y = outputs[first * capacity + c * length : first * capacity + (c + 1) * length]
    for t in range(length):
        node[t, y[t]] += factor
        if t > 0:
            edge[y[t - 1], y[t]] += factor


@kernel
def _add_atom(c, first, length, own, outputs, alpha, factor, rest, node, edge):
    """(node, edge) += factor * atom c."""
    capacity = alpha.shape[0]
    if c < capacity:
        _add_output(c, first, length, outputs, capacity, factor, node, edge)
        return
    _add_own(own, length, factor / rest, node, edge)
    for other in range(capacity):
        if alpha[other] > 0.0:
            _add_output(other, first, length, outputs, capacity, -factor * alpha[other] / rest, node, edge)


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


@kernel
def _slot(y, first, length, outputs, alpha):
    """Slot of output y in an active set: its own, or a free one, or that of the least weight."""
    capacity, least = alpha.shape[0], 0
    for c in range(capacity):
        start = first * capacity + c * length
        same = alpha[c] > 0.0
        for t in range(length):
            same = same and outputs[start + t] == y[t]
        if same:
            return c
        if alpha[c] < alpha[least]:
            least = c
    for t in range(length):
        outputs[first * capacity + least * length + t] = y[t]
    alpha[least] = 0.0  # its statistics stay, as part of the rest
    return least


@entry_point
def frank_wolfe_epoch(order, draws, data, weights, total, statistics, gaps, lam, remaining, sets):
    """Block-coordinate Frank-Wolfe steps (Osokin et al. 2016, Algorithms 1 to 4), in place.

    ``statistics`` [tokens + n * S, S] has T rows of nodes and S of summed edges for each example. With ``draws`` they
    choose the examples by their gaps, not ``order``. ``total`` becomes the sum of what each step changes, times
    ``remaining``; without ``remaining`` it stays as it is.
    """
    _, token_offsets, sentence_offsets, _, _ = data
    kind, outputs, alphas, least = sets
    n, states = sentence_offsets.shape[0] - 1, weights.shape[1]
    work = _workspace(data, states, 1)
    node, edge = work.node, work.edge[0]
    most = 0
    for i in range(n):
        most = max(most, token_offsets[sentence_offsets[i + 1]] - token_offsets[sentence_offsets[i]])
    slots, rows, sums = np.full(weights.shape[0], -1, np.int32), np.empty(most, np.int32), np.empty((most, states))
    tree, scores = sum_tree(gaps), np.zeros(alphas.shape[1])
    by_gap, averaged, no_atom = draws.shape[0] > 0, remaining.shape[0] > 0, -1
    for step in range(max(order.shape[0], draws.shape[0])):
        i = draw(tree, n, draws[step]) if by_gap else order[step]
        first = sentence_offsets[i]
        length = sentence_offsets[i + 1] - first
        own = statistics[first + i * states : first + length + (i + 1) * states]
        gain = _block_direction(i, data, weights, statistics, work)
        gaps[i] = max(gain, 0.0) / n
        if by_gap:
            set_weight(tree, i, gaps[i])
        away, weight, longest, towards, alpha = no_atom, 1.0, 1.0, True, alphas[i]
        if kind > 0:
            _atom_scores(first, length, _transition(weights), outputs, alpha, scores, work)
            mean = work.values[0] - gain
            away, weight, score = _away_atom(alpha, scores, mean, least)
            if kind == 1:
                gain, longest = work.values[0] - score, weight
            elif mean - score > gain and weight < 1.0 - least:
                gain, longest, towards = mean - score, weight / (1.0 - weight), False
            else:
                away = no_atom
        if gain <= 0.0:
            continue
        if away != no_atom:
            # From s - m to s - a, or to m - a.
            if towards:
                _add_own(own, length, 1.0, node, edge)
            else:
                node[:length] = own[:length]
                edge[:] = own[length:]
            _add_atom(away, first, length, own, outputs, alpha, -1.0, weight, node, edge)
        count = _gather(first, length, data, node, slots, rows, sums)
        norm2 = _squared_norm(sums, count) + _squared_norm(edge, states)
        for s in range(states):
            norm2 += node[0, s] * node[0, s] + node[length - 1, s] * node[length - 1, s]
        size = longest if gain * lam * n >= longest * norm2 else gain * lam * n / norm2
        factor = -size / (lam * n)
        _add_gathered(count, length, rows, sums, node, edge, factor, weights)
        if averaged:
            _add_gathered(count, length, rows, sums, node, edge, factor * remaining[step], total)
        for t in range(length):
            for s in range(states):
                own[t, s] += size * node[t, s]
        for p in range(states):
            for s in range(states):
                own[length + p, s] += size * edge[p, s]
        if kind > 0:
            _reweight(away, towards, size, longest, alpha)
            if towards:
                alpha[_slot(work.labels[0], first, length, outputs, alpha)] += size


@inlined
def _reweight(away, towards, size, longest, alpha):
    """Weights of the active set after a step of ``size``, without those that the output of the oracle gains."""
    capacity = alpha.shape[0]
    if away < 0 or not towards:
        scale = 1.0 - size if towards else 1.0 + size
        for c in range(capacity):
            alpha[c] *= scale
    if 0 <= away < capacity:
        alpha[away] = 0.0 if size == longest else max(alpha[away] - size, 0.0)


@entry_point
def block_gaps(data, weights, statistics, gaps):
    """Block gaps of all examples; ``statistics`` as in :func:`frank_wolfe_epoch`."""
    n = gaps.shape[0]
    work = _workspace(data, weights.shape[1], 1)
    for i in range(n):
        gaps[i] = _block_direction(i, data, weights, statistics, work) / n


@entry_point
def block_margins(data, weights, statistics, margins):
    """Means of theta + costs under the statistics, less the scores of the labels, over n."""
    sentence_offsets, states, n = data[2], weights.shape[1], margins.shape[0]
    work, transition = _workspace(data, states, 1), _transition(weights)
    for i in range(n):
        first = sentence_offsets[i]
        length = sentence_offsets[i + 1] - first
        own = statistics[first + i * states : first + length + (i + 1) * states]
        margin = -_potentials(i, data, weights, 1.0, work.unary)
        for t in range(length):
            for s in range(states):
                margin += work.unary[t, s] * own[t, s]
        for p in range(states):
            for s in range(states):
                margin += transition[p, s] * own[length + p, s]
        margins[i] = margin / n


@entry_point
def dual_weights(data, statistics, factor, out):
    """out += factor * the sum of B^T(m - labels); ``statistics`` as in :func:`frank_wolfe_epoch`."""
    _, _, sentence_offsets, labels, _ = data
    states = out.shape[1]
    work = _workspace(data, states, 1)
    node, edge = work.node, work.edge[0]
    for i in range(sentence_offsets.shape[0] - 1):
        first = sentence_offsets[i]
        length = sentence_offsets[i + 1] - first
        start = first + i * states
        node[:length] = statistics[start : start + length]
        edge[:] = statistics[start + length : start + length + states]
        _subtract_labels(first, length, labels, node, edge)
        _add_parts(first, length, data, node, edge, factor, out)
