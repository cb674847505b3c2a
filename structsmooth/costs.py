"""Task losses ℓ that decompose over variables or other parts, so that they can be added to the potentials."""

from abc import ABC, abstractmethod
from dataclasses import dataclass

import torch
from torch import Tensor

from structsmooth.structures.base import Structure, lengths_of
from structsmooth.structures.by_mistakes import require_countable
from structsmooth.structures.candidates import BoxCandidates
from structsmooth.structures.constituents import Constituents
from structsmooth.structures.segments import SemiMarkov
from structsmooth.structures.slack import SlackRescaled


class Cost(ABC):
    """A cost of wrong labels: ℓ(y, y') = Σ_v mistake_cost(y)_v · 1[y'_v ≠ y_v]."""

    @abstractmethod
    def mistake_cost(self, y: Tensor, lengths: Tensor) -> Tensor:
        """Cost of a wrong label where the correct one is y.

        Args:
            y: labels of any shape.
            lengths: number of variables of the example that each label belongs to; broadcasts to ``y``.

        Returns:
            Costs in the shape of ``y``, float64.
        """

    def check_classes(self, classes: int) -> None:  # noqa: B027 - most costs are for any number
        """Raise ``ValueError`` if the cost is not defined for this number of classes."""

    def __call__(self, structure: Structure, y: Tensor) -> Tensor | tuple[Tensor, ...]:
        """Part costs [B, ..., S] to be added to unary potentials of that shape, for labels ``y`` [B, ...].

        Where a structure has a class with potentials of its own, such as "no partner" of a
        :class:`~structsmooth.Matching` with ``unmatched_rows``, there are costs for each of the potentials.

        Raises:
            TypeError: a structure whose outputs are no labels.
            ValueError: a structure with another number of classes than the cost has.
        """
        return structure.potential_costs(self.of_classes(structure, *structure.as_classes(y)))

    def of_classes(self, structure: Structure, y: Tensor, classes: int) -> Tensor:
        """Costs [B, ..., S] of the S classes of variables, where y [B, ...] are correct, in the dtype of the scores."""
        return self.of_wrong(structure, y, torch.arange(classes, device=y.device) != y.unsqueeze(-1))

    def of_wrong(self, structure: Structure, y: Tensor, wrong: Tensor) -> Tensor:
        """Costs [B, ..., S] of the classes that are wrong [B, ..., S], where y [B, ...] are correct classes."""
        self.check_classes(wrong.shape[-1])
        lengths = lengths_of(structure, y).view(-1, *[1] * (y.dim() - 1))
        costs = wrong * self.mistake_cost(y, lengths).unsqueeze(-1)
        return costs.to(structure.potentials[0].dtype)


@dataclass(frozen=True)
class Hamming(Cost):
    """The number of wrong labels."""

    def mistake_cost(self, y: Tensor, lengths: Tensor) -> Tensor:
        """The cost of each wrong label, which is 1: float64 in the shape of ``y``."""
        return torch.ones(y.shape, dtype=torch.float64, device=y.device)


@dataclass(frozen=True)
class NormalizedHamming(Cost):
    """The fraction of wrong labels."""

    def mistake_cost(self, y: Tensor, lengths: Tensor) -> Tensor:
        """The cost of each wrong label: 1 / length of the example, float64 in the shape of ``y``."""
        return (1 / lengths.clamp_min(1).to(torch.float64)).expand(y.shape)


@dataclass(frozen=True)
class WeightedHamming(Cost):
    """The number of wrong labels, each weighted by the correct class.

    Args:
        weights: non-negative weights, one for each of the S classes.
    """

    weights: tuple[float, ...]

    def __post_init__(self) -> None:
        object.__setattr__(self, "weights", tuple(float(weight) for weight in self.weights))
        if not self.weights or not all(0 <= weight < float("inf") for weight in self.weights):
            raise ValueError(f"weights must be non-negative numbers, one per class, got {self.weights}")

    def check_classes(self, classes: int) -> None:
        """Raise ``ValueError`` unless there is one weight per class."""
        if classes != len(self.weights):
            raise ValueError(f"weights must be one per class, {classes}, got {len(self.weights)}")

    def mistake_cost(self, y: Tensor, lengths: Tensor) -> Tensor:
        """The cost of each wrong label: the weight of its correct class, float64 in the shape of ``y``."""
        weights = torch.tensor(self.weights, dtype=torch.float64, device=y.device)
        # Labels at padding may have any value; their cost is never used.
        return weights[y.clamp(0, len(weights) - 1)]


@dataclass(frozen=True)
class SegmentErrors:
    """The number of wrong segments plus that of missed ones: the cost of :class:`~structsmooth.SemiMarkov`.

    A segment is correct if its label, its first and its last position are. The segment that covers the first position
    of a missed one counts for it, so that the cost decomposes over segments.

    Example:
        >>> from structsmooth import SemiMarkov
        >>> model = SemiMarkov(torch.zeros(1, 4, 2), torch.zeros(2, 2), torch.zeros(3, 2))
        >>> gold = torch.tensor([[0, -1, 1, -1]])
        >>> augmented = model.cost_augmented(gold, SegmentErrors())
        >>> augmented.score(gold), augmented.score(torch.tensor([[0, -1, -1, 1]]))
        (tensor([0.]), tensor([4.]))
    """

    def __call__(self, structure: Structure, y: Tensor) -> tuple[Tensor, ...]:
        """Costs of segments [B, T, K, S], and 0 for all other potentials.

        Raises:
            TypeError: a structure other than ``SemiMarkov``.
        """
        if not isinstance(structure, SemiMarkov):
            raise TypeError(f"SegmentErrors is a cost of SemiMarkov, got {type(structure).__name__}")
        nothing = torch.zeros((), dtype=structure.unary.dtype, device=y.device)
        correct = structure.indicators_of_segments(y).to(nothing.dtype)
        # A gold segment is missed by every other one that covers its first position.
        starts = torch.nn.functional.pad(correct.sum((2, 3)), (0, correct.shape[2] - 1))
        covered = torch.stack([starts[:, k : k + y.shape[1]] for k in range(correct.shape[2])], 2).cumsum(2)
        return nothing, nothing, nothing, 1 - 2 * correct + covered.unsqueeze(3)


@dataclass(frozen=True)
class SpanErrors:
    """The number of wrong spans plus that of missed ones: the cost of :class:`~structsmooth.Constituents`.

    A span is correct if its label, its first and its last word are. One with a wrong label counts twice, unlike in
    :class:`Hamming`.

    Example:
        >>> from structsmooth import Constituents
        >>> gold, other = torch.full((2, 1, 2, 2), -1)
        >>> gold[0, 0, 1], other[0, 0, 1] = 0, 1
        >>> augmented = Constituents(torch.zeros(1, 2, 2, 2)).cost_augmented(gold, SpanErrors())
        >>> augmented.score(gold), augmented.score(other)
        (tensor([0.]), tensor([2.]))
    """

    def __call__(self, structure: Structure, y: Tensor) -> tuple[Tensor, ...]:
        """Costs of spans [B, n, n, L], and the number of gold spans [B] for the offset.

        Raises:
            TypeError: a structure other than ``Constituents``.
        """
        if not isinstance(structure, Constituents):
            raise TypeError(f"SpanErrors is a cost of Constituents, got {type(structure).__name__}")
        spans, _ = structure.parts(y)
        return 1 - 2 * spans, spans.flatten(1).sum(1)


@dataclass(frozen=True)
class OneMinusIoU:
    """One minus the intersection over union of two boxes: the cost of :class:`~structsmooth.structures.BoxCandidates`.

    Reference:
        Pillutla et al. (2019), section 7.1.2.
    """

    def __call__(self, structure: Structure, y: Tensor) -> Tensor:
        """Cost of each box [B, M], for labels ``y`` [B].

        Raises:
            TypeError: a structure other than ``BoxCandidates``.
        """
        if not isinstance(structure, BoxCandidates):
            raise TypeError(f"OneMinusIoU is a cost of BoxCandidates, got {type(structure).__name__}")
        return (1 - structure.overlaps(y)).to(structure.scores.dtype)


@dataclass(frozen=True)
class RescaledMargin:
    """The cost of :class:`~structsmooth.structures.SlackRescaled`: its margin becomes 1."""

    def __call__(self, structure: Structure, y: Tensor) -> tuple[Tensor, ...]:
        """1 for the margin, and 0 for all other potentials.

        Raises:
            TypeError: a structure other than ``SlackRescaled``.
        """
        if not isinstance(structure, SlackRescaled):
            raise TypeError(f"RescaledMargin is a cost of SlackRescaled, got {type(structure).__name__}")
        *scores, margin = structure.potentials
        return (*(torch.zeros((), device=p.device) for p in scores), torch.ones_like(margin))


def slack_rescaled(structure: Structure, y: Tensor, cost: Cost) -> SlackRescaled:
    """The outputs of a chain, of trees or of a program, with scores relative to labels and multiplied by a cost.

    Raises:
        TypeError: another structure.
        ValueError: labels of the wrong shape or values; under ``validate_args``, a cost that is not positive, or not
            the same for all mistakes in an example. Without it, losses of such examples are +inf.
    """
    require_countable(structure)
    classes, number = structure.as_classes(structure.checked_labels(y))
    cost.check_classes(number)
    costs = cost.mistake_cost(classes, lengths_of(structure, y).view(-1, *[1] * (y.dim() - 1))).flatten(1)
    mask = getattr(structure, "mask", torch.ones_like(classes, dtype=torch.bool)).flatten(1)
    # An example may have no positions.
    largest = torch.where(mask, costs, 0.0).amax(1)
    least = torch.where(mask, costs, torch.inf).amin(1)
    equal = ~mask.any(1) | ((largest == least) & (largest > 0))
    if structure.validate_args and not bool(equal.all()):
        b = int(equal.long().argmin())
        raise ValueError(
            "slack rescaling needs a positive cost that is the same for all mistakes in an example, such as Hamming() "
            f"or NormalizedHamming(); {cost} costs {float(least[b]):g} to {float(largest[b]):g} in example {b}"
        )
    units = torch.where(mask.any(1), largest, 1.0)
    return SlackRescaled(structure, y, torch.where(equal, units, torch.nan))
