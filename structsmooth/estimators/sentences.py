"""Sentences and tags as users give them to taggers: all at once, or in the batches of a stream."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike
from torch import Tensor

from structsmooth.estimators.tokens import NumberRows, kind_of, length
from structsmooth.estimators.weights import SampleWeights
from structsmooth.text.tagger import Tag, Tags


def as_sentences(X: Any) -> list[Any]:
    """X as a list of sentences.

    Raises:
        ValueError: something else, such as a string.
    """
    if isinstance(X, str | Mapping) or not hasattr(X, "__len__"):
        raise ValueError(f"X must be a list of sentences, got {type(X).__name__}")
    return list(X)


def check_sentences(
    X: Any, y: Any, sample_weight: ArrayLike | None = None
) -> tuple[list[Any], list[list[Tag]], Tensor | None]:
    """The sentences that have tokens and weight, their tags as Python's own strings and integers, and their weights.

    Raises:
        ValueError: tags that are unknown, or what :func:`check_partial` refuses.
    """
    sentences, tags, weights = check_partial(X, y, sample_weight)
    for number, labels in enumerate(tags):
        if None in labels:
            raise ValueError(f"sentence {number} has unknown tags: only fit takes None in the place of tags")
    return sentences, tags, weights  # type: ignore[return-value]


def check_partial(
    X: Any, y: Any, sample_weight: ArrayLike | None = None
) -> tuple[list[Any], list[list[Tag | None]], Tensor | None]:
    """What :func:`check_sentences` returns, with ``None`` for tags that are unknown.

    Raises:
        ValueError: numbers of sentences, tokens or weights that differ, no token at all, or weights below zero.
    """
    sentences, tags = as_sentences(X), list(map(_plain, as_sentences(y)))
    if len(sentences) != len(tags):
        raise ValueError(f"X has {len(sentences)} sentences and y has {len(tags)}")
    for number, (sentence, labels) in enumerate(zip(sentences, tags, strict=True)):
        if length(sentence) != len(labels):
            raise ValueError(f"sentence {number} has {length(sentence)} tokens in X and {len(labels)} tags in y")
    weighing = SampleWeights.of(sample_weight, len(tags))
    weighing = weighing.of_rows(np.array([place for place, i in enumerate(weighing.kept) if tags[i]], dtype=np.int64))
    if not len(weighing.kept):
        raise ValueError("X must have a sentence with a token at least")
    return [sentences[i] for i in weighing.kept], [tags[i] for i in weighing.kept], weighing.weights


def strings(tags: Sequence[Sequence[Tag]]) -> list[list[str]]:
    """The tags of sentences as strings."""
    return [list(map(str, y)) for y in tags]


def stream_of(tagger: Any, sentences: Sequence[Any], classes: Sequence[Tag] | None) -> tuple[Tags, NumberRows]:
    """The tags and the features of a stream, by its first batch.

    Raises:
        ValueError: no classes, sentences that are no matrices, a kernel, or weights of classes by their counts.
    """
    if classes is None:
        raise ValueError("classes must be given in the first call of partial_fit: all tags of the stream")
    if tagger.class_weight == "balanced":
        raise ValueError('class_weight="balanced" needs the counts of all tags, which a stream does not have')
    if tagger.kernel is not None or kind_of(sentences) != NumberRows.kind:
        raise ValueError(
            "partial_fit needs sentences that are matrices [tokens, features], such as those of "
            "sklearn.feature_extraction.FeatureHasher, and no kernel"
        )
    names: list[Tag] = np.asarray(classes).tolist()
    return Tags.of([[name] for name in names], tagger.constraints), NumberRows.fit(sentences)


def _plain(tags: Any) -> list[Tag | None]:
    if isinstance(tags, str):
        raise ValueError(f"the tags of a sentence must be a list, got {tags!r}")
    found: list[Any] = [tag.item() if isinstance(tag, np.generic | Tensor) else tag for tag in tags]
    return found
