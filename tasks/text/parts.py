"""The parts of a tagging that are right or wrong by themselves: its entities, or the plain tags of tokens."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from torch import Tensor

from structsmooth.sequences import Sequences
from structsmooth.tasks.probabilities import Parts
from structsmooth.text.probabilities import ProbableEntity
from structsmooth.text.schemes import Entity, entities, forms_of
from structsmooth.text.tagger import Tagger


@dataclass(frozen=True)
class TagParts:
    """The parts of the taggings of a tagger, with their probabilities."""

    tagger: Tagger

    def probabilities(self, sequences: Sequences, weights: Tensor, taggings: Sequence[Sequence[list[str]]]) -> Parts:
        """Of the parts of some taggings of each sentence."""
        if self.tagger.tags.scheme is not None:
            found = self.tagger.spans(sequences, weights, taggings)
            return [[[entity.probability for entity in spans] for spans in alternatives] for alternatives in found]
        states = {tag: state for state, tag in enumerate(self.tagger.tags.names)}
        return [
            [nodes[range(len(tags)), [states[tag] for tag in tags]].tolist() for tags in alternatives]
            for nodes, alternatives in zip(self.tagger.marginals(sequences, weights), taggings, strict=True)
        ]

    def right(self, gold: Sequence[str], tags: Sequence[str], unknown: str | None) -> list[bool | None]:
        """Which parts of a tagging are right; ``None`` where the right tags are not known."""
        if self.tagger.tags.scheme is None:
            return [None if right == unknown else tag == right for tag, right in zip(tags, gold, strict=True)]
        found = self._entities(tags)
        right_ones = None if unknown in gold else self._entities(gold)
        return [None if right_ones is None else entity in right_ones for entity in found]

    def to_json(self, tags: Sequence[str], probabilities: Sequence[float]) -> dict[str, Any]:
        """Entities as ``spans`` of tokens with label and probability, or the ``probabilities`` of the tags."""
        if self.tagger.tags.scheme is None:
            return {"probabilities": list(probabilities)}
        found = zip(self._entities(tags), probabilities, strict=True)
        return {"spans": [ProbableEntity(e.start, e.end, e.type, p)._asdict() for e, p in found]}

    def by_token(self, tags: Sequence[str], probabilities: Sequence[float]) -> list[float]:
        """The probability of the part that each token belongs to; 1 outside of entities."""
        if self.tagger.tags.scheme is None:
            return list(probabilities)
        found = [1.0] * len(tags)
        for entity, probability in zip(self._entities(tags), probabilities, strict=True):
            found[entity.start : entity.end] = [probability] * (entity.end - entity.start)
        return found

    def _entities(self, tags: Sequence[str]) -> list[Entity]:
        return entities(tags, forms_of(list(map(str, self.tagger.tags.names)))[:1])
