"""Box constraints lower ≤ w ≤ upper in the dual (Osokin et al. 2016, appendix H).

The dual of (λ/2)‖w‖² within the box is λh*(v), with the conjugate h* of h(w) = ½‖w‖² there. v are what the weights
would be without constraints; the gradient of h* is w: v clipped to the box. Without constraints h* is ½‖v‖².
"""

import torch
from torch import Tensor

Bounds = tuple[Tensor, Tensor]


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
        curvature = float(direction @ direction)
        return longest if rise >= longest * curvature else rise / curvature
    return _piecewise_search(rise, v, direction, longest, bounds)


def _piecewise_search(rise: float, v: Tensor, direction: Tensor, longest: float, bounds: Bounds) -> float:
    """The zero of the derivative, which is linear between the places where a weight reaches or leaves a bound."""
    moving = direction != 0
    v, direction = v[moving], direction[moving]
    ends = torch.stack([(bound[moving] - v) / direction for bound in bounds])
    curvature = direction.square()
    places = torch.cat([ends.amin(0), ends.amax(0)]).clamp(0.0, longest)
    places, order = torch.cat([places.new_tensor([0.0, longest]), places]).sort(stable=True)
    changes = torch.cat([curvature.new_zeros(2), curvature, -curvature])[order]
    curvatures = changes.cumsum(0).clamp_min(0.0)
    derivatives = rise - torch.cat([v.new_zeros(1), (curvatures[:-1] * places.diff()).cumsum(0)])
    last = int((derivatives > 0).sum()) - 1
    step = float(places[last]) + float(derivatives[last] / curvatures[last])
    return min(step, longest)
