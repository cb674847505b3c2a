"""Finite sums that solvers minimize."""

from structsmooth.problems.affine import Parts
from structsmooth.problems.base import FullPass, Problem
from structsmooth.problems.linear.active_set import Cache, DualIterate
from structsmooth.problems.linear.ascent import SmoothedIterate
from structsmooth.problems.linear.base import LinearProblem
from structsmooth.problems.linear.blocks import FeatureMap, Response, respond
from structsmooth.problems.linear.factor_graph import FactorGraphProblem
from structsmooth.problems.linear.factor_graph.data import FactorGraphs
from structsmooth.problems.linear.module import LinearModuleProblem
from structsmooth.problems.linear.sparse_chain import SparseChainProblem
from structsmooth.problems.module import LinearizedProblem, ModuleProblem
from structsmooth.problems.partition import PartitionedProblem, partitioned
from structsmooth.problems.sharding import sharded
from structsmooth.problems.shifted import ShiftedProblem

__all__ = [
    "Cache",
    "DualIterate",
    "FactorGraphProblem",
    "FactorGraphs",
    "FeatureMap",
    "FullPass",
    "LinearModuleProblem",
    "LinearProblem",
    "LinearizedProblem",
    "ModuleProblem",
    "PartitionedProblem",
    "Parts",
    "Problem",
    "Response",
    "ShiftedProblem",
    "SmoothedIterate",
    "SparseChainProblem",
    "partitioned",
    "respond",
    "sharded",
]
