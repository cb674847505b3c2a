"""Maximal flows by incremental breadth-first search (Goldberg et al. 2011).

Two forests of shortest paths grow towards each other: one from the nodes of positive excess, the sources, and one
against the arcs from those of negative excess, the sinks. Where they meet, flow is sent. An arc that is then full makes
an orphan of the node below it, which is adopted by a neighbour at the same or a larger distance, or leaves its forest.
So the next path need not be searched from the beginning. Distances never fall, hence there are at most O(N²) of these
steps, as for Dinic's algorithm.
"""

import numpy as np

from structsmooth.compiled.jit import compiled, inlined

# Tuples that the functions take; sides, and their forests, are 0 for the sources and 1 for the sinks:
#   graph, flow: see .compiled
#   trees: side of each node or -1, distance to the root of its tree, arc to its parent
#   fringe: nodes of the largest distance on each side [2, N], their numbers [2], that distance [2], and where a node
#           was last listed [N]
#   work: trees, fringe, nodes to scan [N], and for orphans: nodes that have lost their parents, those that have lost
#         their distances, nodes to come [N]; arcs to parents that are on offer [N], the first node to which each
#         distance is offered [N + 2], and the one after each [N]

_NO_PARENT, _ROOT = -1, -2


@compiled
def new_work(nodes):
    """Arrays for :func:`maximize_flow`."""
    trees = np.empty(nodes, np.int8), np.empty(nodes, np.int32), np.empty(nodes, np.int32)
    fringe = np.empty((2, nodes), np.int32), np.empty(2, np.int64), np.empty(2, np.int64), np.empty(nodes, np.int32)
    orphans, lost, later = np.empty(nodes, np.int32), np.empty(nodes, np.int32), np.empty(nodes, np.int32)
    offers = np.empty(nodes, np.int32), np.full(nodes + 2, -1, np.int32), np.empty(nodes, np.int32)
    return trees, fringe, np.empty(nodes, np.int32), (orphans, lost, later, offers)


@compiled
def maximize_flow(graph, flow, work):
    """Augment to a maximal flow; labels go to ``closed``. False if the flow is infinite: no outputs.

    Afterwards exactly the nodes that can be reached from one of positive excess are closed. Closed nodes stay so
    while capacities grow elsewhere, hence a flow can be continued.
    """
    (side, _, _), (listed, count, limit, _), scanned, _ = work
    closed = flow[2]
    _plant(flow, work)
    while min(count[0], count[1]) > 0:
        # The side with the smaller fringe grows, since it has fewer arcs to look at.
        forest = 0 if count[0] <= count[1] else 1
        number, count[forest] = count[forest], 0
        limit[forest] += 1
        for i in range(number):
            scanned[i] = listed[forest, i]
        for i in range(number):
            if not _grow(scanned[i], forest, graph, flow, work):
                return False
    if count[0] > 0:
        _close(graph, flow, scanned)
    else:  # the sources have reached what they can
        for v in range(closed.shape[0]):
            closed[v] = closed[v] or side[v] == 0
    return True


@inlined
def _list(v, forest, distance, fringe):
    """Node ``v`` is to be scanned when its side grows next."""
    listed, count, limit, at = fringe
    if distance == limit[forest] and at[v] != 2 * distance + forest:
        at[v] = 2 * distance + forest
        listed[forest, count[forest]] = v
        count[forest] += 1


@inlined
def _down(arc, forest, sisters):
    """The arc whose capacity a node needs to have the head of ``arc`` for its parent."""
    return arc if forest else sisters[arc]


@inlined
def _up(arc, forest, sisters):
    """The arc whose capacity the head of ``arc`` needs to have the tail for its parent."""
    return sisters[arc] if forest else arc


@compiled
def _plant(flow, work):
    """Roots of the trees: nodes of some excess that are not closed."""
    excess, _, closed = flow
    (side, distance, parent), fringe, _, _ = work
    _, count, limit, at = fringe
    count[:] = 0
    limit[:] = 0
    for v in range(side.shape[0]):
        side[v], at[v] = -1, -1
        if excess[v] != 0.0 and not closed[v]:
            forest = 0 if excess[v] > 0.0 else 1
            side[v], distance[v], parent[v], at[v] = forest, 0, _ROOT, forest
            fringe[0][forest, count[forest]] = v
            count[forest] += 1


@compiled
def _grow(v, forest, graph, flow, work):
    """Add the neighbours of ``v`` to its tree, and send flow to those of the other side; false if it is unlimited."""
    offsets, sisters, heads, _ = graph
    _, residual, closed = flow
    (side, distance, parent), fringe, _, _ = work
    level = fringe[2][forest] - 1
    for arc in range(offsets[v], offsets[v + 1]):
        other = heads[arc]
        # The same arc again after each augmentation, until it is full, its head is of the same side, or ``v`` itself
        # has lost its place on this level.
        while (
            side[v] == forest
            and distance[v] == level
            and residual[_up(arc, forest, sisters)] > 0.0
            and not closed[other]
        ):
            if side[other] == forest:
                break
            if side[other] < 0:
                side[other], distance[other], parent[other] = forest, level + 1, sisters[arc]
                _list(other, forest, level + 1, fringe)
                break
            if not _augment(_up(arc, forest, sisters), graph, flow, work):
                return False
    return True


@compiled
def _augment(bridge, graph, flow, work):
    """Send what a path can carry over the arc ``bridge`` from one side to the other; false if it is unlimited."""
    _, sisters, heads, _ = graph
    excess, residual, _ = flow
    parent, orphans = work[0][2], work[3][0]
    amount = residual[bridge]
    for forest in range(2):
        v = heads[bridge if forest else sisters[bridge]]
        while parent[v] != _ROOT:
            amount = min(amount, residual[_down(parent[v], forest, sisters)])
            v = heads[parent[v]]
        amount = min(amount, abs(excess[v]))
    if amount == np.inf:
        return False
    residual[bridge] -= amount
    residual[sisters[bridge]] += amount
    for forest in range(2):
        v, first = heads[bridge if forest else sisters[bridge]], orphans.shape[0]
        while parent[v] != _ROOT:
            arc, above = _down(parent[v], forest, sisters), heads[parent[v]]
            residual[arc] -= amount
            residual[sisters[arc]] += amount
            if residual[arc] == 0.0:
                parent[v] = _NO_PARENT
                # From the meeting point to the root distances fall, and orphans are listed from the end: so the nearest
                # are first.
                first -= 1
                orphans[first] = v
            v = above
        excess[v] -= amount if forest == 0 else -amount
        if excess[v] == 0.0:
            parent[v] = _NO_PARENT
            first -= 1
            orphans[first] = v
        if first < orphans.shape[0]:
            _adopt(_lose(first, forest, graph, flow, work), forest, graph, flow, work)
    return True


@compiled
def _lose(first, forest, graph, flow, work):
    """Find the nodes that have no path of the same length any more, by distance; returns how many there are.

    ``orphans`` from ``first`` on have lost their parents, those of the least distance first. An orphan that has another
    neighbour just above takes that for its parent. Else it is lost, and its children are orphans.
    """
    offsets, sisters, heads, _ = graph
    residual = flow[1]
    side, distance, parent = work[0]
    orphans, lost, children, _ = work[3]
    count, taken, born = 0, 0, 0
    while first < orphans.shape[0] or taken < born:
        if taken == born or (first < orphans.shape[0] and distance[orphans[first]] <= distance[children[taken]]):
            v = orphans[first]
            first += 1
        else:
            v = children[taken]
            taken += 1
        for arc in range(offsets[v], offsets[v + 1]):
            other = heads[arc]
            if (
                distance[other] == distance[v] - 1
                and side[other] == forest
                and parent[other] != _NO_PARENT
                and residual[_down(arc, forest, sisters)] > 0.0
            ):
                parent[v] = arc
                break
        if parent[v] != _NO_PARENT:
            continue
        lost[count] = v
        count += 1
        for arc in range(offsets[v], offsets[v + 1]):
            child = heads[arc]
            if side[child] == forest and parent[child] == sisters[arc]:
                parent[child] = _NO_PARENT
                children[born] = child
                born += 1
    return count


@compiled
def _adopt(count, forest, graph, flow, work):
    """New parents and distances for the first ``count`` nodes that are lost; those too far away leave their side.

    Neighbours that are not lost offer distances, and those who take one make offers to others, by distance.
    """
    offsets, sisters, heads, _ = graph
    residual = flow[1]
    (side, distance, parent), fringe, _, (_, lost, later, (offer, first, following)) = work
    limit = fringe[2][forest]
    least = limit + 1
    for i in range(count):
        v = lost[i]
        nearest = limit
        for arc in range(offsets[v], offsets[v + 1]):
            other = heads[arc]
            if (
                distance[other] < nearest
                and side[other] == forest
                and parent[other] != _NO_PARENT
                and residual[_down(arc, forest, sisters)] > 0.0
            ):
                nearest, offer[v] = distance[other], arc
        distance[v] = nearest + 1
        if nearest < limit:
            following[v] = first[nearest + 1]
            first[nearest + 1] = v
            least = min(least, nearest + 1)
    taken, made = 0, 0
    for length in range(least, limit + 1):
        v = first[length]
        first[length] = -1
        while True:
            if v < 0:
                if taken == made or distance[later[taken]] > length:
                    break
                node = later[taken]
                taken += 1
            else:
                node, v = v, following[v]
            if parent[node] != _NO_PARENT or distance[node] != length:
                continue
            parent[node] = offer[node]
            _list(node, forest, length, fringe)
            for arc in range(offsets[node], offsets[node + 1]):
                other = heads[arc]
                if (
                    side[other] == forest
                    and parent[other] == _NO_PARENT
                    and length + 1 < distance[other]
                    and length < limit
                    and residual[_up(arc, forest, sisters)] > 0.0
                ):
                    distance[other], offer[other] = length + 1, sisters[arc]
                    later[made] = other
                    made += 1
    for i in range(count):
        if parent[lost[i]] == _NO_PARENT:
            side[lost[i]] = -1


@compiled
def _close(graph, flow, reached):
    """Close the nodes that can be reached from those of positive excess."""
    offsets, _, heads, _ = graph
    excess, residual, closed = flow
    count, i = 0, 0
    for v in range(excess.shape[0]):
        if excess[v] > 0.0 and not closed[v]:
            closed[v], reached[count] = True, v
            count += 1
    while i < count:
        v = reached[i]
        i += 1
        for arc in range(offsets[v], offsets[v + 1]):
            other = heads[arc]
            if residual[arc] > 0.0 and not closed[other]:
                closed[other], reached[count] = True, other
                count += 1
