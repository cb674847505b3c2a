"""Recursions over the positions of one sequence of segments, and loops over a batch of them.

A sequence is a tuple of ``unary`` [T, S] of its positions; ``pairs`` [T - 1, S, S], or [1, S, S] for all boundaries
alike; ``durations`` [K, S]; and ``segments`` [T, K, S] by first position, or [0, 0, 0]. ``begun`` [T, S] is
summed over what comes before a segment of label s that begins at t, and ``ended`` [T, S] of one up to its end at t.
No other table has a row for each position, so that memory does not grow with durations. All sums are float64.
"""

import numpy as np

from structsmooth.compiled.jit import compiled, entry_point, inlined


@inlined
def _boundary(pairs, t):
    """The scores [S, S] of pairs of labels before position ``t`` + 1."""
    return pairs[t if pairs.shape[0] > 1 else 0]


@compiled
def _extend(t, sequence, begun, sums, values):
    """Fills ``values`` [K, S] with what segments that end at ``t`` are worth, by duration; returns the number of these.

    Sums of unary scores are no differences of sums over the sequence, which would lose digits, and give NaN for -inf.
    """
    unary, _, durations, segments = sequence
    count = min(durations.shape[0], t + 1)
    sums[:] = 0.0
    for k in range(count):
        first = t - k
        for s in range(unary.shape[1]):
            sums[s] += unary[first, s]
            values[k, s] = begun[first, s] + (sums[s] + durations[k, s])
        if segments.shape[0] > 0:
            for s in range(unary.shape[1]):
                values[k, s] += segments[first, k, s]
    return count


@inlined
def _sequence(unary, pairs, durations, segments, b):
    """The sequence of an example; others may share its scores of pairs and durations."""
    return unary[b], pairs[b if pairs.shape[0] > 1 else 0], durations[b if durations.shape[0] > 1 else 0], segments[b]


@compiled
def _send(t, length, sequence, begun, sums, ended, lasting):
    """Raises ``ended`` [T, S] by the segments that begin at ``t``; of those that are equal, the shorter one counts."""
    unary, _, durations, segments = sequence
    sums[:] = 0.0
    for k in range(min(durations.shape[0], length - t)):
        for s in range(unary.shape[1]):
            sums[s] += unary[t + k, s]
            score = sums[s] + durations[k, s]
            if segments.shape[0] > 0:
                score += segments[t, k, s]
            # >=, since t rises: of segments that end at the same position, later ones are shorter.
            if begun[s] + score >= ended[t + k, s]:
                ended[t + k, s], lasting[t + k, s] = begun[s] + score, k + 1


@compiled
def _enter(ended, between, begun, before):
    """Fills what the best outputs before a segment of each label [S] are worth, and their last labels."""
    begun[:], before[:] = -np.inf, 0
    for a in range(ended.shape[0]):
        for s in range(ended.shape[0]):
            if ended[a] + between[a, s] > begun[s]:
                begun[s], before[s] = ended[a] + between[a, s], a


@entry_point
def batch_best(unary, pairs, durations, segments, lengths, values, y, begin, end):
    """Largest scores [B], and outputs [B, T] that have them, 0 where there are none."""
    steps, states = unary.shape[1:]
    begun, ended, sums = np.empty(states), np.empty((steps, states)), np.empty(states)
    lasting, before = np.empty((steps, states), np.int32), np.empty((steps, states), np.int32)
    for b in range(begin, end):
        sequence, length = _sequence(unary, pairs, durations, segments, b), lengths[b]
        begun[:], ended[:] = 0.0, -np.inf
        # ended_t(s) = max over k of {begun_{t-k}(s) + Σ of unary scores from t - k to t + durations(k, s) + segments(t
        # - k, k, s)} and begun_t(s) = max over a of {ended_{t-1}(a) + pairs(a, s)}; k = 0 is a segment of one position.
        for t in range(length):
            if t > 0:
                _enter(ended[t - 1], _boundary(sequence[1], t - 1), begun, before[t])
            _send(t, length, sequence, begun, sums, ended, lasting)
        label = np.argmax(ended[length - 1]) if length > 0 else 0
        values[b] = ended[length - 1, label] if length > 0 else 0.0
        y[b] = 0
        if values[b] == -np.inf:
            continue
        y[b, :length] = -1
        position = length
        while position > 0:
            position -= lasting[position - 1, label]
            y[b, position] = label
            label = before[position, label] if position > 0 else 0


@compiled
def _log_sum(values, count, s):
    """The logarithm of the sum of the exponentials of the first ``count`` values [count, S] of a label."""
    largest = -np.inf
    for k in range(count):
        largest = max(largest, values[k, s])
    if largest == -np.inf:
        return largest
    total = 0.0
    for k in range(count):
        total += np.exp(values[k, s] - largest)
    return largest + np.log(total)


@compiled
def _shares(values, count, s, shares):
    """Fills ``shares`` [count] of a label's first values, of which one is finite: exp(value), over their sum.

    They sum to one, which exponentials of differences to log-sums do not if scores are huge.
    """
    largest, total = -np.inf, 0.0
    for k in range(count):
        largest = max(largest, values[k, s])
    for k in range(count):
        shares[k] = np.exp(values[k, s] - largest)
        total += shares[k]
    for k in range(count):
        shares[k] /= total


@entry_point
def batch_log_partition(unary, pairs, durations, segments, lengths, values, begun, ended, begin, end):
    """Log-partitions [B], and the log-sums over what comes before segments, and up to their ends: [B, T, S] each."""
    states = unary.shape[2]
    sums, worth = np.empty(states), np.empty((durations.shape[1], states))
    entering = np.empty((states, states))
    for b in range(begin, end):
        sequence, length = _sequence(unary, pairs, durations, segments, b), lengths[b]
        values[b] = 0.0
        # The recursion of ``batch_best`` with log Σ exp in place of max.
        for t in range(length):
            if t == 0:
                begun[b, 0] = 0.0
            else:
                entering[:] = _boundary(sequence[1], t - 1) + ended[b, t - 1].reshape(states, 1)
                for s in range(states):
                    begun[b, t, s] = _log_sum(entering, states, s)
            count = _extend(t, sequence, begun[b], sums, worth)
            for s in range(states):
                ended[b, t, s] = _log_sum(worth, count, s)
        if length > 0:
            values[b] = _log_sum(ended[b, length - 1].reshape(states, 1), states, 0)


@entry_point
def batch_marginals(unary, pairs, durations, segments, lengths, begun, ended, nodes, edges, lasting, parts, begin, end):
    """Probabilities of labels [B, T, S], of pairs, durations and segments, given what the log-partitions leave.

    Those of pairs are for each boundary or summed, as the scores are, and all are 0 at first.
    """
    steps, states = unary.shape[1:]
    sums, worth = np.empty(states), np.empty((durations.shape[1], states))
    beginning, ending, entering = np.empty((steps, states)), np.empty(states), np.empty((states, states))
    shares = np.empty(max(states, durations.shape[1]))
    for b in range(begin, end):
        sequence, length = _sequence(unary, pairs, durations, segments, b), lengths[b]
        if length == 0 or ended[b, length - 1].max() == -np.inf:
            continue
        beginning[:] = 0.0
        # From the right: P(a segment of s ends at t) is ``ending``; its share of duration k gives P(it begins at t -
        # k), and that one's share of each label before gives P(a segment ends at t - k - 1).
        for t in range(length - 1, -1, -1):
            count = _extend(t, sequence, begun[b], sums, worth)
            ending[:] = 0.0
            if t + 1 == length:
                _shares(ended[b, t].reshape(states, 1), states, 0, ending)
            else:
                entering[:] = _boundary(sequence[1], t) + ended[b, t].reshape(states, 1)
                used = _boundary(edges[b], t)
                for j in range(states):
                    if beginning[t + 1, j] > 0.0:
                        _shares(entering, states, j, shares)
                        for s in range(states):
                            used[s, j] += shares[s] * beginning[t + 1, j]
                            ending[s] += shares[s] * beginning[t + 1, j]
            for s in range(states):
                if ending[s] == 0.0:
                    continue
                _shares(worth, count, s, shares)
                covering = 0.0  # by segments from a position on
                # From the longest on, so that the segments that cover t - k are all those that have been seen.
                for k in range(count - 1, -1, -1):
                    if worth[k, s] > -np.inf:
                        probability = ending[s] * shares[k]
                        covering += probability
                        beginning[t - k, s] += probability
                        lasting[b, k, s] += probability
                        if parts.shape[1] > 0:
                            parts[b, t - k, k, s] = probability
                    nodes[b, t - k, s] += covering
