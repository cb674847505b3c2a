"""Metrics: scores of tagged sentences as in the CoNLL shared tasks, average precision as in PASCAL VOC."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate, chain

from structsmooth.tag_schemes import entities

_Tags = Sequence[Sequence[str]]


@dataclass(frozen=True)
class MatchCounts:
    """Numbers of predicted items, of items in the gold standard, and of items in both (``correct``)."""

    correct: int
    predicted: int
    gold: int

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


@dataclass(frozen=True)
class EntityScores:
    """Scores of predicted tags; all fractions lie in [0, 1]. ``str()`` returns a table.

    Attributes:
        by_type: counts of entities for each type, predicted or in the gold standard, sorted by type.
        tokens: counts of tokens with a tag other than O; a token is correct if both tags are the same.
        accuracy: fraction of all tokens that have the correct tag; 0 if there are no tokens.
    """

    by_type: Mapping[str, MatchCounts]
    tokens: MatchCounts
    accuracy: float

    @property
    def overall(self) -> MatchCounts:
        """Counts of the entities of all types (micro average)."""
        counts = self.by_type.values()
        return MatchCounts(
            sum(c.correct for c in counts), sum(c.predicted for c in counts), sum(c.gold for c in counts)
        )

    @property
    def precision(self) -> float:
        """Precision over the entities of all types."""
        return self.overall.precision

    @property
    def recall(self) -> float:
        """Recall over the entities of all types."""
        return self.overall.recall

    @property
    def f1(self) -> float:
        """F1 over the entities of all types: the official score of CoNLL-2000 and CoNLL-2003."""
        return self.overall.f1

    @property
    def token_f1(self) -> float:
        """F1 over the tokens with a tag other than O."""
        return self.tokens.f1

    def as_dict(self) -> dict[str, float]:
        """The overall scores by name, for a training history."""
        names = ("f1", "precision", "recall", "token_f1", "accuracy")
        return {name: getattr(self, name) for name in names}

    def __str__(self) -> str:
        rows = [*self.by_type.items(), ("overall", self.overall), ("tokens", self.tokens)]
        width = max(len(name) for name, _ in rows)
        header = f"{'type':{width}}  precision  recall      F1    gold  predicted  correct"
        footer = f"accuracy {self.accuracy:.2%}"
        return "\n".join([header, *(_table_row(name.ljust(width), counts) for name, counts in rows), footer])


def _table_row(name: str, counts: MatchCounts) -> str:
    fractions = f"{counts.precision:9.2%} {counts.recall:7.2%} {counts.f1:7.2%}"
    return f"{name}  {fractions} {counts.gold:7} {counts.predicted:10} {counts.correct:8}"


def entity_scores(gold: Sequence[Sequence[str]], predicted: Sequence[Sequence[str]]) -> EntityScores:
    """Scores of predicted tags, equal to those of the ``conlleval`` script of the CoNLL shared tasks.

    An entity is correct if its type and both its boundaries are correct. Tags may be in any scheme; if gold and
    predicted tags are in different schemes, entities can be compared, but not tokens.

    Raises:
        ValueError: the numbers of sentences or of tags of a sentence differ, or a tag is malformed.
    """
    _check_same_lengths(gold, predicted)
    pairs = list(zip(chain.from_iterable(gold), chain.from_iterable(predicted), strict=True))
    tokens = MatchCounts(
        correct=sum(right == guess != "O" for right, guess in pairs),
        predicted=sum(guess != "O" for _, guess in pairs),
        gold=sum(right != "O" for right, _ in pairs),
    )
    accuracy = sum(right == guess for right, guess in pairs) / len(pairs) if pairs else 0.0
    return EntityScores(_entity_counts(gold, predicted), tokens, accuracy)


def _check_same_lengths(gold: _Tags, predicted: _Tags) -> None:
    if len(gold) != len(predicted):
        raise ValueError(f"gold has {len(gold)} sentences, predicted has {len(predicted)}")
    for index, (right, guess) in enumerate(zip(gold, predicted, strict=True)):
        if len(right) != len(guess):
            raise ValueError(f"gold[{index}] has {len(right)} tags, predicted[{index}] has {len(guess)}")


def _entity_counts(gold: _Tags, predicted: _Tags) -> dict[str, MatchCounts]:
    in_gold, in_predicted, in_both = Counter[str](), Counter[str](), Counter[str]()
    for right, guess in zip(map(entities, gold), map(entities, predicted), strict=True):
        in_gold.update(entity.type for entity in right)
        in_predicted.update(entity.type for entity in guess)
        in_both.update(entity.type for entity in set(right).intersection(guess))
    types = sorted(in_gold | in_predicted)
    return {name: MatchCounts(in_both[name], in_predicted[name], in_gold[name]) for name in types}


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
