"""Sums over the spanning trees of an example, and their gradients, in loops over a batch.

Words are eliminated as :mod:`structsmooth.structures.spanning_trees.elimination` explains, with weights in place of
their logarithms. What is left is then linear in what was there before, so that the way back needs no more than the rows
and columns of eliminated words, which stay where they were. Where weights underflow that could matter, logarithms take
their place, with the shares of all sums for the way back.
"""

import numpy as np

from structsmooth.compiled.jit import compiled, entry_point, inlined

# Where the logarithms of the totals below 1 sum to less than this, weights that underflow could matter.
_LEAST = -600.0


@compiled
def _scaled(arcs, root, single_root, weights, at_root):
    """Weights [n, n] of arcs and [n] of roots, relative to the largest into each word; the logarithm of these."""
    n, log_scale, of_root = weights.shape[0], 0.0, -np.inf
    for m in range(n):
        largest = -np.inf
        for h in range(n):
            if h != m and arcs[h, m] > largest:
                largest = arcs[h, m]
        if largest == -np.inf or (not single_root and root[m] > largest):
            largest = root[m]
        if largest == -np.inf:
            largest = 0.0
        log_scale += largest
        for h in range(n):
            weights[h, m] = np.exp(arcs[h, m] - largest) if h != m else 0.0
        at_root[m] = root[m] - largest
        of_root = at_root[m] if at_root[m] > of_root else of_root
    if not single_root or of_root == -np.inf:
        of_root = 0.0  # else one arc of the root is in every tree
    for m in range(n):
        at_root[m] = np.exp(at_root[m] - of_root)
    return log_scale + of_root


@compiled
def _swap(a, b, weights, at_root, totals, order):
    """Exchange the words at two places."""
    for j in range(order.shape[0]):
        weights[a, j], weights[b, j] = weights[b, j], weights[a, j]
    for i in range(order.shape[0]):
        weights[i, a], weights[i, b] = weights[i, b], weights[i, a]
    at_root[a], at_root[b] = at_root[b], at_root[a]
    totals[a], totals[b] = totals[b], totals[a]
    order[a], order[b] = order[b], order[a]


@compiled
def _eliminate(weights, at_root, single_root, totals, share, order):
    """Eliminates words from the last place to the first, each time that with the largest total, which goes there.

    Returns the logarithm of the product of the totals, or NaN if digits may be lost.
    """
    log_product, lost = 0.0, 0.0
    for j in range(order.shape[0]):
        order[j] = j
        # With one child of the root, arcs of the root count only for the word that is left: see .elimination.
        totals[j] = 0.0 if single_root else at_root[j]
        for i in range(order.shape[0]):
            totals[j] += weights[i, j]
    # With the total d_k = Σ_i a_ik of word k, a_ij becomes a_ij + a_ik a_kj / d_k, and Z = Π d_k.
    for last in range(order.shape[0] - 1, -1, -1):
        if last == 0:
            totals[0] = at_root[0]
        largest = last
        for j in range(last):
            if totals[j] > totals[largest]:
                largest = j
        if largest != last:
            _swap(largest, last, weights, at_root, totals, order)
        total = totals[last]
        if not total > 0.0:
            return np.nan
        log_product += np.log(total)
        lost += min(np.log(total), 0.0)
        for j in range(last):
            share[j] = weights[last, j] / total
            at_root[j] += at_root[last] * share[j]
            totals[j] = 0.0 if single_root else at_root[j]
        for i in range(last):
            weight, row = weights[i, last], weights[i]
            for j in range(last):
                row[j] += weight * share[j]
            # The way from a word over the eliminated one and back is a cycle.
            row[i] = 0.0
            for j in range(last):
                totals[j] += row[j]
    return log_product if lost > _LEAST else np.nan


@compiled
def _slopes(weights, at_root, single_root, totals, share, slopes, root_slopes):
    """Derivatives [n, n] and [n] of the log-sum by the weights before :func:`_eliminate`, at the places after it."""
    slopes[0, 0], root_slopes[0] = 0.0, 1.0 / totals[0]
    # In the reverse order of the elimination: place k was eliminated before all places below it.
    # With s_ij the derivatives of log Z by the weights that are left, Σ over words and the root i, words j below place
    # k: s_kj = Σ_i s_ij a_ik / d, and s_ik = Σ_j s_ij a_kj / d + (1 - Σ_ij s_ij a_ik a_kj / d) / d.
    for k in range(1, weights.shape[0]):
        total, row, through = totals[k], slopes[k], 0.0
        for j in range(k):
            share[j] = weights[k, j] / total
            row[j] = root_slopes[j] * at_root[k]
            through += root_slopes[j] * share[j]
        for i in range(k):
            weight, other, slope = weights[i, k], slopes[i], 0.0
            for j in range(k):
                row[j] += weight * other[j]
                slope += other[j] * share[j]
            other[k] = slope
        rest = 1.0
        for j in range(k):
            rest -= row[j] * share[j]
        for j in range(k):
            row[j] /= total
            slopes[j, k] += rest / total
        row[k] = 0.0
        root_slopes[k] = through if single_root else through + rest / total


@compiled
def _by_weights(arcs, root, single_root, work, in_arcs, in_root):
    """Log-sum of an example with words, and its probabilities; NaN if digits may be lost."""
    weights, slopes, at_root, root_slopes, totals, share, order = work
    n = order.shape[0]
    log_scale = _scaled(arcs, root, single_root, weights, at_root)
    for m in range(n):
        in_root[m] = at_root[m]
        for h in range(n):
            in_arcs[h, m] = weights[h, m]
    log_product = _eliminate(weights, at_root, single_root, totals, share, order)
    # Not NaN, which equals nothing.
    if log_product == log_product:
        _slopes(weights, at_root, single_root, totals, share, slopes, root_slopes)
        for j in range(n):
            in_root[order[j]] *= max(root_slopes[j], 0.0)
            for i in range(n):
                in_arcs[order[i], order[j]] *= max(slopes[i, j], 0.0)
    return log_scale + log_product


@inlined
def _log_add(a, b):
    """log(exp(a) + exp(b)); NaN if either is."""
    largest = np.maximum(a, b)
    return largest + np.log1p(np.exp(min(a, b) - largest)) if largest > -np.inf else largest


@inlined
def _head(a, last, order):
    """The word at place ``a`` of those before ``last``; the root, whose number is that of words, at ``last``."""
    return order[a] if a < last else order.shape[0]


@compiled
def _log_eliminate(logs, single_root, totals, over, order, places):
    """:func:`_eliminate` for logarithms [n + 1, n] of weights, the root last, with words where they are.

    ``over`` gets, of each arc that is left, the share that goes over the word which is eliminated, and ``places`` where
    that word stood.
    """
    log_product, place = 0.0, 0
    for last in range(order.shape[0] - 1, -1, -1):
        best = 0
        for b in range(last + 1):
            j = order[b]
            totals[j] = -np.inf if single_root and last > 0 else logs[order.shape[0], j]
            for a in range(last + 1):
                if a != b:
                    totals[j] = _log_add(totals[j], logs[order[a], j])
            best = b if totals[j] > totals[order[best]] else best
        places[last], order[best], order[last] = best, order[last], order[best]
        k = order[last]
        log_product += totals[k]
        if not log_product > -np.inf:
            return log_product
        for a in range(last + 1):
            i = _head(a, last, order)
            for b in range(last):
                j = order[b]
                way = logs[i, k] + logs[k, j] - totals[k]
                over[place] = 0.0
                if a != b and way != -np.inf:  # NaN goes on, to the value
                    logs[i, j] = _log_add(logs[i, j], way)
                    over[place] = np.exp(way - logs[i, j])
                place += 1
    return log_product


@compiled
def _log_probabilities(logs, single_root, totals, over, order, places, found):
    """Probabilities [n + 1, n] of arcs, zero before, from what :func:`_log_eliminate` left."""
    n, place = order.shape[0], over.shape[0]
    found[n, order[0]] = 1.0
    for last in range(1, n):
        k, children = order[last], 0.0
        place -= last * (last + 1)
        for a in range(last + 1):
            i = _head(a, last, order)
            for b in range(last):
                moved = found[i, order[b]] * over[place + a * last + b]
                found[i, order[b]] -= moved
                found[i, k] += moved
                found[k, order[b]] += moved
                children += moved
        for a in range(last if single_root else last + 1):
            i = _head(a, last, order)
            found[i, k] += (1.0 - children) * np.exp(logs[i, k] - totals[k])
        order[places[last]], order[last] = order[last], order[places[last]]  # as it was before


@compiled
def _by_logarithms(arcs, root, single_root, in_arcs, in_root):
    """As :func:`_by_weights`, at any scale of the scores."""
    n = root.shape[0]
    logs, found, totals, order = np.empty((n + 1, n)), np.zeros((n + 1, n)), np.empty(n), np.arange(n)
    places = np.empty(n, np.int64)
    # Σ over places ``last`` of (last + 1) heads times last modifiers.
    over = np.empty((n - 1) * n * (n + 1) // 3)
    for m in range(n):
        logs[n, m] = root[m]
        for h in range(n):
            logs[h, m] = arcs[h, m]
    value = _log_eliminate(logs, single_root, totals, over, order, places)
    if value > -np.inf:
        _log_probabilities(logs, single_root, totals, over, order, places, found)
    for m in range(n):
        in_root[m] = max(found[n, m], 0.0)
        for h in range(n):
            in_arcs[h, m] = max(found[h, m], 0.0)
    return value


@entry_point
def batch_sums(arcs, root, lengths, single_root, values, in_arcs, in_root, begin, end):
    """Log-sums [B], and probabilities of arcs [B, n, n] and of roots [B, n], which must be zero."""
    most = root.shape[1]
    weights, slopes = np.empty((most, most)), np.empty((most, most))
    at_root, root_slopes, totals, share = np.empty(most), np.empty(most), np.empty(most), np.empty(most)
    order = np.empty(most, np.int64)
    for b in range(begin, end):
        n = lengths[b]
        values[b] = 0.0
        if n > 0:
            scores, found = (arcs[b, :n, :n], root[b, :n]), (in_arcs[b, :n, :n], in_root[b, :n])
            work = weights[:n, :n], slopes, at_root, root_slopes, totals, share, order[:n]
            values[b] = _by_weights(*scores, single_root, work, *found)
            # NaN: digits may be lost, or a total is zero, which may have underflowed.
            if not values[b] > -np.inf:
                values[b] = _by_logarithms(*scores, single_root, *found)
