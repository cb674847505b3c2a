"""Exact line search for a concave quadratic function, which most steps of solvers make."""


def step_length(gain: float, curvature: float, longest: float = 1.0) -> float:
    """The step γ in [0, longest] where gain · γ − (curvature/2) γ² is largest, for a gain and a curvature ≥ 0.

    Compiled loops take the same function from :mod:`structsmooth.compiled.compiled_line_search`.
    """
    return longest if gain >= longest * curvature else gain / curvature
