"""Finite sums that solvers minimize."""

from structsmooth.problems.base import FullPass, Problem
from structsmooth.problems.linear import LinearProblem
from structsmooth.problems.linear_module import LinearModuleProblem
from structsmooth.problems.module import ModuleProblem
from structsmooth.problems.sparse_chain import SparseChainProblem

__all__ = ["FullPass", "LinearModuleProblem", "LinearProblem", "ModuleProblem", "Problem", "SparseChainProblem"]
