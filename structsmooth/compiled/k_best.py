"""Sorted lists of the K best of something, with what each of them comes from."""

import numpy as np

from structsmooth.compiled.jit import compiled, inlined, uncounted

# Shorter lists are merged by insertion, which is quadratic, but has nothing to set up.
SHORT = 12


@uncounted
def merge(best, origins, source, base, entry, step):
    """The K largest of ``best`` and of ``source`` + ``base``, lists [K] that are sorted downwards, become ``best``.

    The origin of source[j] is ``entry`` + j ``step``. Equal values keep the order in which they came.
    """
    last = best.shape[0] - 1
    if last >= SHORT:
        _merge_long(best, origins, source, base, entry, step)
        return
    for j in range(last + 1):
        value = source[j] + base
        if value <= best[last]:  # NaN is let in, and shows
            break
        insert(best, origins, value, entry + j * step)


@uncounted
def insert(best, origins, value, origin):
    """Insert into a list sorted downwards; equal values keep the order of their insertion."""
    place = best.shape[0] - 1
    while place > 0 and best[place - 1] < value:
        best[place], origins[place] = best[place - 1], origins[place - 1]
        place -= 1
    best[place], origins[place] = value, origin


@uncounted
def _merge_long(best, origins, source, base, entry, step):
    """:func:`merge` in time that is linear in K."""
    size, many = best.shape[0], 0
    # How many get in: beside ``many`` of the source, best[size - 1 - many] is the last one that stays.
    while many < size and source[many] + base > best[size - 1 - many]:
        many += 1
    kept, place = size - many, size - 1
    # From the last place on, so that entries of ``best`` move before they are overwritten.
    while many > 0:
        value = source[many - 1] + base
        if kept > 0 and best[kept - 1] < value:
            kept -= 1
            best[place], origins[place] = best[kept], origins[kept]
        else:
            many -= 1
            best[place], origins[place] = value, entry + many * step
        place -= 1


@compiled
def largest_sums(firsts, seconds, base, best):
    """The largest of ``base`` + firsts[i] + seconds[j], as many as ``best`` would take, and -inf; and i K + j.

    All lists [K] are sorted downwards. Sums wait in a heap: after (i, j) comes (i, j + 1), after (i, 0) also (i + 1, 0)
    """
    size, count = best.shape[0], 1
    sums, pairs = np.full(size, -np.inf), np.zeros(size, np.int64)
    # Each sum that leaves brings two at most, so one more than before.
    waiting, places = np.empty(size + 1), np.empty(size + 1, np.int64)
    waiting[0], places[0] = base + firsts[0] + seconds[0], 0
    for rank in range(size):
        if not (count > 0 and waiting[0] > best[size - 1 - rank]):
            break
        sums[rank], pairs[rank] = waiting[0], places[0]
        i, j = places[0] // size, places[0] % size
        count -= 1
        _sift(waiting, places, count, waiting[count], places[count])
        if j + 1 < size:
            count = _push(waiting, places, count, base + firsts[i] + seconds[j + 1], i * size + j + 1)
        if j == 0 and i + 1 < size:
            count = _push(waiting, places, count, base + firsts[i + 1] + seconds[0], (i + 1) * size)
    return sums, pairs


@inlined
def _is_before(value, place, other, elsewhere):
    """Whether a sum is larger than another one, or as large and of an earlier pair."""
    return value > other or (value == other and place < elsewhere)


@inlined
def _push(waiting, places, count, value, place):
    """Adds a sum to a heap of that many; one that is impossible is none. Returns their number."""
    if not value > -np.inf:
        return count
    at = count
    while at > 0 and _is_before(value, place, waiting[(at - 1) // 2], places[(at - 1) // 2]):
        waiting[at], places[at] = waiting[(at - 1) // 2], places[(at - 1) // 2]
        at = (at - 1) // 2
    waiting[at], places[at] = value, place
    return count + 1


@inlined
def _sift(waiting, places, count, value, place):
    """Puts a sum in place of the largest one of a heap, which then has that many."""
    at, child = 0, 1
    while child < count:
        if child + 1 < count and _is_before(waiting[child + 1], places[child + 1], waiting[child], places[child]):
            child += 1
        if _is_before(value, place, waiting[child], places[child]):
            break
        waiting[at], places[at] = waiting[child], places[child]
        at, child = child, 2 * child + 1
    waiting[at], places[at] = value, place
