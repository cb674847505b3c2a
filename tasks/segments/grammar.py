"""Which segments follow each other: the states of sequence models, and what training data never have."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain, pairwise

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from structsmooth.tasks.segments.series import Segment, Series, Stretch, known_segments


@dataclass(frozen=True)
class Grammar:
    """States of a sequence model of segments, and their order.

    For L labels there are 2L + 1 states: state l is a segment of label l, state L + l what lies between a segment of
    label l and the next one, and the last state what lies before the first segment. So pairs of states tell which
    segments follow each other, whatever lies between them.

    Attributes:
        labels: names of the L labels.
        pairs: pairs of states that follow each other where the state changes, or where a segment touches another of the
            same label.
        first: states that a series begins with.
        previous: for each label, the state of what most often lies before a segment of it, if something does.
    """

    labels: list[str]
    pairs: list[list[int]]
    first: list[int]
    previous: list[int]

    def __post_init__(self) -> None:
        states = {*self.first, *self.previous, *chain.from_iterable(self.pairs)}
        if not self.labels or not states <= {*range(self.size)} or any(len(pair) != 2 for pair in self.pairs):
            raise ValueError(f"a grammar needs labels, and states from 0 to {self.size - 1}, alone and in pairs")
        if len(self.previous) != len(self.labels) or len({*self.labels}) < len(self.labels):
            raise ValueError("the labels of a grammar must differ, and each needs a state before it")

    @classmethod
    def of(cls, examples: Sequence[Series], any_order: bool = False) -> "Grammar":
        """What examples have; or everything, in any order.

        Raises:
            ValueError: examples without segments.
        """
        labels = sorted({segment.label for series in examples for segment in known_segments(series)})
        if not labels:
            raise ValueError("these series have no segments to learn from: none is marked")
        size, start = len(labels), 2 * len(labels)
        before = [Counter[int]() for _ in labels]
        for series in examples:
            for stretch in series.marked:
                numbers = [labels.index(segment.label) for segment in _within(series, stretch)]
                for earlier, later in pairwise(numbers):
                    before[later][size + earlier] += 1
        # Of equal counts the first label, whatever order examples come in.
        previous = [max(counts, key=lambda state: (counts[state], -state)) if counts else start for counts in before]
        if any_order:
            every = [[a, b] for a in range(start + 1) for b in range(size)] + [[a, size + a] for a in range(size)]
            return cls(labels, sorted(every), list(range(start + 1)), previous)
        bare = cls(labels, [], [], previous)
        stretches = [(series, stretch) for series in examples for stretch in series.marked]
        parts = [bare.parts(series, stretch) for series, stretch in stretches]
        states = [[state for *_, state in stretch] for stretch in parts]
        found = {pair for path in states for pair in pairwise(path)}
        # What nothing but unmarked stretches follows would be a dead end: anything may follow it.
        cut = {path[-1] for path, (series, (_, stop)) in zip(states, stretches, strict=True) if stop < len(series)}
        pairs = sorted(found | {(a, b) for a in cut - {a for a, b in found if a != b} for b in range(size)})
        begins = {path[0] for path, ((begin, *_), *_) in zip(states, parts, strict=True) if begin == 0}
        # No marked stretch begins with its series: then a series may begin with anything.
        first = begins or {state for path in states for state in path}
        return cls(labels, [list(pair) for pair in pairs], sorted(first), previous)

    @property
    def size(self) -> int:
        """Number of states."""
        return 2 * len(self.labels) + 1

    def parts(self, series: Series, stretch: Stretch) -> list[tuple[int, int, int]]:
        """The segments of a marked stretch and what lies between them: start, stop and state.

        What lies before the first segment has the last state if the series begins there. If something unknown is before
        it, it has the state of what most often lies before such a segment.
        """
        segments, labels = _within(series, stretch), len(self.labels)
        known = segments and stretch[0] > 0
        state = self.previous[self.labels.index(segments[0].label)] if known else 2 * labels
        found, at = [], stretch[0]
        for start, stop, name in segments:
            if at < start:
                found.append((at, start, state))
            label = self.labels.index(name)
            found.append((start, stop, label))
            state, at = labels + label, stop
        if at < stretch[1]:
            found.append((at, stretch[1], state))
        return found

    def states(self, series: Series, stretch: Stretch) -> NDArray[np.int64]:
        """The state of each position of a marked stretch."""
        parts = self.parts(series, stretch)
        return np.repeat([state for *_, state in parts], [stop - start for start, stop, _ in parts]).astype(np.int64)

    def allowed(self, series: Series) -> NDArray[np.bool_]:
        """Which states each position may have: bool [T, S].

        In an unmarked stretch all, and between it and the next segment those of what lies between segments.
        """
        allowed = np.ones((len(series.signal), self.size), dtype=bool)
        for stretch in series.marked:
            for number, (start, stop, state) in enumerate(self.parts(series, stretch)):
                # The segment before may have any label, or there may be none.
                is_open = number == 0 and start > 0 and state >= len(self.labels)
                states = np.arange(len(self.labels), self.size) if is_open else [state]
                allowed[start:stop] = np.isin(np.arange(self.size), states)
        return allowed

    def starts(self, series: Series, stretch: Stretch) -> NDArray[np.int64]:
        """The label where a segment starts, -1 where it goes on, and the state of other positions, which are alone."""
        y = self.states(series, stretch)
        for start, stop, state in self.parts(series, stretch):
            if state < len(self.labels):
                y[start - stretch[0] + 1 : stop - stretch[0]] = -1
        return y

    def segments(self, y: Sequence[int], repeats: bool) -> tuple[Segment, ...]:
        """The segments of states.

        Args:
            y: a state for each position, or -1 where a segment goes on.
            repeats: whether a segment of several positions has one state for each.
        """
        edges = [t for t, state in enumerate(y) if t == 0 or (state != y[t - 1] if repeats else state >= 0)]
        spans = pairwise([*edges, len(y)])
        return tuple(Segment(a, b, self.labels[y[a]]) for a, b in spans if y[a] < len(self.labels))

    def transition_mask(self, repeats: bool) -> Tensor:
        """0 for pairs of states that may follow each other, −inf for others: float64 [S, S].

        Args:
            repeats: whether a segment of several positions has one state for each.
        """
        mask = torch.full((self.size, self.size), -torch.inf, dtype=torch.float64)
        for a, b in self.pairs:
            mask[a, b] = 0.0
        stay = range(self.size) if repeats else range(len(self.labels), self.size)
        mask[list(stay), list(stay)] = 0.0
        return mask

    def first_mask(self) -> Tensor:
        """0 for states that a series may begin with, −inf for others: float64 [S]."""
        mask = torch.full((self.size,), -torch.inf, dtype=torch.float64)
        mask[self.first] = 0.0
        return mask

    def names(self) -> list[str]:
        """The names of the states, for tables and pages."""
        return [*self.labels, *(f"after {label}" for label in self.labels), "before all"]


def _within(series: Series, stretch: Stretch) -> list[Segment]:
    return [segment for segment in known_segments(series) if stretch[0] <= segment.start and segment.stop <= stretch[1]]


def longest(examples: Sequence[Series]) -> int:
    """Positions of the longest segment."""
    return max(segment.stop - segment.start for series in examples for segment in known_segments(series))
