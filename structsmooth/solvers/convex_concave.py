"""The concave-convex procedure for linear scores with partial labels (Yuille and Rangarajan 2003)."""

import math
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from structsmooth.history import History, Row
from structsmooth.problems.base import FullPass, Problem
from structsmooth.problems.linear.base import LinearProblem
from structsmooth.problems.linear.difference import DifferenceProblem
from structsmooth.settings import PositiveInt
from structsmooth.solvers.base import Solver
from structsmooth.solvers.bcfw import BCFW, BCFWState
from structsmooth.solvers.dual.proximal import ProximalBCFW, ProximalBCFWState
from structsmooth.solvers.primal.gradient import GradientSolver, first_weights
from structsmooth.solvers.sdca import ProximalSDCA, ProximalSDCAState
from structsmooth.solvers.sdca.steps import SmoothedIterate
from structsmooth.solvers.state import PassMemo, State, Status, empty


@dataclass
class ConvexConcaveState(State):
    """After iteration k: ``weights`` is w_k."""

    inner: State | None = None  # of the inner solver on convex problem k, if problem k + 1 begins with it
    labels: Tensor = field(default_factory=empty)  # of convex problem k, if the inner solver is BCFW
    unfinished: bool = False  # whether w_k is w_{k-1}, so that problem k + 1 is the same
    objective: float = math.inf  # F(w_k)
    convex_gap: float | None = None  # duality gap of convex problem k at the weights that were found
    bound_decrease: float | None = None  # F(w_{k-1}) less the lower bound on convex problem k

    def observe(self, full: FullPass, lam: float) -> None:
        """Takes F(w_k) from its full pass."""
        assert full.loss is not None
        self.objective = full.loss + lam / 2 * float(self.weights @ self.weights)


@dataclass(frozen=True)
class ConvexConcave(Solver[ConvexConcaveState]):
    """The concave-convex procedure: partial labels by a sequence of convex problems, for linear scores.

    The loss of partial labels is a convex function of the scores less another one, the smoothed maximum of the outputs
    that agree with the labels. Iteration k replaces that one by its tangent at w_{k-1}, and an inner solver minimizes
    the convex problem that results. The problem is an upper bound that touches F at w_{k-1}, so that F never rises. For
    hinges the tangent is the score of the best output that agrees: an iteration completes the labels, and trains on
    them. For likelihoods it is the expected score under the distribution over these outputs, and iterations are those
    of expectation-maximization.

    The history has one row for each iteration, with the metrics ``convex_gap``, the duality gap of the convex problem
    at w_k, and ``bound_decrease``, F(w_{k-1}) less the lower bound on the convex problem: an exact solution could not
    have lowered it by more. If that is at most ``gap_tolerance`` of the objective, w_{k-1} is a critical point of F up
    to the tolerance, and the run ends. There is no bound on F itself, which may have many such points: which one is
    found depends on the start.

    ``BCFW`` and ``ProximalBCFW`` go on from the convex problem before, except that examples whose completed labels have
    changed begin anew; ``ProximalSDCA`` starts from tangents at w_{k-1}, and other primal solvers
    from w_{k-1}. If all labels are known, there is one convex problem, which is solved to the end.

    Args:
        inner: solver of the convex problems: ``ProximalBCFW`` or ``BCFW`` for hinges, ``ProximalSDCA`` for likelihoods,
            or any solver of smooth or smoothed losses.
        inner_passes: limit on passes for each convex problem, if the inner solver does not converge before. Few are
            enough for ``ProximalBCFW``; ``ProximalSDCA``, which begins anew, needs ten or more.

    Reference:
        Yuille and Rangarajan (2003), "The concave-convex procedure"; Yu and Joachims (2009), "Learning structural SVMs
        with latent variables".

    Example:
        >>> import torch
        >>> from structsmooth.problems import DenseChainProblem
        >>> x, y = torch.eye(2).repeat(4, 1), torch.tensor([0, 1]).repeat(4)
        >>> problem = DenseChainProblem(x, y, torch.tensor([4, 4]), states=2)
        >>> partial = problem.with_unknown(torch.tensor([False, False, True, True]).repeat(2))
        >>> ConvexConcave().solve(partial, lam=0.1, passes=100).status
        <Status.CONVERGED: 'converged'>
    """

    inner: Solver[Any] = ProximalBCFW()  # noqa: RUF009 - immutable
    inner_passes: PositiveInt = 3

    state_type = ConvexConcaveState
    counts_evaluations = True

    def __post_init__(self) -> None:
        super().__post_init__()
        if not isinstance(self.inner, Solver) or isinstance(self.inner, ConvexConcave):
            raise TypeError(f"inner must be a solver of convex problems, such as ProximalBCFW(), got {self.inner!r}")

    @property
    def oracle(self) -> str:
        """The oracle of the inner solver."""
        return self.inner.oracle

    @property
    def threads(self) -> int:
        """The number of threads of the inner solver."""
        return self.inner.threads

    def check(self, problem: Problem, lam: float) -> None:
        """Refuse scores that are not linear.

        Raises:
            ValueError: scores that are not linear.
        """
        if not problem.affine_scores:
            raise ValueError("ConvexConcave needs scores that are linear: take ProxLinear(inner=CasimirSVRG())")

    def first_state(self, problem: Problem, lam: float, start: Any, seed: int) -> ConvexConcaveState:
        """State before the first pass, at the given weights."""
        return ConvexConcaveState(first_weights(problem, start))

    def evaluate(self, problem: Problem, lam: float, state: ConvexConcaveState) -> FullPass:
        """The loss at the weights, without its gradient, which nothing here needs."""
        loss, smoother = problem.loss(state.weights), problem.effective_smoother(self.smoother(state))
        return FullPass(state.weights, smoother, loss, empty(), loss)

    def advance(
        self, problem: Problem, lam: float, state: ConvexConcaveState, rng: np.random.Generator, budget: int
    ) -> ConvexConcaveState:
        """One iteration: passes of the inner solver on the convex problem at the weights."""
        convex = problem.linearize(state.weights)
        calls, before = problem.oracle_calls, convex.oracle_calls
        passes, seed = min(self.inner_passes, budget), int(rng.integers(2**31))
        begin = self._begin(problem, convex, lam, state)
        done = begin["resume"][0].passes if "resume" in begin else 0
        result = self.inner.solve(convex, lam=lam, passes=done + passes, seed=seed, **begin)
        problem.oracle_calls = calls + convex.oracle_calls - before
        if result.status is Status.INTERRUPTED:
            raise KeyboardInterrupt
        made = max(result.state.passes - done, 1)
        new = replace(state, passes=state.passes + made, inner=None, convex_gap=result.row.gap, bound_decrease=None)
        if result.row.dual is not None:
            new.bound_decrease = state.objective - result.row.dual
        candidate = replace(new, weights=result.weights)
        full = self.evaluate(problem, lam, candidate)
        candidate.observe(full, lam)
        new.unfinished = candidate.objective > state.objective  # then the next iteration goes on with the same problem
        if isinstance(convex, LinearProblem) and isinstance(result.state, BCFWState):
            candidate.inner = replace(result.state, best=result.weights, memo=PassMemo())
            candidate.labels = _labels(convex)
        if new.unfinished:
            new.inner = replace(result.state, best=state.weights, memo=PassMemo())
            return replace(new, memo=PassMemo())
        return replace(candidate, unfinished=False, memo=PassMemo(full))

    def converged(self, state: ConvexConcaveState, row: Row) -> bool:
        """Whether an exact solution of the last convex problem would have gained no more than the tolerance."""
        possible = state.bound_decrease
        return possible is not None and possible <= self.gap_tolerance * row.objective

    def metrics(self, state: ConvexConcaveState) -> dict[str, float]:
        """Duality gap of the last convex problem, and what an exact solution of it could have gained."""
        found = {"convex_gap": state.convex_gap, "bound_decrease": state.bound_decrease}
        return {name: value for name, value in found.items() if value is not None}

    def _begin(self, problem: Problem, convex: Problem, lam: float, state: ConvexConcaveState) -> dict[str, Any]:
        """Where the inner solver starts, as arguments of its ``solve``."""
        same = state.unfinished or (
            len(state.labels) and isinstance(convex, LinearProblem) and torch.equal(_labels(convex), state.labels)
        )
        if same and state.inner is not None:
            last, best = state.inner, state.objective
            gap = None if last.dual is None else best - last.dual
            row = Row(last.passes, last.oracle_calls, last.seconds, best, last.dual, gap)
            return {"resume": (last, History([row]))}
        if isinstance(self.inner, BCFW) and isinstance(convex, LinearProblem):
            kept = _kept(convex, state.inner, state.labels) if isinstance(state.inner, BCFWState) else None
            if not isinstance(self.inner, ProximalBCFW):
                return {"start": kept}
            # Its statistics may be far from the weights at λ, but not at λ + κ around the last weights.
            begun = self.inner.first_state(convex, lam, kept, 0)
            assert isinstance(begun, ProximalBCFWState)
            begun = replace(begun, weights=state.weights, center=state.weights)
            return {"resume": (begun, History([Row(0, 0, 0.0, state.objective)]))}
        if isinstance(self.inner, ProximalSDCA) and isinstance(problem, DifferenceProblem):
            statistics = problem.agreeing_statistics(state.weights)
            point = SmoothedIterate(state.weights, statistics, empty())
            return {"start": ProximalSDCAState(state.weights, point=point)}
        return {"start": state.weights if isinstance(self.inner, GradientSolver | ProximalSDCA) else None}


def _labels(problem: LinearProblem) -> Tensor:
    """The labels of all blocks, end to end."""
    return problem.label_sets(1)[0]


def _kept(problem: LinearProblem, state: BCFWState, labels: Tensor) -> BCFWState:
    """The state for a problem with other labels: blocks whose labels have changed begin with their labels.

    The statistics of the others would still be feasible there. But weights are sums over the statistics less the
    labels, divided by λ, and those of different outputs do not cancel.
    """
    point = state.point
    sizes, capacity = torch.tensor(problem.atom_offsets).diff(), point.alphas.shape[1]
    block_of = torch.arange(len(sizes)).repeat_interleave(sizes)
    changed = torch.zeros(len(sizes), dtype=torch.bool)
    changed[block_of[(_labels(problem) != labels).cpu()]] = True
    kept = state.moved(statistics=problem.with_labels(point.statistics, changed), stamps=point.stamps[:0])
    if not capacity:
        return kept
    atoms, alphas, _ = problem.label_sets(capacity)
    outputs = torch.where(changed.repeat_interleave(sizes * capacity).to(atoms.device), atoms, point.outputs)
    return kept.moved(outputs=outputs, alphas=torch.where(changed[:, None], alphas, point.alphas))
