"""Structural hinge losses of linear chains over features of tokens, sparse or dense, compiled."""

from structsmooth.problems.linear.chain.dense import DenseChainProblem
from structsmooth.problems.linear.chain.problem import ChainProblem
from structsmooth.problems.linear.chain.sparse import SparseChainProblem

__all__ = ["ChainProblem", "DenseChainProblem", "SparseChainProblem"]
