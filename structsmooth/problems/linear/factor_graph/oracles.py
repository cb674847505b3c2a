"""The oracles of single factor graphs: where a problem meets inference, exact or relaxed."""

import torch
from torch import Tensor

from structsmooth.problems.affine import Parts

# Outputs that enumeration goes through at most.
_MOST_OUTPUTS = 2**20


def respond_exactly(unary: Tensor, edges: Tensor, pairwise: Tensor) -> tuple[Tensor, Tensor]:
    """The largest score [] of an output of a graph, and its labels [N].

    Args:
        unary: potentials of nodes, float64 [N, S].
        edges: the two nodes of each edge, int64 [E, 2].
        pairwise: potentials of edges, float64 [E, S, S]; entry [e, s, r] is for edges[e, 0] in state s.

    Raises:
        NotImplementedError: too many outputs to enumerate.
    """
    from structsmooth.problems.linear.factor_graph import compiled_enumeration  # numba loads with the first call

    nodes, states = unary.shape
    if states**nodes > _MOST_OUTPUTS:
        raise NotImplementedError(
            f"exact inference enumerates up to 2^20 outputs, and a graph has {states}^{nodes}; "
            "take SoftBCFW, which needs no inference"
        )
    labels = torch.zeros(nodes, dtype=torch.int64)
    arrays = (unary.detach().contiguous().numpy(), edges.contiguous().numpy(), pairwise.detach().contiguous().numpy())
    value = compiled_enumeration.best_output(*arrays, labels.numpy())
    return unary.new_tensor(value), labels


def respond_relaxed(unary: Tensor, edges: Tensor, pairwise: Tensor) -> tuple[Tensor, Parts]:
    """The largest score [] over the local polytope, and the statistics [N, S], [E, S, S] that attain it."""
    raise NotImplementedError("relaxed inference of single graphs is not there yet; SoftBCFW trains without it")
