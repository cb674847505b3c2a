"""What a fitted tagger is: chains over the tags of sentences, and how probable and how right taggings are."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import islice
from pathlib import Path
from typing import Any, Literal

import torch
from torch import Tensor

from structsmooth.encoders import WordsAndFrozen
from structsmooth.encoders.pretrained import OWN
from structsmooth.export import Exported
from structsmooth.sequences import Sequences
from structsmooth.structures import LinearChain
from structsmooth.tasks.base import LastResultCache, Predictions
from structsmooth.tasks.probabilities import Parts, ProbabilisticTask
from structsmooth.tasks.text.exported import Standalone
from structsmooth.text.corpus import Corpus, Sentence
from structsmooth.text.documents import Document
from structsmooth.text.encoders import AttributeEncoder
from structsmooth.text.inputs import Inputs
from structsmooth.text.overlaps import OverlapScores
from structsmooth.text.probabilities import ProbableEntity
from structsmooth.text.schemes import FORMS, Entity, TagScheme, entities, entity_tags, forms_of, gold_tag
from structsmooth.text.scores import TagScores, entity_scores
from structsmooth.text.tagger import Tagger, Tags
from structsmooth.text.templates import Templates
from structsmooth.text.texts import TextCorpus, TextSentence

TOGETHER = 1 << 20
"""Tokens whose attributes are in memory together when sentences of a file are tagged."""


@dataclass(frozen=True)
class TaggingDistribution(ProbabilisticTask):
    """The distribution over the taggings of a sentence, with the attributes, the tags and what is read.

    Parts of taggings are entities with both of their ends, or the plain tags of tokens.
    """

    task: Any
    attributes: AttributeEncoder
    tags: list[str]
    inputs: Inputs

    def __post_init__(self) -> None:
        scheme = self.task.scheme
        if scheme is None or not self.tags or len({*self.tags}) < len(self.tags):
            raise ValueError("a tagger needs tags, each once, and their scheme")
        _ = self.tagger.tags.mask  # which refuses tags of another scheme

    @property
    def dim(self) -> int:
        """Weights of attributes, of pairs of tags, and of the first and the last tag."""
        return (self.attributes.size + len(self.tags) + 2) * len(self.tags)

    def save_files(self, folder: Path) -> list[str]:
        """Copy the encoder, if the model is to have one of its own."""
        if not isinstance(self.attributes, WordsAndFrozen) or not self.task.embed_encoder:
            return []
        self.attributes.frozen.copy_encoder(folder / OWN)
        return [OWN]

    def opened_in(self, folder: Path) -> "TaggingDistribution":
        """The tagger with the encoder in the folder, if it has one of its own."""
        if not isinstance(self.attributes, WordsAndFrozen):
            return self
        frozen = self.attributes.frozen.in_model(folder, self.task.embed_encoder)
        return replace(self, attributes=replace(self.attributes, frozen=frozen))

    def write_standalone(self, weights: Tensor, folder: Path) -> None:
        """The tagger in Python and numpy; see :mod:`structsmooth.text.standalone`."""
        self._standalone(weights).write(folder)

    def exported(self, weights: Tensor) -> Exported:
        """All from pieces and numbers of attributes to tags, as :class:`.EncodedTagger` says.

        Raises:
            ValueError: a tagger without encoder.
        """
        if not isinstance(self.attributes, WordsAndFrozen):
            return super().exported(weights)
        return self._standalone(weights).graph(self.attributes)

    def write_exported(self, weights: Tensor, path: Path, form: Literal["onnx", "pt2"]) -> None:
        """A folder with ``tagger.onnx`` and a program for text; see :mod:`structsmooth.encoders.standalone`.

        A ``.pt2`` is a file of the graph alone.
        """
        if form == "pt2" or not isinstance(both := self.attributes, WordsAndFrozen):
            super().write_exported(weights, path, form)
        else:
            self._standalone(weights).write_with_encoder(both, path)

    def _standalone(self, weights: Tensor) -> Standalone:
        how = self.tagger, self.attributes, self._templates, self.inputs.clitics
        return Standalone(*how, weights, self.temperature)

    def measure(self, examples: Sequence[Sentence], outputs: Sequence[list[str]]) -> tuple[dict[str, float], str]:
        """Precision, recall and F1 of entities, as ``conlleval`` computes them, and F1 of tokens outside O.

        Plain tags have accuracy and macro F1.

        Raises:
            ValueError: tags that are unknown.
        """
        gold, found = self._sides(examples, outputs)
        scores = TagScores.of(gold, found) if self._scheme is None else entity_scores(gold, found, scheme=self._scheme)
        return scores.as_dict(), str(scores)

    def measure_overlaps(self, examples: Sequence[Sentence], outputs: Sequence[list[str]]) -> OverlapScores:
        """The four measures of MUC and SemEval 2013, and which types are taken for which.

        Raises:
            ValueError: tags that are unknown, or no entities.
        """
        if self._scheme is None:
            raise ValueError("plain tags are no entities, of which a part could be found")
        return OverlapScores.of(*(map(entities, side) for side in self._sides(examples, outputs)))

    def _sides(
        self, examples: Sequence[Sentence], outputs: Sequence[list[str]]
    ) -> tuple[list[list[str]], list[list[str]]]:
        """Right tags and those of outputs, of the pieces of words that are compared."""
        gold = [list(map(gold_tag, sentence.tokens)) for sentence in examples]
        if any(self.task.unknown in tags for tags in gold):
            raise ValueError(f"some tags are unknown, {self.task.unknown}: give data with all tags to measure on")
        pairs = [self._compared(*row) for row in zip(examples, gold, outputs, strict=True)]
        return [right for right, _ in pairs], [found for _, found in pairs]

    def known_outputs(self, weights: Tensor, examples: Sequence[Sentence]) -> Iterable[tuple[LinearChain, Tensor]]:
        """The chains of sentences whose tags are all known and among those of the training data, and their states.

        Sentences of texts with spans that no words begin and end with are left out.
        """
        whole = ((i, s) for i, s in enumerate(examples) if not isinstance(s, TextSentence) or s.is_exact)
        tagged = ((i, self._in_scheme(sentence)) for i, sentence in whole)
        known = {i: tags for i, tags in tagged if {*tags} <= {*self.tags}}
        sequences = self._sequences(examples).select(torch.tensor([*known], dtype=torch.int64))
        return self.tagger.labelled_chains(sequences, weights, self.tagger.tags.states([*known.values()]))

    def distributions(self, weights: Tensor, examples: Sequence[Sentence]) -> Iterator[tuple[range, LinearChain]]:
        """The chains of sentences, over the taggings that they allow."""
        parts, begin = examples.parts(TOGETHER) if isinstance(examples, Corpus) else [examples], 0
        for part in parts:
            for chain in self.tagger.chains(self._sequences(part), self.tempered(weights), self._allowed(part)):
                yield range(begin, begin := begin + len(chain)), chain

    def groups(self, examples: Sequence[Sentence]) -> Sequence[int]:
        """The texts of sentences, where answers are texts with spans; else each sentence is its own."""
        if not isinstance(examples, TextCorpus) or examples.kind == "text" or examples.documents is None:
            return range(len(examples))
        documents: list[int] = examples.documents.tolist()
        return documents

    @property
    def finds_spans(self) -> bool:
        """Whether tags are those of entities."""
        return self._scheme is not None

    def answered(
        self, weights: Tensor, examples: Sequence[Sentence], taggings: Sequence[list[str]]
    ) -> list[tuple[Document, list[float]]]:
        """The texts of sentences with the entities of a tagging of each, and their probabilities.

        Sentences of no text, and those that are several of a text in lines, are texts of their own: words with blanks.
        """
        self.warn_if_uncalibrated()
        # One tagging of each sentence, and so one list of entities.
        found = [spans for (spans,) in self._spans(weights, examples, [[tags] for tags in taggings])]
        if isinstance(examples, TextCorpus) and (examples.kind != "text" or len(examples.texts) == len(examples)):
            return [
                (replace(text, spans=tuple(span for span, _ in listed)), [probability for _, probability in listed])
                for text, listed in examples.answered(found)
            ]
        documents = [Document.of_tags(s.words, tags) for s, tags in zip(examples, taggings, strict=True)]
        return [(text, [one.probability for one in spans]) for text, spans in zip(documents, found, strict=True)]

    def part_probabilities(
        self, weights: Tensor, examples: Sequence[Sentence], outputs: Sequence[Sequence[list[str]]]
    ) -> Parts:
        """The probabilities of the parts of taggings, among those that the sentences allow."""
        if self._scheme is not None:
            found = self._spans(weights, examples, outputs)
            return [[[entity.probability for entity in spans] for spans in alternatives] for alternatives in found]
        sequences, states = self._sequences(examples), {tag: state for state, tag in enumerate(self.tags)}
        marginals = self.tagger.marginals(sequences, self.tempered(weights), self._allowed(examples))
        return [
            [nodes[range(len(tags)), [states[tag] for tag in tags]].tolist() for tags in alternatives]
            for nodes, alternatives in zip(marginals, outputs, strict=True)
        ]

    def marginals(self, weights: Tensor, examples: Sequence[Sentence]) -> list[dict[str, list[float]]]:
        """For each tag, its probability at each token."""
        sequences = self._sequences(examples)
        found = self.tagger.marginals(sequences, self.tempered(weights), self._allowed(examples))
        return [dict(zip(self.tags, nodes.T.tolist(), strict=True)) for nodes in found]

    def right_parts(self, example: Sentence, output: list[str]) -> list[bool | None]:
        """Which parts are right; unknown where the tag of the token, or a tag of the sentence, is unknown."""
        gold, unknown = self._in_scheme(example), self.task.unknown
        if self._scheme is None:
            return [None if right == unknown else tag == right for tag, right in zip(output, gold, strict=True)]
        if unknown in gold:
            return [None] * len(self._entities(output))
        gold, output = self._compared(example, gold, output)
        right_ones = entities(gold)
        return [entity in right_ones for entity in entities(output)]

    def part_names(self, example: Sentence, output: list[str]) -> list[str]:
        """Words with the types of entities, or with plain tags."""
        if self._scheme is None:
            return [f"{word}: {tag}" for word, tag in zip(example.words, output, strict=True)]
        return [f"{' '.join(example.words[e.start : e.end])}: {e.type}" for e in self._entities(output)]

    def parts_to_json(self, output: list[str], probabilities: Sequence[float]) -> dict[str, Any]:
        """Entities as ``spans`` of tokens with label and probability, or the ``probabilities`` of plain tags."""
        if self._scheme is None:
            return super().parts_to_json(output, probabilities)
        found = zip(self._entities(output), probabilities, strict=True)
        return {"spans": [ProbableEntity(e.start, e.end, e.type, p)._asdict() for e, p in found]}

    def probabilities_to_json(
        self, weights: Tensor, examples: Sequence[Sentence], predictions: Predictions
    ) -> Iterator[list[dict[str, Any]]]:
        """The ``log_prob`` of each tagging, and its parts with their probabilities."""
        sequences, scale = self._sequences(examples), self.temperature or 1.0
        scores = [[score / scale for score, _ in ranked] for ranked in predictions]
        log_probs = self.tagger.log_probs(sequences, self.tempered(weights), scores, self._allowed(examples))
        parts = super().probabilities_to_json(weights, examples, predictions)
        for of_sentence, rows in zip(log_probs, parts, strict=True):
            yield [{"log_prob": value} | row for value, row in zip(of_sentence, rows, strict=True)]

    def _by_token(self, tags: Sequence[str], probabilities: Sequence[float]) -> list[float]:
        """The probability of the part that each token belongs to; 1 outside of entities."""
        if self._scheme is None:
            return list(probabilities)
        found = [1.0] * len(tags)
        for entity, probability in zip(self._entities(tags), probabilities, strict=True):
            found[entity.start : entity.end] = [probability] * (entity.end - entity.start)
        return found

    def _spans(
        self, weights: Tensor, examples: Sequence[Sentence], taggings: Sequence[Sequence[Sequence[str]]]
    ) -> list[list[list[ProbableEntity]]]:
        """The entities of some taggings of each sentence, with their probabilities."""
        parts, rest = examples.parts(TOGETHER) if isinstance(examples, Corpus) else [examples], iter(taggings)
        return [
            found
            for part in parts
            for found in self.tagger.spans(
                self._sequences(part), self.tempered(weights), list(islice(rest, len(part))), self._allowed(part)
            )
        ]

    def _compared(self, sentence: Sentence, gold: list[str], output: list[str]) -> tuple[list[str], list[str]]:
        """Right tags and those of an output, between which scores are those of spans, where texts have spans."""
        if self._scheme is None or not isinstance(sentence, TextSentence) or sentence.spans is None:
            return gold, output
        return sentence.compared(self._entities(output))

    def _entities(self, tags: Sequence[str]) -> list[Entity]:
        return entities(tags, forms_of(self.tags)[:1])

    def _in_scheme(self, sentence: Sentence) -> list[str]:
        """The tags of a sentence in the scheme of the tagger."""
        gold = list(map(gold_tag, sentence.tokens))
        if self._scheme is None or self.task.unknown in gold:
            return gold
        form = forms_of(self.tags)[0]
        # Gold tags may be in another scheme or form; the tagger's own form is tried first.
        return entity_tags(entities(gold, (form, *FORMS)), len(sentence), self._scheme, form)

    @property
    def _scheme(self) -> TagScheme | None:
        """The scheme; ``None`` for plain tags."""
        scheme: TagScheme | None = None if self.task.scheme == "plain" else self.task.scheme
        return scheme

    @cached_property
    def tagger(self) -> Tagger:
        """The chain over tags."""
        scheme = self._scheme
        return Tagger(Tags(self.tags, scheme, scheme is not None), self.attributes.size, self.task.transition_scale)

    @property
    def _templates(self) -> Templates:
        return self.inputs.templates(self.task.templates)

    @cached_property
    def _sequences(self) -> LastResultCache[Sequences]:
        return LastResultCache(lambda examples: self.attributes.encode(examples, self._templates))

    @cached_property
    def _allowed(self) -> LastResultCache[list[Tensor] | None]:
        """Which tags each token may have, bool [T, S] for each sentence; ``None`` if all may have all."""
        return LastResultCache(self._masks)

    def _masks(self, examples: Sequence[Sentence]) -> list[Tensor] | None:
        if isinstance(examples, Corpus) and examples.allowed is None:
            return None
        sets = [sentence.allowed for sentence in examples]
        return self.tagger.tags.masks(sets, list(map(len, examples))) if any(sets) else None
