"""Subgradient steps on weights and star updates of messages, example after example (Meshi et al. 2010), in place."""

import numpy as np

from structsmooth.compiled.jit import entry_point, uncounted
from structsmooth.solvers.soft_bcfw.compiled import add_pair, node_scores, part, part_scores, workspaces
from structsmooth.structures.factor_graph.compiled import exponentials_of, ports_of, star

# Arguments are those of solvers/soft_bcfw/compiled.py, where delta [links, 2, S] takes the place of the multipliers.


@uncounted
def _edge_potentials(c, edges, f, pair, first, tables, out):
    """theta_c of an edge: a table [S, S]."""
    states = out.shape[0]
    part_scores(c, edges, f, pair, tables)
    for s in range(states):
        for r in range(states):
            p = part(s, r, states, pair.shape[2], first)
            out[s, r] = tables[0, p] if p >= 0 else 0.0


@uncounted
def _choose(values, tau):
    """The indicator of the maximum, or at a temperature the softmax, in place."""
    best = 0
    for k in range(values.shape[0]):
        if values[k] > values[best]:
            best = k
    # In place: values[best] changes before the last of them are compared with it.
    top, total = values[best], 0.0
    for k in range(values.shape[0]):
        values[k] = np.exp((values[k] - top) / tau) if tau > 0.0 else 1.0 * (k == best)
        total += values[k]
    for k in range(values.shape[0]):
        values[k] /= total


@uncounted
def _node_step(i, chosen, nodes, x, unary, mu, tau, step, amount):
    """A step of the weights along the statistics of a node with scores ``chosen``; its marginals move by ``amount``."""
    row, kind, label = nodes[i, 0], nodes[i, 1], nodes[i, 2]
    first = chosen.shape[0] - unary.shape[1]
    _choose(chosen, tau)
    for s in range(chosen.shape[0]):
        mu[i, s] += amount * (chosen[s] - mu[i, s])
    for s in range(first, chosen.shape[0]):
        change = step * (chosen[s] - (1.0 if s == label else 0.0))
        if change != 0.0:
            for j in range(x.shape[1]):
                unary[kind, s - first, j] -= change * x[row, j]


@uncounted
def _edge_step(c, k, i0, table, nodes, edges, f, pair, edge_mu, delta, tau, step, amount, form, chosen):
    """A step along the statistics of link k, which is edge c of the example with first node i0, as for a node."""
    (first, potts), states = form, table.shape[0]
    a, b, kind = nodes[i0 + edges[c, 0], 2], nodes[i0 + edges[c, 1], 2], edges[c, 2]
    for s in range(states):
        for r in range(states):
            chosen[s * states + r] = table[s, r] - delta[k, 0, s] - delta[k, 1, r]
    _choose(chosen, tau)
    for j in range(edge_mu.shape[1]):
        edge_mu[k, j] *= 1.0 - amount
    for s in range(states):
        for r in range(states):
            mass, p = chosen[s * states + r], part(s, r, states, pair.shape[2], first)
            add_pair(k, s, r, amount * mass, edge_mu, states, potts)
            change = step * (mass - (1.0 if s == a and r == b else 0.0))
            if change != 0.0 and p >= 0:
                for j in range(f.shape[1]):
                    pair[kind, j, p] -= change * f[c, j]


@entry_point
def visit_examples(order, done, node_data, edge_data, weights, point, settings, form):
    """For each example a sweep of star updates, then a step of size eta / (1 + lambda eta t) at step t = ``done``, ...

    ``settings`` are eta, lambda, n and the temperature; the last array of ``point`` is zeros.
    """
    (nodes, reals, x), (edges, _, f, places) = node_data, edge_data
    (unary, pair), (mu, edge_mu, delta, zeros), (eta, lam, n, tau) = weights, point, settings
    states = mu.shape[1]
    chosen, (_, parts) = np.empty(states * states), workspaces(states, pair.shape[2])
    for t, m in enumerate(order):
        (i0, k0, c0), (i1, k1, _) = places[m], places[m + 1]
        count, real = k1 - k0, np.ones(k1 - k0, np.bool_)
        offsets, ports = ports_of(edges[c0 : c0 + count], real, i1 - i0)
        tables, scores = np.empty((count, states, states)), np.empty((i1 - i0, states))
        # Exponentials are for sums at a temperature alone.
        messages, total, warm = np.empty((ports.shape[0], states)), np.empty(states), count if tau > 0.0 else 0
        exponentials = np.empty((2, warm, states, states)), np.empty((2, warm, states))
        for c in range(count):
            _edge_potentials(c0 + c, edges, f, pair, form[0], parts, tables[c])
        if tau > 0.0:
            exponentials_of(tables, real, tau, *exponentials)
        for i in range(i0, i1):
            node_scores(i, nodes, reals, x, unary, zeros, scores[i - i0 : i - i0 + 1])
            node_ports = ports[offsets[i - i0] : offsets[i - i0 + 1]]
            star(scores[i - i0], tables, exponentials, node_ports, tau, delta[k0:k1], messages, total)
            scores[i - i0] = total / (1 + node_ports.shape[0])  # the scores of the node with the new messages
        step = eta / (1.0 + lam * eta * (done + t))
        # In w = -1/(λn) Σ_i B_i^T (m_i - labels), such a step on an example moves its m_i by step · λn; at most all the
        # way.
        amount = min(1.0, step * lam * n)
        unary *= 1.0 - step * lam
        pair *= 1.0 - step * lam
        for i in range(i0, i1):
            _node_step(i, scores[i - i0], nodes, x, unary, mu, tau, step, amount)
        for c in range(count):
            place = (c0 + c, k0 + c, i0)
            _edge_step(*place, tables[c], nodes, edges, f, pair, edge_mu, delta, tau, step, amount, form, chosen)
