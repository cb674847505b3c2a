"""Scores on test data: of models, losses, targets and solvers that have the same data and the same budget."""
