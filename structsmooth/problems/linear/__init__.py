"""Finite sums of structural hinges whose potentials are linear in the weights: they have a dual."""
