"""The oracles of single factor graphs: where a problem meets inference, exact or relaxed."""

import torch
from torch import Tensor

from structsmooth.problems.affine import Parts
from structsmooth.structures.factor_graph import FactorGraph
from structsmooth.structures.factor_graph.elimination import MOST_OUTPUTS


def respond_exactly(unary: Tensor, edges: Tensor, pairwise: Tensor) -> tuple[Tensor, Tensor]:
    """The largest score [] of an output of a graph, and its labels [N].

    Args:
        unary: potentials of nodes, float64 [N, S].
        edges: the two nodes of each edge, int64 [E, 2].
        pairwise: potentials of edges, float64 [E, S, S]; entry [e, s, r] is for edges[e, 0] in state s.

    Raises:
        MemoryError: a graph that exact inference gives up on; see :class:`~structsmooth.FactorGraph`.
    """
    nodes, states = unary.shape
    if states**nodes > MOST_OUTPUTS:
        value, y = _graph(unary, edges, pairwise).max()
        return value[0], y[0]
    # A graph of its own would take far longer than the enumeration.
    from structsmooth.structures.factor_graph import compiled  # numba loads with the first call

    labels = torch.zeros(nodes, dtype=torch.int64)
    scores = (scores.detach().contiguous().numpy() for scores in (unary, pairwise))
    value = compiled.best_output(*scores, edges.contiguous().numpy(), labels.numpy())
    return unary.new_tensor(value), labels


def respond_relaxed(unary: Tensor, edges: Tensor, pairwise: Tensor) -> tuple[Tensor, Parts]:
    """The largest score [] over the local polytope, and the statistics [N, S], [E, S, S] that attain it."""
    if unary.shape[1] == 2:
        # As in `respond_exactly`: the cut takes far less time than the graph and the bounds on it.
        from structsmooth.structures.graph_cut import compiled

        node, edge = torch.zeros_like(unary), torch.zeros_like(pairwise)
        arrays = (t.detach().contiguous().numpy() for t in (unary, pairwise, edges))
        compiled.half_integral(*arrays, node.numpy(), edge.numpy())
        return (unary * node).sum() + (pairwise * edge).sum(), (node, edge)
    relaxation = _graph(unary, edges, pairwise).relaxed()
    return relaxation.value[0], (relaxation.unary[0], relaxation.pairwise[0])


def _graph(unary: Tensor, edges: Tensor, pairwise: Tensor) -> FactorGraph:
    return FactorGraph(unary.unsqueeze(0), edges, pairwise.unsqueeze(0), validate_args=False)
