"""Compiled inner loops (numba, CPU). No public names and no policy: arrays in, arrays out.

Nothing here is imported until a compiled path first runs, so that ``import structsmooth`` stays light.
"""
