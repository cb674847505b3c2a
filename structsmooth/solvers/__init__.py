"""Solvers: one file per algorithm, each a dataclass of hyperparameters with ``solve``."""

from structsmooth.solvers.base import Progress, Result, Solver, State, Status
from structsmooth.solvers.bcfw import BCFW
from structsmooth.solvers.casimir import CasimirSVRG
from structsmooth.solvers.frank_wolfe import FrankWolfe
from structsmooth.solvers.sgd import SGD
from structsmooth.solvers.svrg import SVRG

__all__ = ["BCFW", "SGD", "SVRG", "CasimirSVRG", "FrankWolfe", "Progress", "Result", "Solver", "State", "Status"]
