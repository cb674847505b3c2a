"""Finite sums that are made of others."""

from structsmooth.problems.base import Problem


class DerivedProblem(Problem):
    """A problem over the examples of another, with its sizes and bounds, whose oracle calls count as its own.

    Args:
        problem: the other.
    """

    def __init__(self, problem: Problem) -> None:
        self.problem = problem
        self.n, self.dim, self.smoother, self.bounds = problem.n, problem.dim, problem.smoother, problem.bounds
        self.batch_size, self.chunk_size = problem.batch_size, problem.chunk_size

    @property
    def oracle_calls(self) -> int:
        """Oracle calls of the other problem."""
        return self.problem.oracle_calls

    @oracle_calls.setter
    def oracle_calls(self, calls: int) -> None:
        self.problem.oracle_calls = calls
