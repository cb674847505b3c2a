"""Lengths η of prox-linear steps: the first, and how they follow the error of the models."""

import math

from structsmooth.problems.base import FullPass

# The proximal term is small below this share of the decrease; half of it at the minimum of a linear function.
_HELD = 0.1
# By the error of the linearization, η changes by this factor, at most.
_MOST = 10.0
# It grows by this one if F decreases by more than so much of what the dual bound allows.
_GROWTH, _MUCH = 2.0, 0.75
# A decrease of less than this part of what it is at least, for a right model, leaves a doubt.
_LITTLE = 0.25


def first_step_length(full: FullPass) -> float:
    """The η whose proximal term is a small part of the loss after a step that makes the linearized loss zero.

    This step along the gradient is as long as the loss over the norm of the gradient.
    """
    loss, square = full.smoothed_loss, float(full.gradient.square().sum())
    return loss / (2 * _HELD * square) if square > 0 and 0 < loss < math.inf else 1.0


def change_by_bound(decrease: float, most: float, gap: float) -> float | None:
    """Factor for η, from the decrease of F, the most that the dual bound of the model allows, and the model's gap.

    At the candidate, the model has decreased by what the bound allows less the gap. If F has decreased by far less, the
    model may be wrong there, or the gap, which is an estimate: ``None`` for that doubt.
    """
    least = most - gap
    if not decrease >= min(least, _LITTLE * least):
        return None
    return _GROWTH if decrease > _MUCH * most > 0 else 1.0


def change_by_error(error: float, proximity: float, gain: float, rounding: float) -> float:
    """Factor for η, from the error of the linearization at ŵ, the proximal term there, and the decrease of F(·; w).

    Error and proximal term grow with the square of the distance, so their ratio says which η would make the proximal
    term twice the error. As large as the error is enough, and a larger η helps only where the proximal term holds ŵ
    back.
    """
    if not error <= proximity + rounding:
        return max(1 / _MOST, proximity / (2 * error))
    if proximity == 0 or not _HELD * gain <= proximity <= gain:
        return 1.0
    factor = proximity / (2 * max(error, rounding, proximity / (2 * _MOST)))
    return factor if factor >= 2 else 1.0
