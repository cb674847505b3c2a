"""Inside and outside sums of one sentence after the other, in the linear domain: all spans of a length at once.

Spans of words i to i + d stand in row d of arrays, at place i, so that inner loops are over neighbours in memory. Their
numbers are relative to a power of two, the scale of the span. For d > 0,

* ``sums[d][q, i]``, with q a pair of symbols on the right side of a rule, is the sum over splits of the products of
  what both parts have: a product of matrices;
* ``inner[d, a, i]`` is the sum over rules of symbol a, a second product, or for d = 0 that of the word, and then over
  rules with one symbol on the right, from the lowest level up;
* ``value[d, a, i]`` is the same times the factor of the span's score.

Numbers below 1e-308 vanish. Whether that matters is tested: by the smallest number, and else by a second pass, which
adds ``floor`` to whatever may have lost something, and so finds an upper bound. Where that is another number, sums need
the log domain.

A grammar is three tuples of arrays: ``splits``, the pairs of symbols [Q, 2], and those that a split can have, listed
from ``kinds[t]`` to ``kinds[t + 1]`` for each kind t of splits; ``rules`` of two symbols, where those of each symbol
begin [N + 1], their pairs and numbers, and where those of each pair begin, these in this order, and their symbols; and
``chains``, where rules of one symbol begin, that symbol, their numbers, the order of symbols by level, and which
symbols have others than chains, for a word and for several [2, N].
"""

from math import ldexp

import numpy as np

from structsmooth.compiled.jit import compiled, entry_point, inlined

_FLOOR = 1e-280  # above all that one number can lose, which is less than 1e-308 for each of its summands
_DEAD = 1e-290  # below it, numbers are zero, so that derivatives by others are finite
_SAFE = 1e-260  # from here on, what a number can have lost is less than its last digit
_LARGE = 1e20  # the most that rules of one symbol may multiply by, so that others stay far from 1e-308
_CLOSE = 1e-14
_LOG_2, _REST = 0.693147180369123816490, 1.90821492927058770002e-10  # products with integers are exact
_POWERS = 2.0 ** -np.arange(1076.0)  # the last one is 0


@inlined
def _exponent(score):
    """The power of two next to exp(score); 0 for that of -inf."""
    return np.floor(score / _LOG_2) if score > -np.inf else 0.0


@inlined
def _factor(score, exponent, floor):
    """exp(score) / 2^exponent: exactly 0 for -inf, and else at least ``floor``."""
    return max(np.exp((score - exponent * _LOG_2) - exponent * _REST), floor) if score > -np.inf else 0.0


@compiled
def _load(scores, numbers, floor, factors):
    """Factors of some of the scores, relative to a power of two, whose exponent is returned."""
    largest = -np.inf
    for r in range(numbers.shape[0]):
        largest = max(largest, scores[numbers[r]])
    exponent = _exponent(largest)
    for r in range(numbers.shape[0]):
        factors[r] = _factor(scores[numbers[r]], exponent, floor)
    return exponent


@compiled
def _load_spans(scores, n, is_relative, floor, span, scale):
    """Factors ``span`` [n, N, n], relative to the largest of the span or to 1, and exponents ``scale`` [n, n]."""
    for d in range(n):
        for i in range(n - d):
            largest = -np.inf
            for a in range(scores.shape[2]):
                largest = max(largest, scores[i, i + d, a])
            scale[d, i] = _exponent(largest) if is_relative else 0.0
            for a in range(scores.shape[2]):
                score = scores[i, i + d, a]
                span[d, a, i] = 1.0 if score == 0.0 == scale[d, i] else _factor(score, scale[d, i], floor)


@compiled
def _of_length(sums, d, n):
    """The part [Q, n - d] of what is stored for all spans [n (n - 1) / 2, Q]."""
    begin = (d - 1) * n - d * (d - 1) // 2
    return sums[begin : begin + n - d].reshape((sums.shape[1], n - d))


@compiled
def _weigh_splits(scale, d, count, weights, top):
    """``weights`` [d, count] of splits, powers of two, relative to the largest, whose exponents are ``top`` [count]."""
    top[:count] = -np.inf
    for k in range(d):
        for i in range(count):
            top[i] = max(top[i], scale[k, i] + scale[d - 1 - k, i + k + 1])
    for k in range(d):
        for i in range(count):
            below = top[i] - (scale[k, i] + scale[d - 1 - k, i + k + 1])
            weights[k, i] = _POWERS[int(below)] if below < 1075.0 else 0.0


@compiled
def _weigh_left(value, weights, d, count, weighted):
    for k in range(d):
        for b in range(value.shape[1]):
            for i in range(count):
                weighted[k, b, i] = weights[k, i] * value[k, b, i]


@inlined
def _kind(d, k):
    """Which of the parts of a split have several words, 0 to 3; and where splits of its kind end."""
    several = 0 < k < d - 1
    return 2 * (k > 0) + (k < d - 1), d - 1 if several else k + 1


@compiled
def _add_products(splits, value, weighted, d, count, sums):
    """Add the products of both parts, over splits, to ``sums`` [Q, count]."""
    pairs, listed, kinds = splits
    first = 0
    while first < d:
        kind, end = _kind(d, first)
        for entry in range(kinds[kind], kinds[kind + 1]):
            q = listed[entry]
            b, c, k = pairs[q, 0], pairs[q, 1], first
            while k + 4 <= end:
                e = d - 1 - k
                for i in range(count):
                    sums[q, i] += (
                        weighted[k, b, i] * value[e, c, i + k + 1]
                        + weighted[k + 1, b, i] * value[e - 1, c, i + k + 2]
                        + weighted[k + 2, b, i] * value[e - 2, c, i + k + 3]
                        + weighted[k + 3, b, i] * value[e - 3, c, i + k + 4]
                    )
                k += 4
            while k < end:
                for i in range(count):
                    sums[q, i] += weighted[k, b, i] * value[d - 1 - k, c, i + k + 1]
                k += 1
        first = end


@compiled
def _apply_rules(heads, pair, factors, sums, count, inner):
    """Add the products of rules and ``sums`` [Q, count] to ``inner`` [N, count]."""
    for a in range(heads.shape[0] - 1):
        r = heads[a]
        while r + 4 <= heads[a + 1]:
            f0, f1, f2, f3 = factors[r], factors[r + 1], factors[r + 2], factors[r + 3]
            q0, q1, q2, q3 = pair[r], pair[r + 1], pair[r + 2], pair[r + 3]
            for i in range(count):
                inner[a, i] += f0 * sums[q0, i] + f1 * sums[q1, i] + f2 * sums[q2, i] + f3 * sums[q3, i]
            r += 4
        while r < heads[a + 1]:
            for i in range(count):
                inner[a, i] += factors[r] * sums[pair[r], i]
            r += 1


@compiled
def _finish(chains, d, single, span, floor, inner, value, count):
    """From sums over rules of two symbols, or words, to ``value`` [N, count]; returns the smallest number there.

    ``single`` are the factors of chains.
    """
    above, below, _, order, others = chains
    least = np.inf
    for o in range(order.shape[0]):
        a = order[o]
        for r in range(above[a], above[a + 1]):
            for i in range(count):
                inner[a, i] += single[r] * value[below[r], i]
        if others[1 if d else 0, a] or above[a] < above[a + 1]:
            for i in range(count):
                found = inner[a, i] + floor
                least = min(least, found)
                inner[a, i] = found if found > _DEAD else 0.0
            for i in range(count):
                found = inner[a, i] * span[a, i]
                found += floor if found > 0.0 or (inner[a, i] > 0.0 and span[a, i] > 0.0) else 0.0
                least = min(least, found)
                value[a, i] = found if found > _DEAD else 0.0
        else:
            for i in range(count):
                value[a, i] = 0.0
    return least


@compiled
def _rescale(value, count, units, scale):
    """Divide ``value`` [N, count] by powers of two near the largest, which are added to ``scale``; returns that.

    ``units`` are the inverses of these powers.
    """
    largest = 0.0
    units[:count] = 0.0
    for a in range(value.shape[0]):
        for i in range(count):
            units[i] = max(units[i], value[a, i])
    for i in range(count):
        exponent = np.floor(np.log2(units[i])) if units[i] > 0.0 else -np.inf
        largest = max(largest, units[i])
        units[i] = ldexp(1.0, -int(exponent)) if 0.0 < units[i] < np.inf else 1.0
        scale[i] += exponent
    for a in range(value.shape[0]):
        for i in range(count):
            value[a, i] *= units[i]
    return largest


@compiled
def _inside(grammar, layout, scores, n, floor, room):
    """Fills the room of a sentence of n words: mantissa and exponent of the sum over trees, and the smallest number.

    The mantissa is infinite if numbers become too large.
    """
    splits, (heads, pair, numbers, _, _, _), chains = grammar
    words, tags, symbols = layout
    factors, single, lexical, start, span, inner, value, scale, units, sums, weights, weighted, top = room
    spans = scores.shape[0] - words * words * symbols
    rules = scores[words * tags :]
    exponent = _load(rules, numbers, floor, factors)
    for r in range(single.shape[0]):
        single[r] = _factor(rules[chains[2][r]], 0.0, floor)
    _load_spans(scores[spans:].reshape((words, words, symbols)), n, single.shape[0] == 0, floor, span, scale)
    for i in range(n):
        scale[0, i] += _load(scores[i * tags :], np.arange(tags), floor, lexical[i])
    inner[:n] = 0.0
    inner[0, :tags] = lexical.T
    least, largest = np.inf, 0.0
    for r in range(single.shape[0]):
        largest = max(largest, single[r])
    for d in range(n):
        count = n - d
        if d > 0:
            part = _of_length(sums, d, n)
            part[:] = 0.0
            _weigh_splits(scale, d, count, weights, top)
            _weigh_left(value, weights, d, count, weighted)
            _add_products(splits, value, weighted, d, count, part)
            _apply_rules(heads, pair, factors, part, count, inner[d])
            for i in range(count):
                scale[d, i] += top[i] + exponent
        least = min(least, _finish(chains, d, single, span[d], floor, inner[d], value[d], count))
        largest = max(largest, _rescale(value[d], count, units[d], scale[d]))
    exponent = _load(scores[spans - symbols :], np.arange(symbols), floor, start)
    total = floor
    for a in range(symbols):
        total += start[a] * value[n - 1, a, 0]
    return total if largest < _LARGE else np.inf, exponent + scale[n - 1, 0], min(least, total)


@compiled
def _add_outside_products(splits, value, weighted, weights, d, count, slopes, left, outer):
    """From derivatives ``slopes`` [Q, count] by sums over splits to those ``outer`` [n, N, n] by their parts."""
    pairs, listed, kinds = splits
    left[:d] = 0.0
    first = 0
    while first < d:
        kind, end = _kind(d, first)
        for entry in range(kinds[kind], kinds[kind + 1]):
            q = listed[entry]
            b, c = pairs[q, 0], pairs[q, 1]
            for k in range(first, end):
                for i in range(count):
                    left[k, b, i] += slopes[q, i] * value[d - 1 - k, c, i + k + 1]
                for i in range(count):
                    outer[d - 1 - k, c, i + k + 1] += slopes[q, i] * weighted[k, b, i]
        first = end
    for k in range(d):
        for b in range(value.shape[1]):
            for i in range(count):
                outer[k, b, i] += weights[k, i] * left[k, b, i]


@compiled
def _divide_rules(rules, factors, sums, by_inner, count, slopes, parts):
    """From derivatives ``by_inner`` [N, count] to ``slopes`` [Q, count], those by sums; adds the numbers of rules."""
    _, _, numbers, by_pair, sorted_rules, head = rules
    for q in range(by_pair.shape[0] - 1):
        r = by_pair[q]
        while r + 4 <= by_pair[q + 1]:
            r0, r1, r2, r3 = sorted_rules[r], sorted_rules[r + 1], sorted_rules[r + 2], sorted_rules[r + 3]
            a0, a1, a2, a3 = head[r], head[r + 1], head[r + 2], head[r + 3]
            f0, f1, f2, f3 = factors[r0], factors[r1], factors[r2], factors[r3]
            used0 = used1 = used2 = used3 = 0.0
            for i in range(count):
                slopes[q, i] += (
                    f0 * by_inner[a0, i] + f1 * by_inner[a1, i] + f2 * by_inner[a2, i] + f3 * by_inner[a3, i]
                )
                used0 += by_inner[a0, i] * sums[q, i]
                used1 += by_inner[a1, i] * sums[q, i]
                used2 += by_inner[a2, i] * sums[q, i]
                used3 += by_inner[a3, i] * sums[q, i]
            parts[numbers[r0]] += f0 * used0
            parts[numbers[r1]] += f1 * used1
            parts[numbers[r2]] += f2 * used2
            parts[numbers[r3]] += f3 * used3
            r += 4
        while r < by_pair[q + 1]:
            a, used, factor = head[r], 0.0, factors[sorted_rules[r]]
            for i in range(count):
                slopes[q, i] += factor * by_inner[a, i]
                used += by_inner[a, i] * sums[q, i]
            parts[numbers[sorted_rules[r]]] += factor * used
            r += 1


@compiled
def _outside(grammar, layout, n, total, room, outer, slopes, parts):
    """Adds the probabilities of scores to ``parts`` [P], of a sentence whose room :func:`_inside` has filled."""
    splits, rules, (above, below, singles, order, _) = grammar
    words, tags, symbols = layout
    factors, single, lexical, start, span, _, value, scale, units, sums, weights, weighted, top = room
    of_spans = parts[parts.shape[0] - words * words * symbols :].reshape((words, words, symbols))
    of_starts = parts[parts.shape[0] - of_spans.size - symbols :]
    of_rules = parts[words * tags :]
    left, by_inner = np.empty_like(weighted), np.empty((symbols, n))
    outer[:n] = 0.0
    for a in range(symbols):
        outer[n - 1, a, 0] = start[a] / total
        of_starts[a] += outer[n - 1, a, 0] * value[n - 1, a, 0]
    for d in range(n - 1, -1, -1):
        count = n - d
        for o in range(symbols - 1, -1, -1):
            a = order[o]
            for i in range(count):
                slope = outer[d, a, i] if value[d, a, i] > 0.0 else 0.0
                of_spans[i, i + d, a] += slope * value[d, a, i]
                by_inner[a, i] = slope * span[d, a, i] * units[d, i]
            for r in range(above[a], above[a + 1]):
                for i in range(count):
                    flow = by_inner[a, i] * single[r] / units[d, i]
                    of_rules[singles[r]] += flow * value[d, below[r], i]
                    outer[d, below[r], i] += flow
        if d == 0:
            break
        found = slopes[:count].reshape((slopes.shape[1], count))
        found[:] = 0.0
        _divide_rules(rules, factors, _of_length(sums, d, n), by_inner, count, found, of_rules)
        _weigh_splits(scale, d, count, weights, top)
        _weigh_left(value, weights, d, count, weighted)
        _add_outside_products(splits, value, weighted, weights, d, count, found, left, outer)
    for i in range(n):
        for a in range(tags):
            parts[i * tags + a] += by_inner[a, i] * lexical[i, a]


@compiled
def _make_room(grammar, layout):
    _, rules, chains = grammar
    words, tags, symbols = layout
    spans = (words, symbols, words)
    return (
        np.empty(rules[2].shape[0]),  # factors of rules of two symbols
        np.empty(chains[2].shape[0]),  # and of one
        np.zeros((words, tags)),  # and of words
        np.empty(symbols),  # and of starts
        np.empty(spans),  # and of spans
        np.empty(spans),  # inner
        np.empty(spans),  # value
        np.empty((words, words)),  # exponents of scales
        np.empty((words, words)),  # powers of two that value was multiplied by
        np.empty((words * (words - 1) // 2, grammar[0][0].shape[0])),  # sums
        np.empty((words, words)),  # powers of two of splits
        np.empty(spans),  # value of left parts times these
        np.empty(words),  # the largest exponent of a split
    )


@entry_point
def batch_sums(grammar, layout, scores, lengths, values, parts, exact, begin, end):
    """Log-partition [B], probabilities [B, P], if there is room for them, and whether they are ``exact`` [B]."""
    words, _, symbols = layout
    room = _make_room(grammar, layout)
    outer, slopes = np.empty((words, symbols, words)), np.empty((words, grammar[0][0].shape[0]))
    for b in range(begin, end):
        n = lengths[b]
        if n == 0 or not _are_below_infinity(scores[b]):
            continue
        total, exponent, least = _inside(grammar, layout, scores[b], n, 0.0, room)
        if not total < np.inf:
            continue
        if least < _SAFE:
            bound, higher, _ = _inside(grammar, layout, scores[b], n, _FLOOR, _make_room(grammar, layout))
            if not (total > 0.0 and higher == exponent and bound - total <= _CLOSE * total):
                continue
        exact[b], values[b] = True, np.log(total) + exponent * _LOG_2 + exponent * _REST
        if parts.shape[1] > 0:
            parts[b] = 0.0
            _outside(grammar, layout, n, total, room, outer, slopes, parts[b])


@compiled
def _are_below_infinity(scores):
    wrong = 0
    for i in range(scores.shape[0]):
        wrong += not scores[i] < np.inf
    return wrong == 0
