"""Block-coordinate Frank-Wolfe under soft agreement of nodes and factors (Meshi, Srebro and Hazan 2015)."""

import math
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, Literal

import numpy as np
import torch
from torch import Tensor

from structsmooth.problems.base import FullPass, Problem
from structsmooth.problems.linear.module import LinearModuleProblem
from structsmooth.settings import Positive, PositiveInt
from structsmooth.smoothing import Entropy
from structsmooth.solvers.averaging import ONE_A_PASS, newest_weight
from structsmooth.solvers.dual.base import DualSolver, check_unweighted, checked_hinges_or_likelihood
from structsmooth.solvers.dual.proximal import kappa_of
from structsmooth.solvers.lower_bound import DualPoint
from structsmooth.solvers.soft_bcfw.dual import SoftDual, SoftSteps, SoftValues, soft_dual
from structsmooth.solvers.soft_bcfw.modules import ModuleSoftDual
from structsmooth.solvers.soft_bcfw.pieces import Decomposition
from structsmooth.solvers.soft_bcfw.point import SoftPoint
from structsmooth.solvers.soft_bcfw.smoothed import SmoothedSoftDual
from structsmooth.solvers.state import State, empty

Penalty = Literal["multipliers", "constant"]
Order = Literal["examples", "uniform"]

# ρ by default, per mean number of edges of a node.
_PER_DEGREE = 0.375


@dataclass(frozen=True, kw_only=True)
class SoftPass(FullPass):
    """The evaluation of a dual point: no inference, but the maxima of all blocks."""

    values: SoftValues
    near: tuple[Tensor, float] | None  # a dual point of the hard problem, if that is what is solved


@dataclass
class SoftBCFWState(State):
    """Adds the dual point and its values.

    With multipliers, ``weights`` and ``messages`` are averages of the prox-centers w and δ, and the weights of the
    point are those of its marginals at λ. With other penalties, ``weights`` are these.
    """

    point: SoftPoint = field(kw_only=True)  # its multipliers are δ of the last pass, or δ̄
    center: Tensor = field(default_factory=empty)  # w of the last pass
    messages: Tensor = field(default_factory=empty)
    scale: float = 0.0  # κ_0
    kappa: float = 0.0  # of the last pass
    mixture: DualPoint | None = None  # of marginals so far, the best
    rho: float = 0.0
    soft_objective: float = 0.0  # g_ρ
    soft_dual: float = 0.0  # f_ρ
    hard_objective: float = 0.0  # g
    disagreement: float = 0.0

    def observe(self, full: FullPass, lam: float) -> None:
        """Keep the values of the point, and the best lower bound."""
        assert isinstance(full, SoftPass)
        self.soft_objective, self.soft_dual = full.values.soft, full.values.dual
        self.hard_objective, self.disagreement = full.values.hard, full.values.disagreement
        bound = full.values.dual
        if full.near is not None:
            new = DualPoint(*full.near)
            self.mixture = (self.mixture or DualPoint(torch.zeros_like(new.gradient))).improved(new, lam)
            bound = self.mixture.value(lam)
        self.dual = bound if self.dual is None else max(self.dual, bound)


@dataclass(frozen=True)
class SoftBCFW(DualSolver[SoftBCFWState]):
    """Block-coordinate Frank-Wolfe on a dual whose blocks are nodes, edges and factors, which are only asked to agree.

    The linear relaxation of a structural hinge asks for marginals of nodes and edges that agree, which couples all of
    an example. With a penalty (1/(2ρ))‖μ_c − μ_i‖² in place of this constraint every node and every edge has a simplex
    of its own: a step maximizes over the states of one node or the pairs of one edge, and its line search is exact. No
    inference on whole examples is needed, so graphs may have any loops and any number of states. It needs λ > 0 and a
    :class:`~structsmooth.problems.FactorGraphProblem`, whose steps are compiled, or a
    :class:`~structsmooth.LinearModuleProblem` over factor graphs, where a step sweeps an example and moves the weights
    once. A run starts from the labels, w = 0, or from the state of another run on the same problem, for this λ or
    another.

    Graphs of a ``LinearModuleProblem`` may have factors over any number of nodes. A factor is a block, too, whose step
    takes the best labels of its scope: what it holds are marginals and a few labelings, and no table. With
    ``decomposition="forests"`` the edges of an example are grouped into forests, which dynamic programming solves. With
    ``"whole"``, one block has all edges and factors, and its step is exact inference: then the hinges are exact, and
    not those of the relaxation (the y_c = y of the paper).

    By default, the problem of the local polytope itself is solved, by proximal points on both the weights and the
    messages δ: a pass goes up the dual of g(w, δ) + (κ/2)‖w − z‖² + (ρ/(2n))‖δ − δ̄‖², from the marginals of the last
    pass, and its w and δ are the centers z and δ̄ of the next. So messages and weights keep pace, whatever λ is: without
    the first term, weights run ahead of messages if λ is small, and the objective rises far above its start. As in
    :class:`~structsmooth.ProximalBCFW`, one pass for each center is observed to be enough, and not proved; weights and
    messages are averages of the centers, mostly of the last ninth. The objective of the history is g at these averages,
    an upper bound on the hinges of the local polytope at the weights, and the dual is that of the best mixture of
    marginals that agree, near those of the iterates; of their agreement on edges, the best counts. Metrics are
    ``disagreement``, the root mean square of μ_c − μ_i, ``rho`` and ``kappa``.

    A ``LinearModuleProblem`` with the smoother ``Entropy(h)`` has smoothed maxima of nodes, edges and factors, or of
    whole examples. Without factors, the objective of multipliers is that over the
    :class:`~structsmooth.factors.LocalPolytope` with this smoother, an upper bound on the loss of the graph itself.
    Steps then go towards Gibbs distributions, whatever ``steps`` is.

    With a constant penalty, the objective of the history is g_ρ(w, δ) = g(w, δ) + (ρ/(2n))‖δ‖², an upper bound on that
    of the local polytope. Its dual f_ρ never decreases, and the gap is the sum of the block gaps. Metrics are g_ρ, f_ρ,
    g and the disagreement as ``soft_objective``, ``soft_dual``, ``hard_objective`` and ``disagreement``, and ``rho``.
    No oracle is called with any penalty: maximizing once over every block of an example counts as one call.

    ``SoftBCFW(rho=rho, penalty="constant", steps="fw", order="uniform")`` is Algorithm 1 of the paper, except that ρ is
    for each example: the paper's ρ, times the number of examples. On binary graphs and on forests, exact inference or
    that of the relaxation is cheap, and :class:`~structsmooth.BCFW` with it needs fewer passes.

    Args:
        rho: ρ > 0, for each example: with smaller values, nodes and edges agree more closely, and progress is slower.
            If not given, it is 3/8 of the mean number of edges of a node, or 1 without edges: a node divides its score
            among its edges, so the more edges it has, the smaller are their messages.
        penalty: ``"multipliers"`` add (μ_c − μ_i)/ρ to multipliers of the constraints after every pass, which makes
            nodes and edges agree in the end, whatever ρ is; ``"constant"`` keeps ρ fixed, as in the paper.
        kappa: κ > 0, strength of the proximal term on weights, for multipliers alone. If not given, it is that of
            :class:`~structsmooth.ProximalBCFW`, from the best labels of nodes at zero weights.
        steps: ``"fw"`` from the marginals of a block towards its best state; ``"pairwise"`` from the worst state that
            they hold towards it.
        order: ``"examples"`` for all blocks of one example in turn, nodes first, and examples in random order;
            ``"uniform"`` for blocks drawn at random, with replacement, of a ``FactorGraphProblem``.
        sweeps: number of times that a pass goes through the blocks of an example.
        decomposition: blocks of a ``LinearModuleProblem``, besides nodes: ``"factors"`` for each edge and each factor;
            ``"forests"`` for as few forests as are found that share the edges, and each factor; ``"whole"`` for all
            edges and factors together.

    Raises:
        MemoryError: exact inference for ``decomposition="whole"`` exceeds the limits of the graph.

    Example:
        >>> import torch
        >>> from structsmooth.problems import FactorGraphProblem, FactorGraphs
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
        Meshi, Srebro and Hazan (2015), Algorithm 1 and section 7.
    """

    rho: Positive | None = None
    penalty: Penalty = "multipliers"
    steps: SoftSteps = "pairwise"
    order: Order = "examples"
    sweeps: PositiveInt = 1
    kappa: Positive | None = None
    decomposition: Decomposition = "factors"

    state_type: ClassVar[type[SoftBCFWState]] = SoftBCFWState
    oracle = "none"  # a step decodes one node or factor

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.kappa is not None and not self._proximal:
            raise ValueError(f"kappa needs penalty='multipliers', which has a proximal term, got {self.penalty!r}")

    def check(self, problem: Problem, lam: float) -> None:
        """Refuse what has no factor graphs, and λ = 0."""
        self.soft(problem, lam)

    def soft(self, problem: Problem, lam: float) -> SoftDual | ModuleSoftDual:
        """The dual that the solver maximizes."""
        name = type(self).__name__
        if not isinstance(problem, LinearModuleProblem):
            dual = soft_dual(name, problem, lam)
            if self.decomposition != "factors":
                raise ValueError(
                    f"decomposition must be 'factors' for a FactorGraphProblem, got {self.decomposition!r}: give the "
                    "scores as a LinearModuleProblem over FactorGraph, or take BCFW"
                )
            return dual
        check_unweighted(name, checked_hinges_or_likelihood(name, problem, lam))
        if self.order != "examples":
            raise ValueError(f"order must be 'examples' for a LinearModuleProblem, got {self.order!r}")
        if isinstance(problem.smoother, Entropy):
            return SmoothedSoftDual(problem, lam, self.decomposition, problem.smoother.mu)
        return ModuleSoftDual(problem, lam, self.decomposition)

    def first_state(self, problem: Problem, lam: float, start: Any, seed: int) -> SoftBCFWState:
        """The labels (line 1), or the marginals, weights and messages of ``start``."""
        dual = self.soft(problem, lam)
        labels = point = dual.labels()
        center = labels.weights
        if start is not None:
            if not isinstance(start, SoftBCFWState):
                raise TypeError(f"start must be a SoftBCFWState, got {type(start).__name__}")
            for name in ("nodes", "edges", "multipliers", "places", "finals", "entropies"):
                given, expected = getattr(start.point, name), getattr(labels, name)
                if given.shape != expected.shape:
                    raise ValueError(
                        f"start must have {name} of shape {tuple(expected.shape)}, got {tuple(given.shape)}: "
                        "it is of another problem"
                    )
            point, center = replace(start.point, weights=dual.weights(start.point)), start.weights
        rho = self.rho or _PER_DEGREE * dual.mean_degree or 1.0
        if not self._proximal:
            return SoftBCFWState(point.weights, point=replace(point, multipliers=labels.multipliers), rho=rho)
        if isinstance(start, SoftBCFWState):
            known = len(start.messages) == len(labels.multipliers)  # else of a run with another penalty
            messages = start.messages if known else dual.with_multipliers(point, start.rho).multipliers
            point = replace(point, multipliers=messages)
        return SoftBCFWState(
            center,
            point=point,
            center=center,
            messages=point.multipliers,
            scale=dual.scale() if self.kappa is None else 0.0,
            rho=rho,
        )

    def advance(
        self, problem: Problem, lam: float, state: SoftBCFWState, rng: np.random.Generator, budget: int
    ) -> SoftBCFWState:
        """One pass: a step on every block, on average or exactly, so many times."""
        if not self._proximal:
            point = self._pass(self.soft(problem, lam), state.point, state.rho, rng)
            return replace(state, weights=point.weights, point=point, passes=state.passes + 1)
        kappa = self.kappa or kappa_of(lam, state.scale)
        dual = self.soft(problem, lam + kappa)
        begin = (kappa * state.center).add_(state.point.weights, alpha=lam).div_(lam + kappa)
        point = self._pass(dual, replace(state.point, weights=begin), state.rho, rng)
        point = dual.with_multipliers(point, state.rho)
        newest = newest_weight(state.passes + 1, ONE_A_PASS)
        return replace(
            state,
            weights=torch.lerp(state.weights, point.weights, newest),
            point=replace(point, weights=(point.weights - state.center).mul_(kappa / lam).add_(point.weights)),
            center=point.weights,
            messages=torch.lerp(state.messages, point.multipliers, newest),
            kappa=kappa,
            passes=state.passes + 1,
        )

    def evaluate(self, problem: Problem, lam: float, state: SoftBCFWState) -> SoftPass:
        """The values of the dual point, or of the averages; nothing is inferred."""
        dual, near = self.soft(problem, lam), None
        if self._proximal:
            averages = replace(state.point, weights=state.weights, multipliers=state.messages)
            values, near = dual.values(averages, math.inf), dual.near(state.point)
            objective = values.hard
        else:
            values = dual.values(state.point, state.rho)
            objective = values.soft
        loss = objective - lam / 2 * float(state.weights.square().sum())
        return SoftPass(state.weights, problem.smoother, loss, empty(), loss, values=values, near=near)

    def metrics(self, state: SoftBCFWState) -> dict[str, float]:
        """How much nodes and edges disagree, ρ and κ; or the values of the soft and of the hard problem."""
        soft = ("soft_objective", "soft_dual", "hard_objective")
        names = ("disagreement", "rho", *(("kappa",) if self._proximal else soft))
        return {name: getattr(state, name) for name in names}

    @property
    def _proximal(self) -> bool:
        """Whether proximal points solve the hard problem."""
        return self.penalty == "multipliers"

    def _pass(
        self, dual: SoftDual | ModuleSoftDual, point: SoftPoint, rho: float, rng: np.random.Generator
    ) -> SoftPoint:
        """Steps on blocks in the order of the solver."""
        problem = dual.problem
        problem.oracle_calls += self.sweeps * problem.n
        if isinstance(dual, ModuleSoftDual) or self.order == "examples":
            order = torch.from_numpy(rng.permutation(problem.n))
            return dual.sweep_examples(point, order, rho, self.steps, self.sweeps)
        order = torch.from_numpy(rng.integers(dual.blocks, size=self.sweeps * dual.blocks))
        return dual.sweep_blocks(point, order, rho, self.steps)
