"""Deep structured prediction by smoothed inference: structures, losses, problems and solvers for PyTorch."""

from structsmooth.costs import Cost, Hamming, NormalizedHamming, OneMinusIoU, WeightedHamming
from structsmooth.history import History
from structsmooth.losses import StructuralHinge
from structsmooth.problems import (
    FactorGraphProblem,
    FactorGraphs,
    LinearModuleProblem,
    LinearProblem,
    ModuleProblem,
    Problem,
    SparseChainProblem,
)
from structsmooth.scores import LinearScore, ScoreModule
from structsmooth.sequences import SparseSequences
from structsmooth.smoothing import L2, Entropy, Max, Smoother, simplex_projection
from structsmooth.solvers import (
    BCFW,
    SGD,
    SVRG,
    Adam,
    CasimirSVRG,
    Certificate,
    FrankWolfe,
    IncrementalProxLinear,
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
    BinaryGraph,
    BoxCandidates,
    Candidates,
    LinearChain,
    Matching,
    SearchSpace,
    Structure,
    Subwindows,
    Tree,
    best_max_marginal_first,
    lengths_from_mask,
)
from structsmooth.tag_schemes import transition_mask

__version__ = "0.1.0"

__all__ = [
    "BCFW",
    "L2",
    "SGD",
    "SVRG",
    "Adam",
    "BinaryGraph",
    "BoxCandidates",
    "Candidates",
    "CasimirSVRG",
    "Certificate",
    "Cost",
    "Entropy",
    "FactorGraphProblem",
    "FactorGraphs",
    "FrankWolfe",
    "Hamming",
    "History",
    "IncrementalProxLinear",
    "LinearChain",
    "LinearModuleProblem",
    "LinearProblem",
    "LinearScore",
    "Matching",
    "Max",
    "ModuleProblem",
    "NormalizedHamming",
    "OneMinusIoU",
    "Problem",
    "ProxLinear",
    "ProximalBCFW",
    "RegularizationPath",
    "Result",
    "ScoreModule",
    "SearchSpace",
    "Smoother",
    "SoftBCFW",
    "SolutionPath",
    "SparseChainProblem",
    "SparseSequences",
    "Status",
    "StructuralHinge",
    "Structure",
    "Subwindows",
    "Tree",
    "WeightedHamming",
    "best_max_marginal_first",
    "certify",
    "lengths_from_mask",
    "simplex_projection",
    "transition_mask",
]
