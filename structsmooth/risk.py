"""Minimum risk training: the expected cost of a prediction drawn from the model."""

from typing import TYPE_CHECKING, Literal

from torch import Tensor, nn

from structsmooth.costs import Hamming
from structsmooth.losses import check_arguments, reduced
from structsmooth.settings import Interval, check_choice, check_number
from structsmooth.structures.base import PartCosts, Structure, widened


class MinimumRisk(nn.Module):
    """E ℓ(y, Y) over outputs Y of the distribution exp(score / temperature): the risk of the model, not a bound on it.

    The risk is bounded and smooth, but not convex: where the labels score far too low, the gradient nearly vanishes. So
    start from a model that was trained with another loss. For temperature → 0 it is the cost of the best output.

    Args:
        cost: task loss, as in :meth:`Structure.cost_augmented`; ``"hamming"`` is ``Hamming()``.
        temperature: > 0, in units of the score.
        reduction: over the batch: ``"mean"``, ``"sum"`` or ``"none"``.

    Reference:
        Smith and Eisner (2006); Gimpel and Smith (2010), section 3.3.

    Example:
        >>> import torch
        >>> from structsmooth import LinearChain
        >>> chain = LinearChain(torch.zeros(1, 3, 4), torch.zeros(4, 4))
        >>> MinimumRisk()(chain, torch.tensor([[0, 1, 2]]))  # 3 labels, each wrong with probability 3/4
        tensor(2.2500)
    """

    def __init__(
        self,
        cost: PartCosts | Tensor | tuple[Tensor, ...] | Literal["hamming"] = "hamming",
        temperature: float = 1.0,
        reduction: Literal["mean", "sum", "none"] = "mean",
    ) -> None:
        super().__init__()
        check_choice("reduction", reduction, ("mean", "sum", "none"))
        self.cost = Hamming() if isinstance(cost, str) else cost
        self.temperature: float = check_number("temperature", temperature, Interval(above=True))
        self.reduction = reduction

    if TYPE_CHECKING:

        def __call__(self, structure: Structure, y: Tensor) -> Tensor:
            """``nn.Module`` itself returns ``Any``."""

    def forward(self, structure: Structure, y: Tensor) -> Tensor:
        """Risk of labels ``y`` [B, ...] under ``structure``: a scalar, or [B] without reduction.

        Raises:
            NotImplementedError: a structure without an exp oracle.
        """
        check_arguments(structure, y)
        structure = structure.without_wrong()
        if self.temperature != 1:
            structure = structure.replace(*(widened(p) / self.temperature for p in structure.potentials))
        risks = structure.expected_cost(y, self.cost)
        return reduced(risks, self.reduction)

    def extra_repr(self) -> str:
        """Settings, for printing."""
        return f"cost={self.cost}, temperature={self.temperature}, reduction={self.reduction!r}"
