"""The map from weights to the potentials of one example, and back, by loops over its nodes and edges."""

from structsmooth.compiled.jit import entry_point


@entry_point
def add_potentials(weights, node_data, edge_data, block, first, node, edge):
    """Add the scores of the nodes [N, S] and edges [E, S, S] of an example; states before ``first`` have no weights."""
    (unary, pairwise), (nodes, _, x), (edges, _, f, places) = weights, node_data, edge_data
    begin, _, edges_begin = places[block]
    for v in range(node.shape[0]):
        row, kind = nodes[begin + v, 0], nodes[begin + v, 1]
        for s in range(unary.shape[1]):
            score = 0.0
            for d in range(x.shape[1]):
                score += unary[kind, s, d] * x[row, d]
            node[v, first + s] += score
    weighted = unary.shape[1]
    for e in range(edge.shape[0]):
        table = pairwise[edges[edges_begin + e, 2]]
        for p in range(pairwise.shape[2]):
            score = 0.0
            for d in range(f.shape[1]):
                score += table[d, p] * f[edges_begin + e, d]
            if pairwise.shape[2] == 1:  # the score of agreement
                for s in range(first, first + weighted):
                    edge[e, s, s] += score
            else:
                edge[e, first + p // weighted, first + p % weighted] += score


@entry_point
def add_adjoint(weights, node_data, edge_data, block, first, node, edge, scale):
    """Add to the weights the statistics of the nodes [N, S] and edges [E, S, S] of an example, times ``scale``."""
    (unary, pairwise), (nodes, _, x), (edges, _, f, places) = weights, node_data, edge_data
    begin, _, edges_begin = places[block]
    for v in range(node.shape[0]):
        row, kind = nodes[begin + v, 0], nodes[begin + v, 1]
        for s in range(unary.shape[1]):
            amount = scale * node[v, first + s]
            if amount != 0:
                for d in range(x.shape[1]):
                    unary[kind, s, d] += amount * x[row, d]
    weighted = unary.shape[1]
    for e in range(edge.shape[0]):
        table = pairwise[edges[edges_begin + e, 2]]
        for p in range(pairwise.shape[2]):
            if pairwise.shape[2] == 1:
                amount = 0.0
                for s in range(first, first + weighted):
                    amount += edge[e, s, s]
            else:
                amount = edge[e, first + p // weighted, first + p % weighted]
            amount *= scale
            if amount != 0:
                for d in range(f.shape[1]):
                    table[d, p] += amount * f[edges_begin + e, d]


@entry_point
def mark_parts(labels, edges, node, edge):
    """Set the parts of labels to 1 in the statistics [N, S] and [E, S, S], which must be zeros."""
    for v in range(node.shape[0]):
        node[v, labels[v]] = 1.0
    for e in range(edge.shape[0]):
        edge[e, labels[edges[e, 0]], labels[edges[e, 1]]] = 1.0
