"""The relaxation as a linear program for HiGHS, one example after the other: the reference for small graphs."""

from functools import lru_cache
from typing import Any

import numpy as np
import torch
from torch import Tensor

from structsmooth.structures.factor_graph.relaxation_dual import Marginals, RelaxationDual


def solve(problem: RelaxationDual) -> tuple[Marginals, Tensor]:
    """An optimal point, and optimal messages: the dual variables of the agreement constraints.

    Raises:
        ImportError: scipy is not installed.
    """
    node, edge, deltas = torch.zeros_like(problem.unary), torch.zeros_like(problem.pairwise), problem.zero()
    for b, allowed in enumerate(zip(*problem.allowed(), strict=True)):
        nodes = problem.layout.node_mask[b].nonzero()[:, 0].cpu()
        edges = problem.layout.edge_mask[b].nonzero()[:, 0].cpu()
        position = torch.full((problem.unary.shape[1],), -1).scatter(0, nodes, torch.arange(len(nodes)))
        pairs = position[problem.layout.edges[b].cpu()[edges]]
        rows = (nodes, edges)
        unary, pairwise = (t[b].cpu()[r].numpy() for t, r in zip((problem.unary, problem.pairwise), rows, strict=True))
        free = np.concatenate([t.cpu()[r].numpy().ravel() for t, r in zip(allowed, rows, strict=True)])
        answer = _solve_one(unary, pairwise, pairs.numpy(), free)
        for target, index, values in zip((node, edge, deltas), (nodes, edges, edges), answer, strict=True):
            target[b, index] = torch.from_numpy(values).to(target)
    return Marginals(node, edge), deltas


def _solve_one(unary: Any, pairwise: Any, pairs: Any, free: Any) -> tuple[Any, Any, Any]:
    """Variables are μ_i(s), then μ_e(s, t); rows say that nodes sum to 1, then that edges agree with both ends.

    Variables that are not ``free`` have penalties, and so are zero unless nothing is allowed.
    """
    try:
        from scipy.optimize import linprog
    except ImportError as error:
        raise ImportError(
            "linear programs need scipy: pip install scipy, or infer without them "
            '(method="auto" of a relaxation, inference="relaxed" of a problem)'
        ) from error

    nodes, states = unary.shape
    edges = len(pairs)
    table = _constraints(nodes, states, np.ascontiguousarray(pairs).tobytes())
    size = table.shape[1]
    bound = np.concatenate([np.ones(nodes), np.zeros(2 * edges * states)])
    scores = np.concatenate([unary.ravel(), pairwise.ravel()])
    # With penalties in place of what is forbidden, there always is an answer.
    for kept in (np.flatnonzero(free), np.arange(size)):
        if len(kept):
            constraints = table if len(kept) == size else table[:, kept]
            answer = linprog(-scores[kept], A_eq=constraints, b_eq=bound, method="highs")
            if answer.status != _INFEASIBLE:
                break
    if answer.status != 0:
        raise RuntimeError(f"HiGHS did not solve the relaxation: {answer.message}")
    point = np.zeros(size)
    point[kept] = answer.x
    # Minimization of -θ: a dual variable of agreement is minus what the edge takes from itself.
    messages = -answer.eqlin.marginals[nodes:].reshape(edges, 2, states)
    split = nodes * states
    return point[:split].reshape(unary.shape), point[split:].reshape(edges, states, states), messages


@lru_cache(maxsize=8)
def _constraints(nodes: int, states: int, pair_bytes: bytes) -> Any:
    """The rows of the constraints, which a graph has for all potentials."""
    from scipy.sparse import coo_array

    pairs = np.frombuffer(pair_bytes, dtype=np.int64).reshape(-1, 2)
    edges = len(pairs)
    node = np.arange(nodes * states).reshape(nodes, states)
    edge = nodes * states + np.arange(edges * states**2).reshape(edges, states, states)
    sums = np.repeat(np.arange(nodes), states)
    agree = nodes + np.arange(edges * 2 * states).reshape(edges, 2, states)  # row of edge e, side and state
    rows = [sums, np.broadcast_to(agree[:, 0, :, None], edge.shape).ravel()]
    columns, values = [node.ravel(), edge.ravel()], [np.ones(nodes * states), np.ones(edge.size)]
    rows.append(np.broadcast_to(agree[:, 1, None, :], edge.shape).ravel())
    columns.append(edge.ravel())
    values.append(np.ones(edge.size))
    for side in range(2):
        rows.append(agree[:, side].ravel())
        columns.append(node[pairs[:, side]].ravel())
        values.append(-np.ones(edges * states))
    size = nodes * states + edge.size
    return coo_array(
        (np.concatenate(values), (np.concatenate(rows), np.concatenate(columns))), shape=(nodes + agree.size, size)
    ).tocsc()


# The status of linprog.
_INFEASIBLE = 2
