"""Linear problems whose outputs are derivations of programs, with sparse features of their parts."""

from structsmooth.problems.linear.programs.features import PairFeatures, PartRows
from structsmooth.problems.linear.programs.parts import ProgramParts, arcs_of, behind_arcs
from structsmooth.problems.linear.programs.problem import ProgramProblem

__all__ = ["PairFeatures", "PartRows", "ProgramParts", "ProgramProblem", "arcs_of", "behind_arcs"]
