"""Linear problems whose outputs are derivations of programs, with sparse features of their parts."""

from structsmooth.problems.linear.programs.parts import PairFeatures, PartRows, ProgramParts, arcs_of
from structsmooth.problems.linear.programs.problem import ProgramProblem

__all__ = ["PairFeatures", "PartRows", "ProgramParts", "ProgramProblem", "arcs_of"]
