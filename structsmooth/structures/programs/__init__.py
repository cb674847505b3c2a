"""The engine for dynamic programs: every oracle of a structure whose outputs are the derivations of a hypergraph."""

from structsmooth.structures.programs.builder import ProgramBuilder
from structsmooth.structures.programs.program import Program, cached_program
from structsmooth.structures.programs.structure import DynamicProgram

__all__ = ["DynamicProgram", "Program", "ProgramBuilder", "cached_program"]
