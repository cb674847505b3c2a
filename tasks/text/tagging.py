"""Tagging of files of sentences: what named entities and chunks have in common."""

import json
from abc import abstractmethod
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, reduce
from operator import iadd
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal, TextIO

from torch import Tensor

from structsmooth import processes
from structsmooth.costs import Cost
from structsmooth.markup import Block, Markup
from structsmooth.problems import Problem, SparseChainProblem
from structsmooth.sequences import SparseSequences
from structsmooth.settings import Interval, Positive
from structsmooth.tasks.base import FittedTask, LastResultCache, Predictions, Split, Task, process_share
from structsmooth.tasks.chains import transition_matrix, write_scores
from structsmooth.tasks.text.exported import write_tagger
from structsmooth.tasks.text.shown import scores_table, sentence_markup, tag_confusion, weightiest_attributes
from structsmooth.text.conll import read_corpus
from structsmooth.text.corpus import Corpus, Sentence
from structsmooth.text.encoders import AttributeEncoder, DictionaryEncoder, HashingEncoder, attribute_counts
from structsmooth.text.forms import Reading
from structsmooth.text.inputs import Inputs, with_inputs
from structsmooth.text.json_forms import AnnotatedCorpus
from structsmooth.text.layouts import Universal, separator_of, write_conll
from structsmooth.text.schemes import (
    DASHED,
    FORMS,
    TYPES_ALONE,
    TagScheme,
    entities,
    entity_tags,
    forms_of,
    gold_by_sentence,
    gold_tag,
    labels_of,
    names_of,
    scheme_of,
    tag_pairs,
    tags_of,
    well_formed,
)
from structsmooth.text.scores import TagScores, entity_scores
from structsmooth.text.tagger import Tagger, Tags
from structsmooth.text.templates import Templates

Scheme = Literal[TagScheme, "plain"]
"""A scheme of tags of entities, or plain tags, which are taken as they are."""


@dataclass(frozen=True)
class FittedTagging(FittedTask):
    """A tagger with the attributes, the tags, which are its states, and what it reads."""

    task: "Tagging"
    encoder: AttributeEncoder
    tags: list[str]
    inputs: Inputs

    takes_text: ClassVar[bool] = True
    input_json: ClassVar[Mapping[str, str]] = {"tokens": "words"}
    output_json: ClassVar[tuple[str, Any]] = ("tags", list[str])

    def __post_init__(self) -> None:
        scheme = self.task.scheme
        if scheme is None or not self.tags or len({*self.tags}) < len(self.tags):
            raise ValueError("a tagger needs tags, each once, and their scheme")
        _ = self._tagger.tags.mask  # which refuses tags of another scheme

    @property
    def dim(self) -> int:
        """Weights of attributes, of pairs of tags, and of the first and the last tag."""
        return (self.encoder.size + len(self.tags) + 2) * len(self.tags)

    def read(self, path: str | TextIO, split: Split = "predict") -> Corpus:
        """Sentences of a file as :meth:`Tagging.read` reads it; files to predict may lack the tags.

        Raises:
            ValueError: columns of the training data that the file lacks.
        """
        if split == "predict":
            return self.inputs.read(path, self.tags, self.task.reading)
        return self.inputs.check(self.task.read(path, split), path if isinstance(path, str) else "standard input")

    def examples(self, inputs: Sequence[Any]) -> Sequence[Sentence]:
        """Sentences, also from lists of tokens: words, or tuples of words and the other columns before the tag.

        If the tagger needs words alone, a sentence may also be a line of text.

        Raises:
            ValueError: a sentence without tokens, or a token without all columns of the training data.
        """
        return inputs if isinstance(inputs, Corpus) else list(map(self.inputs.sentence, inputs))

    def problem(self, examples: Sequence[Sentence]) -> Problem:
        """Structural hinge losses of the linear chain, of partial labels if some tags are unknown."""
        corpus = Corpus.of(examples)
        labels = labels_of(corpus, self._scheme, self.tags, self.task.unknown)
        sequences = self.encoder.encode(corpus, self._templates, self.task.attributes_cache)
        constrained = self.task.train_constrained
        return self._tagger.problem(sequences, labels, cost=self.task.cost, constrained=constrained)

    def complete_problem(self, examples: Sequence[Sentence]) -> SparseChainProblem:
        """The same for sentences whose tags are all known."""
        problem = self.problem(examples)
        if not isinstance(problem, SparseChainProblem):
            raise ValueError(f"some tags are unknown, {self.task.unknown}")
        return problem

    def predict(self, weights: Tensor, examples: Sequence[Sentence], k: int = 1) -> Predictions:
        """The k best tag sequences of each sentence with their scores, well-formed unless tags are plain."""
        return self._tagger.best(self._sequences(examples), weights, k)

    def measure(self, examples: Sequence[Sentence], outputs: Sequence[list[str]]) -> tuple[dict[str, float], str]:
        """Precision, recall and F1 of entities, as ``conlleval`` computes them, and F1 of tokens outside O.

        Plain tags have accuracy and macro F1.

        Raises:
            ValueError: tags that are unknown.
        """
        gold = [list(map(gold_tag, sentence.tokens)) for sentence in examples]
        if any(self.task.unknown in tags for tags in gold):
            raise ValueError(f"some tags are unknown, {self.task.unknown}: give data with all tags to measure on")
        scores = (
            TagScores.of(gold, outputs) if self._scheme is None else entity_scores(gold, outputs, scheme=self._scheme)
        )
        return scores.as_dict(), str(scores)

    def unseen_labels(self, examples: Sequence[Sentence]) -> Mapping[str, int]:
        """How many tokens have each tag, in the scheme of the tagger, that it does not know."""
        task = self.task
        found, numbers = tags_of(Corpus.of(examples), self._scheme, self.tags, task.unknown)
        return Counter(found[i] for i in numbers.tolist() if found[i] not in (*self.tags, task.unknown))

    def write(self, examples: Sequence[Sentence], predictions: Predictions, stream: TextIO) -> None:
        """Column file: after the columns that were read, a column for each alternative, the best one first.

        Where there are several, a comment line before the sentence has their scores in the same order. A sentence with
        fewer possible taggings gets fewer columns.
        """
        separator = "\t" if any(" " in tag for tag in self.tags) else separator_of(examples)
        for sentence, ranked in zip(examples, predictions, strict=True):
            write_scores(ranked, stream)
            *others, last = [tags for _, tags in ranked]
            gold = [] if sentence.tags is None else [sentence.tags]
            write_conll([Sentence(sentence.words, [*sentence.columns, *gold, *others])], [last], stream, separator)

    def write_answers(
        self, weights: Tensor, examples: Sequence[Sentence], predictions: Predictions, stream: TextIO
    ) -> None:
        """As :meth:`write`; lines of JSON come back as such, with spans and how probable they are.

        Raises:
            ValueError: alternatives for lines of JSON, or tags that are no entities.
        """
        if not isinstance(examples, AnnotatedCorpus):
            self.write(examples, predictions, stream)
            return
        if self._scheme is None or any(len(ranked) > 1 for ranked in predictions):
            raise ValueError("lines of JSON get spans of entities, the best alone: for others, give --json")
        spans = self._tagger.spans(self._sequences(examples), weights, [ranked[0][1] for ranked in predictions])
        stream.writelines(f"{json.dumps(answer, ensure_ascii=False)}\n" for answer in examples.answers(spans))

    def write_standalone(self, weights: Tensor, folder: Path) -> None:
        """The tagger in Python and numpy; see :mod:`structsmooth.text.standalone`."""
        write_tagger(folder, self._tagger, self.encoder, self._templates, self.inputs.clitics, weights)

    def show_example(self, example: Sentence, ranked: Sequence[tuple[float, list[str]]]) -> Markup:
        """Words with their tags in colours, with the right tag where the predicted one is wrong."""
        gold = None if example.tags is None else self._in_scheme(example)
        return sentence_markup(example.words, gold, ranked, self.tags)

    def mistake(self, example: Sentence, output: list[str]) -> float:
        """Number of wrong tags, of those that are known."""
        unknown = self.task.unknown
        return sum(a not in (b, unknown) for a, b in zip(self._in_scheme(example), output, strict=True))

    def show_results(self, examples: Sequence[Sentence], outputs: Sequence[list[str]]) -> list[Block]:
        """Scores of each type of entity, or of each plain tag, and which tags are taken for which."""
        gold = [self._in_scheme(sentence) for sentence in examples]
        if self._scheme is None:
            plain = TagScores.of(gold, outputs)
            return [scores_table("Tokens by tag", "tag", plain.by_tag, plain.overall), tag_confusion(gold, outputs)]
        scores = entity_scores(gold, outputs)
        return [scores_table("Entities by type", "type", scores.by_type, scores.overall), tag_confusion(gold, outputs)]

    def show_weights(self, weights: Tensor, examples: Sequence[Sentence]) -> list[Block]:
        """Scores of pairs of tags, and the attributes with the largest weights, of those that can be named."""
        pairs = transition_matrix(weights, self.tags, self.task.transition_scale, "tag")
        names = self.encoder.names(examples, self._templates)
        rows = weights.detach().view(-1, len(self.tags))[: self.encoder.size]
        return [pairs, *weightiest_attributes(rows, names, self.tags)]

    @classmethod
    def from_learned(cls, task: Task, learned: Mapping[str, Any]) -> FittedTask:
        """The tagger with the attributes, the tags and the columns that ``to_dict`` gave."""
        return super().from_learned(task, with_inputs(learned))

    def _in_scheme(self, sentence: Sentence) -> list[str]:
        """The tags of a sentence in the scheme of the tagger."""
        gold = list(map(gold_tag, sentence.tokens))
        if self.task.unknown in gold:
            return gold
        if self._scheme is None:
            return gold
        form = forms_of(self.tags)[0]
        return entity_tags(entities(gold, (form, *FORMS)), len(sentence), self._scheme, form)

    @property
    def _scheme(self) -> TagScheme | None:
        """The scheme; ``None`` for plain tags."""
        assert self.task.scheme is not None
        return None if self.task.scheme == "plain" else self.task.scheme

    @cached_property
    def _tagger(self) -> Tagger:
        scheme = self._scheme
        return Tagger(Tags(self.tags, scheme, scheme is not None), self.encoder.size, self.task.transition_scale)

    @property
    def _templates(self) -> Templates:
        return self.inputs.templates(self.task.templates)

    @cached_property
    def _sequences(self) -> LastResultCache[SparseSequences]:
        return LastResultCache(lambda examples: self.encoder.encode(examples, self._templates))


@dataclass(frozen=True)
class Tagging(Task):
    """Tagging of sentences with a linear chain over sparse attributes; subclasses choose the attributes and the cost.

    Args:
        bits: attributes are hashed to 2**bits buckets; 0 makes an exact dictionary of the attributes of training data.
        scheme: tags are converted to this scheme, such as BIO, BIOES or BILOU, by default the scheme of the training
            data; plain tags, such as parts of speech, are taken as they are, in any order, and measured by accuracy.
        attributes_cache: folder where the encoded training data are kept and mapped from, for data larger than memory.
        transition_scale: factor of the scores of pairs of tags; the larger it is, the less they are regularized.
        column: files are CoNLL-U, and this column has the tags, which are plain: upos, xpos, feats or deprel; or its
            last column has tags of entities, as in misc:NER. Attributes are those of words alone.
        word_column: the column of the words, counted from 1; found out from the first lines if it is not given.
        tag_column: the column of the tags, likewise.
        encoding: of the files, such as latin-1; UTF-8 if it is not given.
        words_only: leave columns between words and tags aside, so that the tagger also takes bare words and text.
        train_constrained: the outputs of training are the well-formed taggings alone, as those of prediction always are
            unless tags are plain.
        unknown: what stands in the place of unknown tags in training files, such as _. Their sentences train by the
            taggings that agree with the other tags, by the solver convex-concave unless another one is given.

    Attributes:
        cost: task loss of the structural hinge.
    """

    bits: Annotated[int, Interval(0, 30)] = 18
    scheme: Scheme | None = field(default=None, metadata={"metavar": "SCHEME"})
    attributes_cache: str | None = field(default=None, metadata={"metavar": "DIR"})
    transition_scale: Positive = 1.0
    column: str | None = None
    word_column: int | None = None
    tag_column: int | None = None
    encoding: str | None = None
    words_only: bool = False
    train_constrained: bool = False
    unknown: str | None = field(default=None, metadata={"metavar": "TAG"})

    files: ClassVar[str] = (
        "A line for each token, a blank line after each sentence; the word is first and the tag last, as in "
        "EU NNP B-ORG. Tags are O, B-PER, I-PER and so on, or any others with --scheme plain. Other columns are "
        "features. With --column upos (or xpos, feats, deprel), files are CoNLL-U. Files to predict need no tags; with "
        "--words-only, they may be text, a sentence in each line."
    )
    cost: ClassVar[Cost]
    partial_option: ClassVar[str] = "unknown"
    fitted_type: ClassVar[type[FittedTask]] = FittedTagging

    def __post_init__(self) -> None:
        super().__post_init__()
        _ = Universal(self.column)  # which refuses others
        if self.column is not None and self.plain and self.scheme not in (None, "plain"):
            raise ValueError(f"the column {self.column} has plain tags: leave out the scheme {self.scheme}")
        if self.train_constrained and self.plain:
            raise ValueError("plain tags have no scheme: leave train_constrained out")

    @property
    def headline(self) -> str:  # type: ignore[override]
        """F1 of entities, or accuracy of plain tags."""
        return "accuracy" if self.plain else "f1"

    @property
    def plain(self) -> bool:
        """Whether tags are taken as they are."""
        return self.scheme == "plain" or (self.column is not None and not self.column.startswith("misc:"))

    @property
    @abstractmethod
    def templates(self) -> Templates:
        """The attributes of tokens."""

    def read(self, path: str | TextIO, split: Split = "train", share: Callable[[int], range] | None = None) -> Corpus:
        """Sentences of a file, or neighbours among them: see :func:`read_corpus`."""
        corpus = read_corpus(
            path,
            tagged=split != "predict",
            plain=self.plain,
            column=self.column,
            unknown=self.unknown,
            reading=self.reading,
            share=share,
        )
        if split != "predict" and share is None and self.scheme is None and not self.plain:
            try:
                scheme_of(tag_pairs(gold_by_sentence(corpus)), self.unknown)
            except ValueError as error:
                name = path if isinstance(path, str) else "standard input"
                raise ValueError(f"{name}: {error}") from None
        return corpus

    @property
    def reading(self) -> Reading:
        """The columns and the encoding of files, where the user has chosen them."""
        return Reading(self.word_column, self.tag_column, self.encoding)

    def texts(self, examples: Sequence[Sentence]) -> list[int] | None:
        """The documents of sentences, if the file has ``-DOCSTART-`` lines between them."""
        documents = examples.documents if isinstance(examples, Corpus) else None
        return documents.tolist() if documents is not None and documents[0] < documents[-1] else None

    def fit_own(self, path: str) -> tuple[FittedTagging, Corpus]:
        """The tagger of all sentences, of which each process parses its own alone."""
        shard = processes.run_on_all_ranks(lambda: self.read(path, "train", process_share))
        return self.fit(shard, processes.gathered), shard

    def fit(
        self, examples: Sequence[Sentence], gathered: Callable[[Any], list[Any]] = lambda value: [value]
    ) -> FittedTagging:
        """The tagger with the attributes and tags of training sentences.

        ``gathered`` is given what these sentences say, and returns what the sentences of all processes say.
        """
        corpus = Corpus.of(examples)
        inputs = Inputs.joined(gathered(Inputs.of(corpus, self.words_only)))
        pairs = reduce(iadd, gathered(tag_pairs(gold_by_sentence(corpus))))
        found = names_of(pairs, self.unknown)
        scheme = "plain" if self.plain else self.scheme or scheme_of(pairs, self.unknown)
        if scheme != "plain":
            form = forms_of(sorted(found))[0]
            form = DASHED if form is TYPES_ALONE and scheme != "IO" else form
            # O makes sure that every sentence has a well-formed tagging.
            tags = {"O", *well_formed(corpus, scheme, form, self.unknown)[0]} - {self.unknown}
            found = set().union(*gathered(tags))
        if self.bits:
            encoder: AttributeEncoder = HashingEncoder(self.bits)
        else:
            counts = reduce(iadd, gathered(attribute_counts(corpus, inputs.templates(self.templates))))
            encoder = DictionaryEncoder.of_counts(counts)
        return FittedTagging(replace(self, scheme=scheme), encoder, sorted(found), inputs)
