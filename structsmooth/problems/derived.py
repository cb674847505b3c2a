"""Problems that are made of another one."""

from typing import TypeVar

from torch import Tensor

from structsmooth.problems.base import Problem

D = TypeVar("D", bound="DerivedProblem")


class DerivedProblem(Problem):
    """A problem over the examples of another, with its sizes and bounds, whose oracle calls count as its own."""

    def __init__(self, problem: Problem) -> None:
        self.problem = problem
        self.n, self.dim, self.smoother, self.bounds = problem.n, problem.dim, problem.smoother, problem.bounds
        self.batch_size, self.chunk_size = problem.batch_size, problem.chunk_size
        self.sample_weight, self.origins = problem.sample_weight, problem.origins

    def weighted(self: D, sample_weight: Tensor) -> D:
        """The same problem with weights of examples, also for the passes of the other problem."""
        derived = super().weighted(sample_weight)
        derived.problem = self.problem.weighted(sample_weight)
        return derived

    def load(self, w: Tensor) -> None:
        """As for the other problem."""
        self.problem.load(w)

    @property
    def affine(self) -> bool:
        """As for the other problem."""
        return self.problem.affine

    @property
    def affine_scores(self) -> bool:
        """As for the other problem."""
        return self.problem.affine_scores

    @property
    def partial(self) -> bool:
        """As for the other problem."""
        return self.problem.partial

    def inferences(self, indices: Tensor) -> int:
        """As for the other problem."""
        return self.problem.inferences(indices)

    @property
    def oracle_calls(self) -> int:
        """Oracle calls of the other problem."""
        return self.problem.oracle_calls

    @oracle_calls.setter
    def oracle_calls(self, calls: int) -> None:
        self.problem.oracle_calls = calls
