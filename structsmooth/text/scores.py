"""Scores of tagged sentences: of entities, as in the CoNLL shared tasks, and of plain tags, such as parts of speech."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import chain

from structsmooth.metrics import MatchCounts
from structsmooth.text.schemes import Entity, TagScheme, detect_scheme, entities, entity_tags, forms_of

_Tags = Sequence[Sequence[str]]


@dataclass(frozen=True)
class EntityScores:
    """Scores of predicted tags; all fractions lie in [0, 1]. ``str()`` returns a table.

    Attributes:
        by_type: counts of entities for each type, predicted or in the gold standard, sorted by type.
        tokens: counts of tokens with a tag other than O; a token is correct if both tags are the same in one scheme.
        accuracy: fraction of all tokens that have the correct tag; 0 if there are no tokens.
    """

    by_type: Mapping[str, MatchCounts]
    tokens: MatchCounts
    accuracy: float

    @property
    def overall(self) -> MatchCounts:
        """Counts of the entities of all types (micro average)."""
        return sum(self.by_type.values(), MatchCounts())

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
        rows = {**self.by_type, "overall": self.overall, "tokens": self.tokens}
        return f"{counts_table('type', rows)}\naccuracy {self.accuracy:.2%}"


def counts_table(kind: str, rows: Mapping[str, MatchCounts]) -> str:
    """A table for humans of counts by name, with their precision, recall and F1."""
    width = max(map(len, [kind, *rows]))
    lines = [f"{kind:{width}}  precision  recall      F1    gold  predicted  correct"]
    for name, c in rows.items():
        fractions = f"{c.precision:9.2%} {c.recall:7.2%} {c.f1:7.2%}"
        lines.append(f"{name:{width}}  {fractions} {c.gold:7} {c.predicted:10} {c.correct:8g}")
    return "\n".join(lines)


def entity_scores(gold: _Tags, predicted: _Tags, *, scheme: TagScheme | None = None) -> EntityScores:
    """Scores of predicted tags, equal to those of the ``conlleval`` script of the CoNLL shared tasks.

    An entity is correct if its type and both its boundaries are correct. Either side may be in any scheme; to compare
    tokens, both are converted to one.

    Args:
        gold: the right tags of sentences.
        predicted: those to measure.
        scheme: in which tokens are compared; if not given, that of all tags together, or BIO where they have none.

    Raises:
        ValueError: the numbers of sentences or of tags of a sentence differ, or a tag is malformed.
    """
    _check_same_lengths(gold, predicted)
    if scheme is None:
        try:
            scheme = detect_scheme([*gold, *predicted])
        except ValueError:
            scheme = "BIO"
    both = _entities(gold), _entities(predicted)
    tags = ([t for e, y in zip(side, gold, strict=True) for t in entity_tags(e, len(y), scheme)] for side in both)
    pairs = list(zip(*tags, strict=True))
    tokens = MatchCounts(
        correct=sum(right == guess != "O" for right, guess in pairs),
        predicted=sum(guess != "O" for _, guess in pairs),
        gold=sum(right != "O" for right, _ in pairs),
    )
    accuracy = sum(right == guess for right, guess in pairs) / len(pairs) if pairs else 0.0
    return EntityScores(_entity_counts(*both), tokens, accuracy)


def entity_matches(gold: _Tags, predicted: _Tags) -> list[MatchCounts]:
    """Counts of the entities of each sentence."""
    sides = zip(_entities(gold), _entities(predicted), strict=True)
    return [MatchCounts(len({*right} & {*guess}), len(guess), len(right)) for right, guess in sides]


def _entities(tags: _Tags) -> list[list[Entity]]:
    forms = forms_of(sorted(set(chain.from_iterable(tags))))
    return [entities(y, forms[:1]) for y in tags]


def _check_same_lengths(gold: _Tags, predicted: _Tags) -> None:
    if len(gold) != len(predicted):
        raise ValueError(f"gold has {len(gold)} sentences, predicted has {len(predicted)}")
    for index, (right, guess) in enumerate(zip(gold, predicted, strict=True)):
        if len(right) != len(guess):
            raise ValueError(f"gold[{index}] has {len(right)} tags, predicted[{index}] has {len(guess)}")


def _entity_counts(gold: Sequence[Sequence[Entity]], predicted: Sequence[Sequence[Entity]]) -> dict[str, MatchCounts]:
    in_gold, in_predicted, in_both = Counter[str](), Counter[str](), Counter[str]()
    for right, guess in zip(gold, predicted, strict=True):
        in_gold.update(entity.type for entity in right)
        in_predicted.update(entity.type for entity in guess)
        in_both.update(entity.type for entity in {*right} & {*guess})
    types = sorted(in_gold | in_predicted)
    return {name or "entity": MatchCounts(in_both[name], in_predicted[name], in_gold[name]) for name in types}


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
