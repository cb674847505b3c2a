"""Finite sums of structural hinges whose potentials are linear in the weights: they have a dual."""

from structsmooth.problems.linear.active_set import Cache, DualIterate
from structsmooth.problems.linear.base import LinearProblem
from structsmooth.problems.linear.blocks import FeatureMap, Response, respond
from structsmooth.problems.linear.module import LinearModuleProblem
from structsmooth.problems.linear.sparse_chain import SparseChainProblem

__all__ = [
    "Cache",
    "DualIterate",
    "FeatureMap",
    "LinearModuleProblem",
    "LinearProblem",
    "Response",
    "SparseChainProblem",
    "respond",
]
