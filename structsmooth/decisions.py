"""Decisions under predicted costs: the SPO+ loss, and regret."""

from typing import TYPE_CHECKING, TypeVar

import torch
from torch import Tensor, nn

from structsmooth.losses import Reduction, check_agreement, reduced, require_structure
from structsmooth.perturbation import IMLE, Perturbation, Perturbed
from structsmooth.settings import check_choice
from structsmooth.smoothing import Max, Smoother
from structsmooth.structures.base import Structure, widened
from structsmooth.structures.checks import require_feasible
from structsmooth.structures.distribution import excess, not_below_zero
from structsmooth.structures.matching.assignment import linear_sum_assignment

__all__ = ["IMLE", "Perturbation", "Perturbed", "SPOPlus", "linear_sum_assignment", "normalized_regret", "regret"]

S = TypeVar("S", bound=Structure)


class SPOPlus(nn.Module):
    """SPO+: a convex upper bound on the regret of deciding by predicted scores where others are true.

    With true scores c, predicted ones θ, and the best decision y* for c, it is
    max over y of ⟨2θ − c, ν(y)⟩ − ⟨2θ − c, ν(y*)⟩. That is the structural hinge of the scores 2θ whose cost of a
    decision is its regret ⟨c, ν(y*) − ν(y)⟩. It takes one call of the max oracle, besides that for y*.

    Args:
        smoother: of the maximum; ``Max()`` for the loss of the paper.
        reduction: over the batch: ``"mean"``, ``"sum"`` or ``"none"``.

    Reference:
        Elmachtoub and Grigas (2022), Definition 3, for costs that are minimized: scores are minus those.

    Example:
        >>> from structsmooth import Candidates
        >>> costs = Candidates(-torch.tensor([[1.0, 2.0, 4.0]]))
        >>> SPOPlus()(Candidates(-torch.tensor([[1.5, 1.0, 3.0]])), costs)  # 2 · 1.5 − 1 − (2 · 1 − 2)
        tensor(2.)
    """

    def __init__(self, smoother: Smoother | None = None, reduction: Reduction = "mean") -> None:
        super().__init__()
        check_choice("reduction", reduction, ("mean", "sum", "none"))
        self.smoother = Max() if smoother is None else smoother
        self.reduction: Reduction = reduction

    if TYPE_CHECKING:

        def __call__(self, predicted: S, actual: S, y: Tensor | None = None) -> Tensor:
            """``nn.Module`` itself returns ``Any``."""

    def forward(self, predicted: S, actual: S, y: Tensor | None = None) -> Tensor:
        """The loss of predicted scores: a scalar, or [B] without reduction.

        Args:
            predicted: the decisions, bound to predicted scores.
            actual: the same decisions, bound to the true scores; without gradient.
            y: best decisions for the true scores, [B, ...]; found by the max oracle if not given.

        Raises:
            TypeError: no structures, or structures of different classes.
            ValueError: potentials of different shapes, or under ``validate_args`` an example without any decision.
                Without it, the loss of such an example is +inf and has no gradient.
        """
        _require_same(predicted, actual)
        predicted, actual = predicted.without_wrong(), actual.detach().without_wrong()
        if y is None:
            best, y = actual.max()
            require_feasible(actual, best)
        dtype, predicted = predicted.value_dtype, predicted.for_differences()
        pairs = zip(predicted.potentials, actual.potentials, strict=True)
        # What is forbidden stays so, and 2·(−inf) − (−inf) is not a number.
        scores = [torch.where(true == -torch.inf, -torch.inf, 2 * widened(guess) - true) for guess, true in pairs]
        shifted = predicted.replace(*scores)
        gold, penalty = shifted.score(y), self.smoother.penalty(shifted, y)
        check_agreement(shifted, gold, y)
        losses = not_below_zero(excess(self.smoother(shifted), gold if penalty is None else gold - penalty))
        return reduced(losses.to(dtype), self.reduction)

    def extra_repr(self) -> str:
        """Settings, for printing."""
        return f"smoother={self.smoother}, reduction={self.reduction!r}"


def regret(predicted: S, actual: S) -> Tensor:
    """What the best decisions for predicted scores lack of the largest true scores: [B], ≥ 0, without gradient.

    Args:
        predicted: the decisions, bound to predicted scores.
        actual: the same decisions, bound to the true scores.

    Raises:
        TypeError: no structures, or structures of different classes.
        ValueError: potentials of different shapes, or under ``validate_args`` an example without any decision. Without
            it, the regret of such an example is +inf.

    Reference:
        Elmachtoub and Grigas (2022), Definition 1.

    Example:
        >>> from structsmooth import Candidates
        >>> regret(Candidates(-torch.tensor([[1.5, 1.0, 3.0]])), Candidates(-torch.tensor([[1.0, 2.0, 4.0]])))
        tensor([1.])
    """
    _require_same(predicted, actual)
    predicted, actual = predicted.without_wrong(), actual.without_wrong()
    with torch.no_grad():
        (best, y), (value, found) = actual.max(), predicted.max()
        require_feasible(actual, best, value)
        largest = torch.where(best > -torch.inf, actual.score(y), torch.inf)
        return excess(largest, torch.where(value > -torch.inf, actual.score(found), -torch.inf))


def normalized_regret(predicted: S, actual: S) -> float:
    """The sum of regrets relative to the sum of the absolute values of the best true scores.

    Arguments and errors are those of :func:`regret`.

    Reference:
        Elmachtoub and Grigas (2022), section 6.
    """
    total = regret(predicted, actual).sum()
    with torch.no_grad():
        scale = actual.max()[0].abs().sum()
        return float(total / scale) if total > 0 else 0.0


def _require_same(predicted: object, actual: object) -> None:
    """Raise unless both are structures of the same class and shapes."""
    require_structure(predicted, "the first argument")
    require_structure(actual, "the second argument")
    assert isinstance(predicted, Structure)
    assert isinstance(actual, Structure)
    if type(predicted) is not type(actual):
        raise TypeError(f"true scores must be bound to a {type(predicted).__name__}, got {type(actual).__name__}")
    shapes, others = ([tuple(p.shape) for p in s.potentials] for s in (predicted, actual))
    if shapes != others:
        raise ValueError(f"true scores must have the shapes of the predicted ones, {shapes}, got {others}")
