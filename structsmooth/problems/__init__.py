"""Finite sums that solvers minimize."""

from structsmooth.problems.base import FullPass, Problem
from structsmooth.problems.linear.base import LinearProblem
from structsmooth.problems.linear.module import LinearModuleProblem
from structsmooth.problems.linear.sparse_chain import SparseChainProblem
from structsmooth.problems.linearized import LinearizedProblem
from structsmooth.problems.module import ModuleProblem
from structsmooth.problems.sharding import ShardedLinearProblem, ShardedProblem, sharded
from structsmooth.problems.shifted import ShiftedProblem

__all__ = [
    "FullPass",
    "LinearModuleProblem",
    "LinearProblem",
    "LinearizedProblem",
    "ModuleProblem",
    "Problem",
    "ShardedLinearProblem",
    "ShardedProblem",
    "ShiftedProblem",
    "SparseChainProblem",
    "sharded",
]
