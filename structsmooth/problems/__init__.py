"""Finite sums that solvers minimize."""

from structsmooth.problems.affine import Parts
from structsmooth.problems.base import FullPass, Problem
from structsmooth.problems.linear import (
    Cache,
    DualIterate,
    FeatureMap,
    LinearModuleProblem,
    LinearProblem,
    Response,
    SparseChainProblem,
    respond,
)
from structsmooth.problems.module import LinearizedProblem, ModuleProblem
from structsmooth.problems.sharding import sharded
from structsmooth.problems.shifted import ShiftedProblem

__all__ = [
    "Cache",
    "DualIterate",
    "FeatureMap",
    "FullPass",
    "LinearModuleProblem",
    "LinearProblem",
    "LinearizedProblem",
    "ModuleProblem",
    "Parts",
    "Problem",
    "Response",
    "ShiftedProblem",
    "SparseChainProblem",
    "respond",
    "sharded",
]
