"""Which pairs of labels have a score: none, all, or a tree of those that depend the most on each other."""

from typing import Literal

import numpy as np
from numpy.typing import NDArray

LabelPairs = Literal["auto", "none", "tree", "full"]
# Up to this many labels, all pairs have a score by default.
_FEW = 30


def label_pairs(present: NDArray[np.bool_], pairs: LabelPairs) -> list[tuple[int, int]]:
    """The pairs (a, b), a < b, of the labels of examples ``present`` [n, L]."""
    count = present.shape[1]
    if pairs == "auto":
        pairs = "full" if count <= _FEW else "tree"
    if pairs == "none" or count < 2:
        return []
    if pairs == "full":
        return [(a, b) for a in range(count) for b in range(a + 1, count)]
    return spanning_tree(mutual_information(present))


def mutual_information(present: NDArray[np.bool_]) -> NDArray[np.float64]:
    """Mutual information of each pair of labels, in nats: [L, L]."""
    n, x = len(present), present.astype(np.float64)
    both = x.T @ x / n
    own = np.diag(both)
    first, second = np.broadcast_arrays(own[:, None], own[None, :])
    total = np.zeros_like(both)
    for joint, product in (
        (both, first * second),
        (first - both, first * (1 - second)),
        (second - both, (1 - first) * second),
        (1 - first - second + both, (1 - first) * (1 - second)),
    ):
        used = joint > 1e-12
        total[used] += joint[used] * np.log(joint[used] / product[used])
    return total


def spanning_tree(weights: NDArray[np.float64]) -> list[tuple[int, int]]:
    """The edges of a tree of the largest weight (Prim 1957): that of Chow and Liu (1968) for mutual information."""
    count = len(weights)
    best, parent = weights[0].copy(), np.zeros(count, dtype=np.int64)
    inside = np.arange(count) == 0
    edges = []
    for _ in range(count - 1):
        v = int(np.where(inside, -np.inf, best).argmax())
        edges.append((min(v, int(parent[v])), max(v, int(parent[v]))))
        inside[v] = True
        closer = weights[v] > best
        best, parent = np.where(closer, weights[v], best), np.where(closer, v, parent)
    return sorted(edges)
