"""Passes over a program for one example, and loops over a batch of them.

A program is a tuple of int32 arrays ``rows`` [N + 1], ``left``, ``right`` and ``index`` [E]: the edges into node v are
``rows[v]`` to ``rows[v + 1]``. A missing tail is N, and a missing score is P: further slots of the values of nodes
and of the scores ``theta`` [P + 1] hold zeros, so that loops need no branch. All sums are float64.
"""

import numpy as np

from structsmooth.compiled.jit import compiled, entry_point
from structsmooth.compiled.k_best import SHORT, insert, largest_sums, merge
from structsmooth.structures.chain.compiled import inverse_cdf


@entry_point
def by_head(head, left, right, index, nodes, scores):
    """The program of edges in any order, int32 [E] each; those of one head keep their order, which breaks ties."""
    rows = np.zeros(nodes + 1, np.int32)
    for e in range(head.shape[0]):
        rows[head[e] + 1] += 1
    rows[:] = np.cumsum(rows)
    sorted_left, sorted_right, sorted_index = np.empty_like(left), np.empty_like(right), np.empty_like(index)
    place = rows.copy()
    for e in range(head.shape[0]):
        to = place[head[e]]
        place[head[e]] += 1
        sorted_left[to] = left[e] if left[e] >= 0 else nodes
        sorted_right[to] = right[e] if right[e] >= 0 else nodes
        sorted_index[to] = index[e] if index[e] >= 0 else scores
    return rows, sorted_left, sorted_right, sorted_index


@entry_point
def measure(program, scores):
    """Level of each node, and the largest numbers of nodes and of scores in a derivation from it: int64 [N] each."""
    rows, left, right, index = program
    nodes = rows.shape[0] - 1
    level, visited = np.zeros(nodes + 1, np.int64), np.zeros(nodes + 1, np.int64)
    used = np.zeros(nodes + 1, np.int64)
    for v in range(nodes):
        for e in range(rows[v], rows[v + 1]):
            level[v] = max(level[v], level[left[e]], level[right[e]])
            visited[v] = max(visited[v], visited[left[e]] + visited[right[e]])
            used[v] = max(used[v], used[left[e]] + used[right[e]] + (index[e] < scores))
        level[v] += 1
        visited[v] += 1
    return level[:nodes], visited[:nodes], used[:nodes]


@compiled
def _load(scores, theta):
    """Scores [P] in ``theta`` [P + 1], with 0 for a missing one."""
    for i in range(scores.shape[0]):
        theta[i] = scores[i]
    theta[scores.shape[0]] = 0.0


@compiled
def _copy(source, target):
    for i in range(target.shape[0]):
        target[i] = source[i]


@compiled
def max_product(program, theta, root, value, choice):
    """Fills ``value`` [N + 1] and ``choice`` [N], the best edge into each node; -1 where there is none."""
    rows, left, right, index = program
    value[rows.shape[0] - 1] = 0.0
    # V(v) = max over edges e into v of {θ(e) + V(left of e) + V(right of e)}; tails have lower numbers than heads, and
    # nodes above the root are not in its derivations.
    for v in range(root + 1):
        best, argument = -np.inf, -1
        for e in range(rows[v], rows[v + 1]):
            score = theta[index[e]] + value[left[e]] + value[right[e]]
            if score > best:
                best, argument = score, e
        value[v] = best
        choice[v] = argument


@compiled
def follow(program, missing, choice, root, stack, used):
    """Writes the scores of the chosen derivation from the root to ``used``; ``missing`` stands for none."""
    rows, left, right, index = program
    nodes = rows.shape[0] - 1
    stack[0] = root
    count, top = 0, 1
    while top > 0:
        top -= 1
        e = choice[stack[top]]
        if index[e] < missing:
            used[count] = index[e]
            count += 1
        # Right before left: the stack gives the left tail first, so that scores come in the order of the output.
        if right[e] < nodes:
            stack[top] = right[e]
            top += 1
        if left[e] < nodes:
            stack[top] = left[e]
            top += 1


@compiled
def insert_pairs(firsts, seconds, base, entry, best, origin):
    """Adds sums of entries of two lists [k] to the ``best`` ones, with their ranks added to ``entry`` as origins.

    Only pairs of ranks (i, j) with (i + 1) (j + 1) <= k can be among the k best.
    """
    k, last = best.shape[0], best.shape[0] - 1
    if k > SHORT:
        _merge_pairs(firsts, seconds, base, entry, best, origin)
        return
    # Other pairs have k better ones, whose ranks are no higher: (i + 1) (j + 1) counts these and the pair itself.
    for i in range(k):
        if not base + firsts[i] + seconds[0] > best[last]:
            break
        for j in range(k // (i + 1)):
            score = base + firsts[i] + seconds[j]
            if not score > best[last]:
                break
            insert(best, origin, score, entry + i * k + j)


@compiled
def _merge_pairs(firsts, seconds, base, entry, best, origin):
    """:func:`insert_pairs` in time O(k log k), or O(k) if one of the lists has a single entry."""
    k = best.shape[0]
    if firsts[1] == -np.inf:
        merge(best, origin, seconds, base + firsts[0], entry, 1)
    # Only for a value of zero: another one, added to ``base`` first, would round differently than in ``max_product``.
    elif seconds[0] == 0.0 and seconds[1] == -np.inf:
        merge(best, origin, firsts, base, entry, k)
    else:
        sums, pairs = largest_sums(firsts, seconds, base, best)
        # Origins from -k to -1 mark what is new, as entries are never negative, until the loop gives each its pair.
        merge(best, origin, sums, 0.0, -k, 1)  # which marks them
        for slot in range(k):
            if -k <= origin[slot] < 0:
                origin[slot] = entry + pairs[k + origin[slot]]


@compiled
def top_k(program, theta, root, k, value, back):
    """Fills ``value`` [N + 1, k] and ``back`` [N, k], whose entries are (edge k + rank of left) k + rank of right."""
    rows, left, right, index = program
    last = k - 1
    # A missing tail has one derivation, the empty one.
    value[rows.shape[0] - 1] = -np.inf
    value[rows.shape[0] - 1, 0] = 0.0
    for v in range(root + 1):
        for i in range(k):
            value[v, i] = -np.inf
        # V^(k)(v): the K best of θ(e) + V^(i)(left of e) + V^(j)(right of e) over e, i and j.
        for e in range(rows[v], rows[v + 1]):
            base = theta[index[e]]
            if base + value[left[e], 0] + value[right[e], 0] > value[v, last]:
                insert_pairs(value[left[e]], value[right[e]], base, np.int64(e) * k * k, value[v], back[v])


@compiled
def follow_rank(program, missing, k, back, root, rank, stack, ranks, used):
    """As :func:`follow`, for the derivation of a rank."""
    rows, left, right, index = program
    nodes = rows.shape[0] - 1
    stack[0], ranks[0] = root, rank
    count, top = 0, 1
    while top > 0:
        top -= 1
        entry = back[stack[top], ranks[top]]
        e = entry // (k * k)
        if index[e] < missing:
            used[count] = index[e]
            count += 1
        if right[e] < nodes:
            stack[top], ranks[top] = right[e], entry % k
            top += 1
        if left[e] < nodes:
            stack[top], ranks[top] = left[e], entry // k % k
            top += 1


@compiled
def log_partition(program, theta, root, value, share):
    """Log-sums of the derivations from each node in ``value`` [N + 1], of each edge its ``share`` [E] of its node's."""
    rows, left, right, index = program
    value[rows.shape[0] - 1] = 0.0
    # Z(v) = log Σ over edges e into v of exp{θ(e) + Z(left of e) + Z(right of e)}; a share is one term over the sum.
    for v in range(root + 1):
        begin, end = rows[v], rows[v + 1]
        if end == begin + 1:  # most nodes of parsers
            value[v] = theta[index[begin]] + value[left[begin]] + value[right[begin]]
            share[begin] = 1.0 if value[v] > -np.inf else 0.0
            continue
        largest = -np.inf
        for e in range(begin, end):
            score = theta[index[e]] + value[left[e]] + value[right[e]]
            share[e] = score
            largest = max(largest, score)
        if not largest > -np.inf:
            value[v] = -np.inf
            for e in range(begin, end):
                share[e] = 0.0
            continue
        total = 0.0
        for e in range(begin, end):
            share[e] = np.exp(share[e] - largest)
            total += share[e]
        scale = 1.0 / total
        for e in range(begin, end):
            share[e] *= scale
        value[v] = largest + np.log(total)


@compiled
def outside(program, root, share, adjoint, parts):
    """Adds the probabilities of scores to ``parts`` [P + 1]; those of nodes are in ``adjoint`` [N + 1] afterwards."""
    rows, left, right, index = program
    for v in range(root):
        adjoint[v] = 0.0
    adjoint[root] = 1.0
    # P(e) = P(head of e) share(e), and P(v) = Σ over edges e with v as a tail of P(e). The slot of the missing tail
    # gathers a sum that nothing reads.
    for v in range(root, -1, -1):
        weight = adjoint[v]
        if weight > 0.0:
            for e in range(rows[v], rows[v + 1]):
                probability = weight * share[e]
                parts[index[e]] += probability
                adjoint[left[e]] += probability
                adjoint[right[e]] += probability


@compiled
def tangents(program, direction, root, share, value, adjoint, slope, parts):
    """Derivatives of the probabilities in a ``direction`` [P + 1] of the scores, added to ``parts`` [P + 1].

    ``share`` and the probabilities ``adjoint`` of nodes are from :func:`outside`; ``value``, ``slope`` [N + 1] are
    scratch. The derivative of the share p of an edge is p (ds − Σ p ds), with ds that of its score.
    """
    rows, left, right, index = program
    nodes = rows.shape[0] - 1
    value[nodes] = 0.0
    for v in range(root + 1):
        total = 0.0
        for e in range(rows[v], rows[v + 1]):
            total += share[e] * (direction[index[e]] + value[left[e]] + value[right[e]])
        value[v] = total
        slope[v] = 0.0
    for v in range(root, -1, -1):
        weight, change = adjoint[v], slope[v]
        if weight > 0.0 or change != 0.0:
            for e in range(rows[v], rows[v + 1]):
                moved = direction[index[e]] + value[left[e]] + value[right[e]] - value[v]
                added = share[e] * (change + weight * moved)
                parts[index[e]] += added
                slope[left[e]] += added
                slope[right[e]] += added


@compiled
def max_outside(program, theta, root, value, around, parts):
    """Largest score of a derivation with each score in ``parts`` [P + 1]; ``value`` is from :func:`max_product`.

    ``around`` [N + 1] is scratch: the best of what is outside of each node.
    """
    rows, left, right, index = program
    nodes = rows.shape[0] - 1
    for v in range(nodes + 1):
        around[v] = -np.inf
    around[root] = 0.0
    # A(left of e) = max over e of {A(head of e) + θ(e) + V(right of e)}, and likewise to the right: ``around`` is A.
    for v in range(root, -1, -1):
        if around[v] > -np.inf:
            for e in range(rows[v], rows[v + 1]):
                first, second, base = value[left[e]], value[right[e]], theta[index[e]] + around[v]
                score = base + first + second
                if score > -np.inf:
                    parts[index[e]] = max(parts[index[e]], score)
                    around[left[e]] = max(around[left[e]], base + second)
                    around[right[e]] = max(around[right[e]], base + first)


@compiled
def max_outside_gradient(program, theta, root, value, choice, around, weights, above, parts):
    """Adds the gradient of the weighted sum of max-marginals to ``parts`` [P + 1], with ``weights`` [P].

    ``value`` and ``choice`` are from :func:`max_product`. ``above`` [N + 1, 3] is scratch: for each node, the edge by
    which the best of what is outside comes, its head, and the other tail.
    """
    rows, left, right, index = program
    nodes, missing = rows.shape[0] - 1, weights.shape[0]
    best, edge, head = np.full(missing + 1, -np.inf), np.full(missing + 1, -1), np.zeros(missing + 1, np.int64)
    around[:] = -np.inf
    around[root] = 0.0
    # ``max_outside`` again, which notes from where each maximum comes.
    for v in range(root, -1, -1):
        if around[v] > -np.inf:
            for e in range(rows[v], rows[v + 1]):
                first, second = left[e], right[e]
                base = theta[index[e]] + around[v]
                if base + value[first] + value[second] > best[index[e]]:
                    best[index[e]] = base + value[first] + value[second]
                    edge[index[e]], head[index[e]] = e, v
                if base + value[second] > around[first]:
                    around[first] = base + value[second]
                    above[first, 0], above[first, 1], above[first, 2] = e, v, second
                if base + value[first] > around[second]:
                    around[second] = base + value[first]
                    above[second, 0], above[second, 1], above[second, 2] = e, v, first
    # How often the best derivations of all scores, weighted, use the best inside and the best outside of each node.
    inside, outer = np.zeros(nodes + 1), np.zeros(nodes + 1)
    for i in range(missing):
        if edge[i] >= 0:
            parts[i] += weights[i]
            outer[head[i]] += weights[i]
            inside[left[edge[i]]] += weights[i]
            inside[right[edge[i]]] += weights[i]
    # Outsides lead to heads, which have higher numbers, and so upwards; insides lead to tails, and so downwards, once
    # the outsides have added the insides of their other tails.
    for v in range(root):
        if outer[v] != 0.0:
            parts[index[above[v, 0]]] += outer[v]
            outer[above[v, 1]] += outer[v]
            inside[above[v, 2]] += outer[v]
    for v in range(root, -1, -1):
        if inside[v] != 0.0:
            e = choice[v]
            parts[index[e]] += inside[v]
            inside[left[e]] += inside[v]
            inside[right[e]] += inside[v]


@compiled
def draw(program, missing, share, uniform, root, stack, used):
    """As :func:`follow`, for a sample: the edge into the d-th visited node is drawn at the number ``uniform[d]``."""
    rows, left, right, index = program
    nodes = rows.shape[0] - 1
    stack[0] = root
    count, top, visited = 0, 1, 0
    while top > 0:
        top -= 1
        v = stack[top]
        e = rows[v] + inverse_cdf(share[rows[v] : rows[v + 1]], uniform[visited])
        visited += 1
        if index[e] < missing:
            used[count] = index[e]
            count += 1
        if right[e] < nodes:
            stack[top] = right[e]
            top += 1
        if left[e] < nodes:
            stack[top] = left[e]
            top += 1


@entry_point
def batch_max(program, depth, scores, roots, values, used, begin, end):
    """Max oracle of examples ``begin`` to ``end``: ``values`` [B], and ``used`` [B, M] of one score at least -inf."""
    nodes, missing = program[0].shape[0] - 1, scores.shape[1]
    theta, value = np.empty(missing + 1), np.empty(nodes + 1)
    choice, stack = np.empty(nodes, np.int32), np.empty(depth + 1, np.int32)
    for b in range(begin, end):
        _load(scores[b], theta)
        max_product(program, theta, roots[b], value, choice)
        values[b] = value[roots[b]]
        if value[roots[b]] > -np.inf:
            follow(program, missing, choice, roots[b], stack, used[b])


@entry_point
def batch_top_k(program, depth, scores, roots, values, used, begin, end):
    """Top-K oracle of examples ``begin`` to ``end``: ``values`` [B, k], and ``used`` [B, k, M]."""
    nodes, missing, k = program[0].shape[0] - 1, scores.shape[1], values.shape[1]
    theta, value, back = np.empty(missing + 1), np.empty((nodes + 1, k)), np.empty((nodes, k), np.int64)
    stack, ranks = np.empty(depth + 1, np.int32), np.empty(depth + 1, np.int32)
    for b in range(begin, end):
        _load(scores[b], theta)
        top_k(program, theta, roots[b], k, value, back)
        for rank in range(k):
            values[b, rank] = value[roots[b], rank]
            if value[roots[b], rank] > -np.inf:
                follow_rank(program, missing, k, back, roots[b], rank, stack, ranks, used[b, rank])


@entry_point
def batch_log_partition(program, scores, roots, values, begin, end):
    """Log-partition [B] of examples ``begin`` to ``end`` alone."""
    theta, value = np.empty(scores.shape[1] + 1), np.empty(program[0].shape[0])
    share = np.empty(program[1].shape[0])
    for b in range(begin, end):
        _load(scores[b], theta)
        log_partition(program, theta, roots[b], value, share)
        values[b] = value[roots[b]]


@entry_point
def batch_marginals(program, scores, roots, values, parts, begin, end):
    """Log-partition [B] and probabilities [B, P] of examples ``begin`` to ``end``."""
    nodes, edges, missing = program[0].shape[0] - 1, program[1].shape[0], scores.shape[1]
    theta, padded = np.empty(missing + 1), np.empty(missing + 1)
    value, adjoint, share = np.empty(nodes + 1), np.zeros(nodes + 1), np.empty(edges)
    for b in range(begin, end):
        _load(scores[b], theta)
        log_partition(program, theta, roots[b], value, share)
        values[b] = value[roots[b]]
        padded[:] = 0.0
        if value[roots[b]] > -np.inf:
            outside(program, roots[b], share, adjoint, padded)
        _copy(padded, parts[b])


@entry_point
def batch_tangents(program, scores, directions, roots, parts, begin, end):
    """Derivatives [B, P] of the probabilities in ``directions`` [B, P] of the scores."""
    nodes, edges, missing = program[0].shape[0] - 1, program[1].shape[0], scores.shape[1]
    theta, direction, padded = np.empty(missing + 1), np.empty(missing + 1), np.empty(missing + 1)
    value, adjoint, slope = np.empty(nodes + 1), np.zeros(nodes + 1), np.zeros(nodes + 1)
    share = np.empty(edges)
    for b in range(begin, end):
        _load(scores[b], theta)
        _load(directions[b], direction)
        log_partition(program, theta, roots[b], value, share)
        padded[:] = 0.0
        if value[roots[b]] > -np.inf:
            outside(program, roots[b], share, adjoint, padded)
            padded[:] = 0.0
            tangents(program, direction, roots[b], share, value, adjoint, slope, padded)
        _copy(padded, parts[b])


@entry_point
def batch_max_marginals(program, scores, roots, parts, begin, end):
    """Max-marginals [B, P] of examples ``begin`` to ``end``."""
    nodes, missing = program[0].shape[0] - 1, scores.shape[1]
    theta, padded = np.empty(missing + 1), np.empty(missing + 1)
    value, around, choice = np.empty(nodes + 1), np.empty(nodes + 1), np.empty(nodes, np.int32)
    for b in range(begin, end):
        _load(scores[b], theta)
        padded[:] = -np.inf
        max_product(program, theta, roots[b], value, choice)
        max_outside(program, theta, roots[b], value, around, padded)
        _copy(padded, parts[b])


@entry_point
def batch_max_marginals_gradient(program, scores, roots, weights, parts, begin, end):
    """Gradient [B, P] of the sum of the max-marginals weighted by ``weights`` [B, P], without those of -inf."""
    nodes, missing = program[0].shape[0] - 1, scores.shape[1]
    theta, padded, weight = np.empty(missing + 1), np.empty(missing + 1), np.empty(missing)
    value, around, choice = np.empty(nodes + 1), np.empty(nodes + 1), np.empty(nodes, np.int32)
    above = np.zeros((nodes + 1, 3), np.int64)
    for b in range(begin, end):
        _load(scores[b], theta)
        _copy(weights[b], weight)
        padded[:] = 0.0
        max_product(program, theta, roots[b], value, choice)
        if value[roots[b]] > -np.inf:
            max_outside_gradient(program, theta, roots[b], value, choice, around, weight, above, padded)
        _copy(padded, parts[b])


@entry_point
def batch_sample(program, depth, scores, roots, uniform, used, begin, end):
    """Samples of examples ``begin`` to ``end`` at ``uniform`` [B, n, D] into ``used`` [B, n, M], -1 before."""
    nodes, edges, missing = program[0].shape[0] - 1, program[1].shape[0], scores.shape[1]
    theta, value, share = np.empty(missing + 1), np.empty(nodes + 1), np.empty(edges)
    stack = np.empty(depth + 1, np.int32)
    for b in range(begin, end):
        _load(scores[b], theta)
        log_partition(program, theta, roots[b], value, share)
        if value[roots[b]] > -np.inf:
            for i in range(used.shape[1]):
                used[b, i] = missing
                draw(program, missing, share, uniform[b, i], roots[b], stack, used[b, i])
