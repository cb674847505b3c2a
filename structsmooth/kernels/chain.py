"""Inference in one linear chain, and loops of it over a batch.

All functions take float64 arrays: ``unary`` [T, S] and ``transition`` [E, S, S], where E is 1 (the same
transitions at every edge) or T - 1. Entries may be minus infinity. Ties go to the lowest state.
"""

import numpy as np

from structsmooth.kernels.jit import entry_point, inlined, kernel

# Sums of products below this may have lost terms to underflow: they are redone in log space.
_UNDERFLOW = 1e-290


@inlined
def edge_index(transition, t):
    """Row of ``transition`` that leads into position t."""
    return t - 1 if transition.shape[0] > 1 else 0


@kernel
def viterbi(unary, transition, length, score, back, labels):
    """Max oracle (Algorithm 1): fills ``labels``, returns the value; ``score`` [2, S], ``back`` [T, S] are scratch."""
    states = unary.shape[1]
    previous, current = score[0], score[1]
    for s in range(states):
        current[s] = unary[0, s]
    for t in range(1, length):
        previous, current = current, previous
        edge = transition[edge_index(transition, t)]
        for s in range(states):
            best, argument = -np.inf, 0
            for p in range(states):
                value = previous[p] + edge[p, s]
                if value > best:
                    best, argument = value, p
            current[s] = best + unary[t, s]
            back[t, s] = argument
    best, state = -np.inf, 0
    for s in range(states):
        if current[s] > best:
            best, state = current[s], s
    for t in range(length - 1, -1, -1):
        labels[t] = state if best > -np.inf else 0
        if t > 0:
            state = back[t, state]
    return best


@kernel
def top_k(unary, transition, length, k, score, back, values, labels):
    """Top-K oracle (Algorithm 2): fills ``values`` [k], ``labels`` [k, T]; ``score``, ``back`` [T, S, k] are scratch.

    Each state keeps the sorted list of its k best prefixes; lists are merged by insertion and a merge stops at
    the first entry that is too small. Where fewer than k outputs exist, values are -inf and labels 0. ``back`` must
    be zero before its first use: NaN scores may lead to entries that were never written.
    """
    states = unary.shape[1]
    last = k - 1
    for s in range(states):
        score[0, s, 0] = unary[0, s]
        for j in range(1, k):
            score[0, s, j] = -np.inf
    for t in range(1, length):
        edge = transition[edge_index(transition, t)]
        before = score[t - 1]
        for s in range(states):
            best, origin = score[t, s], back[t, s]
            for j in range(k):
                best[j] = -np.inf
            for p in range(states):
                for j in range(k):
                    value = before[p, j] + edge[p, s]
                    if value <= best[last]:
                        break
                    insert(best, origin, value, p * k + j, last)
            for j in range(k):
                best[j] += unary[t, s]
    for j in range(k):
        values[j] = -np.inf
        labels[j, length - 1] = 0
    for s in range(states):
        for j in range(k):
            value = score[length - 1, s, j]
            if value <= values[last]:
                break
            insert(values, labels[:, length - 1], value, s * k + j, last)
    for j in range(k):
        if values[j] == -np.inf:
            labels[j, :length] = 0
            continue
        entry = labels[j, length - 1]
        for t in range(length - 1, -1, -1):
            labels[j, t] = entry // k
            if t > 0:
                entry = back[t, entry // k, entry % k]


@inlined
def insert(values, origins, value, origin, last):
    """Insert into a list sorted downwards; equal values keep the order of their insertion."""
    j = last
    while j > 0 and values[j - 1] < value:
        values[j] = values[j - 1]
        origins[j] = origins[j - 1]
        j -= 1
    values[j] = value
    origins[j] = origin


@kernel
def exponentiate(transition, shift, exponential):
    """``exponential`` = exp(transition - shift) with ``shift`` the largest entry into each state."""
    edges, states, _ = transition.shape
    for e in range(edges):
        for s in range(states):
            largest = -np.inf
            for p in range(states):
                largest = max(largest, transition[e, p, s])
            shift[e, s] = largest if largest > -np.inf else 0.0
        for p in range(states):
            for s in range(states):
                exponential[e, p, s] = np.exp(transition[e, p, s] - shift[e, s])


@kernel
def log_partition(unary, transition, exponential, shift, length, alpha, scaled, total):
    """Forward half of the sum-product recursion; returns the log-partition function.

    ``scaled`` [T, S] holds the forward messages relative to the largest at each position, and ``total`` the sums over
    the previous state, zero where the sum had to be done in log space. There, ``alpha`` [T, S] holds the log messages
    of that position and of the one before.
    """
    states = unary.shape[1]
    largest = _exponentials(unary[0], scaled[0])
    alpha[0, :] = unary[0]
    known = 0  # the last position whose row of alpha is filled
    for t in range(1, length):
        e = edge_index(transition, t)
        for s in range(states):
            total[t, s] = 0.0
        for p in range(states):
            weight = scaled[t - 1, p]
            if weight > 0.0:
                for s in range(states):
                    total[t, s] += weight * exponential[e, p, s]
        growth = _propagate(unary, shift, total, scaled, t, e)
        if growth > -np.inf:
            largest += growth
            continue
        if known < t - 1:
            for s in range(states):
                alpha[t - 1, s] = largest + np.log(scaled[t - 1, s])
        for s in range(states):
            if total[t, s] > _UNDERFLOW:
                message = largest + shift[e, s] + np.log(total[t, s])
            else:
                total[t, s] = 0.0
                message = _log_sum(alpha[t - 1], transition[e, :, s], scaled[t])
            alpha[t, s] = message + unary[t, s]
        largest, known = _exponentials(alpha[t], scaled[t]), t
    mass = scaled[length - 1, :].sum()
    return largest + np.log(mass) if mass > 0.0 else -np.inf


@kernel
def _propagate(unary, shift, total, scaled, t, e):
    """``scaled[t]`` = total * exp(shift + unary) relative to the largest, whose logarithm is returned.

    That is -inf if products other than those of forbidden states may have lost digits to underflow.
    """
    states = unary.shape[1]
    largest = -np.inf
    for s in range(states):
        largest = max(largest, shift[e, s] + unary[t, s])
    mass, exact = 0.0, True
    for s in range(states):
        scaled[t, s] = total[t, s] * np.exp(shift[e, s] + unary[t, s] - largest)
        mass = max(mass, scaled[t, s])
        exact &= scaled[t, s] > _UNDERFLOW or unary[t, s] == -np.inf
    if not (exact and mass > 0.0):
        return -np.inf
    inverse = 1.0 / mass
    for s in range(states):
        scaled[t, s] *= inverse
    return largest + np.log(mass)


@kernel
def _exponentials(messages, scaled):
    """``scaled`` = exp(messages - largest); zeros if all are -inf. Returns the largest."""
    largest = -np.inf
    for s in range(messages.shape[0]):
        largest = max(largest, messages[s])
    for s in range(messages.shape[0]):
        scaled[s] = np.exp(messages[s] - largest) if largest > -np.inf else 0.0
    return largest


@kernel
def _log_sum(messages, edge, scaled):
    """log sum exp(messages + edge); ``scaled`` is scratch."""
    for p in range(messages.shape[0]):
        scaled[p] = messages[p] + edge[p]
    largest = _exponentials(scaled, scaled)
    return largest + np.log(scaled.sum()) if largest > -np.inf else largest


@kernel
def marginals(transition, exponential, length, alpha, scaled, total, node, edge):
    """Backward half: marginals from the results of :func:`log_partition`; adds to ``edge``, sets ``node``.

    p(y_t = p | y_{t+1} = s) follows from the forward messages alone, so no backward message is needed and nothing
    can overflow. It is normalized by its own sum over p, so marginals sum to one however large the scores are. The
    rows of ``scaled`` are scratch once they are used.
    """
    states = node.shape[1]
    mass = scaled[length - 1, :].sum()
    for s in range(states):
        node[length - 1, s] = scaled[length - 1, s] / mass if mass > 0.0 else 0.0
    for t in range(length - 1, 0, -1):
        e, out = edge_index(transition, t), edge_index(edge, t)
        # total[t] becomes the factor by which a joint weight turns into a joint probability.
        for s in range(states):
            if total[t, s] > 0.0:
                total[t, s] = node[t, s] / total[t, s]
        for p in range(states):
            weight, sum_p = scaled[t - 1, p], 0.0
            for s in range(states):
                joint = weight * exponential[e, p, s] * total[t, s]
                edge[out, p, s] += joint
                sum_p += joint
            node[t - 1, p] = sum_p
        for s in range(states):
            if total[t, s] == 0.0 and node[t, s] > 0.0:
                _log_sum(alpha[t - 1], transition[e, :, s], scaled[t])
                mass_s = scaled[t].sum()
                for p in range(states):
                    joint = node[t, s] * (scaled[t, p] / mass_s)
                    edge[out, p, s] += joint
                    node[t - 1, p] += joint


@entry_point
def batch_top_k(unary, transition, lengths, k, values, labels, begin, end):
    """Top-K of examples ``begin`` to ``end``: unary [B, T, S], transition [1 or B, E, S, S], labels [B, k, T]."""
    _, steps, states = unary.shape
    score = np.empty((steps, states, k))
    row = np.empty((2, states))
    back = np.zeros((steps, states, k), np.int64)
    for b in range(begin, end):
        edges = transition[b if transition.shape[0] > 1 else 0]
        if k == 1:
            values[b, 0] = viterbi(unary[b], edges, lengths[b], row, back[:, :, 0], labels[b, 0])
        else:
            top_k(unary[b], edges, lengths[b], k, score, back, values[b], labels[b])


@entry_point
def batch_marginals(unary, transition, lengths, values, node, edge, begin, end):
    """Log-partition and marginals of examples ``begin`` to ``end``.

    ``node`` [B, T, S] and ``edge`` [B, E', S, S] must be zero; E' = 1 sums the edge marginals over positions.
    """
    _, steps, states = unary.shape
    edges = transition.shape[1]
    alpha, scaled = np.empty((steps, states)), np.empty((steps, states))
    total = np.empty((steps, states))
    exponential, shift = np.empty((edges, states, states)), np.empty((edges, states))
    for b in range(begin, end):
        own = transition[b if transition.shape[0] > 1 else 0]
        if b == begin or transition.shape[0] > 1:
            exponentiate(own, shift, exponential)
        values[b] = log_partition(unary[b], own, exponential, shift, lengths[b], alpha, scaled, total)
        marginals(own, exponential, lengths[b], alpha, scaled, total, node[b], edge[b])


@entry_point
def batch_max_marginals(unary, transition, lengths, out, begin, end):
    """Max-marginals of examples ``begin`` to ``end`` into ``out`` [B, T, S]."""
    _, steps, states = unary.shape
    ahead = np.empty((steps, states))
    for b in range(begin, end):
        edges = transition[b if transition.shape[0] > 1 else 0]
        length = lengths[b]
        for t in range(length):
            for s in range(states):
                message = 0.0
                if t > 0:
                    message = -np.inf
                    for p in range(states):
                        message = max(message, out[b, t - 1, p] + edges[edge_index(edges, t), p, s])
                out[b, t, s] = message + unary[b, t, s]
        for s in range(states):
            ahead[length - 1, s] = 0.0
        for t in range(length - 2, -1, -1):
            for p in range(states):
                message = -np.inf
                for s in range(states):
                    best = edges[edge_index(edges, t + 1), p, s] + unary[b, t + 1, s] + ahead[t + 1, s]
                    message = max(message, best)
                ahead[t, p] = message
        for t in range(length):
            for s in range(states):
                out[b, t, s] += ahead[t, s]
