"""Deep structured prediction by smoothed inference: structures, losses, problems and solvers for PyTorch."""

from importlib import import_module
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

# Names load when they are asked for, and torch with the first of them: the command line answers --help without it.
if TYPE_CHECKING:
    from structsmooth.costs import (
        Cost,
        Hamming,
        NormalizedHamming,
        OneMinusIoU,
        RescaledMargin,
        SegmentErrors,
        SpanErrors,
        WeightedHamming,
    )
    from structsmooth.decisions import SPOPlus, normalized_regret, regret
    from structsmooth.history import History
    from structsmooth.kernels import KernelFeatures
    from structsmooth.losses import SlackRescaledHinge, StructuralHinge
    from structsmooth.perturbation import IMLE, Perturbation, Perturbed
    from structsmooth.problems import (
        DenseChainProblem,
        DifferenceProblem,
        FactorGraphProblem,
        FactorGraphs,
        LinearModuleProblem,
        LinearProblem,
        ModuleProblem,
        PairFeatures,
        PartialLabels,
        PartRows,
        Problem,
        ProgramParts,
        ProgramProblem,
        SparseChainProblem,
    )
    from structsmooth.risk import MinimumRisk
    from structsmooth.scores import LinearScore, ScoreModule, SlackRescaledScores
    from structsmooth.sequences import DenseSequences, SparseSequences
    from structsmooth.smoothing import L2, Entropy, Max, Smoother, SparseMAP, simplex_projection
    from structsmooth.solvers import (
        BCFW,
        DLPW,
        SGD,
        SVRG,
        Adam,
        CasimirSVRG,
        Certificate,
        CoCoA,
        ConvexConcave,
        CuttingPlane,
        ExcessiveGap,
        ExponentiatedGradient,
        Extragradient,
        FrankWolfe,
        IncrementalProxLinear,
        NSlackCuttingPlane,
        ProximalBCFW,
        ProximalSDCA,
        ProxLinear,
        RegularizationPath,
        Result,
        SoftBCFW,
        SolutionPath,
        Status,
        certify,
    )
    from structsmooth.structures import (
        Alignment,
        And,
        AtLeastOne,
        AtMostOne,
        Automaton,
        BinaryGraph,
        BoxCandidates,
        Budget,
        Candidates,
        Constituents,
        Count,
        DeformableTree,
        DynamicProgram,
        Factor,
        FactorGraph,
        LinearChain,
        LocalPolytope,
        Matching,
        Or,
        OracleSpace,
        PathGraph,
        Paths,
        Potts,
        Program,
        ProgramBuilder,
        ProjectiveTree,
        SearchSpace,
        SemiMarkov,
        SlackRescaled,
        SpanningTree,
        SparseSolution,
        Structure,
        Subset,
        Subwindows,
        Table,
        Tree,
        best_max_marginal_first,
        cached_program,
        from_oracle,
        lengths_from_mask,
        linear_sum_assignment,
        sparse_map,
    )
    from structsmooth.targets import soft_labels
    from structsmooth.tasks.trained import load, train
    from structsmooth.text.schemes import transition_mask
else:
    # Where public names are found, in this order.
    _HOMES = (
        "structures costs smoothing perturbation losses targets risk decisions sequences scores kernels problems "
        "solvers history text.schemes tasks.trained"
    )

    def __getattr__(name: str) -> Any:
        if name in __all__:
            for home in _HOMES.split():
                module = import_module(f"structsmooth.{home}")
                if hasattr(module, name):
                    return globals().setdefault(name, getattr(module, name))
        elif not name.startswith("_") and find_spec(f"structsmooth.{name}"):
            return import_module(f"structsmooth.{name}")
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")

    def __dir__() -> list[str]:
        return sorted({*globals(), *__all__})


__version__ = "0.2.0"

__all__ = [
    "BCFW",
    "DLPW",
    "IMLE",
    "L2",
    "SGD",
    "SVRG",
    "Adam",
    "Alignment",
    "And",
    "AtLeastOne",
    "AtMostOne",
    "Automaton",
    "BinaryGraph",
    "BoxCandidates",
    "Budget",
    "Candidates",
    "CasimirSVRG",
    "Certificate",
    "CoCoA",
    "Constituents",
    "ConvexConcave",
    "Cost",
    "Count",
    "CuttingPlane",
    "DeformableTree",
    "DenseChainProblem",
    "DenseSequences",
    "DifferenceProblem",
    "DynamicProgram",
    "Entropy",
    "ExcessiveGap",
    "ExponentiatedGradient",
    "Extragradient",
    "Factor",
    "FactorGraph",
    "FactorGraphProblem",
    "FactorGraphs",
    "FrankWolfe",
    "Hamming",
    "History",
    "IncrementalProxLinear",
    "KernelFeatures",
    "LinearChain",
    "LinearModuleProblem",
    "LinearProblem",
    "LinearScore",
    "LocalPolytope",
    "Matching",
    "Max",
    "MinimumRisk",
    "ModuleProblem",
    "NSlackCuttingPlane",
    "NormalizedHamming",
    "OneMinusIoU",
    "Or",
    "OracleSpace",
    "PairFeatures",
    "PartRows",
    "PartialLabels",
    "PathGraph",
    "Paths",
    "Perturbation",
    "Perturbed",
    "Potts",
    "Problem",
    "Program",
    "ProgramBuilder",
    "ProgramParts",
    "ProgramProblem",
    "ProjectiveTree",
    "ProxLinear",
    "ProximalBCFW",
    "ProximalSDCA",
    "RegularizationPath",
    "RescaledMargin",
    "Result",
    "SPOPlus",
    "ScoreModule",
    "SearchSpace",
    "SegmentErrors",
    "SemiMarkov",
    "SlackRescaled",
    "SlackRescaledHinge",
    "SlackRescaledScores",
    "Smoother",
    "SoftBCFW",
    "SolutionPath",
    "SpanErrors",
    "SpanningTree",
    "SparseChainProblem",
    "SparseMAP",
    "SparseSequences",
    "SparseSolution",
    "Status",
    "StructuralHinge",
    "Structure",
    "Subset",
    "Subwindows",
    "Table",
    "Tree",
    "WeightedHamming",
    "best_max_marginal_first",
    "cached_program",
    "certify",
    "from_oracle",
    "lengths_from_mask",
    "linear_sum_assignment",
    "load",
    "normalized_regret",
    "regret",
    "simplex_projection",
    "soft_labels",
    "sparse_map",
    "train",
    "transition_mask",
]
