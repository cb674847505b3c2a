"""Solvers: one file per algorithm, each a dataclass of hyperparameters with ``solve``."""

from typing import TYPE_CHECKING

from structsmooth.lazy import lazy_names

if TYPE_CHECKING:
    from structsmooth.history import History
    from structsmooth.solvers.base import Solver
    from structsmooth.solvers.baselines.batch_exponentiated import BatchExponentiatedGradient
    from structsmooth.solvers.baselines.cutting_plane import CuttingPlane
    from structsmooth.solvers.baselines.dlpw import DLPW
    from structsmooth.solvers.baselines.extragradient import Extragradient
    from structsmooth.solvers.baselines.frank_wolfe import FrankWolfe
    from structsmooth.solvers.baselines.lbfgs import LBFGS
    from structsmooth.solvers.baselines.n_slack import NSlackCuttingPlane
    from structsmooth.solvers.baselines.smo import SMO
    from structsmooth.solvers.bcfw import BCFW
    from structsmooth.solvers.bcfw.active_set import Cache, DualIterate
    from structsmooth.solvers.convex_concave import ConvexConcave
    from structsmooth.solvers.dual.certify import Certificate, certify
    from structsmooth.solvers.dual.cocoa import CoCoA
    from structsmooth.solvers.dual.excessive_gap import ExcessiveGap
    from structsmooth.solvers.dual.path import Breakpoint, RegularizationPath, SolutionPath, grid_search
    from structsmooth.solvers.dual.proximal import ProximalBCFW
    from structsmooth.solvers.exponentiated import ExponentiatedGradient
    from structsmooth.solvers.exponentiated.steps import GibbsIterate
    from structsmooth.solvers.primal.adam import Adam
    from structsmooth.solvers.primal.casimir import CasimirSVRG
    from structsmooth.solvers.primal.incremental import IncrementalProxLinear
    from structsmooth.solvers.progress import PrintProgress
    from structsmooth.solvers.prox_linear import ProxLinear
    from structsmooth.solvers.registry import SOLVERS, parse_solver, solver_name, solver_settings, solver_text
    from structsmooth.solvers.sdca import ProximalSDCA
    from structsmooth.solvers.sgd import SGD
    from structsmooth.solvers.soft_bcfw import SoftBCFW
    from structsmooth.solvers.soft_bcfw.constants import SoftConstants, soft_constants
    from structsmooth.solvers.state import Progress, Result, State, Status, Stop
    from structsmooth.solvers.svrg import SVRG
else:
    __getattr__, __dir__ = lazy_names(__name__)

__all__ = [
    "BCFW",
    "DLPW",
    "LBFGS",
    "SGD",
    "SMO",
    "SOLVERS",
    "SVRG",
    "Adam",
    "BatchExponentiatedGradient",
    "Breakpoint",
    "Cache",
    "CasimirSVRG",
    "Certificate",
    "CoCoA",
    "ConvexConcave",
    "CuttingPlane",
    "DualIterate",
    "ExcessiveGap",
    "ExponentiatedGradient",
    "Extragradient",
    "FrankWolfe",
    "GibbsIterate",
    "History",
    "IncrementalProxLinear",
    "NSlackCuttingPlane",
    "PrintProgress",
    "Progress",
    "ProxLinear",
    "ProximalBCFW",
    "ProximalSDCA",
    "RegularizationPath",
    "Result",
    "SoftBCFW",
    "SoftConstants",
    "SolutionPath",
    "Solver",
    "State",
    "Status",
    "Stop",
    "certify",
    "grid_search",
    "parse_solver",
    "soft_constants",
    "solver_name",
    "solver_settings",
    "solver_text",
]
