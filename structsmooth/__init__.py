"""Deep structured prediction by smoothed inference: the names of a first day.

Others live in :mod:`structsmooth.structures`, ``factors``, ``programs``, ``costs``, ``smoothing``, ``scores``,
``decisions``, ``problems`` and ``solvers``.
"""

from typing import TYPE_CHECKING

from structsmooth.lazy import lazy_names

# Names load when they are asked for, and torch with the first of them: the command line answers --help without it.
if TYPE_CHECKING:
    from structsmooth.costs import Hamming as Hamming
    from structsmooth.costs import OneMinusIoU as OneMinusIoU
    from structsmooth.costs import WeightedHamming as WeightedHamming
    from structsmooth.decisions import SPOPlus as SPOPlus
    from structsmooth.losses import SlackRescaledHinge as SlackRescaledHinge
    from structsmooth.losses import StructuralHinge as StructuralHinge
    from structsmooth.models import CRF as CRF
    from structsmooth.problems import LinearModuleProblem as LinearModuleProblem
    from structsmooth.problems import ModuleProblem as ModuleProblem
    from structsmooth.risk import MinimumRisk as MinimumRisk
    from structsmooth.scores import LinearScore as LinearScore
    from structsmooth.scores import ScoreModule as ScoreModule
    from structsmooth.smoothing import L2 as L2
    from structsmooth.smoothing import Entropy as Entropy
    from structsmooth.smoothing import Max as Max
    from structsmooth.smoothing import SparseMAP as SparseMAP
    from structsmooth.solvers import BCFW as BCFW
    from structsmooth.solvers import LBFGS as LBFGS
    from structsmooth.solvers import SGD as SGD
    from structsmooth.solvers import CasimirSVRG as CasimirSVRG
    from structsmooth.solvers import ProximalBCFW as ProximalBCFW
    from structsmooth.solvers import ProxLinear as ProxLinear
    from structsmooth.solvers import SoftBCFW as SoftBCFW
    from structsmooth.solvers import certify as certify
    from structsmooth.structures import Alignment as Alignment
    from structsmooth.structures import BinaryGraph as BinaryGraph
    from structsmooth.structures import Candidates as Candidates
    from structsmooth.structures import Constituents as Constituents
    from structsmooth.structures import DeformableTree as DeformableTree
    from structsmooth.structures import FactorGraph as FactorGraph
    from structsmooth.structures import Grammar as Grammar
    from structsmooth.structures import HiddenMarkov as HiddenMarkov
    from structsmooth.structures import LinearChain as LinearChain
    from structsmooth.structures import Matching as Matching
    from structsmooth.structures import Paths as Paths
    from structsmooth.structures import ProjectiveTree as ProjectiveTree
    from structsmooth.structures import SemiMarkov as SemiMarkov
    from structsmooth.structures import SiblingTree as SiblingTree
    from structsmooth.structures import SpanningTree as SpanningTree
    from structsmooth.structures import Structure as Structure
    from structsmooth.structures import Subset as Subset
    from structsmooth.structures import Subwindows as Subwindows
    from structsmooth.structures import Tree as Tree
    from structsmooth.tasks.batches import batch_predictor as batch_predictor
    from structsmooth.tasks.trained import load as load
    from structsmooth.tasks.trained import train as train
else:
    __getattr__, __dir__, __all__ = lazy_names(
        __name__,
        {
            "structsmooth.costs": "Hamming OneMinusIoU WeightedHamming",
            "structsmooth.decisions": "SPOPlus",
            "structsmooth.losses": "SlackRescaledHinge StructuralHinge",
            "structsmooth.models": "CRF",
            "structsmooth.problems": "LinearModuleProblem ModuleProblem",
            "structsmooth.risk": "MinimumRisk",
            "structsmooth.scores": "LinearScore ScoreModule",
            "structsmooth.smoothing": "L2 Entropy Max SparseMAP",
            "structsmooth.solvers": "BCFW LBFGS SGD CasimirSVRG ProximalBCFW ProxLinear SoftBCFW certify",
            "structsmooth.structures": (
                "Alignment BinaryGraph Candidates Constituents DeformableTree FactorGraph Grammar HiddenMarkov "
                "LinearChain Matching Paths ProjectiveTree SemiMarkov SiblingTree SpanningTree Structure Subset "
                "Subwindows Tree"
            ),
            "structsmooth.tasks.batches": "batch_predictor",
            "structsmooth.tasks.trained": "load train",
        },
        moved={  # these stood here in version 0.3, and come with a warning from where they are now
            "structsmooth.costs": "Cost NormalizedHamming RescaledMargin SegmentErrors SpanErrors",
            "structsmooth.decisions": "IMLE Perturbation Perturbed linear_sum_assignment normalized_regret regret",
            "structsmooth.factors": (
                "And AtLeastOne AtMostOne Automaton Budget Count Factor LocalPolytope Or Potts Table"
            ),
            "structsmooth.problems": (
                "DenseChainProblem DenseSequences DifferenceProblem FactorGraphProblem FactorGraphs KernelFeatures "
                "LinearProblem PairFeatures PartialLabels PartRows Problem ProgramParts ProgramProblem "
                "SparseChainProblem SparseSequences"
            ),
            "structsmooth.programs": "DynamicProgram PathGraph Program ProgramBuilder cached_program",
            "structsmooth.scores": "PairScore SlackRescaledScores",
            "structsmooth.smoothing": "Smoother simplex_projection",
            "structsmooth.solvers": (
                "DLPW SMO SVRG Adam BatchExponentiatedGradient Certificate CoCoA ConvexConcave CuttingPlane "
                "ExcessiveGap ExponentiatedGradient Extragradient FrankWolfe History IncrementalProxLinear "
                "NSlackCuttingPlane ProximalSDCA RegularizationPath Result SolutionPath Status"
            ),
            "structsmooth.structures": (
                "BoxCandidates OracleSpace SearchSpace SlackRescaled SparseSolution best_max_marginal_first "
                "from_oracle lengths_from_mask sparse_map"
            ),
            "structsmooth.targets": "soft_labels",
            "structsmooth.text.schemes": "transition_mask",
        },
    )

__version__ = "0.4.0"
