"""The linear programming relaxation of the max oracle: the best point of the local polytope."""

from dataclasses import dataclass
from typing import Literal, NamedTuple, get_args

import torch
from torch import Tensor

from structsmooth.structures.factor_graph import roof_duality
from structsmooth.structures.factor_graph.layout import Forest, Layout, forest, tree, turned
from structsmooth.structures.factor_graph.messages import Interval, Marginals, Messages, solve, with_penalties

RelaxationMethod = Literal["auto", "tree", "cut", "messages", "lp"]

# A value this close to its bound, relative to both, is the optimum up to rounding.
_TIGHT = 1e-9


class Rounded(NamedTuple):
    """An output near a point of the local polytope.

    Attributes:
        labels: int64 [B, N], 0 at padding.
        score: their score, [B].
        bound: no output has a larger score than this, [B].
    """

    labels: Tensor
    score: Tensor
    bound: Tensor


@dataclass(frozen=True)
class Relaxation:
    """The optimum of max ⟨θ, μ⟩ over μ in the local polytope, bracketed by ``value`` and ``dual``.

    The local polytope holds the distributions μ_i of nodes and μ_e of edges whose sums agree. Its integral points are
    the outputs, so the optimum is an upper bound on the score of every output.

    Attributes:
        value: ⟨θ, μ⟩, [B], differentiable: its gradient is μ. -inf for an example without outputs, where all other
            attributes are zero.
        dual: an upper bound on the optimum, and so on the score of every output, [B].
        unary: distributions μ_i, [B, N, S].
        pairwise: distributions μ_e, [B, E, S, S].
        deltas: messages δ of each edge to its ends, [B, E, 2, S]. With θ̂_i = θ_i + Σ_e δ_ei and
            θ̂_e = θ_e − Σ_i δ_ei, the scores of all outputs are the same, and ``dual`` is Σ_i max θ̂_i + Σ_e max θ̂_e.
        tight: whether an output attains ``dual``, up to rounding, [B]: then it is a best output.
        labels: the output that μ and δ suggest, improved node by node, [B, N].
        score: the score of these labels, [B].

    Reference:
        Sontag, Globerson and Jaakkola (2011); Meshi, Srebro and Hazan (2015), Eqs. (2) to (4).
    """

    value: Tensor
    dual: Tensor
    unary: Tensor
    pairwise: Tensor
    deltas: Tensor
    tight: Tensor
    labels: Tensor
    score: Tensor

    def to(self, dtype: torch.dtype) -> "Relaxation":
        """The same in another floating point dtype."""
        return Relaxation(*(t.to(dtype) if t.is_floating_point() else t for t in vars(self).values()))

    @property
    def gap(self) -> Tensor:
        """Width of the interval that holds the optimum, [B]; 0 for an example without outputs."""
        return torch.where(self.value > -torch.inf, self.dual - self.value.detach(), 0.0)

    def decode(self) -> Rounded:
        """Labels, their score, and the bound on the score of all outputs."""
        return Rounded(self.labels, self.score, self.dual)


class Solution(NamedTuple):
    """What a method finds."""

    marginals: Marginals
    deltas: Tensor
    dual: Tensor


def relax(
    unary: Tensor, pairwise: Tensor, layout: Layout, method: RelaxationMethod, tolerance: float, max_sweeps: int
) -> Relaxation:
    """The relaxation under float64 scores with -inf, zero where there is no node or edge; on any device."""
    if method not in get_args(RelaxationMethod):
        raise ValueError(f"method must be one of {', '.join(get_args(RelaxationMethod))}, got {method!r}")
    finite, least = with_penalties(unary.detach(), pairwise.detach(), layout)
    solution = _METHODS[method](finite, tolerance, max_sweeps)
    # Of scores that stand for -inf, any share above rounding would take the value below all that is allowed.
    feasible = finite.value(solution.marginals) > least
    marginals = Marginals(*(_where(feasible, m, 0.0) for m in solution.marginals))
    node, _ = finite.reparameterized(solution.deltas)
    guess = _first_best(solution.marginals.node + 1e-6 * node.softmax(-1))
    labels = torch.where(feasible.unsqueeze(-1) & layout.node_mask, finite.improved(guess, 5), 0)
    score = torch.where(feasible, finite.value(finite.vertex(labels)), -torch.inf)
    score = torch.where(score > least, score, -torch.inf)
    dual = torch.where(feasible, solution.dual, -torch.inf)
    return Relaxation(
        value=torch.where(feasible, _expected(unary, marginals.node) + _expected(pairwise, marginals.edge), -torch.inf),
        dual=dual,
        unary=marginals.node,
        pairwise=marginals.edge,
        deltas=_where(feasible, solution.deltas, 0.0),
        tight=feasible & (dual - score <= _TIGHT * (1 + dual.abs())),
        labels=labels,
        score=score,
    )


def _by_tree(problem: Messages, tolerance: float, max_sweeps: int) -> Solution:
    """Dynamic programming: outputs alone are optimal."""
    as_forest = forest(problem.layout)
    if not bool(as_forest.is_forest.all()):
        b = int(as_forest.is_forest.long().argmin())
        raise ValueError(f'method="tree" needs graphs without cycles; example {b} has one: use "auto"')
    return _tree_solution(problem, as_forest)


def _tree_solution(problem: Messages, as_forest: Forest) -> Solution:
    deltas = forest_messages(problem, as_forest)
    _, y = tree(problem.unary, problem.pairwise, as_forest, problem.layout.node_mask).max()
    marginals = problem.vertex(y)
    return Solution(marginals, deltas, problem.dual(deltas))


def forest_messages(problem: Messages, as_forest: Forest) -> Tensor:
    """Optimal messages of forests: from the leaves to the roots, each branch gives all that it has to its parent."""
    deltas, inside = problem.zero(), problem.unary
    first, second = problem.ends.unbind(-1)
    child = torch.where(as_forest.flipped, first, second)
    parent = torch.where(as_forest.flipped, second, first)
    tables = turned(problem.pairwise, as_forest.flipped)
    wide = deltas.shape[-1]
    for round_ in range(int(as_forest.round.amax()) + 1 if as_forest.round.numel() else 0):
        removed = (as_forest.round == round_).unsqueeze(-1)
        below = inside.gather(1, child.unsqueeze(-1).expand(-1, -1, wide))
        message = (tables + below.unsqueeze(2)).amax(-1)
        down, up = torch.where(removed, -below, 0.0), torch.where(removed, message, 0.0)
        inside = inside.scatter_add(1, parent.unsqueeze(-1).expand_as(up), up)
        flipped = as_forest.flipped.unsqueeze(-1)
        deltas = deltas + torch.stack([torch.where(flipped, down, up), torch.where(flipped, up, down)], 2)
    return deltas


def _by_cut(problem: Messages, tolerance: float, max_sweeps: int) -> Solution:
    """Roof duality."""
    if problem.unary.shape[-1] != 2:
        raise ValueError(f'method="cut" needs two states, got {problem.unary.shape[-1]}: use "auto"')
    marginals, deltas = roof_duality.solve(problem)
    return Solution(marginals, deltas, problem.dual(deltas))


def _by_messages(problem: Messages, tolerance: float, max_sweeps: int) -> Solution:
    """Message passing."""
    found: Interval = solve(problem, tolerance, max_sweeps)
    return Solution(found.marginals, found.deltas, found.dual)


def _by_lp(problem: Messages, tolerance: float, max_sweeps: int) -> Solution:
    """HiGHS."""
    from structsmooth.structures.factor_graph import linear_program  # scipy is optional

    marginals, deltas = linear_program.solve(problem)
    return Solution(marginals, deltas, problem.dual(deltas))


def _auto(problem: Messages, tolerance: float, max_sweeps: int) -> Solution:
    """Exact methods where there are any."""
    as_forest = forest(problem.layout)
    if bool(as_forest.is_forest.all()):
        return _tree_solution(problem, as_forest)
    method = _by_cut if problem.unary.shape[-1] == 2 else _by_messages
    return method(problem, tolerance, max_sweeps)


_METHODS = {"auto": _auto, "tree": _by_tree, "cut": _by_cut, "messages": _by_messages, "lp": _by_lp}


def _expected(scores: Tensor, marginals: Tensor) -> Tensor:
    """Sum of scores times marginals, where these are not zero: [B], differentiable."""
    used = marginals > 0
    return (marginals * torch.where(used & (scores > -torch.inf), scores, 0.0)).flatten(1).sum(1)


def _where(condition: Tensor, tensor: Tensor, other: float) -> Tensor:
    return torch.where(condition.view(-1, *[1] * (tensor.dim() - 1)), tensor, other)


def _first_best(scores: Tensor) -> Tensor:
    return scores.argmax(-1)
