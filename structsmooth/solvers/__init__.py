"""Solvers: one file per algorithm, each a dataclass of hyperparameters with ``solve``."""

from structsmooth.solvers.adam import Adam
from structsmooth.solvers.base import Progress, Result, Solver, State, Status
from structsmooth.solvers.bcfw import BCFW
from structsmooth.solvers.casimir import CasimirSVRG
from structsmooth.solvers.prox_linear import ProxLinear
from structsmooth.solvers.sgd import SGD
from structsmooth.solvers.svrg import SVRG

__all__ = [
    "BCFW",
    "SGD",
    "SVRG",
    "Adam",
    "CasimirSVRG",
    "Progress",
    "ProxLinear",
    "Result",
    "Solver",
    "State",
    "Status",
]
