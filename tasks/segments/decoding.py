"""From scores of positions to segments: durations within limits, and long series in windows that overlap."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import torch

from structsmooth.settings import PositiveInt
from structsmooth.structures import LinearChain, SemiMarkov
from structsmooth.tasks.segments.grammar import Grammar
from structsmooth.tasks.segments.runs import Runs, Span
from structsmooth.tasks.segments.series import Segment, Series, Stretch, known_segments

Space = LinearChain | SemiMarkov | Runs

# Scores of segments that are held at once, where no window is given, and longest segments that a window has at least.
_SCORES, _LONGEST_SEGMENTS = 1 << 22, 8


@dataclass(frozen=True)
class Limits:
    """The least and the largest number of positions of segments of each of L labels.

    Segments that an end of the series cuts may be shorter.
    """

    shortest: list[PositiveInt]
    longest: list[PositiveInt]

    @classmethod
    def of(
        cls, examples: Sequence[Series], labels: Sequence[str], shortest: int | None, longest: int | None
    ) -> "Limits":
        """Those of the segments of examples, or the given numbers for all labels, to which the others give way."""
        sizes: dict[str, list[int]] = {label: [] for label in labels}
        for segment in (segment for series in examples for segment in known_segments(series)):
            sizes[segment.label].append(segment.stop - segment.start)
        least = [min(sizes[label]) if shortest is None else shortest for label in labels]
        most = [max(sizes[label]) if longest is None else longest for label in labels]
        if shortest is None:
            least = list(map(min, least, most))
        return cls(least, list(map(max, least, most)))

    def least(self, states: int) -> tuple[int, ...]:
        """The least number of positions of a run of each state of a grammar of these labels."""
        return (*self.shortest, *[1] * (states - len(self.shortest)))

    def applied(self, space: LinearChain | SemiMarkov, cut: bool) -> Space:
        """The outputs of one series that are within the limits.

        Args:
            space: sequences of states, or of segments.
            cut: whether the beginning may cut a segment; the end may.
        """
        states = space.unary.shape[2]
        if isinstance(space, LinearChain):
            bounded = max(self.shortest) > 1
            return Runs(space.unary, space.transition, self.least(states), cut) if bounded else space
        return self.of_segments(space, cut)

    def of_segments(self, space: SemiMarkov, cut: bool) -> SemiMarkov:
        """The segmentations of a batch that are within the limits, likewise."""
        (_, steps, states), most = space.unary.shape, space.durations.shape[-2]
        size, t = torch.arange(1, most + 1)[:, None], torch.arange(steps)[:, None, None]
        ends, longest = (
            space.lengths[:, None, None, None],
            torch.tensor([*self.longest, *[most] * (states - len(self.longest))]),
        )
        is_long_enough = size >= torch.tensor(self.least(states))
        is_cut = (t + size >= ends) | ((t == 0) & cut)
        allowed = (is_long_enough | is_cut) & (size <= longest)
        segments = torch.where(allowed, 0.0, -torch.inf).to(space.unary)
        return SemiMarkov(space.unary, space.transition, space.durations, segments, space.lengths, validate_args=False)


class Decoder(NamedTuple):
    """The best segmentation of a series, and the probabilities of segments, from stretches of it that fit in memory.

    Attributes:
        space: sequences of states, or of segments, of a stretch of a series, and whether its beginning may cut one.
        grammar: what states are.
        repeats: whether a segment of several positions has one state for each.
        length: positions of the series.
        window: positions that are decoded at once.
    """

    space: Callable[[Stretch, bool], Space]
    grammar: Grammar
    repeats: bool
    length: int
    window: int

    def best(self) -> tuple[float, list[int]]:
        """The best states of the whole series with their score, or, if a window is shorter, of overlapping windows.

        A window begins where the segments of the one before it are kept up to: at the last boundary before its last
        quarter, whose own decisions the end of the window may have disturbed. The transition there counts, so that the
        result is a segmentation as any other, without seams.
        """
        found: list[int] = []
        score, size = 0.0, self.window
        while len(found) < self.length:
            begin = len(found)
            stop = min(begin + size, self.length)
            space = self.space((begin, stop), begin == 0)
            if found:
                space = after(space, next(state for state in reversed(found) if state >= 0), self.repeats)
            value, y = space.max()
            best = y[0].tolist()
            kept = len(best) if stop == self.length else self._last_boundary(best, len(best) - max(len(best) // 4, 1))
            size = self.window if kept else 2 * size  # a segment is longer than what would be kept
            if kept:
                score += float(value) if kept == len(best) else score_of(space, best[:kept])
            found += best[:kept]
        return score, found

    def probabilities(self, spans: Sequence[Span]) -> list[float]:
        """The probabilities of segments: begin, end and label. They are exact where a window has the whole series."""
        if spans and self.length <= self.window:
            return span_probabilities(self.space((0, self.length), True), spans)
        found: dict[Span, float] = {}
        quarter = max(self.window // 4, 1)
        for begin in range(0, self.length, 2 * quarter):
            inside = [span for span in spans if begin <= span[0] < begin + 2 * quarter]
            if inside:
                first, last = max(begin - quarter, 0), max(begin + 2 * quarter, *(end for _, end, _ in inside))
                space = self.space((first, min(last + quarter, self.length)), True)
                shifted = [(a - first, b - first, label) for a, b, label in inside]
                found |= zip(inside, span_probabilities(space, shifted), strict=True)
        return [found[span] for span in spans]

    def _last_boundary(self, states: Sequence[int], before: int) -> int:
        return next((t for t in range(before, 0, -1) if self._begins(states, t)), 0)

    def _begins(self, states: Sequence[int], t: int) -> bool:
        return states[t] != states[t - 1] if self.repeats else states[t] >= 0


def window_of(longest: int, states: int) -> int:
    """Positions that are decoded at once, for segments of so many positions and for so many states."""
    return max(_LONGEST_SEGMENTS * longest, _SCORES // (longest * states))


def after(space: Space, state: int, repeats: bool) -> Space:
    """The outputs of one series behind a segment or a position of some state, with the transition from it."""
    start = space.transition[state].clone()
    if repeats:
        start[state] = -torch.inf  # or the segment would go on
    unary = space.unary.clone()
    unary[:, 0] += start
    return space.replace(unary, *space.potentials[1:])


def score_of(space: Space, states: Sequence[int]) -> float:
    """The score of the first states of one series, without what limits say."""
    unary = space.unary[:, : len(states)]
    if isinstance(space, SemiMarkov):
        plain: Space = SemiMarkov(unary, space.transition, space.durations, validate_args=False)
    else:
        plain = LinearChain(unary, space.transition, validate_args=False)
    return float(plain.score(torch.tensor([states])))


def span_probabilities(space: Space, spans: Sequence[Span]) -> list[float]:
    """The exact probabilities of segments of one series: begin, end and label."""
    if isinstance(space, LinearChain):
        space = Runs(space.unary, space.transition, (1,) * space.unary.shape[2])
    if isinstance(space, Runs):
        return space.run_probabilities(list(spans))
    longest, states = space.durations.shape[-2:]
    found = space.sums()[1][0].clamp(0, 1).tolist()  # of segments by begin, duration and label, and then others
    places = [(begin * longest + end - begin - 1) * states + label for begin, end, label in spans]
    return [found[at] if end - begin <= longest else 0.0 for at, (begin, end, _) in zip(places, spans, strict=True)]


def in_samples(spans: Sequence[Segment], step: int, length: int) -> tuple[Segment, ...]:
    """Segments of positions as segments of samples, of a series of so many samples."""
    return tuple(Segment(start * step, min(stop * step, length), label) for start, stop, label in spans)


def in_positions(segments: Sequence[Segment], step: int, labels: Sequence[str]) -> list[Span]:
    """Segments of samples as spans of positions: the reverse of :func:`in_samples`."""
    return [(start // step, -(-stop // step), labels.index(label)) for start, stop, label in segments]
