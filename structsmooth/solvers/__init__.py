"""Solvers: one file per algorithm, each a dataclass of hyperparameters with ``solve``."""

from typing import TYPE_CHECKING

from structsmooth.lazy import lazy_names

if TYPE_CHECKING:
    from structsmooth.history import History as History
    from structsmooth.solvers.base import Solver as Solver
    from structsmooth.solvers.baselines.batch_exponentiated import (
        BatchExponentiatedGradient as BatchExponentiatedGradient,
    )
    from structsmooth.solvers.baselines.cutting_plane import CuttingPlane as CuttingPlane
    from structsmooth.solvers.baselines.dlpw import DLPW as DLPW
    from structsmooth.solvers.baselines.excessive_gap import ExcessiveGap as ExcessiveGap
    from structsmooth.solvers.baselines.exponentiated import ExponentiatedGradient as ExponentiatedGradient
    from structsmooth.solvers.baselines.exponentiated.steps import GibbsIterate as GibbsIterate
    from structsmooth.solvers.baselines.extragradient import Extragradient as Extragradient
    from structsmooth.solvers.baselines.frank_wolfe import FrankWolfe as FrankWolfe
    from structsmooth.solvers.baselines.lbfgs import LBFGS as LBFGS
    from structsmooth.solvers.baselines.smo import SMO as SMO
    from structsmooth.solvers.bcfw import BCFW as BCFW
    from structsmooth.solvers.bcfw.active_set import Cache as Cache
    from structsmooth.solvers.bcfw.active_set import DualIterate as DualIterate
    from structsmooth.solvers.convex_concave import ConvexConcave as ConvexConcave
    from structsmooth.solvers.dual.certify import Certificate as Certificate
    from structsmooth.solvers.dual.certify import certify as certify
    from structsmooth.solvers.dual.cocoa import CoCoA as CoCoA
    from structsmooth.solvers.dual.n_slack import NSlackCuttingPlane as NSlackCuttingPlane
    from structsmooth.solvers.dual.path import Breakpoint as Breakpoint
    from structsmooth.solvers.dual.path import RegularizationPath as RegularizationPath
    from structsmooth.solvers.dual.path import SolutionPath as SolutionPath
    from structsmooth.solvers.dual.path import grid_search as grid_search
    from structsmooth.solvers.dual.proximal import ProximalBCFW as ProximalBCFW
    from structsmooth.solvers.primal.adam import Adam as Adam
    from structsmooth.solvers.primal.casimir import CasimirSVRG as CasimirSVRG
    from structsmooth.solvers.primal.incremental import IncrementalProxLinear as IncrementalProxLinear
    from structsmooth.solvers.progress import PrintProgress as PrintProgress
    from structsmooth.solvers.prox_linear import ProxLinear as ProxLinear
    from structsmooth.solvers.registry import SOLVERS as SOLVERS
    from structsmooth.solvers.registry import parse_solver as parse_solver
    from structsmooth.solvers.registry import solver_name as solver_name
    from structsmooth.solvers.registry import solver_settings as solver_settings
    from structsmooth.solvers.registry import solver_text as solver_text
    from structsmooth.solvers.sdca import ProximalSDCA as ProximalSDCA
    from structsmooth.solvers.sgd import SGD as SGD
    from structsmooth.solvers.soft_bcfw import SoftBCFW as SoftBCFW
    from structsmooth.solvers.state import Progress as Progress
    from structsmooth.solvers.state import Result as Result
    from structsmooth.solvers.state import State as State
    from structsmooth.solvers.state import Status as Status
    from structsmooth.solvers.state import Stop as Stop
    from structsmooth.solvers.svrg import SVRG as SVRG
else:
    __getattr__, __dir__, __all__ = lazy_names(
        __name__,
        {
            "structsmooth.history": "History",
            "structsmooth.solvers.base": "Solver",
            "structsmooth.solvers.baselines.batch_exponentiated": "BatchExponentiatedGradient",
            "structsmooth.solvers.baselines.cutting_plane": "CuttingPlane",
            "structsmooth.solvers.baselines.dlpw": "DLPW",
            "structsmooth.solvers.baselines.excessive_gap": "ExcessiveGap",
            "structsmooth.solvers.baselines.exponentiated": "ExponentiatedGradient",
            "structsmooth.solvers.baselines.exponentiated.steps": "GibbsIterate",
            "structsmooth.solvers.baselines.extragradient": "Extragradient",
            "structsmooth.solvers.baselines.frank_wolfe": "FrankWolfe",
            "structsmooth.solvers.baselines.lbfgs": "LBFGS",
            "structsmooth.solvers.baselines.smo": "SMO",
            "structsmooth.solvers.bcfw": "BCFW",
            "structsmooth.solvers.bcfw.active_set": "Cache DualIterate",
            "structsmooth.solvers.convex_concave": "ConvexConcave",
            "structsmooth.solvers.dual.certify": "Certificate certify",
            "structsmooth.solvers.dual.cocoa": "CoCoA",
            "structsmooth.solvers.dual.n_slack": "NSlackCuttingPlane",
            "structsmooth.solvers.dual.path": "Breakpoint RegularizationPath SolutionPath grid_search",
            "structsmooth.solvers.dual.proximal": "ProximalBCFW",
            "structsmooth.solvers.primal.adam": "Adam",
            "structsmooth.solvers.primal.casimir": "CasimirSVRG",
            "structsmooth.solvers.primal.incremental": "IncrementalProxLinear",
            "structsmooth.solvers.progress": "PrintProgress",
            "structsmooth.solvers.prox_linear": "ProxLinear",
            "structsmooth.solvers.registry": "SOLVERS parse_solver solver_name solver_settings solver_text",
            "structsmooth.solvers.sdca": "ProximalSDCA",
            "structsmooth.solvers.sgd": "SGD",
            "structsmooth.solvers.soft_bcfw": "SoftBCFW",
            "structsmooth.solvers.state": "Progress Result State Status Stop",
            "structsmooth.solvers.svrg": "SVRG",
        },
    )
