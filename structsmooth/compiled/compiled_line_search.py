"""Exact line search, compiled."""

from structsmooth.compiled import line_search
from structsmooth.compiled.jit import inlined

step_length = inlined(line_search.step_length)
