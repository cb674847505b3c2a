"""Solvers: one file per algorithm, each a dataclass of hyperparameters with ``solve``."""

from typing import Any

from structsmooth.solvers.base import Solver
from structsmooth.solvers.bcfw import BCFW
from structsmooth.solvers.bcfw.active_set import Cache, DualIterate
from structsmooth.solvers.dual.certify import Certificate, certify
from structsmooth.solvers.dual.cocoa import CoCoA
from structsmooth.solvers.dual.cutting_plane import CuttingPlane
from structsmooth.solvers.dual.dlpw import DLPW
from structsmooth.solvers.dual.excessive_gap import ExcessiveGap
from structsmooth.solvers.dual.exponentiated import ExponentiatedGradient
from structsmooth.solvers.dual.extragradient import Extragradient
from structsmooth.solvers.dual.frank_wolfe import FrankWolfe
from structsmooth.solvers.dual.n_slack import NSlackCuttingPlane
from structsmooth.solvers.dual.path import Breakpoint, RegularizationPath, SolutionPath, grid_search
from structsmooth.solvers.dual.proximal import ProximalBCFW
from structsmooth.solvers.dual.soft_bcfw import SoftBCFW
from structsmooth.solvers.primal.adam import Adam
from structsmooth.solvers.primal.casimir import CasimirSVRG
from structsmooth.solvers.primal.incremental import IncrementalProxLinear
from structsmooth.solvers.primal.prox_linear import ProxLinear
from structsmooth.solvers.primal.sgd import SGD
from structsmooth.solvers.primal.svrg import SVRG
from structsmooth.solvers.progress import PrintProgress
from structsmooth.solvers.state import Progress, Result, State, Status, Stop

__all__ = [
    "BCFW",
    "DLPW",
    "SGD",
    "SOLVERS",
    "SVRG",
    "Adam",
    "Breakpoint",
    "Cache",
    "CasimirSVRG",
    "Certificate",
    "CoCoA",
    "CuttingPlane",
    "DualIterate",
    "ExcessiveGap",
    "ExponentiatedGradient",
    "Extragradient",
    "FrankWolfe",
    "IncrementalProxLinear",
    "NSlackCuttingPlane",
    "PrintProgress",
    "Progress",
    "ProxLinear",
    "ProximalBCFW",
    "RegularizationPath",
    "Result",
    "SoftBCFW",
    "SolutionPath",
    "Solver",
    "State",
    "Status",
    "Stop",
    "certify",
    "grid_search",
]

SOLVERS: dict[str, type[Solver[Any]]] = {
    "casimir-svrg": CasimirSVRG,
    "bcfw": BCFW,
    "proximal-bcfw": ProximalBCFW,
    "cocoa": CoCoA,
    "soft-bcfw": SoftBCFW,
    "dlpw": DLPW,
    "frank-wolfe": FrankWolfe,
    "cutting-plane": CuttingPlane,
    "n-slack": NSlackCuttingPlane,
    "excessive-gap": ExcessiveGap,
    "exponentiated-gradient": ExponentiatedGradient,
    "extragradient": Extragradient,
    "svrg": SVRG,
    "sgd": SGD,
    "prox-linear": ProxLinear,
    "incremental-prox-linear": IncrementalProxLinear,
    "adam": Adam,
}
"""Solvers by the names that the command line has for them."""
