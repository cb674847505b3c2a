"""Solvers that the papers compare theirs with."""
