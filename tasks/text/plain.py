"""Scores of plain tags, such as parts of speech, which are of tokens and not of entities."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import chain

from structsmooth.metrics import MatchCounts


@dataclass(frozen=True)
class TagScores:
    """Counts of the tokens of each tag, predicted or in the gold standard, sorted by tag; ``str()`` is a table."""

    by_tag: Mapping[str, MatchCounts]

    @classmethod
    def of(cls, gold: Sequence[Sequence[str]], predicted: Sequence[Sequence[str]]) -> "TagScores":
        """Scores of the tags of sentences."""
        pairs = list(zip(chain.from_iterable(gold), chain.from_iterable(predicted), strict=True))
        right, found = Counter(tag for tag, _ in pairs), Counter(tag for _, tag in pairs)
        both = Counter(tag for tag, guess in pairs if tag == guess)
        return cls({tag: MatchCounts(both[tag], found[tag], right[tag]) for tag in sorted(right | found)})

    @property
    def overall(self) -> MatchCounts:
        """Counts of all tokens: precision, recall and F1 are all the accuracy."""
        gold = sum(counts.gold for counts in self.by_tag.values())
        return MatchCounts(sum(counts.correct for counts in self.by_tag.values()), gold, gold)

    @property
    def accuracy(self) -> float:
        """The share of tokens with the right tag."""
        return self.overall.recall

    @property
    def macro_f1(self) -> float:
        """The mean of the F1 of all tags."""
        return sum(counts.f1 for counts in self.by_tag.values()) / len(self.by_tag)

    def as_dict(self) -> dict[str, float]:
        """Accuracy and macro F1 by name."""
        return {"accuracy": self.accuracy, "macro_f1": self.macro_f1}

    def __str__(self) -> str:
        rows = [("accuracy", self.accuracy), ("macro F1", self.macro_f1)]
        table = "\n".join(f"{name}  {100 * value:6.2f} %" for name, value in rows)
        return f"{table}\ntokens    {self.overall.gold:6}"
