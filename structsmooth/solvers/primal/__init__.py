"""Solvers that work on the weights."""
