"""Inference in one tree or forest, and loops over a batch of them.

All functions take float64 arrays: ``unary`` [N, S] and ``pairwise`` [N, S, S], entry [v, i, j] for state i of the
parent of v and state j of v. Entries may be minus infinity. All roots hang on one more node, N, that has a single
state, so that a forest is a tree. Ties go to the lowest state.
"""

import numpy as np

from structsmooth.compiled.jit import compiled, entry_point, inlined
from structsmooth.compiled.k_best import largest_sums, merge
from structsmooth.structures.chain.compiled import inverse_cdf


@inlined
def parent_of(parents, v):
    """Parent of v; N for a root."""
    return parents[v] if 0 <= parents[v] < parents.shape[0] else parents.shape[0]


@compiled
def topological_order(parents, mask, order, first, following):
    """Fills ``order`` with the nodes of all trees, parents before children, and returns their number.

    Read backwards, siblings come in the order of their indices. Nodes that are not connected to a root are left out, so
    even unchecked parents do no harm. ``first`` [N + 1], ``following`` [N] are scratch: the lists of children.
    """
    nodes = parents.shape[0]
    for v in range(nodes + 1):
        first[v] = -1
    # Lists grow at the front, so that a node's children come out in falling order.
    for v in range(nodes):
        if mask[v]:
            p = parent_of(parents, v)
            following[v] = first[p]
            first[p] = v
    # Breadth first: ``order`` is its own queue.
    count, expanded, p = 0, 0, nodes
    while True:
        v = first[p]
        while v >= 0:
            order[count] = v
            count += 1
            v = following[v]
        if expanded == count:
            return count
        p = order[expanded]
        expanded += 1


@compiled
def max_product(unary, pairwise, parents, order, score, choice, labels):
    """Max oracle (Algorithm 7): fills ``labels``, returns the value; ``score``, ``choice`` [N, S] are scratch."""
    nodes, states = unary.shape
    total = 0.0
    for v in order:
        for j in range(states):
            score[v, j] = unary[v, j]
    # m_v(i) = max over j of {ψ_v(j) + ψ_{v,ρ(v)}(j, i) + Σ over children c of m_c(j)} (Algorithm 7, line 4), with the
    # parent ρ(v); ``score`` is ψ_v + Σ m_c, complete once all children were visited, and ``choice`` is δ_v.
    for v in order[::-1]:
        p = parent_of(parents, v)
        if p == nodes:
            best = -np.inf
            choice[v, 0] = 0
            for j in range(states):
                if score[v, j] > best:
                    best, choice[v, 0] = score[v, j], j
            total += best
            continue
        for i in range(states):
            best, argument = -np.inf, 0
            for j in range(states):
                value = pairwise[v, i, j] + score[v, j]
                if value > best:
                    best, argument = value, j
            score[p, i] += best
            choice[v, i] = argument
    if total > -np.inf:
        for v in order:
            p = parent_of(parents, v)
            labels[v] = choice[v, labels[p] if p < nodes else 0]
    return total


@compiled
def top_k_scratch(nodes, states, k):
    """Scratch of :func:`top_k`."""
    origin, pick = np.empty((nodes, states, k), np.int64), np.empty((nodes, states, k), np.int64)
    return np.empty((nodes + 1, states, k)), origin, pick, np.empty(k), np.empty(nodes + 1, np.int64)


@compiled
def top_k(unary, pairwise, parents, order, k, values, labels, scratch):
    """Top-K oracle (Algorithm 8): fills ``values`` [k] and ``labels`` [k, N].

    ``score[v, j]`` lists the k best labelings of the branches of v joined to it so far, where v has state j. Once all
    are, ``message`` lists the best of v and its branches for a state i of the parent, ``origin[v, i]`` the states and
    entries they come from. It is joined to the list of the parent; ``pick[v, i]`` are the pairs of entries added.
    """
    score, origin, pick, message, ranks = scratch
    nodes, states = unary.shape
    score[:] = -np.inf
    score[nodes, 0, 0] = 0.0
    for v in order:
        for j in range(states):
            score[v, j, 0] = unary[v, j]
    # m^(k)_v(i) of Algorithm 8, Eq. 66, the K best over j and one entry of each child's list. Children are joined one
    # by one, since the K best of all but one child are enough to find the K best of all.
    for v in order[::-1]:
        p = parent_of(parents, v)
        branch = score[v]
        for i in range(states if p < nodes else 1):
            origins = origin[v, i]
            for slot in range(k):
                message[slot] = -np.inf
            for j in range(states):
                edge = pairwise[v, i, j] if p < nodes else 0.0
                merge(message, origins, branch[j], edge, j * k, 1)
            join(score[p, i], message, pick[v, i])
    for slot in range(k):
        values[slot] = score[nodes, 0, slot]
        if values[slot] > -np.inf:
            read_off(parents, order, origin, pick, slot, labels[slot], ranks)


@inlined
def join(left, right, pick):
    """``left`` becomes the k largest sums of one entry of ``left`` and one of ``right``, both sorted downwards."""
    k = left.shape[0]
    # There is a left[1], since ``max_product`` answers k = 1. The only pair of each slot is (0, slot).
    if left[1] == -np.inf:  # the first branch
        best = left[0]
        for slot in range(k):
            left[slot] = best + right[slot]
            pick[slot] = slot
        return
    joined, pairs = largest_sums(left, right, 0.0, np.full(k, -np.inf))
    for slot in range(k):
        left[slot], pick[slot] = joined[slot], pairs[slot]


@compiled
def read_off(parents, order, origin, pick, slot, labels, ranks):
    """Labels of one output of :func:`top_k`, undoing its steps; ``ranks[v]`` is the entry of the list of v in use."""
    nodes, _, k = origin.shape
    ranks[nodes] = slot
    # Siblings come here in the reverse of the order in which they were joined: ranks[p] is the entry of the list that v
    # was joined to last, and becomes that of the list before.
    for v in order:
        p = parent_of(parents, v)
        i = labels[p] if p < nodes else 0
        pair = pick[v, i, ranks[p]]
        ranks[p] = pair // k
        entry = origin[v, i, pair % k]
        labels[v], ranks[v] = entry // k, entry % k


@compiled
def log_partition(unary, pairwise, parents, order, inside, total, node, edge):
    """Exp oracle (Algorithm 9): fills ``node`` [N, S] and ``edge`` [N, S, S], which must be zero; returns log Z.

    On the way up, ``edge[v, i, j]`` is the weight of state j of v given state i of its parent, relative to the largest
    of j, and ``total[v, i]`` their sum; no weight that matters can underflow. On the way down they become
    probabilities. ``inside``, ``total`` [N, S] are scratch.
    """
    nodes, states = unary.shape
    log_z = 0.0
    for v in order:
        for j in range(states):
            inside[v, j] = unary[v, j]
    # log m_{v→ρ(v)}(i) = log Σ_j exp{ψ_v(j) + ψ_{v,ρ(v)}(j, i) + Σ over children c of log m_{c→v}(j)} (Algorithm 9,
    # line 6); ``inside`` is ψ_v + Σ log m_{c→v}.
    for v in order[::-1]:
        p = parent_of(parents, v)
        if p == nodes:
            log_z += exponentiate(inside[v], node[v], total[v], 0)
            continue
        for i in range(states):
            for j in range(states):
                edge[v, i, j] = pairwise[v, i, j] + inside[v, j]
            inside[p, i] += exponentiate(edge[v, i], edge[v, i], total[v], i)
    # P(y_v = j, y_ρ(v) = i) = P(y_ρ(v) = i) P(y_v = j | y_ρ(v) = i), so that no message goes down.
    for v in order:
        p = parent_of(parents, v)
        if log_z == -np.inf:
            node[v] = 0.0
            edge[v] = 0.0
        elif p == nodes:
            for j in range(states):
                node[v, j] /= total[v, 0]
        else:
            for i in range(states):
                factor = node[p, i] / total[v, i] if total[v, i] > 0.0 else 0.0
                for j in range(states):
                    edge[v, i, j] *= factor
                    node[v, j] += edge[v, i, j]
    return log_z


@inlined
def exponentiate(scores, weights, total, i):
    """``weights`` = exp(scores - largest), ``total[i]`` their sum, zeros if all are -inf; returns log sum exp."""
    largest = -np.inf
    for score in scores:
        largest = max(largest, score)
    total[i] = 0.0
    for j in range(scores.shape[0]):
        weights[j] = np.exp(scores[j] - largest) if largest > -np.inf else 0.0
        total[i] += weights[j]
    return largest + np.log(total[i]) if largest > -np.inf else -np.inf


@compiled
def max_marginals(unary, pairwise, parents, order, message, others, outside, out):
    """Max-marginals: fills ``out`` [N, S].

    ``message[v]`` is what v sends to its parent, ``others[v]`` what the parent had received before. On the way down,
    siblings come in reverse: ``outside[p]`` gathers the messages that the parent received later. [N + 1, S] each.
    """
    nodes, states = unary.shape
    for v in order:
        for j in range(states):
            out[v, j] = unary[v, j]
    outside[nodes], others[:] = 0.0, 0.0
    # ψ_{v;j} (Definition 13) = inside + outside. What a parent has from all children but v is a sum of what came before
    # and after v, not the whole minus the message of v, which may be -inf - (-inf).
    received = 0.0
    for v in order[::-1]:
        p = parent_of(parents, v)
        for i in range(states):
            best = -np.inf
            for j in range(states):
                best = max(best, out[v, j] + (pairwise[v, i, j] if p < nodes else 0.0))
            message[v, i] = best
            others[v, i] = out[p, i] if p < nodes else received
        if p < nodes:
            for i in range(states):
                out[p, i] += message[v, i]
        else:
            received += message[v, 0]
    for v in order:
        p = parent_of(parents, v)
        for j in range(states):
            best = -np.inf
            for i in range(states):
                rest = others[v, i] + outside[p, i]
                best = max(best, rest + (pairwise[v, i, j] if p < nodes else 0.0))
            outside[v, j] = best
            out[v, j] += best
        for i in range(states):
            outside[p, i] += message[v, i]


@entry_point
def batch_top_k(unary, pairwise, parents, mask, k, values, labels, begin, end):
    """Top-K of examples ``begin`` to ``end``: unary [B, N, S], pairwise [B, N, S, S], zero labels [B, k, N]."""
    _, nodes, states = unary.shape
    order, first, following = np.empty((3, nodes + 1), np.int64)
    if k == 1:
        score, choice = np.empty((nodes, states)), np.empty((nodes, states), np.int64)
    else:
        scratch = top_k_scratch(nodes, states, k)
    for b in range(begin, end):
        ordered = order[: topological_order(parents[b], mask[b], order, first, following)]
        if k == 1:
            values[b, 0] = max_product(unary[b], pairwise[b], parents[b], ordered, score, choice, labels[b, 0])
        else:
            top_k(unary[b], pairwise[b], parents[b], ordered, k, values[b], labels[b], scratch)


@entry_point
def batch_marginals(unary, pairwise, parents, mask, values, node, edge, begin, end):
    """Log-partition and marginals of examples ``begin`` to ``end``; ``node``, ``edge`` must be zero."""
    _, nodes, states = unary.shape
    order, first, following = np.empty((3, nodes + 1), np.int64)
    inside, total = np.empty((2, nodes, states))
    for b in range(begin, end):
        ordered = order[: topological_order(parents[b], mask[b], order, first, following)]
        values[b] = log_partition(unary[b], pairwise[b], parents[b], ordered, inside, total, node[b], edge[b])


@compiled
def covariances(marginal, joint, node_direction, edge_direction, parents, order, given, node, edge):
    """Covariances of the parts with the score of a direction: the derivatives of marginals in it.

    ``marginal`` [N, S] and ``joint`` [N, S, S] are those of nodes and edges. Given the state of a node, what the
    direction scores inside its subtree and outside are independent: ``given`` [4, N, S] is scratch for both, for what
    a subtree adds given the state of the parent, and for the mean of the tree. Fills ``node`` and ``edge``.
    """
    nodes, states = marginal.shape
    inside, outside, added, mean = given
    # With the score D of the direction, d P(part) = P(part) (E[D | part] - E[D]). ``inside`` and ``outside`` are E of D
    # in the subtree of v and outside of it, given the state of v.
    for v in order:
        inside[v] = node_direction[v]
    for v in order[::-1]:
        p = parent_of(parents, v)
        if p < nodes:
            for i in range(states):
                expected = 0.0
                for j in range(states):
                    expected += joint[v, i, j] * (edge_direction[v, i, j] + inside[v, j])
                added[v, i] = expected / marginal[p, i] if marginal[p, i] > 0.0 else 0.0
                inside[p, i] += added[v, i]
    for v in order:
        p = parent_of(parents, v)
        outside[v] = 0.0
        # Trees of a forest are independent: what other trees score cancels.
        mean[v] = mean[p, 0] if p < nodes else (marginal[v] * inside[v]).sum()
        if p < nodes:
            for i in range(states):
                # Expectations are finite, so those of one child can be subtracted, unlike scores in ``max_marginals``.
                around = outside[p, i] + inside[p, i] - added[v, i]
                for j in range(states):
                    expected = edge_direction[v, i, j] + around
                    edge[v, i, j] = joint[v, i, j] * (expected + inside[v, j] - mean[v, j])
                    outside[v, j] += joint[v, i, j] * expected
        for j in range(states):
            if p < nodes:
                outside[v, j] = outside[v, j] / marginal[v, j] if marginal[v, j] > 0.0 else 0.0
            node[v, j] = marginal[v, j] * (inside[v, j] + outside[v, j] - mean[v, j])


@entry_point
def batch_tangents(unary, pairwise, node_direction, edge_direction, parents, mask, node, edge, begin, end):
    """Derivatives of the marginals of examples ``begin`` to ``end`` in directions of the scores, and shaped as these.

    ``node`` [B, N, S] and ``edge`` [B, N, S, S] must be zero, and remain so for examples without an output.
    """
    _, nodes, states = unary.shape
    order, first, following = np.empty((3, nodes + 1), np.int64)
    inside, total, marginal = np.empty((3, nodes, states))
    joint, given = np.empty((nodes, states, states)), np.empty((4, nodes, states))
    for b in range(begin, end):
        ordered = order[: topological_order(parents[b], mask[b], order, first, following)]
        marginal[:], joint[:] = 0.0, 0.0
        log_z = log_partition(unary[b], pairwise[b], parents[b], ordered, inside, total, marginal, joint)
        if -np.inf < log_z < np.inf:
            covariances(
                marginal, joint, node_direction[b], edge_direction[b], parents[b], ordered, given, node[b], edge[b]
            )


@entry_point
def batch_sample(unary, pairwise, parents, mask, uniform, labels, begin, end):
    """Samples of examples ``begin`` to ``end`` at ``uniform`` [B, n, N] into ``labels`` [B, n, N], zero before.

    Marginals in the row of a state of the parent are in proportion to the probabilities given that state.
    """
    _, nodes, states = unary.shape
    order, first, following = np.empty((3, nodes + 1), np.int64)
    inside, total, node = np.empty((3, nodes, states))
    edge = np.empty((nodes, states, states))
    for b in range(begin, end):
        ordered = order[: topological_order(parents[b], mask[b], order, first, following)]
        node[:], edge[:] = 0.0, 0.0
        log_partition(unary[b], pairwise[b], parents[b], ordered, inside, total, node, edge)
        for i in range(labels.shape[1]):
            y = labels[b, i]
            for v in ordered:
                p = parent_of(parents[b], v)
                y[v] = inverse_cdf(node[v] if p == nodes else edge[v, y[p]], uniform[b, i, v])


@entry_point
def batch_max_marginals(unary, pairwise, parents, mask, out, begin, end):
    """Max-marginals of examples ``begin`` to ``end`` into ``out`` [B, N, S], which must be zero."""
    _, nodes, states = unary.shape
    order, first, following = np.empty((3, nodes + 1), np.int64)
    message, others, outside = np.empty((3, nodes + 1, states))
    for b in range(begin, end):
        ordered = order[: topological_order(parents[b], mask[b], order, first, following)]
        max_marginals(unary[b], pairwise[b], parents[b], ordered, message, others, outside, out[b])
