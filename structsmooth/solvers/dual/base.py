"""Solvers that work on the dual of a linear problem of hinges."""

from dataclasses import dataclass

import torch

from structsmooth.problems.base import Problem
from structsmooth.problems.linear.base import LinearProblem
from structsmooth.problems.partition import PartitionedProblem
from structsmooth.smoothing import Entropy, Max
from structsmooth.solvers.base import Solver
from structsmooth.solvers.lower_bound import DualPoint
from structsmooth.solvers.state import S


@dataclass(frozen=True)
class DualSolver(Solver[S]):
    """A solver that needs the dual of a problem; its states hold a dual iterate and its value."""

    def check(self, problem: Problem, lam: float) -> None:
        """Refuse a problem without a dual: the solver needs linear scores, hinges and λ > 0."""
        self.linear(problem, lam)

    def linear(self, problem: Problem, lam: float) -> LinearProblem:
        """The problem, known to have a dual; see :func:`checked_hinges`."""
        return checked_hinges(type(self).__name__, problem, lam)


def uniform(problem: LinearProblem) -> tuple[DualPoint, float]:
    """The point of the dual with uniform distributions, and the mean of log |Y_i|, by one pass of the exp oracle."""
    full = problem.full_pass(torch.zeros_like(problem.start()), Entropy(_HOT))
    assert full.expected_cost is not None
    return DualPoint(full.gradient, full.expected_cost), full.smoothed_loss / _HOT


def checked_hinges(user: str, problem: Problem, lam: float) -> LinearProblem:
    """The problem, if it has the dual that its user needs.

    Raises:
        TypeError: a problem that is not linear.
        ValueError: losses that are no hinges, or λ = 0.
    """
    return _checked_dual(user, problem, lam, {Max: "hinges"})


def checked_hinges_or_likelihood(user: str, problem: Problem, lam: float) -> LinearProblem:
    """The problem, if it has a dual over distributions: one of hinges, or with the smoother ``Entropy(h)``.

    Raises:
        TypeError: a problem that is not linear.
        ValueError: losses of another kind, or λ = 0.
    """
    return _checked_dual(user, problem, lam, {Max: "hinges", Entropy: "likelihoods"})


def _checked_dual(user: str, problem: Problem, lam: float, losses: dict[type, str]) -> LinearProblem:
    """The problem, if its losses are of these kinds, named by their smoothers, and λ > 0."""
    linear = checked_linear(user, problem)
    if not isinstance(linear.smoother, tuple(losses)):
        kinds = " or ".join(losses.values())
        raise ValueError(f"{user} needs a problem of {kinds}, got one with {linear.smoother}; ProximalSDCA trains it")
    if lam == 0:
        raise ValueError(f"{user} needs lam > 0 for a dual; ProximalSDCA trains without one")
    return linear


def entropy_level(problem: LinearProblem) -> float:
    """h of a problem whose smoother is ``Entropy(h)``; 0 for hinges."""
    return problem.smoother.mu if isinstance(problem.smoother, Entropy) else 0.0


def checked_linear(user: str, problem: Problem) -> LinearProblem:
    """The problem, if it is linear; raises TypeError if not."""
    if isinstance(problem, PartitionedProblem):
        raise TypeError(f"{user} needs all examples in each process, got a PartitionedProblem; take CoCoA")
    if problem.partial:
        raise TypeError(f"{user} needs complete labels, since partial ones have no dual: take ConvexConcave")
    if not isinstance(problem, LinearProblem):
        raise TypeError(
            f"{user} needs a LinearProblem, got {type(problem).__name__}, which has no dual; "
            "CasimirSVRG trains without one, and ProxLinear where scores are not linear"
        )
    return problem


def check_unweighted(user: str, problem: Problem) -> None:
    """Raise ValueError for examples that do not count alike."""
    if problem.sample_weight is not None:
        raise ValueError(f"{user} takes no weights of examples; take BCFW, or ProximalBCFW")


# At this level of smoothing, Gibbs distributions are uniform to the last digits that costs leave.
_HOT = 1e12
