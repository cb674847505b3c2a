"""An order in which to eliminate the nodes of a graph."""

from collections.abc import Callable, Sequence
from functools import lru_cache
from itertools import combinations
from math import prod

Scope = tuple[int, ...]  # nodes; those of tables are in ascending order
Neighbours = dict[int, set[int]]
# Memory is that of all tables, which is therefore limited, too: so many times the limit of one.
_MOST_TABLES = 16
Cost = Callable[[int, Neighbours, Sequence[int]], int]


@lru_cache(maxsize=1024)
def elimination_order(
    nodes: Scope, scopes: tuple[Scope, ...], sizes: tuple[int, ...], limit: int | None = None
) -> tuple[int, ...]:
    """An order of elimination of the nodes of tables over some scopes: the better of two that are greedy.

    Next is the node that joins the fewest pairs of its neighbours anew (min-fill), or whose neighbours have the fewest
    joint states (min-weight). The order whose tables have fewer entries in all is taken: either may need many times as
    many as the other. Nodes have ``sizes`` states. There is no order if in both of them a table of several nodes has
    more than ``limit`` entries, or all tables together more than 16 times as many.

    Reference:
        Koller and Friedman (2009), section 9.4.3.2.
    """
    orders = [_greedy(_neighbours(nodes, scopes), sizes, cost, limit) for cost in (_fill, _weight)]
    found = [(entries, order) for entries, order in orders if len(order) == len(nodes)]
    return min(found, key=lambda pair: pair[0])[1] if found else ()


def _neighbours(nodes: Scope, scopes: Sequence[Scope]) -> Neighbours:
    neighbours: Neighbours = {v: set() for v in nodes}
    for scope in scopes:
        for v in scope:
            neighbours[v].update(scope)
    for v, adjacent in neighbours.items():
        adjacent.discard(v)
    return neighbours


def _fill(v: int, neighbours: Neighbours, sizes: Sequence[int]) -> int:
    """Number of pairs of neighbours that are not joined."""
    return sum(b not in neighbours[a] for a, b in combinations(neighbours[v], 2))


def _weight(v: int, neighbours: Neighbours, sizes: Sequence[int]) -> int:
    """Number of joint states of the neighbours."""
    return prod(sizes[a] for a in neighbours[v])


def _greedy(neighbours: Neighbours, sizes: Sequence[int], cost: Cost, limit: int | None) -> tuple[int, tuple[int, ...]]:
    """Number of entries of all tables, and the order, which ends before a table that is too large."""
    costs = {v: (cost(v, neighbours, sizes), v) for v in neighbours}
    order, entries = [], 0
    while costs:
        v = min(costs, key=costs.__getitem__)
        adjacent = neighbours.pop(v)
        size = sizes[v] * prod(sizes[a] for a in adjacent)
        entries += size
        if limit is not None and adjacent and (size > limit or entries > _MOST_TABLES * limit):
            break
        order.append(v)
        del costs[v]
        for a in adjacent:
            neighbours[a] |= adjacent - {a}
            neighbours[a].discard(v)
        changed = adjacent if cost is _weight else {a for node in adjacent for a in (node, *neighbours[node])}
        costs.update((a, (cost(a, neighbours, sizes), a)) for a in changed)
    return entries, tuple(order)
