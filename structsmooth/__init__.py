"""Deep structured prediction by smoothed inference: structures, losses, problems and solvers for PyTorch."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from structsmooth.costs import Cost, Hamming, NormalizedHamming, OneMinusIoU, RescaledMargin, WeightedHamming
from structsmooth.history import History
from structsmooth.kernels import KernelFeatures
from structsmooth.losses import SlackRescaledHinge, StructuralHinge
from structsmooth.problems import (
    DenseChainProblem,
    FactorGraphProblem,
    FactorGraphs,
    GramChainProblem,
    LinearModuleProblem,
    LinearProblem,
    ModuleProblem,
    Problem,
    SparseChainProblem,
)
from structsmooth.scores import LinearScore, ScoreModule, SlackRescaledScores
from structsmooth.sequences import DenseSequences, SparseSequences
from structsmooth.smoothing import L2, Entropy, Max, Smoother, simplex_projection
from structsmooth.solvers import (
    BCFW,
    DLPW,
    SGD,
    SVRG,
    Adam,
    CasimirSVRG,
    Certificate,
    CoCoA,
    CuttingPlane,
    ExcessiveGap,
    ExponentiatedGradient,
    Extragradient,
    FrankWolfe,
    IncrementalProxLinear,
    NSlackCuttingPlane,
    ProximalBCFW,
    ProxLinear,
    RegularizationPath,
    Result,
    SoftBCFW,
    SolutionPath,
    Status,
    certify,
)
from structsmooth.structures import (
    AtLeastOne,
    AtMostOne,
    Automaton,
    BinaryGraph,
    BoxCandidates,
    Budget,
    Candidates,
    Count,
    DeformableTree,
    Factor,
    FactorGraph,
    LinearChain,
    LocalPolytope,
    Matching,
    Potts,
    SearchSpace,
    SlackRescaled,
    Structure,
    Subwindows,
    Table,
    Tree,
    best_max_marginal_first,
    lengths_from_mask,
)
from structsmooth.tag_schemes import transition_mask

# Tasks build on all of the above, and load when they are asked for.
if TYPE_CHECKING:
    from structsmooth.tasks.trained import load, train
else:

    def __getattr__(name: str) -> Any:
        if name in ("load", "train"):
            return getattr(import_module("structsmooth.tasks.trained"), name)
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


__version__ = "0.2.0"

__all__ = [
    "BCFW",
    "DLPW",
    "L2",
    "SGD",
    "SVRG",
    "Adam",
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
    "Cost",
    "Count",
    "CuttingPlane",
    "DeformableTree",
    "DenseChainProblem",
    "DenseSequences",
    "Entropy",
    "ExcessiveGap",
    "ExponentiatedGradient",
    "Extragradient",
    "Factor",
    "FactorGraph",
    "FactorGraphProblem",
    "FactorGraphs",
    "FrankWolfe",
    "GramChainProblem",
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
    "ModuleProblem",
    "NSlackCuttingPlane",
    "NormalizedHamming",
    "OneMinusIoU",
    "Potts",
    "Problem",
    "ProxLinear",
    "ProximalBCFW",
    "RegularizationPath",
    "RescaledMargin",
    "Result",
    "ScoreModule",
    "SearchSpace",
    "SlackRescaled",
    "SlackRescaledHinge",
    "SlackRescaledScores",
    "Smoother",
    "SoftBCFW",
    "SolutionPath",
    "SparseChainProblem",
    "SparseSequences",
    "Status",
    "StructuralHinge",
    "Structure",
    "Subwindows",
    "Table",
    "Tree",
    "WeightedHamming",
    "best_max_marginal_first",
    "certify",
    "lengths_from_mask",
    "load",
    "simplex_projection",
    "train",
    "transition_mask",
]
