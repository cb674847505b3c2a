"""Solvers that work on the dual of a linear problem."""
