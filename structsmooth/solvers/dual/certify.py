"""A certificate for any weights: a lower bound on the optimum by a solver of the dual."""

import math
from contextlib import suppress
from dataclasses import dataclass

import numpy as np
from torch import Tensor

from structsmooth.problems.base import Problem
from structsmooth.settings import check_number, parse_lam
from structsmooth.solvers.bcfw import BCFW, BCFWState
from structsmooth.solvers.dual.base import checked_hinges
from structsmooth.solvers.dual.proximal import ProximalBCFW
from structsmooth.solvers.state import Work


@dataclass(frozen=True)
class Certificate:
    """How far some weights w are from the optimum, whatever solver they come from.

    Attributes:
        objective: F(w).
        dual: D(m) ≤ min F at the dual point that was found.
        reference_gap: the duality gap of the weights that the solver came to: no dual is larger than ``dual`` by more.
        passes: passes of the solver of the dual that found it.
        oracle_calls: inferences, including those for F(w) and the reference gap.
        seconds: time of these inferences and passes.
        state: the dual point. It serves as ``start`` for other weights, and for other λ.
    """

    objective: float
    dual: float
    reference_gap: float
    passes: int
    oracle_calls: int
    seconds: float
    state: BCFWState

    @property
    def gap(self) -> float:
        """F(w) − D(m): the suboptimality F(w) − min F is no larger."""
        return self.objective - self.dual

    @property
    def suboptimality_lower_bound(self) -> float:
        """The suboptimality is at least this: the weights that the solver came to are better by as much."""
        return max(self.gap - self.reference_gap, 0.0)

    def __str__(self) -> str:
        least, most = self.suboptimality_lower_bound, self.gap
        return (
            f"objective {self.objective:.6g}, above the optimum by {least:.3g} at least, {most:.3g} at most "
            f"({self.passes} dual passes, {self.oracle_calls:,} oracle calls, {self.seconds:.1f} seconds)"
        )


def certify(
    problem: Problem,
    weights: Tensor,
    lam: float | str,
    *,
    accuracy: float = 0.1,
    passes: int = 100,
    seed: int = 0,
    solver: BCFW = ProximalBCFW(),  # noqa: B008 - immutable
    start: BCFWState | None = None,
) -> Certificate:
    """Bound the distance of any weights from the optimum of (1/n) Σ f_i(w) + (λ/2)‖w‖².

    It makes passes of a solver of the dual (Osokin et al. 2016) from the labels, until the dual can rise by no more
    than ``accuracy`` times the gap: then gap and suboptimality agree up to a factor of 1/(1 − accuracy). For weights
    that are nearly optimal, passes also end when the gap is below ``solver.gap_tolerance`` times the objective. Ctrl-C
    ends them too. The same seed gives the same certificate.

    Args:
        problem: a linear problem of hinges.
        weights: w, [dim], converted to the dtype and device of ``problem.start()``.
        lam: λ > 0, a number or text such as ``"1/n"``.
        accuracy: relative accuracy of the gap; at least 0.
        passes: limit on passes; 0 for the bound of the start.
        seed: of the order of examples.
        solver: solver of the dual.
        start: ``state`` of another certificate or run on this problem, for this λ or another.

    Raises:
        TypeError: a problem that is not linear, numbers or a start of the wrong type.
        ValueError: a problem not of hinges, λ ≤ 0, weights of another shape or with an infinite objective.

    Example:
        >>> import torch
        >>> from structsmooth import certify
        >>> from structsmooth.problems import SparseChainProblem, SparseSequences
        >>> from structsmooth.solvers import SVRG
        >>> offsets = torch.tensor([0, 1, 2, 3])
        >>> sequences = SparseSequences(torch.tensor([0, 1, 1], dtype=torch.int32), offsets, offsets)
        >>> problem = SparseChainProblem(sequences, torch.tensor([0, 1, 0]), features=2, states=2)
        >>> result = SVRG().solve(problem, lam=0.1, passes=40)
        >>> certificate = certify(problem, result.weights, 0.1)
        >>> bool(certificate.suboptimality_lower_bound <= certificate.gap < 0.01)
        True
    """
    lam, accuracy = parse_lam(lam, problem.total_weight), check_number("accuracy", accuracy)
    passes, seed = check_number("passes", passes, integer=True), check_number("seed", seed, integer=True)
    checked_hinges("certify", problem, lam)
    work = Work()

    def dual() -> float:
        assert state.dual is not None  # known for every dual iterate
        return state.dual

    def reference_gap() -> float:
        return _objective(problem, state.weights, lam) - dual()

    def accurate(gap_there: float) -> bool:
        gap = objective - dual()
        return gap_there <= accuracy * gap or gap <= solver.gap_tolerance * objective

    with work.counted(problem):
        state = solver.first_state(problem, lam, start, seed)
        objective = _objective(problem, weights, lam)
        with suppress(KeyboardInterrupt):
            while state.passes < passes:
                rng = np.random.default_rng([seed, state.passes])
                state = solver.advance(problem, lam, state, rng, passes - state.passes)
                # An estimate by the block gaps as last seen costs nothing, and says when to compute the current ones.
                if accurate(solver.metrics(state)["estimated_gap"]) and accurate(reference_gap()):
                    break
        last = reference_gap()
    return Certificate(objective, dual(), last, state.passes, work.oracle_calls, work.seconds, state)


def _objective(problem: Problem, weights: Tensor, lam: float) -> float:
    """The objective F(w) of a problem at λ."""
    start = problem.start()
    if not isinstance(weights, Tensor):
        raise TypeError(f"weights must be a torch.Tensor, got {type(weights).__name__}")
    if weights.shape != start.shape:
        raise ValueError(f"weights must have shape [dim] = {tuple(start.shape)}, got {tuple(weights.shape)}")
    weights = weights.detach().to(start)
    objective = problem.loss(weights) + lam / 2 * float(weights @ weights)
    if not math.isfinite(objective):
        raise ValueError(f"weights must have a finite objective, got {objective}")
    return objective
