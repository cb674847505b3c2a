"""The linear programming relaxation of the max oracle: the best point of the local polytope."""

import importlib.util
from dataclasses import dataclass, replace
from typing import Literal, NamedTuple, get_args

import torch
from torch import Tensor

from structsmooth.lazy import LazyLoops
from structsmooth.structures.factor_graph import alpha_expansion, roof_duality
from structsmooth.structures.factor_graph.descent import solve
from structsmooth.structures.factor_graph.exact import Forests
from structsmooth.structures.factor_graph.layout import Layout, forest, where_rows
from structsmooth.structures.factor_graph.relaxation_dual import Marginals, RelaxationDual, Search, with_penalties
from structsmooth.structures.operators import compiled_operator

compiled = LazyLoops("structsmooth.structures.factor_graph.compiled")

RelaxationMethod = Literal["auto", "tree", "cut", "expansion", "messages", "lp"]

# A point of the local polytope, and messages.
Solution = tuple[Marginals, Tensor]

# Distributions that may be positive, of nodes and edges: the most that a linear program has.
_MOST_VARIABLES = 2**14
# Sweeps before a linear program: what is easy takes no more of them.
_FEW_SWEEPS = 20
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
        value: ⟨θ, μ⟩, [B], differentiable: its gradient is μ. -inf, with μ = 0, where no allowed point was found.
        dual: an upper bound on the optimum, and so on the score of every output, [B]. -inf proves that there is none.
        unary: distributions μ_i, [B, N, S].
        pairwise: distributions μ_e, [B, E, S, S].
        deltas: messages δ of each edge to its ends, [B, E, 2, S]. With θ̂_i = θ_i + Σ_e δ_ei and
            θ̂_e = θ_e − Σ_i δ_ei, the scores of all outputs are the same, and ``dual`` is Σ_i max θ̂_i + Σ_e max θ̂_e.
        tight: whether an output attains ``dual``, up to rounding, [B]: then it is a best output.
        labels: the output that μ and δ suggest, improved node by node, [B, N].
        score: the score of these labels, [B].
        factors: distributions of the final states of factors, [B, F, Q], if there are any. Then ``deltas`` are the
            messages of edges alone, which do not give ``dual`` without those of the factors.

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
    factors: Tensor | None = None

    def to(self, dtype: torch.dtype) -> "Relaxation":
        """The same relaxation in another floating point dtype."""
        return Relaxation(*(t.to(dtype) if t is not None and t.is_floating_point() else t for t in vars(self).values()))

    def restricted(self, parts: tuple[Tensor, ...]) -> "Relaxation":
        """The same for the first nodes and edges alone, with distributions of nodes, edges and perhaps factors."""
        unary, pairwise, *factors = parts
        return replace(
            self,
            unary=unary,
            pairwise=pairwise,
            factors=factors[0] if factors else None,
            deltas=self.deltas[:, : pairwise.shape[1], :, : unary.shape[2]],
            labels=self.labels[:, : unary.shape[1]],
        )

    @property
    def gap(self) -> Tensor:
        """Width of the interval that holds the optimum, [B]; 0 for an example without outputs."""
        return torch.where(self.dual > -torch.inf, self.dual - self.value.detach(), 0.0)

    def decode(self) -> Rounded:
        """Labels, their score, and the bound on the score of all outputs."""
        return Rounded(self.labels, self.score, self.dual)


def relax(
    unary: Tensor,
    pairwise: Tensor,
    layout: Layout,
    method: RelaxationMethod,
    tolerance: float,
    max_sweeps: int,
    search: Search | None = None,
) -> Relaxation:
    """The relaxation under float64 scores with -inf, zero where there is no node or edge; on any device."""
    if method not in get_args(RelaxationMethod):
        raise ValueError(f"method must be one of {', '.join(get_args(RelaxationMethod))}, got {method!r}")
    finite, least = with_penalties(unary.detach(), pairwise.detach(), layout, search)
    marginals, deltas = _solved(finite, method, tolerance, max_sweeps)
    dual = finite.dual(deltas)
    possible = dual > least  # allowed outputs score more than this
    node, _ = finite.reparameterized(deltas)
    guess = (marginals.node + 1e-6 * node.softmax(-1)).argmax(-1)
    labels = torch.where(possible.unsqueeze(-1) & layout.node_mask, _rounded(finite, guess), 0)
    vertex = finite.vertex(labels)
    score, value = finite.value(vertex), finite.value(marginals)
    marginals = Marginals(*(where_rows(score > value, v, m) for v, m in zip(vertex, marginals, strict=True)))
    found = possible & (torch.maximum(score, value) > least)
    marginals = Marginals(*(where_rows(found, m, torch.zeros_like(m)) for m in marginals))
    score = torch.where(possible & (score > least), score, -torch.inf)
    return Relaxation(
        value=torch.where(found, _expected(unary, marginals.node) + _expected(pairwise, marginals.edge), -torch.inf),
        dual=torch.where(possible, dual, -torch.inf),
        unary=marginals.node,
        pairwise=marginals.edge,
        deltas=where_rows(possible, deltas, torch.zeros_like(deltas)),
        tight=possible & (dual - score <= _TIGHT * (1 + dual.abs())),
        labels=labels,
        score=score,
    )


def _rounded(problem: RelaxationDual, guess: Tensor) -> Tensor:
    """Labels [B, N] that moves do not improve, from a guess; with factors, also from the best label of each node.

    Hard factors allow few moves, so that a single start may end where they are violated.
    """
    labels = problem.improved(guess, 5)
    if problem.search is None:
        return labels
    others = problem.improved(problem.unary.argmax(-1), 5)
    better = problem.value(problem.vertex(others)) > problem.value(problem.vertex(labels))
    return torch.where(better.unsqueeze(-1), others, labels)


def _solved(problem: RelaxationDual, method: RelaxationMethod, tolerance: float, max_sweeps: int) -> Solution:
    """A point of the local polytope and messages: optimal, but for message passing."""
    if method == "messages":
        found = solve(problem, tolerance, max_sweeps)
        return found.marginals, found.deltas
    if method == "lp":
        return _by_program(problem)
    if method == "expansion":
        wrong = ~alpha_expansion.suits(problem)
        if bool(wrong.any()):
            raise ValueError(
                'method="expansion" needs s[i, i] + s[j, k] >= s[j, i] + s[i, k] in every table s, as Potts strengths '
                f'of at least 0 have it; example {int(wrong.long().argmax())} lacks it: use "auto"'
            )
        return alpha_expansion.solve(problem, max_sweeps)
    is_forest, states = forest(problem.layout).is_forest, problem.unary.shape[-1]
    if method == "tree" and not bool(is_forest.all()):
        b = int(is_forest.long().argmin())
        raise ValueError(f'method="tree" needs graphs without cycles; example {b} has one: use "auto"')
    if method == "cut" and states != 2:
        raise ValueError(f'method="cut" needs two states, got {states}: use "auto"')
    if method != "cut" and bool(is_forest.all()):
        return _by_tree(problem)
    if states == 2:
        return roof_duality.solve(problem)
    if not bool(is_forest.any()):
        return _with_cycles(problem, tolerance, max_sweeps)
    rest = _with_cycles(problem.rows(~is_forest), tolerance, max_sweeps)
    solution = _with_rows(_no_solution(problem), ~is_forest, rest)
    return _with_rows(solution, is_forest, _by_tree(problem.rows(is_forest)))


def _with_cycles(problem: RelaxationDual, tolerance: float, max_sweeps: int) -> Solution:
    """Graphs with cycles and more than two states: large ones by moves where these suit, else by messages."""
    large = problem.variables() > _MOST_VARIABLES
    if problem.search is not None or not bool(large.any()):
        return _by_messages(problem, ~large, tolerance, max_sweeps)
    moved = large & alpha_expansion.suits(problem)
    if bool(moved.all()):
        return alpha_expansion.solve(problem, max_sweeps)
    solution = _by_messages(problem.rows(~moved), ~large[~moved], tolerance, max_sweeps)
    solution = _with_rows(_no_solution(problem), ~moved, solution)
    return _with_rows(solution, moved, alpha_expansion.solve(problem.rows(moved), max_sweeps))


def _by_messages(problem: RelaxationDual, small: Tensor, tolerance: float, max_sweeps: int) -> Solution:
    """Messages, and linear programs for examples that are ``small`` [B], if there is scipy.

    A program of few variables takes less time than the sweeps that would close the interval, if they can.
    """
    small = small & (importlib.util.find_spec("scipy") is not None)
    found = solve(problem, tolerance, min(max_sweeps, _FEW_SWEEPS) if bool(small.all()) else max_sweeps)
    wide = small & (found.dual - found.value > tolerance * (1 + found.dual.abs()))
    solution = found.marginals, found.deltas
    return _with_rows(solution, wide, _by_program(problem.rows(wide))) if bool(wide.any()) else solution


def _no_solution(problem: RelaxationDual) -> Solution:
    """What is replaced, row by row."""
    return problem.vertex(torch.zeros_like(problem.unary[..., 0], dtype=torch.int64)), problem.zero()


def _with_rows(solution: Solution, chosen: Tensor, rows: Solution) -> Solution:
    """A solution with that of the chosen examples [B] in their places."""
    (node, edge), deltas = solution
    tensors = ((node, rows[0].node), (edge, rows[0].edge), (deltas, rows[1]))
    node, edge, deltas = (old.index_put((chosen,), new) for old, new in tensors)
    return Marginals(node, edge), deltas


def _by_program(problem: RelaxationDual) -> Solution:
    """The optimum by HiGHS, a solver of linear programs."""
    from structsmooth.structures.factor_graph import linear_program  # scipy is optional

    return linear_program.solve(problem)


def _by_tree(problem: RelaxationDual) -> Solution:
    """The optimum of forests by dynamic programming: one of the outputs attains it."""
    as_forest = forest(problem.layout)
    no_tables = problem.unary.new_zeros(len(problem.unary), 0, 1)
    _, y = Forests(problem.unary, problem.pairwise, no_tables, problem.layout, as_forest).max()
    return problem.vertex(y), _branches(
        problem.unary, problem.pairwise, problem.ends, as_forest.flipped, as_forest.order
    )


_branches = compiled_operator(
    "factor_graph_branches(Tensor unary, Tensor pairwise, Tensor edges, Tensor flipped, Tensor order) -> Tensor",
    results=lambda unary, pairwise, *_: pairwise.new_zeros(*pairwise.shape[:2], 2, pairwise.shape[2]),
    loop=compiled.batch_branches,
    operations=lambda unary, pairwise, *_: 2 * pairwise.numel(),
)
"""Optimal messages [B, E, 2, S] of forests: from the leaves, each branch gives all that it has to its parent."""


def _expected(scores: Tensor, marginals: Tensor) -> Tensor:
    """Sum of scores times marginals, where these are not zero: [B], differentiable."""
    used = marginals > 0
    return (marginals * torch.where(used & (scores > -torch.inf), scores, 0.0)).flatten(1).sum(1)
