"""What data look like to a model: how unsure it is, and which words it does not know, beside other data."""

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple
from zlib import crc32

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from structsmooth.plain import PACKED
from structsmooth.tasks.probabilities import ProbabilisticTask
from structsmooth.text.corpus import Corpus

# Words whose digests are kept, the most frequent ones; examples that are looked at; and values of each measure.
_WORDS, _EXAMPLES, _VALUES = 1 << 16, 2000, 1000
_TERMS = 100  # of the series of Kolmogorov, which converges fast

ENTROPY, PROBABILITY, UNKNOWN = "entropy by size", "probability of parts", "unknown words"
"""The measures: entropy in nats divided by words or samples, of each example; the probability of each part of the best
outputs, such as an entity; and the share of words that training data lack, of each example."""


class Difference(NamedTuple):
    """How far a measure of new data is from that of known data.

    Attributes:
        known: mean over known data.
        new: mean over new data.
        distance: the largest difference of their distribution functions, from 0 to 1.
        p: the probability of such a distance, or a larger one, if both are drawn from one distribution.
    """

    known: float
    new: float
    distance: float
    p: float


@dataclass(frozen=True)
class Vocabulary:
    """The words of training data, by digests of 32 bits: of other words, one in 65,536 at most is taken for known."""

    digests: NDArray[np.uint32] = field(metadata=PACKED)

    @classmethod
    def of(cls, task: ProbabilisticTask, examples: Sequence[Any]) -> "Vocabulary":
        """The most frequent words of training examples."""
        if isinstance(examples, Corpus):  # of which each distinct token is there once
            counts = Counter[str]()
            numbers = np.bincount(examples.tokens, minlength=len(examples.distinct))
            for token, count in zip(examples.distinct, numbers.tolist(), strict=True):
                counts[token.word] += count
        else:
            counts = Counter(word for example in examples for word in task.words(example))
        return cls(np.unique(_digests([word for word, _ in counts.most_common(_WORDS)])))

    def unknown(self, words: Sequence[str]) -> float:
        """The share of some words that training data lack."""
        return float((~np.isin(_digests(words), self.digests)).mean()) if words else 0.0


@dataclass(frozen=True)
class Profile:
    """Measures of data under a model.

    Attributes:
        source: what the data are.
        measures: sorted values by measure, evenly spread ones if there are very many.
    """

    source: str
    measures: dict[str, list[float]]

    @classmethod
    def of(
        cls,
        task: ProbabilisticTask,
        weights: Tensor,
        examples: Sequence[Any],
        vocabulary: Vocabulary | None = None,
        source: str = "",
    ) -> "Profile":
        """The profile of some examples, or of evenly spread ones if there are very many."""
        # The examples themselves where they are few: a task may have encoded them.
        spread = _spread(len(examples), _EXAMPLES)
        seen = examples if len(spread) == len(examples) else [examples[i] for i in spread]
        outputs = [[ranked[0][1]] for ranked in task.predict(weights, seen)] if seen else []
        parts = [p for (of_output,) in task.part_probabilities(weights, seen, outputs) for p in of_output]
        values = {ENTROPY: task.uncertainty(weights, seen, "length-normalized").tolist(), PROBABILITY: parts}
        if vocabulary is not None and len(vocabulary.digests):
            values[UNKNOWN] = [vocabulary.unknown(task.words(example)) for example in seen]
        rising = {name: sorted(found) for name, found in values.items()}
        return cls(source, {name: [found[i] for i in _spread(len(found), _VALUES)] for name, found in rising.items()})

    def differences(self, new: "Profile") -> Mapping[str, Difference]:
        """How far the measures of new data are from these, of measures that both have."""
        both = {name: (known, new.measures.get(name, [])) for name, known in self.measures.items()}
        return {
            name: Difference(float(np.mean(known)), float(np.mean(found)), *kolmogorov_smirnov(known, found))
            for name, (known, found) in both.items()
            if known and found
        }


def kolmogorov_smirnov(first: Sequence[float], second: Sequence[float]) -> tuple[float, float]:
    """The distance of two samples, and the probability of such a distance if they are from one distribution.

    The probability is that of Kolmogorov's limit with the correction of Stephens (1970), which is close from about
    twenty values on; equal values make it too large.

    Example:
        >>> kolmogorov_smirnov([1, 2, 3], [1, 2, 3])
        (0.0, 1.0)
    """
    places = np.concatenate([first, second])
    shares = [np.searchsorted(np.sort(values), places, "right") / len(values) for values in (first, second)]
    distance = float(np.abs(shares[0] - shares[1]).max())
    size = math.sqrt(len(first) * len(second) / (len(first) + len(second)))
    scaled = distance * (size + 0.12 + 0.11 / size)
    if scaled < 0.2:  # where the series converges slowly, and its value is 1 to twelve digits
        return distance, 1.0
    terms = (2 * (-1) ** (k - 1) * math.exp(-2 * (k * scaled) ** 2) for k in range(1, _TERMS))
    return distance, min(max(sum(terms), 0.0), 1.0)


def _digests(words: Sequence[str]) -> NDArray[np.uint32]:
    return np.array([crc32(word.encode("utf-8", "surrogatepass")) for word in words], dtype=np.uint32)


def _spread(count: int, most: int) -> list[int]:
    """Evenly spread numbers below ``count``, at most so many."""
    return list(range(count)) if count <= most else [i * count // most for i in range(most)]
