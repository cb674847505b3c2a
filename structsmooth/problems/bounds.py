"""Box constraints lower ≤ w ≤ upper in the dual (Osokin et al. 2016, appendix H).

The dual of (λ/2)‖w‖² within the box is λh*(v), with the conjugate h* of h(w) = ½‖w‖² there. v are what the weights
would be without constraints; the gradient of h* is w: v clipped to the box. Without constraints h* is ½‖v‖².
"""

from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

Bounds = tuple[Tensor, Tensor]
Array = NDArray[np.floating[Any]]


def checked_bounds(bounds: Bounds | None, weights: Tensor) -> Bounds | None:
    """The bounds in the dtype and on the device of ``weights`` [dim]; ``None`` if no bound is finite.

    Raises:
        TypeError: no pair of tensors.
        ValueError: bounds of another shape, NaN, or bounds without a finite weight between them.
    """
    if bounds is None:
        return None
    if not (isinstance(bounds, tuple) and len(bounds) == 2 and all(isinstance(bound, Tensor) for bound in bounds)):
        raise TypeError("bounds must be a tuple of two tensors, lower and upper")
    for name, bound in zip(("lower", "upper"), bounds, strict=True):
        if bound.shape != weights.shape:
            raise ValueError(f"{name} bounds must have shape [dim] = {tuple(weights.shape)}, got {tuple(bound.shape)}")
    lower, upper = (bound.detach().to(weights) for bound in bounds)
    if not (lower <= upper).all() or (lower == torch.inf).any() or (upper == -torch.inf).any():
        raise ValueError("bounds must have lower <= upper, with finite weights between them")
    return (lower, upper) if torch.cat([lower, upper]).isfinite().any() else None


def is_cone(bounds: Bounds | None) -> bool:
    """Whether multiples of weights stay within the bounds: all of them are 0 or infinite."""
    return bounds is None or all(bool(((bound == 0) | bound.isinf()).all()) for bound in bounds)


def clip(v: Tensor, bounds: Bounds | None) -> Tensor:
    """The weights w: the point of the box next to v."""
    return v if bounds is None else v.clamp(*bounds)


def conjugate(v: Tensor, bounds: Bounds | None) -> float:
    """h*(v) = max ⟨v, w⟩ − ½‖w‖² over the box."""
    w = clip(v, bounds)
    return float(v @ w) - float(w @ w) / 2


def step_length(gain: float, curvature: float, longest: float = 1.0) -> float:
    """The γ in [0, longest] where gain · γ − (curvature/2) γ² is largest, for a curvature ≥ 0."""
    if gain <= 0:
        return 0.0
    return longest if gain >= longest * curvature else gain / curvature


def line_search(rise: float, v: Tensor, direction: Tensor, longest: float, bounds: Bounds | None) -> float:
    """The γ in [0, longest] where the dual is largest along v + γ · direction.

    Args:
        rise: its derivative at γ = 0, over λ.
        v: weights without the constraints, [dim].
        direction: their change for γ = 1, [dim].
        longest: the end of the line.
        bounds: of the weights.
    """
    if rise <= 0:
        return 0.0
    if bounds is None:
        return step_length(rise, float(direction @ direction), longest)
    return _piecewise_search(rise, v, direction, longest, bounds)


def _piecewise_search(rise: float, v: Tensor, direction: Tensor, longest: float, bounds: Bounds) -> float:
    """The zero of the derivative, which is linear between the places where a weight reaches or leaves a bound.

    Most weights stay within their bounds on the way: only the places of the others are sorted.
    """
    lower, upper = bounds
    end = v + longest * direction
    outside = (torch.minimum(v, end) < lower) | (torch.maximum(v, end) > upper)
    inside = direction.masked_fill(outside, 0.0)
    bent = outside.nonzero()[:, 0]
    weights = torch.stack([t[bent] for t in (v, direction, lower, upper)])
    places, changes = _bends(weights.cpu().numpy(), longest)
    curvatures = (float(inside @ inside) + changes.cumsum()).clip(0.0)
    derivatives = rise - np.concatenate([[0.0], (curvatures[:-1] * np.diff(places)).cumsum()])
    last = int((derivatives > 0).sum()) - 1
    if derivatives[last] >= (longest - places[last]) * curvatures[last]:
        return longest
    return float(places[last] + derivatives[last] / curvatures[last])


def _bends(weights: Array, longest: float) -> tuple[Array, Array]:
    """Places in [0, longest], first and last one included, and changes of the curvature at them, in order.

    Args:
        weights: where they are, their directions, and lower and upper bounds: [4, n].
        longest: the last place.
    """
    v, direction, lower, upper = weights[:, weights[1] != 0]
    first, second = (lower - v) / direction, (upper - v) / direction
    places = np.concatenate([[0.0, longest], np.minimum(first, second), np.maximum(first, second)]).clip(0.0, longest)
    curvature = direction**2
    changes = np.concatenate([[0.0, 0.0], curvature, -curvature])
    order = places.argsort(kind="stable")
    return places[order], changes[order]
