"""Tagging of files of sentences: what named entities and chunks have in common."""

from abc import abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import reduce
from operator import iadd
from typing import Any, ClassVar, Literal, TextIO

from structsmooth import processes
from structsmooth.costs import Cost
from structsmooth.tag_schemes import TagScheme, detect_scheme, joint_scheme
from structsmooth.tasks.base import FittedTask, Split, Task, own_share
from structsmooth.tasks.text.attributes import Templates
from structsmooth.tasks.text.conll import read_corpus
from structsmooth.tasks.text.corpus import Corpus, Sentence
from structsmooth.tasks.text.encoders import AttributeEncoder, DictionaryEncoder, HashingEncoder, attribute_counts
from structsmooth.tasks.text.fitted import FittedTagging
from structsmooth.tasks.text.inputs import Inputs
from structsmooth.tasks.text.layouts import UniversalColumn
from structsmooth.tasks.text.tags import gold_by_sentence, gold_tag, well_formed

Scheme = Literal[TagScheme, "plain"]
"""A scheme of tags of entities, or plain tags, which are taken as they are."""


@dataclass(frozen=True)
class Tagging(Task):
    """Tagging of sentences with a linear chain over sparse attributes; subclasses choose the attributes and the cost.

    Args:
        bits: attributes are hashed to 2**bits buckets; 0 makes an exact dictionary of the attributes of training data.
        scheme: tags are converted to this scheme, by default the scheme of the training data; plain tags, such as parts
            of speech, are taken as they are, in any order, and measured by accuracy.
        attributes_cache: folder where the encoded training data are kept and mapped from, for data larger than memory.
        transition_scale: factor of the scores of pairs of tags; the larger it is, the less they are regularized.
        column: files are CoNLL-U, and this column has the tags, which are plain; attributes are those of words alone.
        words_only: leave columns between words and tags aside, so that the tagger also takes bare words and text.

    Attributes:
        cost: task loss of the structural hinge.
    """

    bits: int = 18
    scheme: Scheme | None = None
    attributes_cache: str | None = field(default=None, metadata={"metavar": "DIR"})
    transition_scale: float = 1.0
    column: UniversalColumn | None = None
    words_only: bool = False

    files: ClassVar[str] = (
        "A line for each token, a blank line after each sentence; the word is first and the tag last, as in "
        "EU NNP B-ORG. Tags are O, B-PER, I-PER and so on, or any others with --scheme plain. Other columns are "
        "features. With --column upos (or xpos, feats, deprel), files are CoNLL-U. Files to predict need no tags; with "
        "--words-only, they may be text, a sentence in each line."
    )
    cost: ClassVar[Cost]
    fitted_type: ClassVar[type[FittedTask]] = FittedTagging

    def __post_init__(self) -> None:
        super().__post_init__()
        if not 0 <= self.bits <= 30:
            raise ValueError(f"bits must be from 1 to 30, or 0 for a dictionary, got {self.bits}")
        if self.column is not None and self.scheme not in (None, "plain"):
            raise ValueError(f"the column {self.column} has plain tags: leave out the scheme {self.scheme}")
        if self.transition_scale <= 0:
            raise ValueError(f"transition_scale must be positive, got {self.transition_scale}")

    @property
    def headline(self) -> str:  # type: ignore[override]
        """F1 of entities, or accuracy of plain tags."""
        return "accuracy" if self.plain else "f1"

    @property
    def plain(self) -> bool:
        """Whether tags are taken as they are."""
        return self.scheme == "plain" or self.column is not None

    @property
    @abstractmethod
    def templates(self) -> Templates:
        """The attributes of tokens."""

    def read(self, path: str | TextIO, split: Split = "train", share: Callable[[int], range] | None = None) -> Corpus:
        """Sentences of a file, or neighbours among them: see :func:`read_corpus`."""
        return read_corpus(path, tagged=split != "predict", plain=self.plain, column=self.column, share=share)

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
        inputs = Inputs.joined(gathered(Inputs.of(corpus, self.words_only)))
        scheme = self.scheme
        if self.plain:
            scheme = "plain"
        elif scheme is None:
            scheme = joint_scheme(gathered(detect_scheme(gold_by_sentence(corpus))))
        if self.bits:
            encoder: AttributeEncoder = HashingEncoder(self.bits)
        else:
            counts = reduce(iadd, gathered(attribute_counts(corpus, inputs.templates(self.templates))))
            encoder = DictionaryEncoder.of_counts(counts)
        # O makes sure that every sentence has a well-formed tagging.
        tags = set(map(gold_tag, corpus.distinct)) if scheme == "plain" else {"O", *well_formed(corpus, scheme)[0]}
        return FittedTagging(replace(self, scheme=scheme), encoder, sorted(set().union(*gathered(tags))), inputs)
