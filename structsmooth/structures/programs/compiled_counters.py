"""The best outputs of a program for each sum of counts, an example at a time; see :mod:`.compiled` for the arrays.

Counts ``count`` [P + 1] are integers; 0 for a missing score. A node has a slot for each sum of counts of the
derivations from it, from the least one, ``low`` [N + 1], on; its slots are ``start[v]`` to ``start[v + 1]``. Sums that
can only end above the largest one at the root have none.
"""

import numpy as np

from structsmooth.compiled.jit import compiled, entry_point
from structsmooth.structures.programs.compiled import insert_pairs


@compiled
def slots(program, theta, count, root, size, low, start):
    """Fills ``low`` and ``start`` [N + 2], with slots at the root for sums of less than ``size``."""
    rows, left, right, index = program
    nodes = rows.shape[0] - 1
    high = np.full(nodes + 1, -1)
    low[nodes], high[nodes] = 0, 0
    for v in range(root + 1):
        low[v], found = 0, False
        for e in range(rows[v], rows[v + 1]):
            first, second = left[e], right[e]
            if theta[index[e]] > -np.inf and low[first] <= high[first] and low[second] <= high[second]:
                least = count[index[e]] + low[first] + low[second]
                most = count[index[e]] + high[first] + high[second]
                low[v] = min(low[v], least) if found else least
                high[v] = max(high[v], most) if found else most
                found = True
        if not found:
            high[v] = -1
    # A derivation through v has at least the count low[root] at the root, and as much more as v is above low[v]. So v
    # needs size - low[root] slots; for a positive low[root], this is more than enough.
    widest = size - min(0, low[root])
    start[0] = 0
    for v in range(root + 1):
        start[v + 1] = start[v] + max(0, min(high[v] - low[v] + 1, widest))
    return start[root + 1]


@compiled
def _raise(base, entry, many, source, best, origin):
    """Of the ``many`` first entries, the larger ones of those of ``best`` and of ``source`` plus ``base``."""
    for a in range(many):
        score = base + source[a]
        better = score > best[a]
        best[a] = score if better else best[a]
        origin[a] = entry + a if better else origin[a]


@compiled
def top_k_by_count(program, theta, count, root, k, low, start, value, back):
    """Fills ``value`` [slots + 1, k] and ``back`` [slots, k], whose entries are an edge, a slot of left, and ranks.

    The last slot of ``value`` is that of a missing tail.
    """
    rows, left, right, index = program
    nodes, last, empty = rows.shape[0] - 1, k - 1, value.shape[0] - 1
    value[:] = -np.inf
    value[empty, 0] = 0.0
    for v in range(root + 1):
        begin, width = start[v], start[v + 1] - start[v]
        for e in range(rows[v], rows[v + 1]):
            first, second, base = left[e], right[e], theta[index[e]]
            # ``slots`` has left such an edge out: its counts may be below low[v].
            if not base > -np.inf:
                continue
            shift = count[index[e]] + low[first] + low[second] - low[v]
            left_begin = start[first] if first < nodes else empty
            lefts = start[first + 1] - left_begin if first < nodes else 1
            right_begin = start[second] if second < nodes else empty
            rights = start[second + 1] - right_begin if second < nodes else 1
            entry = np.int64(e) * value.shape[0] * k * k
            # An edge with one tail, as all of chains have, moves the whole row of slots by its count.
            if second == nodes and k == 1:
                many, slot = min(lefts, width - shift), begin + shift
                _raise(base, entry, many, value[left_begin:, 0], value[slot:, 0], back[slot:, 0])
                continue
            # V^(k)(v, c): the K best of θ(e) + V^(i)(left of e, a) + V^(j)(right of e, b) with a + b + the count of e =
            # c.
            for a in range(min(lefts, width - shift)):
                score = base + value[left_begin + a, 0]
                for b in range(min(rights, width - shift - a)):
                    slot = begin + shift + a + b
                    if score + value[right_begin + b, 0] > value[slot, last]:
                        firsts, seconds = value[left_begin + a], value[right_begin + b]
                        insert_pairs(firsts, seconds, base, entry + a * k * k, value[slot], back[slot])


@compiled
def follow_count(program, missing, count, low, start, slot, rank, root, k, back, stack, used):
    """Writes the scores of the output of a slot and rank of the root to ``used``; ``stack`` [D + 1, 3] is scratch."""
    rows, left, right, index = program
    nodes, total = rows.shape[0] - 1, back.shape[0] + 1
    stack[0, 0], stack[0, 1], stack[0, 2] = root, slot, rank
    number, top = 0, 1
    while top > 0:
        top -= 1
        v, c = stack[top, 0], stack[top, 1]
        entry = back[start[v] + c, stack[top, 2]]
        # An entry is ((e · total + a) k + i) k + j; the slot of the right tail is what is left of c.
        j, entry = entry % k, entry // k
        i, entry = entry % k, entry // k
        a, e = entry % total, entry // total
        first, second = left[e], right[e]
        if index[e] < missing:
            used[number] = index[e]
            number += 1
        if second < nodes:
            shift = count[index[e]] + low[first] + low[second] - low[v]
            stack[top, 0], stack[top, 1], stack[top, 2] = second, c - shift - a, j
            top += 1
        if first < nodes:
            stack[top, 0], stack[top, 1], stack[top, 2] = first, a, i
            top += 1


@entry_point
def batch_top_k_by_count(program, depth, scores, counts, roots, values, used, begin, end):
    """Examples ``begin`` to ``end``: ``values`` [B, C, k], -inf before, and ``used`` [B, C, k, M]."""
    nodes, missing = program[0].shape[0] - 1, scores.shape[1]
    size, k = values.shape[1], values.shape[2]
    theta, count = np.zeros(missing + 1), np.zeros(missing + 1, np.int64)
    low, start = np.zeros(nodes + 1, np.int64), np.zeros(nodes + 2, np.int64)
    stack = np.empty((depth + 1, 3), np.int64)
    for b in range(begin, end):
        for i in range(missing):
            theta[i], count[i] = scores[b, i], counts[b, i]
        total = slots(program, theta, count, roots[b], size, low, start)
        value, back = np.empty((total + 1, k)), np.empty((total, k), np.int64)
        top_k_by_count(program, theta, count, roots[b], k, low, start, value, back)
        first = start[roots[b]]
        for c in range(max(0, low[roots[b]]), min(size, low[roots[b]] + start[roots[b] + 1] - first)):
            slot = c - low[roots[b]]
            for rank in range(k):
                values[b, c, rank] = value[first + slot, rank]
                if value[first + slot, rank] > -np.inf:
                    output = used[b, c, rank]
                    follow_count(program, missing, count, low, start, slot, rank, roots[b], k, back, stack, output)
