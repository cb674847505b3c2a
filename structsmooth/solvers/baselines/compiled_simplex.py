"""Quadratic programs over the probability simplex (numba, CPU)."""

import numpy as np

from structsmooth.compiled.jit import entry_point


@entry_point
def minimize(quadratic, linear, point, part, max_steps):
    """Lower ½⟨x, Qx⟩ − ⟨b, x⟩ from a point of the simplex, in place, by exact steps along pairs of coordinates.

    Each step moves weight between the two coordinates that violate optimality the most. It ends when they violate it by
    less than a part of what the first two do.
    """
    gradient = np.empty_like(point)
    for i in range(len(point)):
        gradient[i] = quadratic[i] @ point - linear[i]
    first = -1.0
    for _ in range(max_steps):
        towards, away = 0, -1
        for i in range(len(point)):
            if gradient[i] < gradient[towards]:
                towards = i
            if point[i] > 0 and (away < 0 or gradient[i] > gradient[away]):
                away = i
        violation = gradient[away] - gradient[towards]
        if first < 0:
            first = violation
        if violation <= part * first:
            break
        curvature = quadratic[towards, towards] + quadratic[away, away] - 2 * quadratic[towards, away]
        step = point[away]
        if curvature * step > violation:
            step = violation / curvature
        point[towards] += step
        point[away] -= step  # exactly zero if all of it moves
        for i in range(len(point)):
            gradient[i] += step * (quadratic[i, towards] - quadratic[i, away])
