"""What compiled inner loops share (numba, CPU): how they are compiled, threads, sampling.

Compiled modules take arrays and return arrays, without public names or policy. They are not imported before a compiled
function is first called, so that ``import structsmooth`` stays fast.
"""
