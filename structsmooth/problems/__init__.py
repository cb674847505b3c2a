"""Finite sums that solvers minimize."""

from typing import TYPE_CHECKING

from structsmooth.lazy import lazy_names

if TYPE_CHECKING:
    from structsmooth.problems.affine import Parts
    from structsmooth.problems.base import FullPass, Problem
    from structsmooth.problems.derived import ShiftedProblem, TiltedProblem
    from structsmooth.problems.linear.base import LinearProblem
    from structsmooth.problems.linear.blocks import FeatureMap, OracleOutput, respond
    from structsmooth.problems.linear.chain import DenseChainProblem, SparseChainProblem
    from structsmooth.problems.linear.difference import DifferenceProblem
    from structsmooth.problems.linear.factor_graph import FactorGraphProblem
    from structsmooth.problems.linear.factor_graph.data import FactorGraphs
    from structsmooth.problems.linear.module import LinearModuleProblem
    from structsmooth.problems.linear.programs import (
        PairFeatures,
        PartRows,
        ProgramParts,
        ProgramProblem,
        arcs_of,
        behind_arcs,
    )
    from structsmooth.problems.module import LinearizedProblem, ModuleProblem, PartialLabels
    from structsmooth.problems.partition import PartitionedProblem, partitioned
    from structsmooth.problems.sharding import of_examples, sharded
else:
    __getattr__, __dir__ = lazy_names(__name__)

__all__ = [
    "DenseChainProblem",
    "DifferenceProblem",
    "FactorGraphProblem",
    "FactorGraphs",
    "FeatureMap",
    "FullPass",
    "LinearModuleProblem",
    "LinearProblem",
    "LinearizedProblem",
    "ModuleProblem",
    "OracleOutput",
    "PairFeatures",
    "PartRows",
    "PartialLabels",
    "PartitionedProblem",
    "Parts",
    "Problem",
    "ProgramParts",
    "ProgramProblem",
    "ShiftedProblem",
    "SparseChainProblem",
    "TiltedProblem",
    "arcs_of",
    "behind_arcs",
    "of_examples",
    "partitioned",
    "respond",
    "sharded",
]
