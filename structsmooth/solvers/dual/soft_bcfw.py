"""Block-coordinate Frank-Wolfe under soft agreement of nodes and edges (Meshi, Srebro and Hazan 2015)."""

from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, Literal

import numpy as np
import torch
from torch import Tensor

from structsmooth.problems.base import FullPass, Problem
from structsmooth.problems.linear.factor_graph.module_soft import ModuleSoftDual
from structsmooth.problems.linear.factor_graph.point import SoftPoint
from structsmooth.problems.linear.factor_graph.soft import SoftDual, SoftSteps, SoftValues
from structsmooth.problems.linear.module import LinearModuleProblem
from structsmooth.smoothing import Max
from structsmooth.solvers.checks import check_choices, check_number, check_positive
from structsmooth.solvers.dual.base import DualSolver, check_unweighted, checked_hinges, soft_dual
from structsmooth.solvers.state import State, empty

Penalty = Literal["multipliers", "constant", "decreasing"]
Order = Literal["examples", "uniform"]

# ρ by default, per mean number of edges of a node.
_PER_DEGREE = 0.75


@dataclass(frozen=True, kw_only=True)
class SoftPass(FullPass):
    """The evaluation of a dual point: no inference, but the maxima of all blocks."""

    values: SoftValues
    bound: float  # lower bound on the optimum of the problem that is solved


@dataclass
class SoftBCFWState(State):
    """Adds the dual point, see :class:`~structsmooth.problems.linear.factor_graph.point.SoftPoint`, and its values."""

    nodes: Tensor = field(default_factory=empty)
    edges: Tensor = field(default_factory=empty)
    multipliers: Tensor = field(default_factory=empty)
    rho: float = 0.0  # of the last pass
    soft_objective: float = 0.0  # g_ρ
    soft_dual: float = 0.0  # f_ρ
    hard_objective: float = 0.0  # g
    disagreement: float = 0.0

    @property
    def point(self) -> SoftPoint:
        """The dual point as a problem takes it."""
        return SoftPoint(self.weights, self.nodes, self.edges, self.multipliers)

    def observe(self, full: FullPass, lam: float) -> None:
        """Keep the values of the point, and the best lower bound."""
        assert isinstance(full, SoftPass)
        self.soft_objective, self.soft_dual = full.values.soft, full.values.dual
        self.hard_objective, self.disagreement = full.values.hard, full.values.disagreement
        self.dual = full.bound if self.dual is None else max(self.dual, full.bound)


@dataclass(frozen=True)
class SoftBCFW(DualSolver[SoftBCFWState]):
    """Block-coordinate Frank-Wolfe on a dual whose blocks are nodes and edges, which are only asked to agree.

    The linear relaxation of a structural hinge asks for marginals of nodes and edges that agree, which couples all of
    an example. With a penalty (1/(2ρ))‖μ_c − μ_i‖² in place of this constraint every node and every edge has a simplex
    of its own: a step maximizes over the states of one node or the pairs of one edge, and its line search is exact. No
    inference on whole examples is needed, so graphs may have any loops and any number of states. It needs λ > 0 and a
    :class:`~structsmooth.FactorGraphProblem`, whose steps are compiled, or a :class:`~structsmooth.LinearModuleProblem`
    over factor graphs, where a step sweeps an example and moves the weights once. A run starts from the labels, w = 0,
    or from the state of another run on the same problem, for this λ or another.

    With a constant penalty, the objective of the history is g_ρ(w, δ) = g(w, δ) + (ρ/(2n))‖δ‖², an upper bound on that
    of the local polytope. Its dual f_ρ never decreases, and the gap is the sum of the block gaps. With multipliers or a
    decreasing penalty, the problem of the local polytope itself is solved: the objective is g(w, δ), and the dual is
    the best so far of marginals that agree, near those of the iterate; of their agreement on edges, the best counts.
    The history has g_ρ, f_ρ, g and the root mean square of disagreements as metrics ``soft_objective``, ``soft_dual``,
    ``hard_objective`` and ``disagreement``. No oracle is called: maximizing once over every block of an example counts
    as one call.

    ``SoftBCFW(rho=rho, penalty="constant", steps="fw", order="uniform")`` is Algorithm 1 of the paper, except that ρ is
    for each example: the paper's ρ, times the number of examples. On binary graphs and on forests, exact inference or
    that of the relaxation is cheap, and :class:`~structsmooth.BCFW` with it needs fewer passes.

    Args:
        rho: ρ > 0, for each example: with smaller values, nodes and edges agree more closely, and progress is slower.
            If not given, it is 3/4 of the mean number of edges of a node, or 1 without edges: a node divides its score
            among its edges, so the more edges it has, the smaller are their messages.
        penalty: ``"multipliers"`` add (μ_c − μ_i)/ρ to multipliers of the constraints before every pass, which makes
            nodes and edges agree in the end, whatever ρ is; ``"constant"`` keeps ρ fixed, as in the paper;
            ``"decreasing"`` divides it by √k in pass k, which is far slower than multipliers.
        steps: ``"fw"`` from the marginals of a block towards its best state; ``"pairwise"`` from the worst state that
            they hold towards it.
        order: ``"examples"`` for all blocks of one example in turn, nodes first, and examples in random order;
            ``"uniform"`` for blocks drawn at random, with replacement, of a ``FactorGraphProblem``.
        sweeps: number of times that a pass goes through the blocks of an example.

    Example:
        >>> import torch
        >>> from structsmooth import FactorGraphProblem, FactorGraphs
        >>> x = torch.randn(12, 3, generator=torch.Generator().manual_seed(0))  # four triangles, five states
        >>> graphs = FactorGraphs(
        ...     features=x,
        ...     labels=torch.arange(12) % 5,
        ...     node_offsets=3 * torch.arange(5),
        ...     edges=torch.tensor([[0, 1], [1, 2], [2, 0]]).repeat(4, 1),
        ...     edge_offsets=3 * torch.arange(5),
        ... )
        >>> problem = FactorGraphProblem(graphs, states=5, pairwise="table")
        >>> hard = SoftBCFW().solve(problem, lam=0.1, passes=300).row
        >>> soft = SoftBCFW(rho=1.0, penalty="constant").solve(problem, lam=0.1, passes=300).row
        >>> bool(hard.dual <= hard.objective < soft.dual <= soft.objective)
        True

    Reference:
        Meshi, Srebro and Hazan (2015), Algorithm 1 and section 7;
        :mod:`structsmooth.problems.linear.factor_graph.reference` has its lines 4 to 15.
    """

    rho: float | None = None
    penalty: Penalty = "multipliers"
    steps: SoftSteps = "pairwise"
    order: Order = "examples"
    sweeps: int = 1

    state_type: ClassVar[type[SoftBCFWState]] = SoftBCFWState

    def __post_init__(self) -> None:
        super().__post_init__()
        check_positive(self, "rho")
        check_number("sweeps", self.sweeps, integer=True, positive=True)
        check_choices(self, "penalty", "steps", "order")

    @property
    def oracle(self) -> str:
        """None: a step decodes one factor."""
        return "none"

    def check(self, problem: Problem, lam: float) -> None:
        """Refuse what has no factor graphs, and λ = 0."""
        self.soft(problem, lam)

    def soft(self, problem: Problem, lam: float) -> SoftDual | ModuleSoftDual:
        """The dual that the solver maximizes."""
        name = type(self).__name__
        if not isinstance(problem, LinearModuleProblem):
            return soft_dual(name, problem, lam)
        check_unweighted(name, checked_hinges(name, problem, lam))
        if self.order != "examples":
            raise ValueError(f"order must be 'examples' for a LinearModuleProblem, got {self.order!r}")
        return ModuleSoftDual(problem, lam)

    def first_state(self, problem: Problem, lam: float, start: Any, seed: int) -> SoftBCFWState:
        """The labels (line 1), or the dual point of ``start``."""
        dual = self.soft(problem, lam)
        labels = point = dual.labels()
        if start is not None:
            if not isinstance(start, SoftBCFWState):
                raise TypeError(f"start must be a SoftBCFWState, got {type(start).__name__}")
            for name in ("nodes", "edges", "multipliers"):
                own, expected = getattr(start, name), getattr(labels, name)
                if own.shape != expected.shape:
                    raise ValueError(
                        f"start must have {name} of shape {tuple(expected.shape)}, got {tuple(own.shape)}: "
                        "it is of another problem"
                    )
            point = replace(start.point, weights=dual.weights(start.point))
            if self.penalty != "multipliers":
                point = replace(point, multipliers=labels.multipliers)
        return SoftBCFWState(**vars(point), rho=self.strength(dual, 0))

    def advance(
        self, problem: Problem, lam: float, state: SoftBCFWState, rng: np.random.Generator, budget: int
    ) -> SoftBCFWState:
        """One pass: a step on every block, on average or exactly, so many times."""
        dual, point = self.soft(problem, lam), state.point
        rho = self.strength(dual, state.passes)
        if self.penalty == "multipliers":
            point = dual.with_multipliers(point, rho)
        if isinstance(dual, ModuleSoftDual) or self.order == "examples":
            order = torch.from_numpy(rng.permutation(problem.n))
            point = dual.sweep_examples(point, order, rho, self.steps, self.sweeps)
        else:
            order = torch.from_numpy(rng.integers(dual.blocks, size=self.sweeps * dual.blocks))
            point = dual.sweep_blocks(point, order, rho, self.steps)
        problem.oracle_calls += self.sweeps * problem.n
        return replace(state, **vars(point), rho=rho, passes=state.passes + 1)

    def strength(self, dual: SoftDual | ModuleSoftDual, passes: int) -> float:
        """ρ of the pass after so many."""
        rho = self.rho or _PER_DEGREE * dual.graphs.mean_degree or 1.0
        return rho / (1 + passes) ** 0.5 if self.penalty == "decreasing" else rho

    def evaluate(self, problem: Problem, lam: float, state: SoftBCFWState) -> SoftPass:
        """The values of the dual point; nothing is inferred."""
        dual = self.soft(problem, lam)
        values = dual.values(state.point, state.rho)
        if self.penalty == "constant":
            objective, bound = values.soft, values.dual
        else:
            objective, bound = values.hard, dual.bound(state.point)
        loss = objective - lam / 2 * float(state.weights.square().sum())
        return SoftPass(state.weights, Max(), loss, empty(), loss, values=values, bound=bound)

    def metrics(self, state: SoftBCFWState) -> dict[str, float]:
        """Values of the soft and of the hard problem, how much nodes and edges disagree, and ρ."""
        names = ("soft_objective", "soft_dual", "hard_objective", "disagreement", "rho")
        return {name: getattr(state, name) for name in names}
