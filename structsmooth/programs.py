"""Dynamic programs, of which structures are made: what a new one needs to have all oracles."""

from structsmooth.structures.paths import PathGraph
from structsmooth.structures.programs import DynamicProgram, Program, ProgramBuilder, cached_program

__all__ = ["DynamicProgram", "PathGraph", "Program", "ProgramBuilder", "cached_program"]
