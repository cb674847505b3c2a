"""Tagging of CoNLL column files: what named entities and chunks have in common."""

from abc import abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, reduce
from itertools import pairwise
from operator import iadd
from typing import Any, ClassVar, Literal, TextIO

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from structsmooth import processes
from structsmooth.costs import Cost
from structsmooth.markup import Block, Markup
from structsmooth.metrics import entity_scores
from structsmooth.problems import SparseChainProblem
from structsmooth.sequences import SparseSequences
from structsmooth.tag_schemes import TagScheme, detect_scheme, entities, entity_tags, joint_scheme, transition_mask
from structsmooth.tasks.base import FittedTask, Latest, Predictions, Split, Task, own_share
from structsmooth.tasks.chains import best_labels, transition_matrix, write_scores
from structsmooth.tasks.text.attributes import Templates
from structsmooth.tasks.text.conll import read_corpus, write_conll
from structsmooth.tasks.text.corpus import Corpus, Sentence, Token
from structsmooth.tasks.text.encoders import (
    AttributeEncoder,
    DictionaryEncoder,
    HashingEncoder,
    attribute_counts,
    encoder_from_dict,
)
from structsmooth.tasks.text.plain import TagScores
from structsmooth.tasks.text.shown import confusion, scores_table, sentence_markup, weightiest_attributes
from structsmooth.tasks.text.windows import Windows

Scheme = Literal[TagScheme, "plain"]
"""A scheme of tags of entities, or plain tags, which are taken as they are."""

_UNTAGGED = "these sentences have no tags: training and evaluation need them in the last column"


@dataclass(frozen=True)
class FittedTagging(FittedTask):
    """A tagger with the attributes, the tags, which are its states, and the number of columns of its training data."""

    task: "Tagging"
    encoder: AttributeEncoder
    tags: list[str]
    columns: int

    def read(self, path: str | TextIO, split: Split = "predict") -> Corpus:
        """Sentences of a file with the columns of the training data; files to predict may lack the last column."""
        tagged = split != "predict"
        corpus = read_corpus(path, tagged=tagged, plain=self._scheme is None)
        found = 1 + tagged + len(corpus.distinct[0].columns)
        if found == self.columns and not tagged:
            return replace(corpus, distinct=[Token(word, cells[:-1], cells[-1]) for word, cells, _ in corpus.distinct])
        if found != self.columns - (not tagged):
            name = path if isinstance(path, str) else "standard input"
            untagged = "" if tagged else f", or {self.columns - 1} without tags"
            raise ValueError(
                f"{name}: expected {self.columns} columns, as in training{untagged}; got {found}: a line has one token"
            )
        return corpus

    def examples(self, inputs: Sequence[Any]) -> Sequence[Sentence]:
        """Sentences, also from lists of tokens: words, or tuples of words and the other columns before the tag.

        Raises:
            ValueError: a sentence without tokens, or a token without all columns of the training data.
        """
        return inputs if isinstance(inputs, Corpus) else [self._sentence(tokens) for tokens in inputs]

    def _sentence(self, tokens: Sentence | Sequence[str | Sequence[str]]) -> Sentence:
        if isinstance(tokens, Sentence):
            return tokens
        rows = [(token,) if isinstance(token, str) else tuple(token) for token in tokens]
        if not rows:
            raise ValueError("a sentence must have a token at least")
        count = self.columns - 1
        for row in rows:
            if len(row) != count:
                raise ValueError(f"a token must have {count} columns, as in training without the tags, got {row}")
        words, *columns = map(list, zip(*rows, strict=True))
        return Sentence(words, columns)

    def problem(self, examples: Sequence[Sentence]) -> SparseChainProblem:
        """Structural hinge losses of the linear chain."""
        corpus = Corpus.of(examples)
        labels = _labels(corpus, self._scheme, self.tags)
        sequences = self.encoder.encode(corpus, self.task.templates, self.task.attributes_cache)
        sizes, scale = (self.encoder.size, len(self.tags)), self.task.transition_scale
        return SparseChainProblem(sequences, labels, *sizes, self.task.cost, transition_scale=scale)

    def predict(self, weights: Tensor, examples: Sequence[Sentence], k: int = 1) -> Predictions:
        """The k best tag sequences of each sentence with their scores, well-formed unless tags are plain."""
        mask = None if self._scheme is None else transition_mask(self.tags, self._scheme)
        scale = self.task.transition_scale
        ranked_labels = best_labels(self._sequences(examples), weights, len(self.tags), k, mask, scale)
        return [[(score, [self.tags[state] for state in y]) for score, y in ranked] for ranked in ranked_labels]

    def measure(self, examples: Sequence[Sentence], outputs: Sequence[list[str]]) -> tuple[dict[str, float], str]:
        """Precision, recall and F1 of entities, as ``conlleval`` computes them, and F1 of tokens outside O.

        Plain tags have accuracy and macro F1.
        """
        gold = [_gold(sentence) for sentence in examples]
        scores = TagScores.of(gold, outputs) if self._scheme is None else entity_scores(gold, outputs)
        return scores.as_dict(), str(scores)

    def write(self, examples: Sequence[Sentence], predictions: Predictions, stream: TextIO) -> None:
        """Column file: after the columns that were read, a column for each alternative, the best one first.

        Where there are several, a comment line before the sentence has their scores in the same order. A sentence with
        fewer possible taggings gets fewer columns.
        """
        for sentence, ranked in zip(examples, predictions, strict=True):
            write_scores(ranked, stream)
            *others, last = [tags for _, tags in ranked]
            gold = [] if sentence.tags is None else [sentence.tags]
            write_conll([Sentence(sentence.words, [*sentence.columns, *gold, *others])], [last], stream)

    def show_example(self, example: Sentence, ranked: Sequence[tuple[float, list[str]]]) -> Markup:
        """Words with their tags in colours, with the right tag where the predicted one is wrong."""
        gold = None if example.tags is None else self._in_scheme(example)
        return sentence_markup(example.words, gold, ranked, self.tags)

    def mistake(self, example: Sentence, output: list[str]) -> float:
        """Number of wrong tags."""
        return sum(a != b for a, b in zip(self._in_scheme(example), output, strict=True))

    def show_results(self, examples: Sequence[Sentence], outputs: Sequence[list[str]]) -> list[Block]:
        """Scores of each type of entity, or of each plain tag, and which tags are taken for which."""
        gold = [self._in_scheme(sentence) for sentence in examples]
        if self._scheme is None:
            plain = TagScores.of(gold, outputs)
            return [scores_table("Tokens by tag", "tag", plain.by_tag, plain.overall), confusion(gold, outputs)]
        scores = entity_scores(gold, outputs)
        return [scores_table("Entities by type", "type", scores.by_type, scores.overall), confusion(gold, outputs)]

    def show_weights(self, weights: Tensor, examples: Sequence[Sentence]) -> list[Block]:
        """Scores of pairs of tags, and the attributes with the largest weights, of those that can be named."""
        pairs = transition_matrix(weights, self.tags, self.task.transition_scale, "tag")
        names = self.encoder.names(examples, self.task.templates)
        rows = weights.detach().view(-1, len(self.tags))[: self.encoder.size]
        return [pairs, *weightiest_attributes(rows, names, self.tags)]

    def input_to_json(self, example: Sentence) -> dict[str, Any]:
        """Its ``tokens``."""
        return {"tokens": list(example.words)}

    def output_to_json(self, output: list[str]) -> dict[str, Any]:
        """Its ``tags``."""
        return {"tags": output}

    def output_from_json(self, values: Mapping[str, Any]) -> list[str]:
        """The inverse of :meth:`output_to_json`."""
        return [str(tag) for tag in values["tags"]]

    @classmethod
    def from_learned(cls, task: Task, learned: Mapping[str, Any]) -> FittedTask:
        """The tagger with the attributes and tags that ``to_dict`` gave."""
        return super().from_learned(task, {**learned, "encoder": encoder_from_dict(learned["encoder"])})

    def _in_scheme(self, sentence: Sentence) -> list[str]:
        """The tags of a sentence in the scheme of the tagger."""
        gold = _gold(sentence)
        return gold if self._scheme is None else entity_tags(entities(gold), len(sentence), self._scheme)

    @property
    def _scheme(self) -> TagScheme | None:
        """The scheme; ``None`` for plain tags."""
        assert self.task.scheme is not None
        return None if self.task.scheme == "plain" else self.task.scheme

    @cached_property
    def _sequences(self) -> Latest[SparseSequences]:
        return Latest(lambda examples: self.encoder.encode(examples, self.task.templates))


@dataclass(frozen=True)
class Tagging(Task):
    """Tagging of sentences with a linear chain over sparse attributes; subclasses choose the attributes and the cost.

    Args:
        bits: attributes are hashed to 2**bits buckets; 0 makes an exact dictionary of the attributes of training data.
        scheme: tags are converted to this scheme, by default the scheme of the training data; plain tags, such as parts
            of speech, are taken as they are, in any order, and measured by accuracy.
        attributes_cache: folder where the encoded training data are kept and mapped from, for data larger than memory.
        transition_scale: factor of the scores of pairs of tags; the larger it is, the less they are regularized.

    Attributes:
        cost: task loss of the structural hinge.
    """

    bits: int = 18
    scheme: Scheme | None = None
    attributes_cache: str | None = field(default=None, metadata={"metavar": "DIR"})
    transition_scale: float = 1.0

    files: ClassVar[str] = (
        "A line for each token, a blank line after each sentence; the word is first and the tag last, as in "
        "EU NNP B-ORG. Tags are O, B-PER, I-PER and so on, or any others with --scheme plain. Files to predict need no "
        "tags."
    )
    cost: ClassVar[Cost]
    fitted_type: ClassVar[type[FittedTask]] = FittedTagging

    def __post_init__(self) -> None:
        super().__post_init__()
        if not 0 <= self.bits <= 30:
            raise ValueError(f"bits must be from 1 to 30, or 0 for a dictionary, got {self.bits}")
        if self.transition_scale <= 0:
            raise ValueError(f"transition_scale must be positive, got {self.transition_scale}")

    @property
    def headline(self) -> str:  # type: ignore[override]
        """F1 of entities, or accuracy of plain tags."""
        return "accuracy" if self.scheme == "plain" else "f1"

    @property
    @abstractmethod
    def templates(self) -> Templates:
        """The attributes of tokens."""

    def read(self, path: str | TextIO, split: Split = "train", share: Callable[[int], range] | None = None) -> Corpus:
        """Sentences of a column file, or neighbours among them: see :func:`read_corpus`."""
        return read_corpus(path, tagged=split != "predict", plain=self.scheme == "plain", share=share)

    def texts(self, examples: Sequence[Sentence]) -> list[int] | None:
        """The documents of sentences, if the file has ``-DOCSTART-`` lines between them."""
        documents = examples.documents if isinstance(examples, Corpus) else None
        return documents.tolist() if documents is not None and documents[0] < documents[-1] else None

    def fit_own(self, path: str) -> tuple[FittedTagging, Corpus]:
        """The tagger of all sentences, of which each process parses its own alone."""
        own = processes.unanimous(lambda: self.read(path, "train", own_share))
        return self.fit(own, processes.gathered), own

    def fit(
        self, examples: Sequence[Sentence], gathered: Callable[[Any], list[Any]] = lambda own: [own]
    ) -> FittedTagging:
        """The tagger with the attributes and tags of training sentences.

        ``gathered`` is given what these sentences say, and returns what the sentences of all processes say.
        """
        corpus = Corpus.of(examples)
        scheme = self.scheme or joint_scheme(gathered(detect_scheme(_gold_by_sentence(corpus))))
        if self.bits:
            encoder: AttributeEncoder = HashingEncoder(self.bits)
        else:
            counts = reduce(iadd, gathered(attribute_counts(corpus, self.templates)))
            encoder = DictionaryEncoder.of_counts(counts)
        # O makes sure that every sentence has a well-formed tagging.
        tags = set(map(_gold_tag, corpus.distinct)) if scheme == "plain" else {"O", *_well_formed(corpus, scheme)[0]}
        columns = 2 + len(corpus.distinct[0].columns)
        return FittedTagging(replace(self, scheme=scheme), encoder, sorted(set().union(*gathered(tags))), columns)


def _gold(sentence: Sentence) -> list[str]:
    if sentence.tags is None:
        raise ValueError(_UNTAGGED)
    return sentence.tags


def _well_formed(corpus: Corpus, scheme: TagScheme) -> tuple[list[str], NDArray[np.int32]]:
    """Tags in a scheme for the same entities, and which of them each token has."""
    found = Windows(corpus, 1).combinations([(_gold_tag, offset) for offset in (-1, 0, 1)])
    # The neighbours of a tag decide where its entity begins and ends.
    around = [[tag or "O" for tag in tags] for tags in found.distinct]
    return [entity_tags(entities(tags), 3, scheme)[1] for tags in around], found.keys


def _gold_by_sentence(corpus: Corpus) -> Iterator[list[str]]:
    tags = list(map(_gold_tag, corpus.distinct))
    for start, stop in pairwise(corpus.offsets.tolist()):
        yield [tags[number] for number in corpus.tokens[start:stop].tolist()]


def _gold_tag(token: Token) -> str:
    if token.tag is None:
        raise ValueError(_UNTAGGED)
    return token.tag


def _labels(corpus: Corpus, scheme: TagScheme | None, tags: Sequence[str]) -> Tensor:
    """The states of all tokens."""
    index = {tag: state for state, tag in enumerate(tags)}
    if scheme is None:
        found, which = list(map(_gold_tag, corpus.distinct)), corpus.tokens
    else:
        found, which = _well_formed(corpus, scheme)
    if unknown := set(found) - index.keys():
        raise ValueError(f"tags that the training data did not have: {', '.join(sorted(unknown))}")
    return torch.from_numpy(np.array([index[tag] for tag in found])[which])
