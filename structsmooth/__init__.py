"""Deep structured prediction by smoothed inference: the names of a first day.

Others live in :mod:`structsmooth.structures`, ``factors``, ``programs``, ``costs``, ``smoothing``, ``scores``,
``decisions``, ``problems`` and ``solvers``.
"""

from typing import TYPE_CHECKING

from structsmooth.lazy import lazy_names

# Names load when they are asked for, and torch with the first of them: the command line answers --help without it.
# Those outside of __all__ stood here in version 0.3; they come with a warning from where they are now.
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
    from structsmooth.decisions import (
        IMLE,
        Perturbation,
        Perturbed,
        SPOPlus,
        linear_sum_assignment,
        normalized_regret,
        regret,
    )
    from structsmooth.factors import (
        And,
        AtLeastOne,
        AtMostOne,
        Automaton,
        Budget,
        Count,
        Factor,
        LocalPolytope,
        Or,
        Potts,
        Table,
    )
    from structsmooth.losses import SlackRescaledHinge, StructuralHinge
    from structsmooth.models import CRF
    from structsmooth.problems import (
        DenseChainProblem,
        DenseSequences,
        DifferenceProblem,
        FactorGraphProblem,
        FactorGraphs,
        KernelFeatures,
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
        SparseSequences,
    )
    from structsmooth.programs import DynamicProgram, PathGraph, Program, ProgramBuilder, cached_program
    from structsmooth.risk import MinimumRisk
    from structsmooth.scores import LinearScore, PairScore, ScoreModule, SlackRescaledScores
    from structsmooth.smoothing import L2, Entropy, Max, Smoother, SparseMAP, simplex_projection
    from structsmooth.solvers import (
        BCFW,
        DLPW,
        LBFGS,
        SGD,
        SMO,
        SVRG,
        Adam,
        BatchExponentiatedGradient,
        CasimirSVRG,
        Certificate,
        CoCoA,
        ConvexConcave,
        CuttingPlane,
        ExcessiveGap,
        ExponentiatedGradient,
        Extragradient,
        FrankWolfe,
        History,
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
        BinaryGraph,
        BoxCandidates,
        Candidates,
        Constituents,
        DeformableTree,
        FactorGraph,
        Grammar,
        HiddenMarkov,
        LinearChain,
        Matching,
        OracleSpace,
        Paths,
        ProjectiveTree,
        SearchSpace,
        SemiMarkov,
        SiblingTree,
        SlackRescaled,
        SpanningTree,
        SparseSolution,
        Structure,
        Subset,
        Subwindows,
        Tree,
        best_max_marginal_first,
        from_oracle,
        lengths_from_mask,
        sparse_map,
    )
    from structsmooth.targets import soft_labels
    from structsmooth.tasks.trained import load, train
    from structsmooth.text.schemes import transition_mask
else:
    __getattr__, __dir__ = lazy_names(__name__)

__version__ = "0.4.0"

__all__ = [
    "BCFW",
    "CRF",
    "L2",
    "LBFGS",
    "SGD",
    "Alignment",
    "BinaryGraph",
    "Candidates",
    "CasimirSVRG",
    "Constituents",
    "DeformableTree",
    "Entropy",
    "FactorGraph",
    "Grammar",
    "Hamming",
    "HiddenMarkov",
    "LinearChain",
    "LinearModuleProblem",
    "LinearScore",
    "Matching",
    "Max",
    "MinimumRisk",
    "ModuleProblem",
    "OneMinusIoU",
    "Paths",
    "ProjectiveTree",
    "ProxLinear",
    "ProximalBCFW",
    "SPOPlus",
    "ScoreModule",
    "SemiMarkov",
    "SiblingTree",
    "SlackRescaledHinge",
    "SoftBCFW",
    "SpanningTree",
    "SparseMAP",
    "StructuralHinge",
    "Structure",
    "Subset",
    "Subwindows",
    "Tree",
    "WeightedHamming",
    "certify",
    "load",
    "train",
]
