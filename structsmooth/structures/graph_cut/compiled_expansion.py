"""Expansion moves (Boykov, Veksler and Zabih 2001): labels of many kinds, improved by one minimum cut for each."""

from structsmooth.compiled.jit import compiled, entry_point
from structsmooth.structures.graph_cut.compiled import adjacency, new_flow, normal_form
from structsmooth.structures.graph_cut.compiled_flow import maximize_flow, new_work


@compiled
def _build(label, unary, pairwise, edges, y, graph, flow):
    """The cuts of this flow are the moves: nodes labelled 1 take the label, others keep theirs in ``y``."""
    excess, residual, closed = flow
    arcs = graph[3]
    closed[:] = False
    for v in range(y.shape[0]):
        excess[v] = unary[v, label] - unary[v, y[v]]
    for e in range(edges.shape[0]):
        a, b = edges[e]
        old, other, table = y[a], y[b], pairwise[e]
        first, second, forward, backward = normal_form(
            table[old, other], table[old, label], table[label, other], table[label, label]
        )
        excess[a] += first
        excess[b] += second
        residual[arcs[e, 0]], residual[arcs[e, 1]] = forward, backward


@compiled
def _gain(label, unary, pairwise, edges, y, moved):
    """By how much the score grows if the nodes of ``moved`` take the label."""
    total = 0.0
    for v in range(y.shape[0]):
        if moved[v]:
            total += unary[v, label] - unary[v, y[v]]
    for e in range(edges.shape[0]):
        a, b = edges[e]
        if moved[a] or moved[b]:
            table = pairwise[e]
            total += table[label if moved[a] else y[a], label if moved[b] else y[b]] - table[y[a], y[b]]
    return total


@entry_point
def expand(unary, pairwise, edges, y, least):
    """Improve labels ``y`` [N] of one graph until no move to a single label gains more than ``least``, in place.

    Scores [N, S] and [E, S, S] are finite, and moves supermodular at all edges.
    """
    graph = adjacency(y.shape[0], edges)
    flow, work = new_flow(graph), new_work(y.shape[0])
    states, failed, label = unary.shape[1], 0, 0
    while failed < states:
        _build(label, unary, pairwise, edges, y, graph, flow)
        maximize_flow(graph, flow, work)
        if _gain(label, unary, pairwise, edges, y, flow[2]) > least:
            # Counted as failed below: the move was the best one to this label, which has nothing more to gain.
            failed = 0
            for v in range(y.shape[0]):
                if flow[2][v]:
                    y[v] = label
        failed += 1
        label = (label + 1) % states


@entry_point
def moves_are_supermodular(pairwise, edge_mask):
    """Whether a move to any label is a minimum cut, whatever the labels before: up to rounding, at all edges."""
    states = pairwise.shape[1]
    for e in range(pairwise.shape[0]):
        if not edge_mask[e]:
            continue
        table = pairwise[e]
        # Each of the two sums of two scores errs by at most 2^-52 of the largest one, and so does the sum with the
        # slack.
        slack = 4 * 2.0**-52 * max(table.max(), -table.min())
        for label in range(states):
            for s in range(states):
                for r in range(states):
                    if table[label, label] + table[s, r] + slack < table[s, label] + table[label, r]:
                        return False
    return True
