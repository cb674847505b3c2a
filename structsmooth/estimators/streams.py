"""What a tagger must know before a stream of sentences: all tags, and features that do not depend on sentences."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from structsmooth.estimators.tags import Tag, Tags
from structsmooth.estimators.tokens import NumberRows, kind_of


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
