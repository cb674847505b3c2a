"""Tagging of files of sentences: what named entities and chunks have in common."""

import warnings
from abc import abstractmethod
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import reduce
from operator import iadd
from typing import Annotated, Any, ClassVar, Literal, TextIO

from torch import Tensor

from structsmooth import processes
from structsmooth.costs import Cost
from structsmooth.markup import Block, Markup
from structsmooth.messages import located
from structsmooth.problems import Problem
from structsmooth.settings import Interval, Positive
from structsmooth.tasks.base import FittedTask, Predictions, Split
from structsmooth.tasks.chains import transition_matrix
from structsmooth.tasks.text.answers import write_columns, written_as_read
from structsmooth.tasks.text.distribution import TOGETHER, TaggingDistribution
from structsmooth.tasks.text.encoded import Encoded
from structsmooth.tasks.text.own import own_corpus
from structsmooth.tasks.text.shown import overlap_tables, sentence_markup, tag_results, weightiest_attributes
from structsmooth.text.arrivals import arrivals
from structsmooth.text.boundaries import Boundaries, beginning
from structsmooth.text.conll import Share, read_corpus
from structsmooth.text.corpus import Corpus, Sentence
from structsmooth.text.documents import TRAINING, UNCUT
from structsmooth.text.encoders import AttributeEncoder, DictionaryEncoder, HashingEncoder, attribute_counts
from structsmooth.text.findings import Contents, telling, unseparated
from structsmooth.text.forms import Reading
from structsmooth.text.gazetteer import Gazetteer
from structsmooth.text.inputs import Inputs, with_inputs
from structsmooth.text.lines import source_name
from structsmooth.text.probabilities import ProbableEntity
from structsmooth.text.schemes import (
    DASHED,
    TYPES_ALONE,
    TagScheme,
    forms_of,
    gold_by_sentence,
    labels_of,
    names_of,
    scheme_of,
    tag_pairs,
    tags_of,
    well_formed,
)
from structsmooth.text.standalone import Splitter
from structsmooth.text.templates import Templates
from structsmooth.text.texts import TextCorpus, TextSentence
from structsmooth.text.universal import Universal

Scheme = Literal[TagScheme, "plain"]
"""A scheme of tags of entities, or plain tags, which are taken as they are."""


@dataclass(frozen=True)
class FittedTagging(TaggingDistribution):
    """A tagger with the attributes, the tags, which are its states, and what it reads."""

    task: "Tagging"
    attributes: AttributeEncoder
    tags: list[str]
    inputs: Inputs

    takes_text: ClassVar[bool] = True
    input_json: ClassVar[Mapping[str, str]] = {"tokens": "words"}
    output_json: ClassVar[tuple[str, Any]] = ("tags", list[str])

    def read(self, path: str | TextIO, split: Split = "predict") -> Corpus:
        """Sentences of a file as :meth:`Tagging.read` reads it; files to predict may lack the tags.

        Raises:
            ValueError: columns of the training data that the file lacks.
        """
        if split == "predict":
            return self.inputs.read(path, self.tags, self.task.reading)
        name, corpus = source_name(path), self.task.read(path, split)
        if split != "train" and isinstance(corpus, TextCorpus):
            corpus = corpus.cut(self.inputs.how)
        if isinstance(corpus, TextCorpus) and not corpus.how.cuts and (lost := corpus.misaligned):
            told = f"{len(lost)} spans do not begin and end with words, such as {lost[0][:40]!r}"
            warnings.warn(f"{name}: {told}: no answer can have them, and scores count them as missed", stacklevel=2)
        return self.inputs.check(corpus, name)

    def read_text(self, path: str | TextIO) -> Corpus:
        """Sentences of lines of text, whatever they look like."""
        return self.inputs.read(path, self.tags, self.task.reading, is_text=True)

    def arriving(self, stream: TextIO, is_text: bool = False) -> Iterator[TextIO]:
        """The sentences of a stream, at each time all that have arrived."""
        return arrivals(stream, self.task.encoding, is_text, neighbours=self.task.context > 0)

    def examples(self, inputs: Sequence[Any]) -> Sequence[Sentence]:
        """Sentences, also from lists of tokens: words, or tuples of words and the other columns before the tag.

        If the tagger needs words alone, a sentence may also be a line of text. Texts that were read to train are cut
        into words anew, without what annotations alone tell.

        Raises:
            ValueError: a sentence without tokens, or a token without all columns of the training data.
        """
        if isinstance(inputs, TextCorpus):
            return inputs.cut(self.inputs.how)
        return inputs if isinstance(inputs, Corpus) else list(map(self.inputs.sentence, inputs))

    def problem(self, examples: Sequence[Sentence]) -> Problem:
        """Structural hinge losses of the linear chain, of partial labels if some tags are unknown."""
        corpus = Corpus.of(examples)
        labels = self.states(corpus)
        sequences = self.attributes.encode(corpus, self._templates, self.task.attributes_cache)
        constrained = self.task.train_constrained
        return self.tagger.problem(sequences, labels, cost=self.task.cost, constrained=constrained)

    def states(self, examples: Sequence[Sentence]) -> Tensor:
        """The states of all words of tagged sentences, int64 [words]; -1 where they are unknown."""
        return labels_of(Corpus.of(examples), self._scheme, self.tags, self.task.unknown)

    def predict(self, weights: Tensor, examples: Sequence[Sentence], k: int = 1) -> Predictions:
        """The k best tag sequences of each sentence with their scores, well-formed unless tags are plain.

        They keep to the tags that sentences allow.

        Raises:
            ValueError: a sentence that has no allowed tagging.
        """
        parts = examples.parts(TOGETHER) if isinstance(examples, Corpus) else [examples]
        found = [
            ranked
            for part in parts
            for ranked in self.tagger.best(self._sequences(part), weights, k, self._allowed(part))
        ]
        if [] in found:
            raise ValueError(f"sentence {found.index([]) + 1} has no tagging that is well-formed and allowed")
        return found

    def restricted(self, examples: Sequence[Sentence], gazetteer: str) -> Corpus:
        """Sentences that allow the phrases of a file to be entities of their types alone, unless they say otherwise.

        Raises:
            ValueError: a file of another form, types that the tagger does not know, or tags that are no entities.
        """
        if self._scheme is None:
            raise ValueError("--gazetteer: plain tags have no entities")
        known = Gazetteer.read(gazetteer, Splitter(self.inputs.clitics), self.task.encoding)
        return known.restricted(Corpus.of(examples), self.tags, self._scheme)

    def unseen_labels(self, examples: Sequence[Sentence]) -> Mapping[str, int]:
        """How many tokens have each tag, in the scheme of the tagger, that it does not know."""
        task = self.task
        found, numbers = tags_of(Corpus.of(examples), self._scheme, self.tags, task.unknown)
        return Counter(found[i] for i in numbers.tolist() if found[i] not in (*self.tags, task.unknown))

    def write(self, examples: Sequence[Sentence], predictions: Predictions, stream: TextIO) -> None:
        """Column file: after the columns that were read, a column for each alternative, the best one first."""
        write_columns(examples, predictions, self.tags, stream)

    def write_answers(
        self, weights: Tensor, examples: Sequence[Sentence], predictions: Predictions, stream: TextIO
    ) -> None:
        """Write predictions in the form in which the sentences came.

        JSON and files of brat get spans, those of JSON with their probabilities; CoNLL-U gets another column, and so
        does text, if training files were CoNLL-U. All else, and several alternatives of CoNLL-U, is columns.

        Raises:
            ValueError: alternatives for texts with spans, or tags that are no entities.
        """

        def spans(taggings: Sequence[Sequence[str]]) -> list[list[ProbableEntity]]:
            self.warn_if_uncalibrated()
            return [found for (found,) in self._spans(weights, examples, [[tags] for tags in taggings])]

        column = self.task.column if self.task.reads_universal else None
        entities_of = None if self._scheme is None else spans
        if not written_as_read(examples, predictions, stream, column, entities_of):
            self.write(examples, predictions, stream)

    def input_to_json(self, example: Sentence) -> dict[str, Any]:
        """The tokens, and of a sentence of a text also the text and the offsets of the tokens in it."""
        values = super().input_to_json(example)
        if not isinstance(example, TextSentence):
            return values
        return {"text": example.text, **values, "offsets": [list(place) for place in example.places]}

    def show_example(
        self, example: Sentence, ranked: Sequence[tuple[float, list[str]]], probabilities: Sequence[float] | None = None
    ) -> Markup:
        """Words with their tags in colours, with the right tag where the predicted one is wrong."""
        gold = None if example.tags is None else self._in_scheme(example)
        sure = None if probabilities is None else self._by_token(ranked[0][1], probabilities)
        return sentence_markup(example.words, gold, ranked, self.tags, sure)

    def mistake(self, example: Sentence, output: list[str]) -> float:
        """Number of wrong tags, of those that are known."""
        unknown, pair = self.task.unknown, self._compared(example, self._in_scheme(example), output)
        return sum(a not in (b, unknown) for a, b in zip(*pair, strict=True))

    def show_results(self, examples: Sequence[Sentence], outputs: Sequence[list[str]]) -> list[Block]:
        """Scores of each type of entity, or of each plain tag, and which tags are taken for which."""
        pairs = [self._compared(s, self._in_scheme(s), output) for s, output in zip(examples, outputs, strict=True)]
        return tag_results([right for right, _ in pairs], [found for _, found in pairs], self._scheme is None)

    def show_errors(self, examples: Sequence[Sentence], outputs: Sequence[list[str]]) -> list[Block]:
        """How far entities are found, and which types are taken for which; nothing of plain tags."""
        return [] if self._scheme is None else overlap_tables(self.measure_overlaps(examples, outputs))

    def show_weights(self, weights: Tensor, examples: Sequence[Sentence]) -> list[Block]:
        """Scores of pairs of tags, and the attributes with the largest weights, of those that can be named."""
        pairs = transition_matrix(weights, self.tags, self.task.transition_scale, "tag")
        names = self.attributes.names(examples, self._templates)
        rows = weights.detach().view(-1, len(self.tags))[: self.attributes.size]
        return [pairs, *weightiest_attributes(rows, names, self.tags)]


@dataclass(frozen=True)
class Tagging(Encoded):
    """Tagging of sentences with a linear chain over sparse attributes; subclasses choose the attributes and the cost.

    Args:
        bits: attributes are hashed to 2**bits buckets; 0 makes an exact dictionary of the attributes of training data.
        scheme: tags are converted to this scheme, such as BIO, BIOES or BILOU, by default the scheme of the training
            data; plain tags, such as parts of speech, are taken as they are, in any order, and measured by accuracy.
        attributes_cache: folder where the encoded training data are kept and mapped from, for data larger than memory.
        transition_scale: factor of the scores of pairs of tags; the larger it is, the less they are regularized.
        column: files are CoNLL-U, and this column has the tags, which are plain: upos, xpos, feats or deprel; or its
            last column has tags of entities, as in misc:NER. Attributes are those of words alone. In other files, the
            number of the column of the tags.
        word_column: the column of the words, counted from 1, or its name in a header; found out from the first lines if
            it is not given.
        tag_column: the column of the tags, likewise; in the TSV of WebAnno, the feature that labels entities.
        encoding: of the files, such as latin-1; UTF-8 if it is not given.
        names: of the tags, where files of JSON have their numbers, in order and separated by commas.
        annotator: whose annotations count where those of Label Studio differ: a number, a name or an address.
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
    word_column: str | int | None = None
    tag_column: str | int | None = None
    encoding: str | None = None
    names: str | None = None
    annotator: str | None = None
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
    cpu_alone: ClassVar[bool] = True
    fitted_type: ClassVar[type[FittedTask]] = FittedTagging

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.reads_universal:
            _ = Universal(self.column)  # which refuses others
        if self.reads_universal and self.plain and self.scheme not in (None, "plain"):
            raise ValueError(f"the column {self.column} has plain tags: leave out the scheme {self.scheme}")
        if self.train_constrained and self.plain:
            raise ValueError("plain tags have no scheme: leave train_constrained out")

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> FittedTask:
        """The tagger with the attributes, the tags and the columns that ``to_dict`` gave."""
        return super().from_dict(with_inputs(data))

    @property
    def headline(self) -> str:  # type: ignore[override]
        """F1 of entities, or accuracy of plain tags."""
        return "accuracy" if self.plain else "f1"

    @property
    def plain(self) -> bool:
        """Whether tags are taken as they are."""
        plain = self.column is not None and self.reads_universal and not self.column.startswith("misc:")
        return plain or self.scheme == "plain"

    @property
    def reads_universal(self) -> bool:
        """Whether files are CoNLL-U: ``column`` names one of its columns."""
        return self.column is not None and not self.column.isdecimal()

    @property
    @abstractmethod
    def templates(self) -> Templates:
        """The attributes of tokens."""

    def read(self, path: str | TextIO | list[str], split: Split = "train", share: Share | None = None) -> Corpus:
        """Sentences of a file or of several, or neighbours among them: see :func:`read_corpus`."""
        tags = self.tag_column if self.column is None or self.reads_universal else int(self.column)
        corpus = read_corpus(
            path,
            tagged=split != "predict",
            plain=self.plain,
            column=self.column if self.reads_universal else None,
            unknown=self.unknown,
            reading=replace(self.reading, tag_column=tags),
            share=share,
            how=TRAINING if split == "train" else UNCUT,
        )
        # A part of a file does not tell the scheme of all of it: ``fit`` asks all processes.
        if split != "predict" and share is None and self.scheme is None and not self.plain:
            with located(source_name(path)):
                scheme_of(tag_pairs(gold_by_sentence(corpus)), self.unknown)
        if split == "train" and share is None:
            contents = source_name(path), Contents(corpus, self.plain, self.unknown)
            for name, what, step in [
                *unseparated(*contents, share=0.5),
                *(() if self.words_only else telling(*contents)),
            ]:
                warnings.warn(f"{name}: {what}: {step}", stacklevel=2)
        return corpus

    @property
    def reading(self) -> Reading:
        """The columns and the encoding of files, where the user has chosen them."""
        return Reading(self.word_column, self.tag_column, self.encoding, self.names, self.annotator)

    def summary_of(self, examples: Sequence[Sentence]) -> str:
        """Their number, the scheme of their tags, and how often each label occurs."""
        return str(Contents(Corpus.of(examples), self.plain, self.unknown))

    def texts(self, examples: Sequence[Sentence]) -> list[int] | None:
        """The documents of sentences, if the file has ``-DOCSTART-`` lines between them."""
        documents = examples.documents if isinstance(examples, Corpus) else None
        # Documents are numbered in order.
        return documents.tolist() if documents is not None and documents[0] < documents[-1] else None

    def fit_own(self, path: str) -> tuple[FittedTagging, Corpus]:
        """The tagger of all sentences, of which each process parses its own alone, of files of its own if it can."""
        shard = own_corpus(self.read, path)
        return self.fit(shard, processes.gathered), shard

    def fit(
        self, examples: Sequence[Sentence], gathered: Callable[[Any], list[Any]] = lambda value: [value]
    ) -> FittedTagging:
        """The tagger with the attributes and tags of training sentences.

        ``gathered`` is given what these sentences say, and returns what the sentences of all processes say.
        """
        corpus = Corpus.of(examples)
        inputs = Inputs.joined(gathered(Inputs.of(examples, self.words_only)))
        if inputs.words_alone:  # it takes text
            inputs = replace(
                inputs, boundaries=Boundaries.of(reduce(iadd, gathered(beginning(s.words for s in examples))))
            )
        pairs = reduce(iadd, gathered(tag_pairs(gold_by_sentence(corpus))))
        found = names_of(pairs, self.unknown)
        scheme = "plain" if self.plain else self.scheme or scheme_of(pairs, self.unknown)
        if scheme != "plain":
            form = forms_of(sorted(found))[0]
            # Types without marks say no more than the scheme IO: tags of others get marks.
            form = DASHED if form is TYPES_ALONE and scheme != "IO" else form
            # O makes sure that every sentence has a well-formed tagging.
            tags = {"O", *well_formed(corpus, scheme, form, self.unknown)[0]} - {self.unknown}
            found = set().union(*gathered(tags))
        if self.bits:
            attributes: AttributeEncoder = HashingEncoder(self.bits)
        else:
            counts = reduce(iadd, gathered(attribute_counts(corpus, inputs.templates(self.templates))))
            attributes = DictionaryEncoder.of_counts(counts)
        attributes = self.beside_encoder(attributes, corpus, self.attributes_cache, gathered)
        # A task of a user with the type of another one is told so by the command that trains it.
        fitted = self.fitted_type if issubclass(self.fitted_type, FittedTagging) else FittedTagging
        return fitted(replace(self, scheme=scheme), attributes, sorted(found), inputs)
