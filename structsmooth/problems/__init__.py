"""Finite sums that solvers minimize."""

from structsmooth.problems.base import FullPass, Problem
from structsmooth.problems.linear import LinearProblem
from structsmooth.problems.linear_module import LinearModuleProblem
from structsmooth.problems.linearized import LinearizedProblem
from structsmooth.problems.module import ModuleProblem
from structsmooth.problems.sharding import ShardedLinearProblem, ShardedProblem, sharded
from structsmooth.problems.shifted import ShiftedProblem
from structsmooth.problems.sparse_chain import SparseChainProblem

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
