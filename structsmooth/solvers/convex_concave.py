"""The concave-convex procedure for linear scores with partial labels (Yuille and Rangarajan 2003)."""

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from structsmooth.history import Row
from structsmooth.problems.base import FullPass, Problem
from structsmooth.settings import PositiveInt
from structsmooth.solvers.base import Solver
from structsmooth.solvers.bcfw import BCFW
from structsmooth.solvers.dual.proximal import ProximalBCFW
from structsmooth.solvers.primal.gradient import GradientSolver, first_weights
from structsmooth.solvers.sdca import ProximalSDCA
from structsmooth.solvers.state import PassMemo, State, Status, empty


@dataclass
class ConvexConcaveState(State):
    """After iteration k: ``weights`` is w_k."""

    inner: State | None = None  # of the inner solver on convex problem k, where the next one may begin with it
    objective: float = math.inf  # F(w_k)
    convex_gap: float | None = None  # duality gap of convex problem k at the weights that were found
    bound_decrease: float | None = None  # F(w_{k-1}) less the lower bound on convex problem k

    def observe(self, full: FullPass, lam: float) -> None:
        """Learn F(w_k)."""
        assert full.loss is not None
        self.objective = full.loss + lam / 2 * float(self.weights @ self.weights)

    def split(self) -> tuple[dict[str, Any], dict[str, Any]]:
        """Tensors and numbers, those of the inner state by names with a prefix."""
        tensors, numbers = super().split()
        numbers["inner"] = None if self.inner is None else type(self.inner).__name__
        for own, values in zip((tensors, numbers), ({}, {}) if self.inner is None else self.inner.split(), strict=True):
            own |= {_PREFIX + name: value for name, value in values.items()}
        return tensors, numbers

    @classmethod
    def joined(cls, tensors: dict[str, Any], numbers: dict[str, Any]) -> "ConvexConcaveState":
        """The inverse of :meth:`split`."""
        kinds, kind = {own.__name__: own for own in _kinds(State)}, numbers["inner"]
        inner = [
            {n.removeprefix(_PREFIX): v for n, v in own.items() if n.startswith(_PREFIX)} for own in (tensors, numbers)
        ]
        return super().joined(tensors, numbers | {"inner": None if kind is None else kinds[kind].joined(*inner)})


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

    Solvers of the dual and :class:`~structsmooth.ProximalSDCA` start from the dual point of the convex problem before,
    other solvers from w_{k-1}. If all labels are known, there is one convex problem, which is solved to the end.

    Args:
        inner: solver of the convex problems: ``ProximalBCFW`` or ``BCFW`` for hinges, ``ProximalSDCA`` for likelihoods,
            or any solver of smooth or smoothed losses.
        inner_passes: limit on passes for each convex problem, if the inner solver does not converge before.

    Reference:
        Yuille and Rangarajan (2003), "The concave-convex procedure"; Yu and Joachims (2009), "Learning structural SVMs
        with latent variables".

    Example:
        >>> import torch
        >>> from structsmooth import DenseChainProblem
        >>> x, y = torch.eye(2).repeat(4, 1), torch.tensor([0, 1]).repeat(4)
        >>> problem = DenseChainProblem(x, y, torch.tensor([4, 4]), states=2)
        >>> partial = problem.with_unknown(torch.tensor([False, False, True, True]).repeat(2))
        >>> ConvexConcave().solve(partial, lam=0.1, passes=100).status
        <Status.CONVERGED: 'converged'>
    """

    inner: Solver[Any] = ProximalBCFW()  # noqa: RUF009 - immutable
    inner_passes: PositiveInt = 10

    state_type = ConvexConcaveState
    counts_evaluations = True

    def __post_init__(self) -> None:
        super().__post_init__()
        if not isinstance(self.inner, Solver) or isinstance(self.inner, ConvexConcave):
            raise TypeError(f"inner must be a solver of convex problems, such as ProximalBCFW(), got {self.inner!r}")

    @property
    def oracle(self) -> str:
        """That of the inner solver."""
        return self.inner.oracle

    @property
    def threads(self) -> int:
        """Those of the inner solver."""
        return self.inner.threads

    def check(self, problem: Problem, lam: float) -> None:
        """Refuse scores that are not linear.

        Raises:
            ValueError: scores that are not linear.
        """
        if not problem.affine_scores:
            raise ValueError("ConvexConcave needs scores that are linear: take ProxLinear(inner=CasimirSVRG())")

    def first_state(self, problem: Problem, lam: float, start: Any, seed: int) -> ConvexConcaveState:
        """The given weights."""
        return ConvexConcaveState(first_weights(problem, start))

    def evaluate(self, problem: Problem, lam: float, state: ConvexConcaveState) -> FullPass:
        """The loss alone."""
        loss, smoother = problem.loss(state.weights), problem.effective_smoother(self.smoother(state))
        return FullPass(state.weights, smoother, loss, empty(), loss)

    def advance(
        self, problem: Problem, lam: float, state: ConvexConcaveState, rng: np.random.Generator, budget: int
    ) -> ConvexConcaveState:
        """One iteration: passes of the inner solver on the convex problem at the weights."""
        convex = problem.linearize(state.weights)
        calls, before = problem.oracle_calls, convex.oracle_calls
        passes, seed, begin = min(self.inner_passes, budget), int(rng.integers(2**31)), self._begin(state)
        result = self.inner.solve(convex, lam=lam, passes=passes, seed=seed, start=begin)
        problem.oracle_calls = calls + convex.oracle_calls - before
        if result.status is Status.INTERRUPTED:
            raise KeyboardInterrupt
        made = max(result.state.passes, 1)
        new = replace(state, passes=state.passes + made, convex_gap=result.row.gap, bound_decrease=None)
        if isinstance(self.inner, _WARM):
            new.inner = replace(result.state, best=empty(), memo=PassMemo())
        if result.row.dual is not None:
            new.bound_decrease = state.objective - result.row.dual
        candidate = replace(new, weights=result.weights)
        full = self.evaluate(problem, lam, candidate)
        candidate.observe(full, lam)
        # If the convex problem is not solved well enough, the next iteration goes on with the same one.
        accepted = candidate if candidate.objective <= state.objective else new
        accepted.memo = PassMemo(full) if accepted is candidate else PassMemo()
        return accepted

    def converged(self, state: ConvexConcaveState, row: Row) -> bool:
        """Whether an exact solution of the last convex problem would have gained no more than the tolerance."""
        possible = state.bound_decrease
        return possible is not None and possible <= self.gap_tolerance * row.objective

    def metrics(self, state: ConvexConcaveState) -> dict[str, float]:
        """Duality gap of the last convex problem, and what an exact solution of it could have gained."""
        found = {"convex_gap": state.convex_gap, "bound_decrease": state.bound_decrease}
        return {name: value for name, value in found.items() if value is not None}

    def _begin(self, state: ConvexConcaveState) -> Any:
        """What the inner solver starts from."""
        if isinstance(self.inner, _WARM):
            return state.inner
        return state.weights if isinstance(self.inner, GradientSolver) else None


# Solvers whose states are points of the dual of problems with any labels.
_WARM = (BCFW, ProximalSDCA)
_PREFIX = "inner."


def _kinds(kind: type[State]) -> Iterator[type[State]]:
    """A kind of states and all that are derived from it."""
    yield kind
    for own in kind.__subclasses__():
        yield from _kinds(own)
