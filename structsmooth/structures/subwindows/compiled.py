"""Efficient subwindow search: the boxes of largest sum in a map of scores.

A box x1, y1, x2, y2 holds the columns from x1 to x2 - 1 and the rows from y1 to y2 - 1. A set of boxes is eight
numbers: the least x1, y1, x2, y2, and the largest. The least satisfy x1 < x2 and y1 < y2, and so do the largest: no
set is empty, and the least are its lowest box.
"""

import numpy as np

from structsmooth.compiled.jit import compiled, entry_point, inlined

_INITIAL_CAPACITY = 1024


@compiled
def sums_over_rows(scores, positive, negative, forbidden):
    """Sums of positive and of negative scores, and numbers of scores of -inf, over all rows above: [H + 1, W]."""
    height, width = scores.shape
    any_forbidden = False
    for x in range(width):
        positive[0, x], negative[0, x], forbidden[0, x] = 0.0, 0.0, 0
    for y in range(height):
        for x in range(width):
            score = scores[y, x]
            banned = score == -np.inf
            any_forbidden |= banned
            positive[y + 1, x] = positive[y, x] + max(score, 0.0)
            negative[y + 1, x] = negative[y, x] + (0.0 if banned else min(score, 0.0))
            forbidden[y + 1, x] = forbidden[y, x] + banned
    return any_forbidden


@compiled
def upper_bound(boxes, positive, negative, forbidden, any_forbidden, column):
    """Upper bound on the sum over a box of a set.

    Over rows it is the bound of Lampert et al.: the positive scores of the tallest box and the negative scores of the
    shortest one. Given these, one scan (Kadane) finds the best choice of columns. So the bound is exact once the rows
    are fixed, and before that tighter than a bound over columns too. ``column`` [W] is scratch.
    """
    x1_least, y1_least, x2_least, y2_least, x1_most, y1_most, x2_most, y2_most = boxes
    for x in range(x1_least, x2_most):
        column[x] = positive[y2_most, x] - positive[y1_least, x]
    # Otherwise the rows that all boxes of the set share are none, and so are their negative scores.
    if y1_most < y2_least:
        for x in range(x1_least, x2_most):
            column[x] += negative[y2_least, x] - negative[y1_most, x]
        if any_forbidden:
            for x in range(x1_least, x2_most):
                if forbidden[y2_least, x] > forbidden[y1_most, x]:
                    column[x] = -np.inf
    best, run = -np.inf, -np.inf
    for x in range(x1_least, x2_most):
        # Kadane's scan within the set: a run may begin at x1 <= x1_most alone, and counts from x2 >= x2_least on.
        if x <= x1_most:
            run = max(run, 0.0)
        run += column[x]
        if x + 1 >= x2_least:
            best = max(best, run)
    return best


@inlined
def widest(boxes, first, second):
    """The one of two of the four coordinates that has more possible values."""
    return first if boxes[4 + first] - boxes[first] >= boxes[4 + second] - boxes[second] else second


@compiled
def split(boxes, part, half):
    """``part`` becomes the lower or upper half of the set, rows being split before columns; false for a single box."""
    i = widest(boxes, 1, 3)
    if boxes[i] == boxes[4 + i]:
        i = widest(boxes, 0, 2)
    middle = (boxes[i] + boxes[4 + i]) // 2
    for j in range(8):
        part[j] = boxes[j]
    if half == 0:
        part[4 + i] = middle
    else:
        part[i] = middle + 1
    # The half may have lost pairs with x1 >= x2: the largest x1 is below the largest x2, and the least x2 above the
    # least x1.
    for j in range(2):
        part[4 + j] = min(part[4 + j], part[6 + j] - 1)
        part[2 + j] = max(part[2 + j], part[j] + 1)
    return boxes[i] < boxes[4 + i]


@inlined
def precedes(bound, boxes, other_bound, other_boxes):
    """Whether a set is searched before another, by its bound and then by its lowest box."""
    if bound != other_bound:
        return bound > other_bound
    for j in range(4):
        if boxes[j] != other_boxes[j]:
            return boxes[j] < other_boxes[j]
    return False


@compiled
def push(bounds, sets, size, bound, boxes):
    """Put a set into a heap of ``size`` others."""
    i = size
    while i > 0:
        above = (i - 1) // 2
        if not precedes(bound, boxes, bounds[above], sets[above]):
            break
        bounds[i] = bounds[above]
        sets[i] = sets[above]
        i = above
    bounds[i] = bound
    sets[i] = boxes


@compiled
def pop(bounds, sets, size, boxes):
    """Take the first set out of a heap of ``size`` into ``boxes``; returns its bound."""
    first = bounds[0]
    boxes[:] = sets[0]
    size -= 1
    i, below = 0, 1
    while below < size:
        if below + 1 < size and precedes(bounds[below + 1], sets[below + 1], bounds[below], sets[below]):
            below += 1
        if not precedes(bounds[below], sets[below], bounds[size], sets[size]):
            break
        bounds[i] = bounds[below]
        sets[i] = sets[below]
        i, below = below, 2 * below + 1
    bounds[i] = bounds[size]
    sets[i] = sets[size]
    return first


@compiled
def enlarged(bounds, sets, max_sets):
    """A full heap, with its capacity doubled."""
    size = len(bounds)
    capacity = min(2 * size, max_sets)
    more_bounds, more_sets = np.empty(capacity), np.empty((capacity, 8), np.int32)
    more_bounds[:size], more_sets[:size] = bounds, sets
    return more_bounds, more_sets


@compiled
def search(scores, k, max_sets, values, found, positive, negative, forbidden, column):
    """Best-first search (Algorithm 13): fills ``values`` [k] and ``found`` [k, 4]; false if the heap grows too large.

    Rows are split first, so until the first box is found there are no more sets than pairs of rows.
    """
    height, width = scores.shape
    any_forbidden = sums_over_rows(scores, positive, negative, forbidden)
    capacity = min(_INITIAL_CAPACITY, max_sets)
    bounds, sets = np.empty(capacity), np.empty((capacity, 8), np.int32)
    boxes, part = np.empty(8, np.int32), np.empty(8, np.int32)
    part[0], part[1], part[2], part[3] = 0, 0, 1, 1
    part[4], part[5], part[6], part[7] = width - 1, height - 1, width, height
    size, slot = 0, 0
    bound = upper_bound(part, positive, negative, forbidden, any_forbidden, column)
    if bound > -np.inf:
        push(bounds, sets, size, bound, part)
        size = 1
    while size > 0 and slot < k:
        whole = pop(bounds, sets, size, boxes)
        size -= 1
        if not split(boxes, part, 0):
            values[slot] = whole
            found[slot] = boxes[:4]
            slot += 1
            continue
        for half in range(2):
            split(boxes, part, half)
            bound = upper_bound(part, positive, negative, forbidden, any_forbidden, column)
            if bound == -np.inf:
                continue
            if size == max_sets:
                return False
            if size == len(bounds):
                bounds, sets = enlarged(bounds, sets, max_sets)
            # Rounding must not let a part come before what was found earlier.
            push(bounds, sets, size, min(bound, whole), part)
            size += 1
    return True


@entry_point
def batch_search(scores, k, max_sets, values, found, done, begin, end):
    """Search maps ``begin`` to ``end``: scores [B, H, W], values [B, k] of -inf, zero found [B, k, 4], done [B]."""
    _, height, width = scores.shape
    positive, negative = np.empty((height + 1, width)), np.empty((height + 1, width))
    forbidden, column = np.empty((height + 1, width), np.int32), np.empty(width)
    for b in range(begin, end):
        done[b] = search(scores[b], k, max_sets, values[b], found[b], positive, negative, forbidden, column)
