"""Metrics: counts of matches with their precision and recall, and average precision as in PASCAL VOC."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate


@dataclass(frozen=True)
class MatchCounts:
    """Numbers of predicted items, of items in the gold standard, and of items in both (``correct``), perhaps halves."""

    correct: float = 0
    predicted: int = 0
    gold: int = 0

    def __add__(self, other: "MatchCounts") -> "MatchCounts":
        return MatchCounts(self.correct + other.correct, self.predicted + other.predicted, self.gold + other.gold)

    @property
    def precision(self) -> float:
        """Fraction of the predicted items that are correct; 0 if there are none."""
        return self.correct / self.predicted if self.predicted else 0.0

    @property
    def recall(self) -> float:
        """Fraction of the gold items that were found; 0 if there are none."""
        return self.correct / self.gold if self.gold else 0.0

    @property
    def f1(self) -> float:
        """Harmonic mean of precision and recall; 0 if nothing is correct."""
        return 2 * self.correct / (self.predicted + self.gold) if self.correct else 0.0


def average_precision(
    scores: Sequence[float], correct: Sequence[bool], positives: int, *, points: int | None = None
) -> float:
    """Average precision of detections as defined by PASCAL VOC: precision at each recall, averaged over recalls.

    The precision at a recall is the largest precision at this or a higher recall.

    Args:
        scores: confidence of each detection; among equal ones, the first counts as the most confident.
        correct: whether each detection found an object that no other detection found.
        positives: number of objects.
        points: number of recalls to average over, evenly spaced from 0 to 1; VOC used 11 until 2009. If not given, the
            area under the curve, as VOC used from 2010 on.

    Raises:
        ValueError: lengths that differ, fewer objects than correct detections, no objects, or fewer than two points.

    Reference:
        Everingham et al. (2010), "The PASCAL Visual Object Classes (VOC) Challenge", section 4.2.

    Example:
        >>> average_precision([0.9, 0.8, 0.7], [True, False, True], positives=2)
        0.8333333333333333
    """
    if len(scores) != len(correct):
        raise ValueError(f"scores has {len(scores)} detections, correct has {len(correct)}")
    if positives < max(1, sum(correct)):
        raise ValueError(f"positives must be at least 1 and the {sum(correct)} correct detections, got {positives}")
    if points is not None and points < 2:
        raise ValueError(f"points must be at least 2, got {points}")
    order = sorted(range(len(scores)), key=lambda i: -scores[i])
    found = list(accumulate((int(correct[i]) for i in order), initial=0))[1:]
    precision = [hits / (rank + 1) for rank, hits in enumerate(found)]
    best_from = list(accumulate(reversed(precision), max))[::-1]
    if points is None:
        return sum(best_from[rank] for rank, i in enumerate(order) if correct[i]) / positives
    # For each recall, the first rank that reaches it; in integers, since 0.1 has no exact float.
    enough = [
        next((r for r, hits in enumerate(found) if hits * (points - 1) >= t * positives), None) for t in range(points)
    ]
    return sum(0.0 if rank is None else best_from[rank] for rank in enough) / points
