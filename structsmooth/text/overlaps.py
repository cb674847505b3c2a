"""Entities that are found in part: the four measures of MUC and SemEval 2013, and which types are taken for which."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from structsmooth.metrics import MatchCounts
from structsmooth.text.schemes import Entity
from structsmooth.text.scores import counts_table

Pair = tuple[Entity | None, Entity | None]
"""An entity of the gold standard and the one that was found in its place; ``None`` where there is none."""

MISSED, SPURIOUS = "(missed)", "(spurious)"
"""What stands in the place of the type of an entity that was not found, or that should not have been found."""


@dataclass(frozen=True)
class OverlapScores:
    """Pairs of entities; ``str()`` is a table of the four measures and one of confusions.

    Attributes:
        pairs: all entities of the gold standard and all that were found, each once.

    Reference:
        Chinchor and Sundheim (1993), "MUC-5 evaluation metrics"; Segura-Bedmar et al. (2013), SemEval-2013 task 9.
    """

    pairs: Sequence[Pair]

    @classmethod
    def of(cls, gold: Iterable[Sequence[Entity]], found: Iterable[Sequence[Entity]]) -> "OverlapScores":
        """The pairs of the entities of sentences: those in the gold standard, and those that were found."""
        return cls([pair for sides in zip(gold, found, strict=True) for pair in matched(*sides)])

    def measures(self) -> Mapping[str, MatchCounts]:
        """Counts by measure.

        ``strict``: both ends and the type are right, as in CoNLL. ``exact``: both ends. ``partial``: both ends, and
        what overlaps counts as a half. ``type``: the type, of what overlaps.
        """
        both = [(right, guess) for right, guess in self.pairs if right is not None and guess is not None]
        ends = [right[1:] == guess[1:] for right, guess in both]
        types = [right.type == guess.type for right, guess in both]
        correct = {
            "strict": sum(right == guess for right, guess in both),
            "exact": sum(ends),
            "partial": (len(both) + sum(ends)) / 2,
            "type": sum(types),
        }
        predicted, gold = (sum(pair[side] is not None for pair in self.pairs) for side in (1, 0))
        return {name: MatchCounts(count, predicted, gold) for name, count in correct.items()}

    def confusions(self) -> Counter[tuple[str, str]]:
        """How often entities of a type are taken for another, whatever their ends."""
        types = ((right.type if right else SPURIOUS, guess.type if guess else MISSED) for right, guess in self.pairs)
        return Counter((right, guess) for right, guess in types if right != guess)

    def __str__(self) -> str:
        confusions = [f"{count:6}  {right} as {guess}" for (right, guess), count in self.confusions().most_common()]
        return "\n".join([counts_table("measure", self.measures()), "", "types that differ", *(confusions or ["none"])])


def matched(gold: Sequence[Entity], found: Sequence[Entity]) -> list[Pair]:
    """The entities of a sentence in pairs that overlap, each in one pair, and those alone that are left.

    Entities with the same ends are a pair; then, from left to right, those that overlap and have the same type; then
    others that overlap. Entities of a side do not overlap.
    """
    rules = (
        lambda right, guess: right[1:] == guess[1:],
        lambda right, guess: right.type == guess.type and _overlap(right, guess),
        _overlap,
    )
    pairs, rights, guesses = list[Pair](), list(gold), list(found)
    for rule in rules:
        for right in list(rights):
            if (guess := next((one for one in guesses if rule(right, one)), None)) is not None:
                pairs.append((right, guess))
                rights.remove(right)
                guesses.remove(guess)
    return [*pairs, *((right, None) for right in rights), *((None, guess) for guess in guesses)]


def _overlap(one: Entity, other: Entity) -> bool:
    return one.start < other.end and other.start < one.end
