"""Inference in one linear chain, and loops over a batch of chains.

All functions of one chain take float64 arrays: ``unary`` [T, S] and ``transition`` [E, S, S], where E is 1 (the same
transitions at every edge) or T - 1. Entries may be minus infinity. Ties go to the lowest state.
"""

import numpy as np

from structsmooth.compiled.exponentials import exponentiate_row
from structsmooth.compiled.jit import compiled, entry_point, inlined, vectorized
from structsmooth.compiled.k_best import merge

# Sums of products below this may have lost terms to underflow: they are redone in log space. A term that is lost, or
# rounded to a multiple of 5e-324, is below 2.3e-308, and so below 3e-18 of a sum that is not.
_UNDERFLOW = 1e-290
# Fewer states than this are faster one by one than by vector instructions, and too few to be worth leaving out.
_VECTOR = 16


@inlined
def edge_index(transition, t):
    """Row of ``transition`` that leads into position t."""
    return t - 1 if transition.shape[0] > 1 else 0


@compiled
def viterbi(unary, transition, most, length, score, labels):
    """Max oracle (Algorithm 1): fills ``labels``, returns the value; ``score`` [T, S] is scratch.

    The predecessor of a best prefix is looked up only along the best output. If all edges have the same transitions,
    ``most`` may have the largest of each row of these, by which states are left out that cannot be best.
    """
    states = unary.shape[1]
    attempt, pause = 1 if most.shape[0] > 0 else length, 1
    kept = np.empty(most.shape[0], np.int64)
    for s in range(states):
        score[0, s] = unary[0, s]
    # π_t(s) = ψ_t(s) + max over p of {π_{t-1}(p) + ψ_{t-1,t}(p, s)} (Eq. 18); ``score`` is π.
    for t in range(1, length):
        # Where most states are kept, the next attempt waits: after each failure in a row for twice as many positions.
        if t >= attempt and _pruned_max_product(score[t - 1], transition[0], most, kept, score[t]):
            pause = 1
        else:
            if t >= attempt:
                attempt, pause = t + pause + 1, 2 * pause
            _max_product(score[t - 1], transition[edge_index(transition, t)], score[t])
        for s in range(states):
            score[t, s] += unary[t, s]
    value, state = _largest(score[length - 1])
    for t in range(length - 1, -1, -1):
        labels[t] = state if value > -np.inf else 0
        if t > 0:
            # δ_t(state), which the loop above has not stored: among equal sums, the first p.
            edge, best, argument = transition[edge_index(transition, t)], -np.inf, 0
            for p in range(states):
                if score[t - 1, p] + edge[p, state] > best:
                    best, argument = score[t - 1, p] + edge[p, state], p
            state = argument
    return value


@vectorized
def _max_product(before, edge, after):
    """``after`` = the largest of before + edge over the state before, in the order that suits the number of states."""
    states = after.shape[0]
    # Few states: the maximum stays in a register. Many: the inner loop runs along rows of ``edge`` and is vectorized.
    if states < _VECTOR:
        for s in range(states):
            best = -np.inf
            for p in range(states):
                value = before[p] + edge[p, s]
                best = value if value > best else best
            after[s] = best
        return
    for s in range(states):
        after[s] = -np.inf
    whole = states - states % 4
    for p in range(0, whole, 4):
        # Four rows at a time read and write ``after`` once.
        for s in range(states):
            a, b = before[p] + edge[p, s], before[p + 1] + edge[p + 1, s]
            c, d = before[p + 2] + edge[p + 2, s], before[p + 3] + edge[p + 3, s]
            a, c = a if a > b else b, c if c > d else d
            a = a if a > c else c
            after[s] = a if a > after[s] else after[s]
    for p in range(whole, states):
        for s in range(states):
            value = before[p] + edge[p, s]
            after[s] = value if value > after[s] else after[s]


@inlined
def room_for_maxima(states):
    """An array for the largest transition from each state, as :func:`viterbi` takes it; without room for few states."""
    return np.empty(states if states >= _VECTOR else 0)


@compiled
def largest_entry(row):
    """The largest entry of a row."""
    whole = row.shape[0] - row.shape[0] % 4
    a, b, c, d = -np.inf, -np.inf, -np.inf, -np.inf  # four at a time do not wait for each other
    for s in range(0, whole, 4):
        a, b = row[s] if row[s] > a else a, row[s + 1] if row[s + 1] > b else b
        c, d = row[s + 2] if row[s + 2] > c else c, row[s + 3] if row[s + 3] > d else d
    for s in range(whole, row.shape[0]):
        a = row[s] if row[s] > a else a
    return max(max(a, b), max(c, d))


@vectorized
def _pruned_max_product(before, edge, most, kept, after):
    """:func:`_max_product` without the states before that cannot be best for any state, if those are most of them.

    Returns whether they are; otherwise ``after`` holds no result. ``most`` are the largest entries of the rows
    of ``edge``. The best state before alone gives a lower bound for each state; others matter only where their own
    upper bound is above the least of these. ``kept`` is scratch.
    """
    states = after.shape[0]
    _, first = _largest(before)
    least = np.inf
    for s in range(states):
        after[s] = before[first] + edge[first, s]
        least = after[s] if after[s] < least else least
    count = 0
    # before[p] + edge[p, s] <= before[p] + most[p] <= least <= after[s] for every s: such a p raises no maximum. One
    # that is equal to it need not stay either, since no argument is stored.
    for p in range(states):
        if before[p] + most[p] > least:
            kept[count] = p
            count += 1
    if 2 * count > states:
        return False
    whole = count - count % 4
    for k in range(0, whole, 4):
        # Four rows at a time read and write ``after`` once.
        p, q, r, u = kept[k], kept[k + 1], kept[k + 2], kept[k + 3]
        for s in range(states):
            a, b = before[p] + edge[p, s], before[q] + edge[q, s]
            c, d = before[r] + edge[r, s], before[u] + edge[u, s]
            a, c = a if a > b else b, c if c > d else d
            a = a if a > c else c
            after[s] = a if a > after[s] else after[s]
    for k in range(whole, count):
        p = kept[k]
        for s in range(states):
            value = before[p] + edge[p, s]
            after[s] = value if value > after[s] else after[s]
    return True


@inlined
def _largest(scores):
    """The largest score and the first index at which it occurs."""
    best, argument = -np.inf, 0
    for s in range(scores.shape[0]):
        if scores[s] > best:
            best, argument = scores[s], s
    return best, argument


@compiled
def top_k(unary, transition, length, k, score, back, values, labels):
    """Top-K oracle (Algorithm 2): fills ``values`` [k], ``labels`` [k, T]; ``score``, ``back`` [T, S, k] are scratch.

    Each state keeps the sorted list of its k best prefixes. Where fewer than k outputs exist, values are -inf and
    labels 0. ``back`` must be zero before its first use: NaN scores may lead to entries that were never written.
    """
    states = unary.shape[1]
    for s in range(states):
        score[0, s, 0] = unary[0, s]
        for j in range(1, k):
            score[0, s, j] = -np.inf
    # π^(j)_t(s) = ψ_t(s) + max^(j) over p, l of {π^(l)_{t-1}(p) + ψ_{t-1,t}(p, s)} (Eq. 19). The entry p k + l of
    # ``back`` holds the paper's δ and κ.
    for t in range(1, length):
        edge = transition[edge_index(transition, t)]
        before = score[t - 1]
        for s in range(states):
            best, origin = score[t, s], back[t, s]
            for j in range(k):
                best[j] = -np.inf
            for p in range(states):
                merge(best, origin, before[p], edge[p, s], p * k, 1)
            for j in range(k):
                best[j] += unary[t, s]
    for j in range(k):
        values[j] = -np.inf
        labels[j, length - 1] = 0
    for s in range(states):
        merge(values, labels[:, length - 1], score[length - 1, s], 0.0, s * k, 1)
    for j in range(k):
        if values[j] == -np.inf:
            for t in range(length):
                labels[j, t] = 0
            continue
        # The merge above left such an entry of the last position in its label.
        entry = labels[j, length - 1]
        for t in range(length - 1, -1, -1):
            labels[j, t] = entry // k
            if t > 0:
                entry = back[t, entry // k, entry % k]


@compiled
def exponentiate(transition, shift, exponential):
    """``exponential`` = exp(transition - shift) with ``shift`` the largest entry into each state."""
    edges, states, _ = transition.shape
    for e in range(edges):
        for s in range(states):
            largest = -np.inf
            for p in range(states):
                largest = max(largest, transition[e, p, s])
            # A state that nothing leads into: -inf - (-inf) would be NaN.
            shift[e, s] = largest if largest > -np.inf else 0.0
        for p in range(states):
            for s in range(states):
                exponential[e, p, s] = transition[e, p, s] - shift[e, s]
        exponentiate_row(exponential[e].ravel())


@compiled
def log_partition(unary, transition, exponential, shift, length, alpha, scaled, total):
    """Forward half of the sum-product recursion; returns the log-partition function.

    ``scaled`` [T, S] holds the forward messages relative to the largest at each position, and ``total`` the sums over
    the previous state, zero where the sum had to be done in log space. There, ``alpha`` [T, S] holds the log messages
    of that position and of the one before.
    """
    states = unary.shape[1]
    # z_t(s) = exp ψ_t(s) Σ_p z_{t-1}(p) exp ψ_{t-1,t}(p, s), the sums of Algorithm 9. ``scaled`` is z_t / max z_t,
    # ``largest`` log max z_t, ``alpha`` log z_t, and ``total`` the sum without exp ψ_t(s) and exp ``shift``.
    tops = np.empty(length)
    _exponentials_of_states(unary, shift, length, scaled, tops)
    largest = tops[0]
    for s in range(states):
        alpha[0, s] = unary[0, s]
    known = 0  # the last position whose row of alpha is filled
    for t in range(1, length):
        e = edge_index(transition, t)
        _sum_product(scaled[t - 1], exponential[e], total[t])
        mass = _propagate(total[t], unary[t], scaled[t])
        if mass > 0.0:
            largest += tops[t] + np.log(mass)
            continue
        # The row before was exact without logarithms, so those of its messages lose nothing.
        if known < t - 1:
            for s in range(states):
                alpha[t - 1, s] = largest + np.log(scaled[t - 1, s])
        for s in range(states):
            if total[t, s] > _UNDERFLOW:
                message = largest + shift[e, s] + np.log(total[t, s])
            else:
                # What underflowed is summed again, now relative to the largest term of this state alone. Zero tells the
                # backward loops; scaled[t] is scratch until the row is done.
                total[t, s] = 0.0
                message = _log_sum(alpha[t - 1], transition[e, :, s], scaled[t])
            alpha[t, s] = message + unary[t, s]
        largest, known = _exponentials(alpha[t], scaled[t]), t
    mass = scaled[length - 1, :].sum()
    return largest + np.log(mass) if mass > 0.0 else -np.inf


@compiled
def _exponentials_of_states(unary, shift, length, scaled, tops):
    """``scaled`` = exp(shift + unary) relative to the largest of each position, ``tops``; the first has no shift."""
    states = unary.shape[1]
    tops[0] = _exponentials(unary[0], scaled[0])
    for t in range(1, length):
        shifts, top = shift[edge_index(shift, t)], -np.inf
        for s in range(states):
            scaled[t, s] = shifts[s] + unary[t, s]
            top = scaled[t, s] if scaled[t, s] > top else top
        for s in range(states):
            scaled[t, s] -= top
        tops[t] = top
    exponentiate_row(scaled[1:length].ravel())


@compiled
def _sum_product(before, edge, after):
    """``after`` = the sum of before * edge over the state before."""
    states = after.shape[0]
    for s in range(states):
        after[s] = 0.0
    whole = states - states % 4
    for p in range(0, whole, 4):
        # Four rows at a time read and write ``after`` once.
        a, b, c, d = before[p], before[p + 1], before[p + 2], before[p + 3]
        for s in range(states):
            after[s] += a * edge[p, s] + b * edge[p + 1, s] + (c * edge[p + 2, s] + d * edge[p + 3, s])
    for p in range(whole, states):
        for s in range(states):
            after[s] += before[p] * edge[p, s]


@compiled
def _propagate(total, unary, scaled):
    """``scaled``, factors of states, become messages: total * scaled relative to the largest, which is returned.

    That is 0 if products other than those of forbidden states may have lost digits to underflow.
    """
    mass, lost = 0.0, 0
    for s in range(unary.shape[0]):
        scaled[s] *= total[s]
        mass = scaled[s] if scaled[s] > mass else mass
        # Tiny, or zero: whether no path leads here or the sum underflowed, only log space can tell.
        lost += 0 if scaled[s] > _UNDERFLOW or unary[s] == -np.inf else 1
    if lost > 0 or mass == 0.0:
        return 0.0
    inverse = 1.0 / mass
    for s in range(unary.shape[0]):
        scaled[s] *= inverse
    return mass


@compiled
def _exponentials(messages, scaled):
    """``scaled`` = exp(messages - largest); zeros if all are -inf. Returns the largest."""
    largest = -np.inf
    for s in range(messages.shape[0]):
        largest = max(largest, messages[s])
    for s in range(messages.shape[0]):
        scaled[s] = messages[s] - largest if largest > -np.inf else -np.inf
    exponentiate_row(scaled)
    return largest


@compiled
def _log_sum(messages, edge, scaled):
    """log sum exp(messages + edge); ``scaled`` is scratch."""
    for p in range(messages.shape[0]):
        scaled[p] = messages[p] + edge[p]
    largest = _exponentials(scaled, scaled)
    return largest + np.log(scaled.sum()) if largest > -np.inf else largest


@compiled
def marginals(transition, exponential, length, alpha, scaled, total, node, edge):
    """Backward half: marginals from the results of :func:`log_partition`; adds to ``edge``, sets ``node``.

    p(y_t = p | y_{t+1} = s) follows from the forward messages alone, so no backward message is needed and nothing
    can overflow. It is normalized by its own sum over p, so marginals sum to one however large the scores are. The
    rows of ``alpha`` are scratch once they are used.
    """
    states = node.shape[1]
    mass = scaled[length - 1, :].sum()
    for s in range(states):
        node[length - 1, s] = scaled[length - 1, s] / mass if mass > 0.0 else 0.0
    # P(y_{t-1} = p, y_t = s) = P(y_t = s) z_{t-1}(p) exp ψ_{t-1,t}(p, s) / Σ_p' z_{t-1}(p') exp ψ_{t-1,t}(p', s).
    for t in range(length - 1, 0, -1):
        e, out = edge_index(transition, t), edge_index(edge, t)
        lost = _factors(node[t], total[t])
        _expectation(exponential[e], total[t], scaled[t - 1], node[t - 1])
        for s in range(states if lost else 0):
            if total[t, s] == 0.0 and node[t, s] > 0.0:
                _log_sum(alpha[t - 1], transition[e, :, s], alpha[t])
                mass_s = alpha[t].sum()
                for p in range(states):
                    joint = node[t, s] * (alpha[t, p] / mass_s)
                    edge[out, p, s] += joint
                    node[t - 1, p] += joint
    for out in range(min(edge.shape[0], length - 1)):
        begin, end = (out, out + 1) if edge.shape[0] > 1 else (0, length - 1)
        _add_joint(
            exponential[edge_index(transition, out + 1)], scaled[begin:end], total[begin + 1 : end + 1], edge[out]
        )


@compiled
def _factors(node, total):
    """``total`` becomes the factors by which joint weights turn into joint probabilities.

    They stay 0 where messages were summed as logarithms alone, and returned is whether this is so of any probable
    state. A probability whose factor would underflow is none.
    """
    lost = 0
    for s in range(node.shape[0]):
        factor = node[s] / total[s] if total[s] > 0.0 else 0.0
        lost += node[s] > 0.0 and total[s] == 0.0
        node[s] = node[s] if factor > 0.0 or total[s] == 0.0 else 0.0
        total[s] = factor
    return lost > 0


@compiled
def _expectation(edge, after, weights, before):
    """``before`` = weights * the sum of edge * after over the state behind."""
    states = after.shape[0]
    whole = states - states % 4
    for p in range(0, whole, 4):
        a, b, c, d = 0.0, 0.0, 0.0, 0.0
        for s in range(states):
            a += edge[p, s] * after[s]
            b += edge[p + 1, s] * after[s]
            c += edge[p + 2, s] * after[s]
            d += edge[p + 3, s] * after[s]
        before[p], before[p + 1] = weights[p] * a, weights[p + 1] * b
        before[p + 2], before[p + 3] = weights[p + 2] * c, weights[p + 3] * d
    for p in range(whole, states):
        a = 0.0
        for s in range(states):
            a += edge[p, s] * after[s]
        before[p] = weights[p] * a


@compiled
def _add_joint(exponential, before, after, edge):
    """Add exponential * the sum of before[t, p] * after[t, s] over positions to ``edge``."""
    count, states = before.shape
    whole = count - count % 4
    for t in range(0, whole, 4):
        # Four positions at a time read and write ``edge`` once.
        for p in range(states):
            a, b, c, d = before[t, p], before[t + 1, p], before[t + 2, p], before[t + 3, p]
            for s in range(states):
                first, second = a * after[t, s] + b * after[t + 1, s], c * after[t + 2, s] + d * after[t + 3, s]
                edge[p, s] += exponential[p, s] * (first + second)
    for t in range(whole, count):
        for p in range(states):
            for s in range(states):
                edge[p, s] += exponential[p, s] * (before[t, p] * after[t, s])


@compiled
def sample(transition, exponential, length, alpha, scaled, total, weights, uniform, labels):
    """Backward sampling from the results of :func:`log_partition`, which is finite: fills ``labels`` [T].

    ``uniform`` [T] has a number in [0, 1) for each position; ``weights`` [S] is scratch.
    """
    state = inverse_cdf(scaled[length - 1], uniform[length - 1])
    labels[length - 1] = state
    for t in range(length - 1, 0, -1):
        e = edge_index(transition, t)
        if total[t, state] > 0.0:
            for p in range(weights.shape[0]):
                weights[p] = scaled[t - 1, p] * exponential[e, p, state]
        else:
            _log_sum(alpha[t - 1], transition[e, :, state], weights)
        state = inverse_cdf(weights, uniform[t - 1])
        labels[t - 1] = state


@inlined
def inverse_cdf(weights, uniform):
    """The first index at which the cumulative weights exceed the fraction ``uniform`` in [0, 1) of their sum.

    Never an index of weight zero, unless all are: then 0.
    """
    total = 0.0
    for s in range(weights.shape[0]):
        total += weights[s]
    cumulative, index = 0.0, 0
    for s in range(weights.shape[0]):
        if weights[s] > 0.0:
            cumulative += weights[s]
            # Kept also where rounding leaves the last sum at or below ``uniform`` * ``total``.
            index = s
            if cumulative > uniform * total:
                break
    return index


@compiled
def max_marginals(unary, transition, length, ahead, out):
    """Best prefix that ends in each state plus best suffix behind it: sets ``out``; ``ahead`` [T, S] is scratch."""
    states = unary.shape[1]
    # ψ_{t;s} (Definition 13) = π_t(s) + ahead_t(s), where ahead_t(p) = max over s of {ψ_{t,t+1}(p, s) + ψ_{t+1}(s) +
    # ahead_{t+1}(s)}.
    out[0] = unary[0]
    for t in range(1, length):
        _max_product(out[t - 1], transition[edge_index(transition, t)], out[t])
        for s in range(states):
            out[t, s] += unary[t, s]
    for s in range(states):
        ahead[length - 1, s] = 0.0
    for t in range(length - 2, -1, -1):
        for p in range(states):
            message = -np.inf
            for s in range(states):
                best = transition[edge_index(transition, t + 1), p, s] + unary[t + 1, s] + ahead[t + 1, s]
                message = max(message, best)
            ahead[t, p] = message
    for t in range(length):
        for s in range(states):
            out[t, s] += ahead[t, s]


@inlined
def of_example(transition, b):
    """The transitions of example b."""
    return transition[b if transition.shape[0] > 1 else 0]


@inlined
def _are_states(labels, length, states):
    """Whether the labels of an output are from 0 to ``states`` - 1."""
    wrong = 0
    for t in range(length):
        wrong += labels[t] < 0 or labels[t] >= states
    return wrong == 0


@inlined
def _score(unary, transition, length, labels):
    """The score of an output."""
    total = unary[0, labels[0]]
    for t in range(1, length):
        total += unary[t, labels[t]] + transition[edge_index(transition, t), labels[t - 1], labels[t]]
    return total


@entry_point
def batch_viterbi(unary, transition, lengths, values, labels, begin, end):
    """The best outputs of examples ``begin`` to ``end``: unary [B, T, S], transition [1 or B, E, S, S].

    Fills ``values`` [B, 1] and ``labels`` [B, 1, T], which must be zero.
    """
    prefix, most = np.empty(unary.shape[1:]), room_for_maxima(unary.shape[2] if transition.shape[1] == 1 else 0)
    for b in range(begin, end):
        edges = of_example(transition, b)
        # What depends on the transitions alone is prepared once, if all examples share them.
        if b == begin or transition.shape[0] > 1:
            for p in range(most.shape[0]):
                most[p] = largest_entry(edges[0, p])
        values[b, 0] = viterbi(unary[b], edges, most, lengths[b], prefix, labels[b, 0])


@entry_point
def batch_top_k(unary, transition, lengths, k, values, labels, begin, end):
    """:func:`batch_viterbi` for the k > 1 best outputs: fills ``values`` [B, k] and ``labels`` [B, k, T]."""
    _, steps, states = unary.shape
    score = np.empty((steps, states, k))
    back = np.zeros((steps, states, k), np.int64)
    for b in range(begin, end):
        top_k(unary[b], of_example(transition, b), lengths[b], k, score, back, values[b], labels[b])


@inlined
def _forward_scratch(unary, transition):
    """What the forward recursion of an example fills: messages three times, [T, S], exponentials of pairs, shifts."""
    _, steps, states = unary.shape
    alpha, scaled, total = np.empty((steps, states)), np.empty((steps, states)), np.empty((steps, states))
    return alpha, scaled, total, np.empty(transition.shape[1:]), np.empty((transition.shape[1], states))


@entry_point
def batch_log_partition(unary, transition, lengths, values, begin, end):
    """Log-partition [B] of examples ``begin`` to ``end`` alone, into ``values``: half of :func:`batch_marginals`."""
    alpha, scaled, total, exponential, shift = _forward_scratch(unary, transition)
    for b in range(begin, end):
        edges = of_example(transition, b)
        if b == begin or transition.shape[0] > 1:
            exponentiate(edges, shift, exponential)
        values[b] = log_partition(unary[b], edges, exponential, shift, lengths[b], alpha, scaled, total)


@inlined
def _subtract_parts(labels, length, node, edge):
    """Subtract the parts of an output from its marginals."""
    for t in range(length):
        node[t, labels[t]] -= 1.0
        if t > 0:
            edge[edge_index(edge, t), labels[t - 1], labels[t]] -= 1.0


@entry_point
def batch_marginals(unary, transition, lengths, labels, values, node, edge, begin, end):
    """Log-partition [B] and marginals of examples ``begin`` to ``end``; false if a label is no state.

    Fills ``values``, ``node`` [B, T, S] and ``edge`` [B, E', S, S], which must be zero; E' = 1 sums the edge marginals
    over positions. With labels [B, 1, T] in place of [B, 0, T], the score of this output is subtracted from the
    log-partition, which is never below it but for rounding, and its parts from the marginals.
    """
    states = unary.shape[2]
    alpha, scaled, total, exponential, shift = _forward_scratch(unary, transition)
    for b in range(begin, end):
        edges = of_example(transition, b)
        if b == begin or transition.shape[0] > 1:
            exponentiate(edges, shift, exponential)
        values[b] = log_partition(unary[b], edges, exponential, shift, lengths[b], alpha, scaled, total)
        marginals(edges, exponential, lengths[b], alpha, scaled, total, node[b], edge[b])
        if labels.shape[1] == 1:
            if not _are_states(labels[b, 0], lengths[b], states):
                return False
            score = _score(unary[b], edges, lengths[b], labels[b, 0])
            # A forbidden output is infinitely far below the others, also where there are none: -inf - (-inf) would be
            # NaN.
            values[b] = max(values[b] - score, 0.0) if -np.inf < score and -np.inf < values[b] < np.inf else np.inf
            _subtract_parts(labels[b, 0], lengths[b], node[b], edge[b])
    return True


@compiled
def covariances(marginal, joint, node_direction, edge_direction, length, before, after, node, edge):
    """Covariances of the parts with the score of a direction: the derivatives of marginals in it.

    ``marginal`` [T, S] and ``joint`` [T-1, S, S] are those of nodes and edges. Given the state at a position, what the
    direction scores up to it and behind it, ``before`` and ``after`` [T, S], are independent. Adds to ``edge``, sets
    ``node``.
    """
    states = node.shape[1]
    # With the score D of the direction, d P(part) = P(part) (E[D | part] - E[D]). before[t, s] is E[D up to t | y_t =
    # s], after[t, s] is E[D behind t | y_t = s], and ``mean`` is E[D].
    before[0] = node_direction[0]
    for t in range(1, length):
        e = edge_index(edge_direction, t)
        before[t] = 0.0
        for p in range(states):
            for s in range(states):
                before[t, s] += joint[t - 1, p, s] * (before[t - 1, p] + edge_direction[e, p, s])
        for s in range(states):
            expected = before[t, s] / marginal[t, s] if marginal[t, s] > 0.0 else 0.0
            before[t, s] = expected + node_direction[t, s]
    mean = (marginal[length - 1] * before[length - 1]).sum()
    after[length - 1] = 0.0
    for t in range(length - 1, 0, -1):
        e, out = edge_index(edge_direction, t), edge_index(edge, t)
        for p in range(states):
            expected = 0.0
            for s in range(states):
                behind = edge_direction[e, p, s] + node_direction[t, s] + after[t, s]
                expected += joint[t - 1, p, s] * behind
                edge[out, p, s] += joint[t - 1, p, s] * (before[t - 1, p] + behind - mean)
            after[t - 1, p] = expected / marginal[t - 1, p] if marginal[t - 1, p] > 0.0 else 0.0
    for t in range(length):
        for s in range(states):
            node[t, s] = marginal[t, s] * (before[t, s] + after[t, s] - mean)


@entry_point
def batch_tangents(unary, transition, node_direction, edge_direction, lengths, node, edge, begin, end):
    """Derivatives of the marginals of examples ``begin`` to ``end`` in directions of the scores, and shaped as these.

    ``node`` [B, T, S] and ``edge`` [B, E, S, S] must be zero, and remain so for examples without an output.
    """
    _, steps, states = unary.shape
    alpha, scaled, total, exponential, shift = _forward_scratch(unary, transition)
    marginal, before, after = np.empty((steps, states)), np.empty((steps, states)), np.empty((steps, states))
    joint = np.empty((steps - 1, states, states))
    for b in range(begin, end):
        joint[:] = 0.0
        exponentiate(transition[b], shift, exponential)
        log_z = log_partition(unary[b], transition[b], exponential, shift, lengths[b], alpha, scaled, total)
        if -np.inf < log_z < np.inf:
            marginals(transition[b], exponential, lengths[b], alpha, scaled, total, marginal, joint)
            covariances(
                marginal, joint, node_direction[b], edge_direction[b], lengths[b], before, after, node[b], edge[b]
            )


@entry_point
def batch_sample(unary, transition, lengths, uniform, labels, begin, end):
    """Samples of examples ``begin`` to ``end`` at ``uniform`` [B, n, T] into ``labels`` [B, n, T], zero before."""
    states = unary.shape[2]
    alpha, scaled, total, exponential, shift = _forward_scratch(unary, transition)
    weights = np.empty(states)
    for b in range(begin, end):
        edges = of_example(transition, b)
        if b == begin or transition.shape[0] > 1:
            exponentiate(edges, shift, exponential)
        log_z = log_partition(unary[b], edges, exponential, shift, lengths[b], alpha, scaled, total)
        if log_z > -np.inf:
            for i in range(labels.shape[1]):
                sample(edges, exponential, lengths[b], alpha, scaled, total, weights, uniform[b, i], labels[b, i])


@entry_point
def batch_filtered(unary, transition, lengths, out, begin, end):
    """Marginals without the scores behind each position, of examples ``begin`` to ``end``, into zeros [B, T, S]."""
    states = unary.shape[2]
    alpha, scaled, total, exponential, shift = _forward_scratch(unary, transition)
    for b in range(begin, end):
        edges = of_example(transition, b)
        if b == begin or transition.shape[0] > 1:
            exponentiate(edges, shift, exponential)
        log_partition(unary[b], edges, exponential, shift, lengths[b], alpha, scaled, total)
        for t in range(lengths[b]):
            mass = scaled[t].sum()
            for s in range(states):
                out[b, t, s] = scaled[t, s] / mass if mass > 0.0 else 0.0


@entry_point
def batch_max_marginals(unary, transition, lengths, out, begin, end):
    """Max-marginals of examples ``begin`` to ``end`` into ``out`` [B, T, S], zero before."""
    ahead = np.empty(unary.shape[1:])
    for b in range(begin, end):
        max_marginals(unary[b], of_example(transition, b), lengths[b], ahead, out[b])


@entry_point
def batch_scores(unary, transition, lengths, labels, scores):
    """Fill ``scores`` [B, K], whatever stands at padding, for labels [B, K, T]; false if one is no state."""
    for b in range(labels.shape[0]):
        for k in range(labels.shape[1]):
            if not _are_states(labels[b, k], lengths[b], unary.shape[2]):
                return False
            scores[b, k] = _score(unary[b], of_example(transition, b), lengths[b], labels[b, k])
    return True


@entry_point
def batch_parts(weights, labels, lengths, node, edge):
    """Add sum_k weights[b, k] * parts of labels[b, k] to ``node`` [B, T, S] and ``edge`` [1 or B, E, S, S]."""
    batch, outputs, _ = labels.shape
    for b in range(batch):
        edges = edge[b if edge.shape[0] > 1 else 0]
        for k in range(outputs):
            for t in range(lengths[b]):
                node[b, t, labels[b, k, t]] += weights[b, k]
                if t > 0:
                    edges[edge_index(edges, t), labels[b, k, t - 1], labels[b, k, t]] += weights[b, k]
