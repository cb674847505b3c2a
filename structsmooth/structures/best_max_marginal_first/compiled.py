"""Best max-marginal first, compiled: the search of ``structures.best_max_marginal_first`` for one example."""

from collections.abc import Callable
from typing import Any

import numpy as np

from structsmooth.compiled.jit import compiled


@compiled
def _largest(bounds, allowed, y):
    """Largest bound of an allowed value other than the value in ``y``: the bound, the variable and the value."""
    best, variable, state = -np.inf, 0, 0
    for v in range(bounds.shape[0]):
        for j in range(bounds.shape[1]):
            if bounds[v, j] > best and allowed[v, j] and y[v] != j:
                best, variable, state = bounds[v, j], v, j
    return best, variable, state


def search_with(maximize: Callable[..., Any]) -> Callable[..., Any]:
    """The search as a compiled function, given a max oracle under constraints.

    ``maximize(problem, allowed, y)`` is a compiled function that fills ``y`` [V] with the best output whose values
    ``allowed`` [V, S] permits, and returns its score, or -inf if there is no output.
    """

    @compiled
    def search(problem, table, values, outputs):
        """Fill ``values`` [k] and ``outputs`` [k, V] after the first entries, which are given; the rest is -inf and 0.

        ``table`` [V, S] holds the max-marginals. Values may be out of order by the rounding of the table.
        """
        k, (variables, states) = values.shape[0], table.shape
        # For each set of outputs: the values it allows, bounds on its max-marginals, the largest bound and its place.
        allowed = np.ones((k, variables, states), np.bool_)
        bounds = np.empty((k, variables, states))
        largest, at = np.full(k, -np.inf), np.empty((k, 2), np.int64)
        fixed, y = np.empty((variables, states), np.bool_), np.empty(variables, np.int64)
        # ``bounds[s]`` is φ^(s) of Algorithm 10, or an upper bound of it, and ``allowed[s]`` the constraints C^(s).
        bounds[0] = table
        largest[0], at[0, 0], at[0, 1] = _largest(table, allowed[0], outputs[0])
        count = 1
        while count < k:
            # Line 9: the largest φ^(s)(v, j) with j other than the value of v in the best output of s.
            s = np.argmax(largest)
            if largest[s] == -np.inf:
                return
            v, j = at[s]
            fixed[:] = allowed[s]
            fixed[v] = False
            fixed[v, j] = True
            value = maximize(problem, fixed, y)
            bounds[s, v, j] = value
            largest[s], at[s, 0], at[s, 1] = _largest(bounds[s], allowed[s], outputs[s])
            # It was a bound only, and another one is larger now: that goes first.
            if value == -np.inf or value < largest.max():
                continue
            values[count], outputs[count] = value, y
            allowed[count] = fixed
            # Line 14: what is left of s has y_v other than j; its bounds stay, and go for the new set as far as
            # ``value``.
            allowed[s, v, j] = False
            bounds[count] = np.minimum(bounds[s], value)
            for changed in (s, count):
                largest[changed], at[changed, 0], at[changed, 1] = _largest(
                    bounds[changed], allowed[changed], outputs[changed]
                )
            count += 1

    return search
