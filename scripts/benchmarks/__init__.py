"""Seconds, memory, passes and oracle calls: of oracles, of solvers, and beside other libraries."""
