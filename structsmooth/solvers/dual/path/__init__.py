"""Solutions for all λ at once: the ε-approximate regularization path (Osokin et al. 2016, section 4)."""

from structsmooth.solvers.dual.path.grid import grid_search
from structsmooth.solvers.dual.path.regularization import RegularizationPath
from structsmooth.solvers.dual.path.solution import Breakpoint, SolutionPath
from structsmooth.solvers.dual.path.walk import Walk

__all__ = ["Breakpoint", "RegularizationPath", "SolutionPath", "Walk", "grid_search"]
