"""The best spanning trees of one example, and loops over a batch of them.

Node 0 is the root, and word m is node m + 1. Weights are pairs in lexicographic order: minus the number of children of
the root, where there must be one, and the score. Contraction needs no more than addition and order, so that a tree with
one child of the root is found exactly, at any scale of the scores. Classes of words are 0 for the root and 1 + h L + l.
"""

import numpy as np

from structsmooth.compiled.jit import compiled, entry_point
from structsmooth.structures.best_max_marginal_first.compiled import search_with


@compiled
def _more(count, score, other_count, other_score):
    return count > other_count or (count == other_count and score > other_score)


@compiled
def _choose(graph, forest, v, alive, number):
    """Let the best arc into a node be its head; false if there is none."""
    counts, scores, heads, modifiers = graph
    _, head, arc_head, arc_modifier, dual_count, dual_score = forest
    best_count, best_score, best = -np.inf, -np.inf, -1
    for a in range(number):
        u = alive[a]
        if (
            u != v
            and scores[u, v] > -np.inf
            and (best < 0 or _more(counts[u, v], scores[u, v], best_count, best_score))
        ):
            best_count, best_score, best = counts[u, v], scores[u, v], u
    if best < 0:
        return False
    head[v], arc_head[v], arc_modifier[v] = best, heads[best, v], modifiers[best, v]
    dual_count[v], dual_score[v] = best_count, best_score
    return True


@compiled
def _contract(graph, forest, c, members, size, alive, number):
    """Replace the nodes of a cycle by node ``c``; returns the new number of nodes alive."""
    counts, scores, heads, modifiers = graph
    parent, _, _, _, dual_count, dual_score = forest
    for i in range(size):
        parent[members[i]] = c
    kept = 0
    for a in range(number):
        if parent[alive[a]] != c:
            alive[kept] = alive[a]
            kept += 1
    for a in range(kept):
        u = alive[a]
        scores[u, c], scores[c, u] = -np.inf, -np.inf
        for i in range(size):
            v = members[i]
            # An arc into the cycle takes the place of the arc into the member that it enters, whose weight is the dual
            # value. No sum over the cycle is subtracted: large terms
            # would have to cancel.
            count, score = counts[u, v] - dual_count[v], scores[u, v] - dual_score[v]
            if score > -np.inf and (scores[u, c] == -np.inf or _more(count, score, counts[u, c], scores[u, c])):
                counts[u, c], scores[u, c], heads[u, c], modifiers[u, c] = count, score, heads[u, v], modifiers[u, v]
            # An arc out of the cycle costs nothing but itself, so the best over the members stands for all.
            count, score = counts[v, u], scores[v, u]
            if score > -np.inf and (scores[c, u] == -np.inf or _more(count, score, counts[c, u], scores[c, u])):
                counts[c, u], scores[c, u], heads[c, u], modifiers[c, u] = count, score, heads[v, u], modifiers[v, u]
    alive[kept] = c
    parent[c] = -1
    return kept + 1


@compiled
def best_tree(arcs, single_root, graph, forest, found):
    """Chu-Liu-Edmonds on scores ``arcs`` [n + 1, n + 1], head before modifier: fills ``found`` [n + 1] with heads.

    False if there is no tree. ``graph`` and ``forest`` are scratch, [2 n + 2] and its square; the forest then holds the
    contracted sets and their dual values. Each contraction takes the number of its members times that of nodes.
    """
    counts, scores, heads, modifiers = graph
    parent, head, arc_head, arc_modifier, _, _ = forest
    nodes = arcs.shape[0]
    alive, members, path = np.empty(2 * nodes, np.int64), np.empty(nodes, np.int64), np.empty(2 * nodes, np.int64)
    color = np.zeros(2 * nodes, np.int64)
    for u in range(nodes):
        alive[u], parent[u] = u, -1
        for v in range(nodes):
            # Fewer children of the root come before any score: where there must be one, the best tree has it if any
            # tree has.
            counts[u, v] = -1.0 if u == 0 and single_root else 0.0
            scores[u, v] = arcs[u, v] if v > 0 and u != v else -np.inf
            heads[u, v], modifiers[u, v] = u, v
    number, fresh = nodes, nodes
    for v in range(1, nodes):
        if not _choose(graph, forest, v, alive, number):
            return False
    color[0] = 2
    # A path of heads ends at a node that reaches the root (color 2), or meets itself (color 1): that cycle is
    # contracted, and the path goes on from the new node, which is not on it yet.
    for start in range(1, nodes):
        v, length = start, 0
        while True:
            # The head may have been contracted since it was chosen: go up to the set that is alive.
            while parent[v] >= 0:
                v = parent[v]
            if color[v] == 2:
                break
            if color[v] == 0:
                color[v] = 1
                path[length] = v
                length += 1
                v = head[v]
                continue
            size = 0
            while True:
                length -= 1
                members[size] = path[length]
                size += 1
                if path[length] == v:
                    break
            number = _contract(graph, forest, fresh, members, size, alive, number)
            v = fresh
            fresh += 1
            if not _choose(graph, forest, v, alive, number):
                return False
        for i in range(length):
            color[path[i]] = 2
    # Sets are opened from the last to the first, so a set's own arc is settled before its members'. The member that
    # this arc enters gets it; all others keep theirs, which are the cycle without one arc.
    for c in range(fresh - 1, nodes - 1, -1):
        v = arc_modifier[c]
        while parent[v] != c:
            v = parent[v]
        arc_head[v], arc_modifier[v] = arc_head[c], arc_modifier[c]
    children = 0
    found[0] = 0
    for v in range(1, nodes):
        found[v] = arc_head[v]
        children += found[v] == 0
    return not single_root or children == min(1, nodes - 1)


@compiled
def scratch(nodes):
    """Workspace of :func:`best_tree`: a graph and a forest."""
    square, line = (2 * nodes, 2 * nodes), 2 * nodes
    graph = np.empty(square), np.empty(square), np.empty(square, np.int64), np.empty(square, np.int64)
    sets = np.empty(line, np.int64), np.empty(line, np.int64), np.empty(line, np.int64), np.empty(line, np.int64)
    return graph, (*sets, np.empty(line), np.empty(line))


@compiled
def _class_score(table, labels, m, c):
    """Score of class c of word m, of a table [n n L + n] of which the example uses n words of ``words``."""
    scores, words = table
    arcs = words * words * labels
    return scores[arcs + m] if c == 0 else scores[((c - 1) // labels * words + m) * labels + (c - 1) % labels]


@compiled
def _maximize(problem, allowed, y):
    """The best tree whose classes are allowed [n, 1 + n L], in ``y`` [n]; its score, or -inf."""
    table, labels, single_root, arcs, best, graph, forest, found = problem
    nodes = arcs.shape[0]
    for m in range(nodes - 1):
        arcs[0, m + 1] = _class_score(table, labels, m, 0) if allowed[m, 0] else -np.inf
        for h in range(nodes - 1):
            arcs[h + 1, m + 1], best[h, m] = -np.inf, 0
            for label in range(labels):
                c = 1 + h * labels + label
                if h != m and allowed[m, c] and _class_score(table, labels, m, c) > arcs[h + 1, m + 1]:
                    arcs[h + 1, m + 1], best[h, m] = _class_score(table, labels, m, c), label
    if not best_tree(arcs, single_root, graph, forest, found):
        return -np.inf
    total = 0.0
    for m in range(nodes - 1):
        h = found[m + 1]
        y[m] = 0 if h == 0 else 1 + (h - 1) * labels + best[h - 1, m]
        total += arcs[h, m + 1]
    return total


@compiled
def _bounds(problem, value, bounds):
    """Upper bounds [n, 1 + n L] on the scores of trees with each class, after :func:`_maximize` found the best one.

    The dual value of a set is that of the best arc into it, of what remained of its score. A tree scores at most the
    best score minus what an arc lacks of the dual values of the sets that it enters.
    """
    table, labels, single_root, arcs, _, _, forest, _ = problem
    parent, _, _, _, dual_count, dual_score = forest
    nodes = arcs.shape[0]
    around = np.zeros(2 * nodes, np.bool_)
    for h in range(nodes):
        around[:] = False
        u = h
        while h > 0 and u >= 0:
            around[u] = True
            u = parent[u]
        for m in range(1, nodes):
            count, score, u = -1.0 if h == 0 and single_root else 0.0, 0.0, m
            while u >= 0 and not around[u]:
                count -= dual_count[u]
                score -= dual_score[u]
                u = parent[u]
            for label in range(1 if h == 0 else labels):
                c = 0 if h == 0 else 1 + (h - 1) * labels + label
                reduced = _class_score(table, labels, m - 1, c) + score
                # Counts are whole numbers: below zero, the root would have a second child.
                bounds[m - 1, c] = value + reduced if h != m and count > -0.5 else -np.inf


@compiled
def _problem(table, words, length, labels, single_root):
    graph, forest = scratch(length + 1)
    arcs, best = np.empty((length + 1, length + 1)), np.empty((length, length), np.int64)
    arcs[:] = -np.inf
    return (table, words), labels, single_root, arcs, best, graph, forest, np.empty(length + 1, np.int64)


_search = search_with(_maximize)


@compiled
def _part(words, labels, m, c):
    arcs = words * words * labels
    return arcs + m if c == 0 else ((c - 1) // labels * words + m) * labels + (c - 1) % labels


@entry_point
def batch_top_k(scores, words, lengths, labels, single_root, values, used, begin, end):
    """Top-K of examples ``begin`` to ``end``: ``values`` [B, k] and the parts ``used`` [B, k, n], filled before."""
    k = values.shape[1]
    table = np.empty(scores.shape[1])
    for b in range(begin, end):
        n = lengths[b]
        for i in range(table.shape[0]):
            table[i] = scores[b, i]
        problem = _problem(table, words, n, labels, single_root)
        best, y = np.full(k, -np.inf), np.zeros((k, n), np.int64)
        best[0] = _maximize(problem, np.ones((n, 1 + n * labels), np.bool_), y[0])
        if k > 1 and best[0] > -np.inf:
            bounds = np.empty((n, 1 + n * labels))
            _bounds(problem, best[0], bounds)
            _search(problem, bounds, best, y)
        order = np.argsort(-best, kind="mergesort")
        for i in range(k):
            values[b, i] = best[order[i]]
            if best[order[i]] > -np.inf:
                for m in range(n):
                    used[b, i, m] = _part(words, labels, m, y[order[i], m])


@entry_point
def batch_max_marginals(scores, words, lengths, labels, single_root, weights, out, begin, end):
    """Max-marginals [B, P] of examples ``begin`` to ``end``; with ``weights`` [B, P], the gradient of their sum.

    ``out`` must be -inf, or zero for a gradient; ``weights`` [0, 0] ask for none.
    """
    table, gradient = np.empty(scores.shape[1]), weights.shape[0] > 0
    for b in range(begin, end):
        n = lengths[b]
        for i in range(table.shape[0]):
            table[i] = scores[b, i]
        problem = _problem(table, words, n, labels, single_root)
        allowed, y = np.ones((n, 1 + n * labels), np.bool_), np.empty(n, np.int64)
        for m in range(n):
            allowed[m] = False
            for c in range(1 + n * labels):
                allowed[m, c] = True
                value = _maximize(problem, allowed, y)
                allowed[m, c] = False
                i = _part(words, labels, m, c)
                if value > -np.inf and not gradient:
                    out[b, i] = value
                elif value > -np.inf:
                    for v in range(n):
                        out[b, _part(words, labels, v, y[v])] += weights[b, i]
            allowed[m] = True


batch_max_marginals_gradient = batch_max_marginals
