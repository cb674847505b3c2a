"""Features of pairs of words, in groups; all are near 0 to 1."""

from collections.abc import Callable, Sequence
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from structsmooth.tasks.alignment.data import SentencePair
from structsmooth.tasks.alignment.lexicon import Lexicon

Features = NDArray[np.float64]
_PREFIX, _SUFFIX, _ALIKE = 4, 3, 0.7
_BINS = (0.05, 0.1, 0.2, 0.4)

NAMES = {
    "dice": ("Dice", "√ Dice", "Dice / largest of the target word", "Dice / largest of the source word"),
    "model1": ("source given target", "target given source", "√ product", "product"),
    "position": (
        "distance from the diagonal",
        "distance²",
        "√ distance",
        *(f"distance below {width}" for width in _BINS),
        "both first or both last",
    ),
    "spelling": (
        "same word",
        "same punctuation",
        f"same first {_PREFIX} letters",
        f"same last {_SUFFIX} letters",
        "common subsequence",
        f"common subsequence above {_ALIKE}",
        "both with digits",
        "both punctuation",
        "one punctuation",
        "one with digits",
        "difference of lengths",
    ),
    "frequency": ("rank of the source word", "rank of the target word", "difference of ranks"),
    "neighbours": ("Dice before", "Dice after", "Model 1 before", "Model 1 after"),
}
"""Features of each group, as :func:`pair_features` orders them."""
GROUPS = tuple(NAMES)


def pair_features(lexicon: Lexicon, pair: SentencePair, groups: Sequence[str] = GROUPS) -> Features:
    """Features [N, M, D] of all pairs of words of two sentences: those of the groups, and a constant."""
    dice = lexicon.dice(pair)
    forward, backward = lexicon.posteriors(pair)
    both = np.sqrt(forward * backward)
    groups_of: dict[str, Callable[[], list[Features]]] = {
        "dice": lambda: [dice, np.sqrt(dice), _share(dice, 0), _share(dice, 1)],
        "model1": lambda: [forward, backward, both, forward * backward],
        "position": lambda: _position(*dice.shape),
        "spelling": lambda: _spelling(pair),
        "frequency": lambda: _frequency(*lexicon.ranks(pair)),
        "neighbours": lambda: [_shifted(table, step) for table in (dice, both) for step in (-1, 1)],
    }
    planes = [plane for group in GROUPS if group in groups for plane in groups_of[group]()]
    return np.stack([*planes, np.ones_like(dice)], 2)


def feature_names(groups: Sequence[str] = GROUPS) -> list[tuple[str, str]]:
    """The name and the group of each feature that :func:`pair_features` gives."""
    return [*((name, group) for group in GROUPS if group in groups for name in NAMES[group]), ("constant", "")]


def _share(table: Features, axis: int) -> Features:
    """Entries as multiples of the largest of their row or column."""
    share: Features = table / np.maximum(table.max(axis, keepdims=True), 1e-12)
    return share


def _position(rows: int, columns: int) -> list[Features]:
    """Distance from the diagonal, its powers and its bins, and whether both words are first or last."""
    at = [(np.arange(count) + 0.5) / count for count in (rows, columns)]
    distance = np.abs(np.subtract.outer(*at))
    bins = [(distance < width).astype(np.float64) for width in _BINS]
    ends = np.zeros((rows, columns))
    ends[0, 0] = ends[-1, -1] = 1.0
    return [distance, distance**2, np.sqrt(distance), *bins, ends]


def _spelling(pair: SentencePair) -> list[Features]:
    table = np.array([[_alike(f.lower(), e.lower()) for e in pair.target] for f in pair.source])
    return list(np.moveaxis(table, 2, 0))


@lru_cache(2**18)
def _alike(f: str, e: str) -> tuple[float, ...]:
    """Equality, common prefix and suffix, longest common subsequence, numbers, and punctuation."""
    words = f.isalpha(), e.isalpha()
    digits = any(map(str.isdigit, f)), any(map(str.isdigit, e))
    marks = not any(map(str.isalnum, f)), not any(map(str.isalnum, e))
    longest, short = max(len(f), len(e)), min(len(f), len(e))
    ratio = common_subsequence(f, e) / longest if all(words) and short > 2 else 0.0
    return (
        float(f == e and not all(marks)),
        float(f == e and all(marks)),
        float(all(words) and f[:_PREFIX] == e[:_PREFIX] and short >= _PREFIX),
        float(all(words) and f[-_SUFFIX:] == e[-_SUFFIX:] and short > _SUFFIX),
        ratio,
        float(ratio > _ALIKE),
        float(all(digits)),
        float(all(marks)),
        float(marks[0] != marks[1]),
        float(digits[0] != digits[1]),
        abs(len(f) - len(e)) / longest,
    )


def common_subsequence(f: str, e: str) -> int:
    """Length of the longest common subsequence of two words."""
    row = [0] * (len(e) + 1)
    for letter in f:
        before = 0
        for j, other in enumerate(e, 1):
            before, row[j] = row[j], before + 1 if letter == other else max(row[j], row[j - 1])
    return row[-1]


def _frequency(source: NDArray[np.float64], target: NDArray[np.float64]) -> list[Features]:
    """The ranks of the words, which also tell how often they stay without a link, and their difference."""
    shape = len(source), len(target)
    return [
        np.broadcast_to(source[:, None], shape),
        np.broadcast_to(target, shape),
        np.abs(np.subtract.outer(source, target)),
    ]


def _shifted(table: Features, step: int) -> Features:
    """Entries of the next pair of words on the diagonal; 0 behind the ends."""
    out = np.zeros_like(table)
    here, there = slice(max(-step, 0), min(-step, 0) or None), slice(max(step, 0), min(step, 0) or None)
    out[here, here] = table[there, there]
    return out
