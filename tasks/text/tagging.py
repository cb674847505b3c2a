"""Tagging of CoNLL column files: what named entities and chunks have in common."""

from __future__ import annotations

from abc import abstractmethod
from argparse import ArgumentParser, Namespace
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, TextIO, get_args

import torch
from torch import Tensor

from structsmooth.costs import Cost
from structsmooth.metrics import entity_scores
from structsmooth.problems import SparseChainProblem
from structsmooth.sequences import SparseSequences
from structsmooth.tag_schemes import TagScheme, detect_scheme, entities, entity_tags, transition_mask
from structsmooth.tasks.base import Task
from structsmooth.tasks.chains import best_labels
from structsmooth.tasks.text.attributes import (
    AttributeEncoder,
    DictionaryEncoder,
    HashingEncoder,
    Templates,
    encoder_from_dict,
)
from structsmooth.tasks.text.conll import Sentence, read_conll, write_conll


@dataclass
class Tagging(Task):
    """Tagging of sentences with a linear chain over sparse attributes; subclasses say which attributes, and the cost.

    Args:
        bits: attributes are hashed to 2**bits buckets; 0 keeps a dictionary of those in the training data.
        scheme: of the tags learned and predicted; :meth:`fit` takes that of the training data if not given.
        encoder: attributes to integers; set by :meth:`fit`.
        tags: what the states stand for; set by :meth:`fit`.
        columns: number of columns of the training data; set by :meth:`fit`.

    Attributes:
        cost: task loss of the structural hinge.
    """

    bits: int = 18
    scheme: TagScheme | None = None
    encoder: AttributeEncoder = field(default_factory=HashingEncoder)
    tags: list[str] = field(default_factory=list)
    columns: int = 0
    _encoded: tuple[Sequence[Sentence], SparseSequences] | None = field(default=None, init=False, repr=False)

    headline: ClassVar[str] = "f1"
    cost: ClassVar[Cost]

    def __post_init__(self) -> None:
        if not 0 <= self.bits <= 30:
            raise ValueError(f"bits must be from 1 to 30, or 0 for a dictionary, got {self.bits}")

    @property
    @abstractmethod
    def templates(self) -> Templates:
        """What attributes tokens have."""

    @classmethod
    def add_arguments(cls, parser: ArgumentParser) -> None:
        """Options of the attributes and tags."""
        parser.add_argument(
            "--bits",
            type=int,
            default=cls.bits,
            help=f"hash attributes to 2**BITS buckets; 0 for an exact dictionary (default: {cls.bits})",
        )
        parser.add_argument(
            "--scheme", choices=get_args(TagScheme), help="convert tags to this scheme (default: that of the data)"
        )

    @classmethod
    def from_options(cls, options: Namespace) -> Tagging:
        """An untrained tagger."""
        return cls(bits=options.bits, scheme=options.scheme)

    def read(self, path: str | TextIO) -> list[Sentence]:
        """Sentences of a column file; a trained tagger takes files without the last column too."""
        if self.columns == 0:
            return read_conll(path)
        sentences = read_conll(path, tagged=False)
        found = 1 + len(sentences[0].columns)
        if found == self.columns:
            return [Sentence(s.words, s.columns[:-1], s.columns[-1]) for s in sentences]
        if found == self.columns - 1:
            return sentences
        name = path if isinstance(path, str) else "standard input"
        raise ValueError(
            f"{name}: expected {self.columns} columns, as in training, or {self.columns - 1} without tags; got {found}"
        )

    def fit(self, examples: Sequence[Sentence]) -> None:
        """Collect attributes and tags."""
        hashing = self.bits > 0
        encoder = HashingEncoder(self.bits) if hashing else DictionaryEncoder.fit(examples, self.templates)
        self.encoder, self.columns = encoder, 2 + len(examples[0].columns)
        self.scheme = self.scheme or detect_scheme(_gold(sentence) for sentence in examples)
        # O makes sure that every sentence has a well-formed tagging.
        self.tags = sorted({"O"}.union(*(self._well_formed(sentence) for sentence in examples)))

    def problem(self, examples: Sequence[Sentence]) -> SparseChainProblem:
        """Structural hinge losses of the linear chain."""
        index = {tag: state for state, tag in enumerate(self.tags)}
        labels = torch.tensor([index[tag] for sentence in examples for tag in self._well_formed(sentence)])
        sequences = self.encoder.encode(examples, self.templates)
        return SparseChainProblem(sequences, labels, self.encoder.size, len(self.tags), self.cost)

    def predict(self, weights: Tensor, examples: Sequence[Sentence], k: int = 1) -> list[list[tuple[float, list[str]]]]:
        """The k best well-formed tag sequences of each sentence with their scores."""
        size, states = self.encoder.size, len(self.tags)
        rows, transition, ends = weights.view(-1, states).split([size, states, 2])
        assert self.scheme is not None
        mask = transition_mask(self.tags, self.scheme)
        transition = transition + mask.transition.to(weights)
        ends = ends + torch.stack([mask.start, mask.stop]).to(weights)
        ranked_labels = best_labels(self._sequences(examples), rows, transition, ends, k)
        return [[(score, self._names(y)) for score, y in ranked] for ranked in ranked_labels]

    def measure(self, examples: Sequence[Sentence], outputs: Sequence[list[str]]) -> tuple[dict[str, float], str]:
        """Precision, recall and F1 of entities as ``conlleval`` has them, and F1 of tokens outside O."""
        scores = entity_scores([_gold(sentence) for sentence in examples], outputs)
        return scores.as_dict(), str(scores)

    def write(
        self, examples: Sequence[Sentence], predictions: Sequence[list[tuple[float, list[str]]]], stream: TextIO
    ) -> None:
        """Column file with a column per alternative behind those read, the best in the first added one.

        Where there are several, a comment line before the sentence has their scores in the same order. A sentence with
        fewer taggings than were asked for gets fewer columns.
        """
        for sentence, ranked in zip(examples, predictions, strict=True):
            if len(ranked) > 1:
                stream.write("# scores " + " ".join(f"{score:.6g}" for score, _ in ranked) + "\n")
            *alternatives, last = [tags for _, tags in ranked]
            write_conll([_with_columns(sentence, alternatives)], [last], stream)

    def to_dict(self) -> dict[str, Any]:
        """Settings, attributes and tags."""
        return {
            "bits": self.bits,
            "scheme": self.scheme,
            "encoder": self.encoder.to_dict(),
            "tags": self.tags,
            "columns": self.columns,
        }

    @classmethod
    def from_dict(cls, data: dict[str, Any]) -> Tagging:
        """The tagger that :meth:`to_dict` was called on."""
        return cls(**(data | {"encoder": encoder_from_dict(data["encoder"])}))

    def _well_formed(self, sentence: Sentence) -> list[str]:
        """The tags of a sentence in the tagger's scheme; the entities stay the same."""
        assert self.scheme is not None
        return entity_tags(entities(_gold(sentence)), len(sentence), self.scheme)

    def _sequences(self, examples: Sequence[Sentence]) -> SparseSequences:
        """Attributes of some sentences; the last ones stay, since they are tagged after every pass."""
        if self._encoded is None or self._encoded[0] is not examples:
            self._encoded = examples, self.encoder.encode(examples, self.templates)
        return self._encoded[1]

    def _names(self, states: Sequence[int]) -> list[str]:
        return [self.tags[state] for state in states]


def _gold(sentence: Sentence) -> list[str]:
    if sentence.tags is None:
        raise ValueError("these sentences have no tags: training and evaluation need them in the last column")
    return sentence.tags


def _with_columns(sentence: Sentence, columns: Sequence[list[str]]) -> Sentence:
    """A sentence with further columns behind those it has, tags included."""
    gold = [] if sentence.tags is None else [sentence.tags]
    return Sentence(sentence.words, [*sentence.columns, *gold, *columns])
