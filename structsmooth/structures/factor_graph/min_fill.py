"""An order in which to eliminate the nodes of a graph."""

from functools import lru_cache
from itertools import combinations
from math import prod

Scope = tuple[int, ...]  # nodes, in ascending order


@lru_cache(maxsize=1024)
def min_fill_order(
    nodes: Scope, edges: tuple[tuple[int, int] | None, ...], sizes: tuple[int, ...], limit: int | None = None
) -> tuple[int, ...]:
    """An order of elimination: next is the node that needs the fewest new edges.

    Nodes have ``sizes`` states. There is no order if a scope of several nodes has more than ``limit`` joint states.
    """
    neighbours: dict[int, set[int]] = {v: set() for v in nodes}
    for edge in edges:
        if edge is not None:
            a, b = edge
            neighbours[a].add(b)
            neighbours[b].add(a)

    def missing(v: int) -> tuple[int, int]:
        pairs = combinations(neighbours[v], 2)
        return sum(b not in neighbours[a] for a, b in pairs), v

    cost = {v: missing(v) for v in nodes}
    order = []
    while cost:
        v = min(cost, key=lambda node: cost[node])
        order.append(v)
        del cost[v]
        adjacent = neighbours.pop(v)
        if limit is not None and adjacent and prod(sizes[a] for a in (v, *adjacent)) > limit:
            return ()
        for a in adjacent:
            neighbours[a] |= adjacent - {a}
            neighbours[a].discard(v)
        for a in {a for node in adjacent for a in (node, *neighbours[node])}:
            cost[a] = missing(a)
    return tuple(order)
