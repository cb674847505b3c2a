"""Monotone paths through grids: recursions over rows that hold the moves once, not an edge for each cell."""
