"""Sampling in proportion to weights that change, by a binary tree of their sums.

Node 1 is the root, node j has the children 2j and 2j + 1, and the leaves are the weights. Each sum is recomputed from
its two terms, so rounding errors do not accumulate as they do in the differences of a Fenwick tree: a weight of zero
is never drawn if there are positive ones.
"""

import numpy as np

from structsmooth.compiled.jit import compiled


@compiled
def sum_tree(weights):
    """A tree over ``weights`` [n], in O(n)."""
    leaves = 1
    while leaves < weights.shape[0]:
        leaves *= 2
    tree = np.zeros(2 * leaves)
    for i in range(weights.shape[0]):
        tree[leaves + i] = weights[i]
    for j in range(leaves - 1, 0, -1):
        tree[j] = tree[2 * j] + tree[2 * j + 1]
    return tree


@compiled
def set_weight(tree, i, weight):
    """Change weight i, in O(log n)."""
    j = tree.shape[0] // 2 + i
    tree[j] = weight
    while j > 1:
        j //= 2
        tree[j] = tree[2 * j] + tree[2 * j + 1]


@compiled
def draw(tree, n, uniform):
    """The index at which the cumulative weights exceed the fraction ``uniform`` in [0, 1) of their sum, in O(log n).

    If all weights are zero, every index is equally likely.
    """
    if tree[1] == 0.0:
        return int(uniform * n)
    leaves, rest, j = tree.shape[0] // 2, uniform * tree[1], 1
    while j < leaves:
        j *= 2
        # Rounding may leave ``rest`` at the sum of both: the right branch is entered only if it has weight.
        if rest >= tree[j] and tree[j + 1] > 0.0:
            rest -= tree[j]
            j += 1
    return j - leaves
