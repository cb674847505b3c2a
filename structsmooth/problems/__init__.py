"""Finite sums that solvers minimize."""

from typing import TYPE_CHECKING

from structsmooth.lazy import lazy_names

if TYPE_CHECKING:
    from structsmooth.kernels import KernelFeatures as KernelFeatures
    from structsmooth.problems.affine import Parts as Parts
    from structsmooth.problems.base import FullPass as FullPass
    from structsmooth.problems.base import Problem as Problem
    from structsmooth.problems.derived import ShiftedProblem as ShiftedProblem
    from structsmooth.problems.derived import TiltedProblem as TiltedProblem
    from structsmooth.problems.linear.base import LinearProblem as LinearProblem
    from structsmooth.problems.linear.blocks import FeatureMap as FeatureMap
    from structsmooth.problems.linear.blocks import OracleOutput as OracleOutput
    from structsmooth.problems.linear.blocks import respond as respond
    from structsmooth.problems.linear.chain import DenseChainProblem as DenseChainProblem
    from structsmooth.problems.linear.chain import SparseChainProblem as SparseChainProblem
    from structsmooth.problems.linear.difference import DifferenceProblem as DifferenceProblem
    from structsmooth.problems.linear.factor_graph import FactorGraphProblem as FactorGraphProblem
    from structsmooth.problems.linear.factor_graph.data import FactorGraphs as FactorGraphs
    from structsmooth.problems.linear.module import LinearModuleProblem as LinearModuleProblem
    from structsmooth.problems.linear.programs import PairFeatures as PairFeatures
    from structsmooth.problems.linear.programs import PartRows as PartRows
    from structsmooth.problems.linear.programs import ProgramParts as ProgramParts
    from structsmooth.problems.linear.programs import ProgramProblem as ProgramProblem
    from structsmooth.problems.linear.programs import arcs_of as arcs_of
    from structsmooth.problems.linear.programs import behind_arcs as behind_arcs
    from structsmooth.problems.module import LinearizedProblem as LinearizedProblem
    from structsmooth.problems.module import ModuleProblem as ModuleProblem
    from structsmooth.problems.module import PartialLabels as PartialLabels
    from structsmooth.problems.partition import PartitionedProblem as PartitionedProblem
    from structsmooth.problems.partition import partitioned as partitioned
    from structsmooth.problems.sharding import of_examples as of_examples
    from structsmooth.problems.sharding import sharded as sharded
    from structsmooth.sequences import DenseSequences as DenseSequences
    from structsmooth.sequences import SparseSequences as SparseSequences
else:
    __getattr__, __dir__, __all__ = lazy_names(
        __name__,
        {
            "structsmooth.kernels": "KernelFeatures",
            "structsmooth.problems.affine": "Parts",
            "structsmooth.problems.base": "FullPass Problem",
            "structsmooth.problems.derived": "ShiftedProblem TiltedProblem",
            "structsmooth.problems.linear.base": "LinearProblem",
            "structsmooth.problems.linear.blocks": "FeatureMap OracleOutput respond",
            "structsmooth.problems.linear.chain": "DenseChainProblem SparseChainProblem",
            "structsmooth.problems.linear.difference": "DifferenceProblem",
            "structsmooth.problems.linear.factor_graph": "FactorGraphProblem",
            "structsmooth.problems.linear.factor_graph.data": "FactorGraphs",
            "structsmooth.problems.linear.module": "LinearModuleProblem",
            "structsmooth.problems.linear.programs": (
                "PairFeatures PartRows ProgramParts ProgramProblem arcs_of behind_arcs"
            ),
            "structsmooth.problems.module": "LinearizedProblem ModuleProblem PartialLabels",
            "structsmooth.problems.partition": "PartitionedProblem partitioned",
            "structsmooth.problems.sharding": "of_examples sharded",
            "structsmooth.sequences": "DenseSequences SparseSequences",
        },
    )
