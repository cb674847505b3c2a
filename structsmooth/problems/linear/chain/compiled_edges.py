"""Which rows of the summed edges [S, S] of an example are in use: those of the labels that its outputs go through.

Where labels are many, these are few. All other rows are zero, and nothing reads them. A tuple ``used`` has the numbers
of the rows in use [S], which rows these are [S], and how many [1].
"""

import numpy as np

from structsmooth.compiled.jit import compiled, inlined, uncounted


@inlined
def no_edges(states):
    """No row is in use."""
    return np.empty(states, np.int64), np.zeros(states, np.bool_), np.zeros(1, np.int64)


@uncounted
def use(used, p):
    """Row p of the edges is in use."""
    numbers, is_used, count = used
    if not is_used[p]:
        is_used[p], numbers[count[0]] = True, p
        count[0] += 1


@compiled
def use_all(used):
    """All rows of the edges are in use."""
    for p in range(used[0].shape[0]):
        use(used, p)


@compiled
def clear(edge, used):
    """The rows of the edges that are in use become zero."""
    numbers, _, count = used
    for j in range(count[0]):
        for s in range(edge.shape[1]):
            edge[numbers[j], s] = 0.0


@compiled
def use_none(used):
    """No row of the edges is in use, after all are clear."""
    numbers, is_used, count = used
    for j in range(count[0]):
        is_used[numbers[j]] = False
    count[0] = 0
