"""Solvers: one file per algorithm, each a dataclass of hyperparameters with ``solve``."""

from structsmooth.solvers.adam import Adam
from structsmooth.solvers.base import Progress, Result, Solver, State, Status, Stop
from structsmooth.solvers.bcfw import BCFW
from structsmooth.solvers.casimir import CasimirSVRG
from structsmooth.solvers.certify import Certificate, certify
from structsmooth.solvers.frank_wolfe import FrankWolfe
from structsmooth.solvers.path import Breakpoint, RegularizationPath, SolutionPath, grid_search
from structsmooth.solvers.prox_linear import ProxLinear
from structsmooth.solvers.sgd import SGD
from structsmooth.solvers.svrg import SVRG

__all__ = [
    "BCFW",
    "SGD",
    "SVRG",
    "Adam",
    "Breakpoint",
    "CasimirSVRG",
    "Certificate",
    "FrankWolfe",
    "Progress",
    "ProxLinear",
    "RegularizationPath",
    "Result",
    "SolutionPath",
    "Solver",
    "State",
    "Status",
    "Stop",
    "certify",
    "grid_search",
]
