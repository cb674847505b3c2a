"""Message passing on the dual of the relaxation: descent at falling temperatures, with certified intervals."""

import math
from typing import NamedTuple

import torch
from torch import Tensor

from structsmooth.structures.factor_graph.layout import where_rows
from structsmooth.structures.factor_graph.relaxation_dual import Marginals, RelaxationDual

# Sweeps between two looks at the interval.
_ROUND = 10


class Interval(NamedTuple):
    """What message passing knows of the optimum of the relaxation."""

    marginals: Marginals  # the best point found, of value [B]
    value: Tensor
    dual: Tensor  # the best bound, [B], at the messages
    deltas: Tensor


def solve(problem: RelaxationDual, tolerance: float, max_sweeps: int) -> Interval:
    """Bracket the optimum of the relaxation, by a round of descent at temperature 0, then at falling temperatures.

    Descent without smoothing solves what is easy and may else stop above the optimum. At a temperature it does not
    stop, and the distributions of nodes and edges come near a point of the local polytope. Temperatures follow the
    width of the interval.
    """
    zero = problem.unary.new_zeros(len(problem.unary))
    deltas, made = problem.sweep(problem.zero(), zero, _ROUND), _ROUND
    node, _ = problem.reparameterized(deltas)
    marginals = problem.vertex(problem.improved(node.argmax(-1), sweeps=5))
    best = Interval(marginals, problem.value(marginals), problem.dual(deltas), deltas)
    terms = problem.layout.node_mask.sum(1) + 2 * problem.layout.edge_mask.sum(1)
    # The smoothed bound is above the bound by τ log S for each node, and twice that for each edge, at most.
    slack = terms.clamp_min(1) * math.log(max(2, problem.unary.shape[-1]))
    while made < max_sweeps and not bool((best.dual - best.value <= tolerance * (1 + best.dual.abs())).all()):
        # A value with penalties says nothing of the width.
        value = best.value if problem.least is None else torch.maximum(best.value, problem.least)
        tau = (2 * (best.dual - value) / slack).clamp_min(1e-12)
        deltas = problem.sweep(deltas, tau, _ROUND)
        made += _ROUND
        best = _better(best, problem, deltas, problem.projected(problem.softmax(deltas, tau)))
    return best


def _better(best: Interval, problem: RelaxationDual, deltas: Tensor, marginals: Marginals) -> Interval:
    """The interval with the better of two points and of two bounds, example by example."""
    value, dual = problem.value(marginals), problem.dual(deltas)
    higher, lower = value > best.value, dual < best.dual
    return Interval(
        Marginals(*(where_rows(higher, new, old) for new, old in zip(marginals, best.marginals, strict=True))),
        torch.where(higher, value, best.value),
        torch.where(lower, dual, best.dual),
        where_rows(lower, deltas, best.deltas),
    )
