"""Features of the tokens of sentences: of words, of dictionaries, or given as rows of numbers."""

import re
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from math import inf
from typing import Any, ClassVar, Literal, NamedTuple, get_args

import numpy as np
import torch
from sklearn.feature_extraction import DictVectorizer
from torch import Tensor

from structsmooth.encoders import FrozenFeatures, WordsAndFrozen
from structsmooth.estimators.matrices import (
    as_tensor,
    dense_sequences,
    fitted_kernel,
    is_matrix,
    require_finite,
    sparse_sequences,
    stacked,
)
from structsmooth.kernels import FittedKernel, Kernel, KernelName
from structsmooth.models.chains import scored_by_kernel
from structsmooth.sequences import DenseSequences, Sequences
from structsmooth.text.corpus import Corpus, Sentence
from structsmooth.text.encoders import AttributeEncoder, DictionaryEncoder
from structsmooth.text.inputs import Inputs
from structsmooth.text.templates import CHUNKING, PLAIN, RICH, Templates, columns_of

Template = Literal["rich", "plain", "chunking"]
_FEATURE = re.compile(r"bias$|[A-Za-z][\w\[\]+.-]*[=:]\S")  # as in the tutorials of CRFsuite
_PLAIN = {str, bool, int, float}  # values of features that cannot hold bytes
_TEMPLATES: dict[str, Templates] = {"rich": RICH, "plain": PLAIN, "chunking": CHUNKING}


class TokenFeatures(ABC):
    """A map from sentences to the features of their tokens, settled by training sentences."""

    kind: ClassVar[str]

    @property
    @abstractmethod
    def names(self) -> list[str]:
        """Names of the F features, in the order of their weights."""

    @property
    def size(self) -> int:
        """Number F of features."""
        return len(self.names)

    @abstractmethod
    def encode(self, sentences: Sequence[Any]) -> Sequences:
        """Sentences, none of them empty, as sequences; unknown features are left out.

        Raises:
            ValueError: sentences of another kind than those of training.
        """

    def scored(self, sentences: Sequence[Any], weights: Tensor, states: int) -> tuple[Sequences, Tensor]:
        """Sequences and weights that give sentences the scores that :meth:`encode` and ``weights`` would give them."""
        return self.encode(sentences), weights


@dataclass(frozen=True)
class WordFeatures(TokenFeatures):
    """Attributes of words, or of tuples of a word and other columns, as the tasks of taggers have them.

    Args:
        template: name of the templates of attributes.
        inputs: the columns, such as parts of speech and chunk tags.
        encoder: of the attributes.
    """

    template: str
    inputs: Inputs
    encoder: AttributeEncoder

    kind = "words"

    @classmethod
    def fit(cls, sentences: Sequence[Any], template: str, network: "EncoderSettings | None" = None) -> "WordFeatures":
        """The attributes that occur in training sentences, beside the features of a network if there is one."""
        if template not in _TEMPLATES:
            raise ValueError(f"template must be one of {', '.join(get_args(Template))}, got {template!r}")
        corpus, columns = _corpus(sentences, len(_columns(sentences[0][0]))), columns_of(_TEMPLATES[template])
        inputs = Inputs.of(corpus, words_only=False)
        # Columns count the word and the tag, too.
        names = [name for name in ("pos", "chunk")[: inputs.columns - 2] if name in columns]
        inputs = replace(inputs, names=names)
        encoder: AttributeEncoder = DictionaryEncoder.fit(corpus, inputs.templates(_TEMPLATES[template]))
        if network is not None:
            frozen = FrozenFeatures.fit(network.encoder, network.layers, 0, corpus)
            encoder = WordsAndFrozen(encoder, frozen, network.scale)
        return cls(template, inputs, encoder)

    @property
    def names(self) -> list[str]:
        """The attributes; numbers if they are hashed."""
        known = self.encoder.names((), ())
        return [known.get(number, str(number)) for number in range(self.size)]

    @property
    def size(self) -> int:
        """Number of different integers of the encoder."""
        return self.encoder.size

    def encode(self, sentences: Sequence[Any]) -> Sequences:
        """The known attributes of each token."""
        alone = self.inputs.words_alone and not isinstance(sentences[0][0], tuple | list)
        corpus = _corpus(sentences, 1 if alone else self.inputs.columns - 1)
        return self.encoder.encode(corpus, self.inputs.templates(_TEMPLATES[self.template]))


class DictFeatures(TokenFeatures):
    """Features of dictionaries, as those of sklearn-crfsuite: booleans, numbers, strings, or several strings.

    A dictionary in a dictionary has the key in front of its own, with a colon; a list has features of value 1, as in
    python-crfsuite. Bytes are strings in UTF-8.
    """

    kind = "dicts"

    def __init__(self, names: Sequence[str] = ()) -> None:
        self.vectorizer = DictVectorizer(sort=False)
        self.vectorizer.feature_names_ = list(names)
        self.vectorizer.vocabulary_ = {name: i for i, name in enumerate(names)}

    @classmethod
    def fit_encode(cls, sentences: Sequence[Any]) -> "tuple[DictFeatures, Sequences]":
        """The features that occur in training sentences, and these sentences encoded, by one reading."""
        features = cls()
        rows = features.vectorizer.fit_transform(_dictionaries(sentences))
        return features, features._sequences(rows, sentences)

    @property
    def names(self) -> list[str]:
        """Keys of booleans and numbers, and ``key=value`` of strings."""
        names: list[str] = self.vectorizer.feature_names_
        return names

    def encode(self, sentences: Sequence[Any]) -> Sequences:
        """The known features of each token with their values."""
        return self._sequences(self.vectorizer.transform(_dictionaries(sentences)), sentences)

    def _sequences(self, rows: Any, sentences: Sequence[Any]) -> Sequences:
        lengths = list(map(len, sentences))
        require_finite(rows, lengths, self.names)
        return sparse_sequences(rows, lengths)

    def to_dict(self) -> dict[str, Any]:
        """The names of the features, as plain JSON."""
        return {"names": self.names}


@dataclass(frozen=True)
class NumberRows(TokenFeatures):
    """Features that users give as numbers, a row for each token: they are taken as they are, dense or sparse."""

    width: int

    kind = "numbers"

    @classmethod
    def fit(cls, sentences: Sequence[Any]) -> "NumberRows":
        """Features as many as the matrices of training sentences have columns."""
        return cls(stacked(sentences).shape[1])

    @property
    def names(self) -> list[str]:
        """Names by the numbers of columns: ``x0``, ``x1`` and so on."""
        return [f"x{i}" for i in range(self.width)]

    def encode(self, sentences: Sequence[Any]) -> Sequences:
        """The matrices of sentences as sequences; each must have as many columns as in training."""
        rows, lengths = stacked(sentences, self.width), [sentence.shape[0] for sentence in sentences]
        require_finite(rows, lengths, self.names)
        return dense_sequences(rows, lengths) if isinstance(rows, np.ndarray) else sparse_sequences(rows, lengths)

    def to_dict(self) -> dict[str, Any]:
        """The number of features, as plain JSON."""
        return {"width": self.width}


@dataclass(frozen=True)
class KernelRows(TokenFeatures):
    """Features in place of rows of numbers, such that their inner products are the kernel of these rows."""

    kernel: FittedKernel

    kind = "kernel"

    @property
    def names(self) -> list[str]:
        """Names by the numbers of features: ``k0``, ``k1`` and so on."""
        return [f"k{i}" for i in range(self.kernel.size)]

    def encode(self, sentences: Sequence[Any]) -> Sequences:
        """Sentences as sequences of the features that stand for kernel values."""
        return DenseSequences.of(self.kernel(self._points(sentences)), _rows(sentences))

    def scored(self, sentences: Sequence[Any], weights: Tensor, states: int) -> tuple[Sequences, Tensor]:
        """Scores by kernel values, without features, as features of weight one."""
        return scored_by_kernel(self.kernel, self._points(sentences), _rows(sentences), weights, states)

    def to_dict(self) -> dict[str, Any]:
        """The landmarks and γ; the kernel itself is a parameter of the estimator."""
        return {"landmarks": self.kernel.landmarks, "gamma": self.kernel.kernel.gamma}

    def _points(self, sentences: Sequence[Any]) -> Tensor:
        return as_tensor(stacked(sentences, self.kernel.landmarks.shape[1]))


class KernelSettings(NamedTuple):
    """What :func:`~structsmooth.estimators.matrices.fitted_kernel` needs besides rows of numbers."""

    kernel: KernelName | Kernel
    gamma: float | str
    degree: int
    landmarks: int | None
    seed: int


class EncoderSettings(NamedTuple):
    """A pretrained encoder, the layers that are read of it, and by what its features are multiplied."""

    encoder: str
    layers: Sequence[int] | None
    scale: float


def fit_features(
    sentences: Sequence[Any], template: str, kernel: KernelSettings | None, encoder: EncoderSettings | None = None
) -> tuple[TokenFeatures, Sequences]:
    """The features of training sentences, and these sentences encoded.

    Args:
        sentences: none of them empty.
        template: of words.
        kernel: of rows of numbers, if any.
        encoder: of words, if any.

    Raises:
        ValueError: sentences of no known kind, or others than matrices for a kernel, or than words for an encoder; an
            encoder_scale that is not positive.
    """
    kind = kind_of(sentences)
    if encoder is not None and (kind != WordFeatures.kind or kernel is not None):
        raise ValueError(f"an encoder needs sentences of words, and no kernel; got {kind}")
    if encoder is not None and not 0 < encoder.scale < inf:
        raise ValueError(f"encoder_scale must be a positive number, got {encoder.scale}")
    if kind == DictFeatures.kind and kernel is None:
        return DictFeatures.fit_encode(sentences)
    features: TokenFeatures
    if kernel is not None:
        if kind != NumberRows.kind:
            raise ValueError(f"a kernel needs sentences that are matrices [tokens, features], got {kind}")
        features = KernelRows(fitted_kernel(*kernel, stacked(sentences)))
    elif kind == WordFeatures.kind:
        features = WordFeatures.fit(sentences, template, encoder)
    else:
        features = NumberRows.fit(sentences)
    return features, features.encode(sentences)


def kind_of(sentences: Sequence[Any]) -> str:
    """Whether tokens are words, dictionaries or rows of numbers, by the first one.

    Raises:
        ValueError: neither.
    """
    first = sentences[0]
    if is_matrix(first):
        return NumberRows.kind
    token = first[0]
    if isinstance(token, str | tuple) or (isinstance(token, list) and _are_columns(sentences)):
        return WordFeatures.kind
    if isinstance(token, Mapping | list):
        return DictFeatures.kind
    raise ValueError(
        "a sentence must be a list of words, of tuples of words and their columns, of dictionaries or lists of "
        f"features, or a matrix [tokens, features]; got {type(first).__name__} of {type(token).__name__}"
    )


def _are_columns(sentences: Sequence[Any]) -> bool:
    """Whether lists are words with their columns, as many for each token, and not features such as ``w=Ada``."""
    tokens = [token for sentence in sentences for token in sentence if isinstance(token, list)]
    named = sum(any(isinstance(cell, str) and _FEATURE.match(cell) for cell in token) for token in tokens)
    # A word such as a=b looks like a feature, so the majority of tokens tells.
    return {*map(len, tokens)} <= {len(tokens[0])} & {2, 3, 4} and 2 * named < len(tokens)


def length(sentence: Any) -> int:
    """Number of tokens.

    Raises:
        ValueError: no list of tokens.
    """
    if isinstance(sentence, str | Mapping):
        raise ValueError(f"a sentence must be a list of tokens, got {sentence!r}")
    return int(sentence.shape[0]) if hasattr(sentence, "shape") else len(sentence)


def _rows(sentences: Sequence[Any]) -> Tensor:
    return torch.tensor([sentence.shape[0] for sentence in sentences])


def _corpus(sentences: Sequence[Any], columns: int) -> Corpus:
    return Corpus.of([_sentence(number, tokens, columns) for number, tokens in enumerate(sentences)])


def _sentence(number: int, tokens: Sequence[Any], columns: int) -> Sentence:
    rows = list(map(_columns, tokens))
    for row in rows:
        if len(row) != columns or not all(isinstance(cell, str) for cell in row):
            wanted = "words" if columns == 1 else f"tuples of {columns} strings"
            raise ValueError(f"tokens must be {wanted}, as in training; got {row!r} in sentence {number}")
    words, *others = map(list, zip(*rows, strict=True))
    return Sentence(words, others)


def _columns(token: Any) -> tuple[Any, ...]:
    return tuple(token) if isinstance(token, tuple | list) else (token,)


def _dictionaries(sentences: Sequence[Any]) -> Sequence[Mapping[Any, Any]]:
    """The tokens of all sentences, with text in place of bytes."""
    tokens = [dict.fromkeys(t, True) if isinstance(t, list) else t for t in chain.from_iterable(sentences)]
    strange = next((token for token in tokens if not isinstance(token, Mapping)), None)
    if strange is not None:
        raise ValueError(f"tokens must be dictionaries or lists of features, as in training; got {strange!r}")
    values = set(map(type, chain.from_iterable(token.values() for token in tokens)))
    plain = values <= _PLAIN and bytes not in map(type, chain.from_iterable(tokens))
    return tokens if plain else [dict(_features(token)) for token in tokens]


def _features(token: Mapping[Any, Any], prefix: str = "") -> Iterator[tuple[Any, Any]]:
    """The features of a token, those of inner dictionaries behind a colon."""
    for key, value in token.items():
        name = f"{prefix}{_text(key)}" if prefix else _text(key)
        if isinstance(value, Mapping):
            yield from _features(value, f"{name}:")
        else:
            yield name, _text(value)


def _text(value: Any) -> Any:
    """Bytes as text, numbers of numpy as such of Python, and several values as a list of such."""
    if isinstance(value, bytes):
        return value.decode()
    if isinstance(value, np.generic):
        return value.item()
    return list(map(_text, value)) if isinstance(value, list | tuple | set | frozenset) else value
