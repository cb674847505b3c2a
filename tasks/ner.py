"""Named entity recognition, and any other tagging of CoNLL column files."""

from __future__ import annotations

from argparse import ArgumentParser, BooleanOptionalAction, Namespace
from collections.abc import Sequence
from dataclasses import dataclass, field
from importlib.resources import files
from typing import Any, ClassVar, TextIO, get_args

import torch
from torch import Tensor

from structsmooth.metrics import entity_scores
from structsmooth.problems import SparseChainProblem
from structsmooth.scores import linear_chain
from structsmooth.sequences import SparseSequences
from structsmooth.tag_schemes import TagScheme, detect_scheme, entities, entity_tags, transition_mask
from structsmooth.tasks.attributes import AttributeEncoder, DictionaryEncoder, HashingEncoder, encoder_from_dict
from structsmooth.tasks.base import Task
from structsmooth.tasks.conll import Sentence, read_conll, write_conll

# Sentences that are padded to one batch to be tagged.
_BATCH = 256


@dataclass
class NER(Task):
    """Named entity recognition with a linear chain over sparse attributes and Hamming cost.

    Args:
        rich: affixes, shapes and pairs beside words, parts of speech and chunks of the paper.
        bits: attributes are hashed to 2**bits buckets; 0 keeps a dictionary of those in the training data.
        scheme: of the tags learned and predicted; :meth:`fit` takes that of the training data if not given.
        encoder: attributes to integers; set by :meth:`fit`.
        tags: what the states stand for; set by :meth:`fit`.
        columns: number of columns of the training data; set by :meth:`fit`.

    Reference:
        Pillutla et al. (2019), section 7.1.1.
    """

    rich: bool = True
    bits: int = 18
    scheme: TagScheme | None = None
    encoder: AttributeEncoder = field(default_factory=HashingEncoder)
    tags: list[str] = field(default_factory=list)
    columns: int = 0
    _encoded: tuple[Sequence[Sentence], SparseSequences] | None = field(default=None, init=False, repr=False)

    summary: ClassVar[str] = "named entity recognition: linear chains on CoNLL column files"
    headline: ClassVar[str] = "f1"
    lam: ClassVar[str] = "10/n"
    passes: ClassVar[int] = 15

    def __post_init__(self) -> None:
        if not 0 <= self.bits <= 30:
            raise ValueError(f"bits must be from 1 to 30, or 0 for a dictionary, got {self.bits}")

    @classmethod
    def add_arguments(cls, parser: ArgumentParser) -> None:
        """Options of the attributes and tags."""
        parser.add_argument(
            "--rich",
            action=BooleanOptionalAction,
            default=True,
            help="affixes, shapes and pairs beside the paper's words, parts of speech and chunks (default: yes)",
        )
        parser.add_argument(
            "--bits",
            type=int,
            default=18,
            help="hash attributes to 2**BITS buckets; 0 for an exact dictionary (default: 18)",
        )
        parser.add_argument(
            "--scheme", choices=get_args(TagScheme), help="convert tags to this scheme (default: that of the data)"
        )

    @classmethod
    def from_options(cls, options: Namespace) -> NER:
        """An untrained tagger."""
        return cls(options.rich, options.bits, options.scheme)

    @classmethod
    def embedded(cls) -> dict[str, str]:
        """Entities in filings to the US Securities and Exchange Commission (Salinas Alvarado et al. 2015)."""
        folder = files("structsmooth.data") / "sec_filings"
        return {"train": str(folder / "FIN5.txt.gz"), "test": str(folder / "FIN3.txt.gz")}

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
        encoder = HashingEncoder(self.bits, self.rich) if hashing else DictionaryEncoder.fit(examples, rich=self.rich)
        self.encoder, self.columns = encoder, 2 + len(examples[0].columns)
        self.scheme = self.scheme or detect_scheme(_gold(sentence) for sentence in examples)
        # O makes sure that every sentence has a well-formed tagging.
        self.tags = sorted({"O"}.union(*(self._well_formed(sentence) for sentence in examples)))

    def problem(self, examples: Sequence[Sentence]) -> SparseChainProblem:
        """Structural hinge losses of the linear chain."""
        index = {tag: state for state, tag in enumerate(self.tags)}
        labels = torch.tensor([index[tag] for sentence in examples for tag in self._well_formed(sentence)])
        return SparseChainProblem(self.encoder.encode(examples), labels, self.encoder.size, len(self.tags))

    def predict(self, weights: Tensor, examples: Sequence[Sentence], k: int = 1) -> list[list[tuple[float, list[str]]]]:
        """The k best well-formed tag sequences of each sentence with their scores."""
        size, states = self.encoder.size, len(self.tags)
        rows, transition, ends = weights.view(-1, states).split([size, states, 2])
        assert self.scheme is not None
        mask = transition_mask(self.tags, self.scheme)
        transition = transition + mask.transition.to(weights)
        ends = ends + torch.stack([mask.start, mask.stop]).to(weights)
        predictions = []
        sequences = self._sequences(examples)
        for indices in torch.arange(len(examples)).split(_BATCH):
            values, y = linear_chain(sequences.select(indices), rows, transition, ends).topk(k)
            for i, scores, outputs in zip(indices.tolist(), values.tolist(), y.tolist(), strict=True):
                ranked = zip(scores, outputs, strict=True)
                length = len(examples[i])
                predictions.append([(score, self._names(y[:length])) for score, y in ranked if score > -torch.inf])
        return predictions

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
            "rich": self.rich,
            "bits": self.bits,
            "scheme": self.scheme,
            "encoder": self.encoder.to_dict(),
            "tags": self.tags,
            "columns": self.columns,
        }

    @classmethod
    def from_dict(cls, data: dict[str, Any]) -> NER:
        """The tagger that :meth:`to_dict` was called on."""
        return cls(**(data | {"encoder": encoder_from_dict(data["encoder"])}))

    def _well_formed(self, sentence: Sentence) -> list[str]:
        """The tags of a sentence in the tagger's scheme; the entities stay the same."""
        assert self.scheme is not None
        return entity_tags(entities(_gold(sentence)), len(sentence), self.scheme)

    def _sequences(self, examples: Sequence[Sentence]) -> SparseSequences:
        """Attributes of some sentences; the last ones stay, since they are tagged after every pass."""
        if self._encoded is None or self._encoded[0] is not examples:
            self._encoded = examples, self.encoder.encode(examples)
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
