"""From scores of positions to segments, and long series in windows that overlap."""

from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

from structsmooth.structures import LinearChain, SemiMarkov
from structsmooth.tasks.segments.durations import Space
from structsmooth.tasks.segments.grammar import Grammar
from structsmooth.tasks.segments.runs import Runs, Span
from structsmooth.tasks.segments.series import Segment, Stretch

# Scores of segments that are held at once, where no window is given, and longest segments that a window has at least.
_SCORES, _LONGEST_SEGMENTS = 1 << 22, 8


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

    def label_marginals(self) -> NDArray[np.float64]:
        """The probability that each position is in a segment of each label, [T, L]; exact where a window has all."""
        labels, quarter = len(self.grammar.labels), max(self.window // 4, 1)
        core = self.length if self.length <= self.window else 2 * quarter
        found = [np.zeros((0, labels))]
        for begin in range(0, self.length, max(core, 1)):
            first, stop = max(begin - quarter, 0), min(begin + core, self.length)
            space = self.space((first, min(stop + quarter, self.length)), True)
            with torch.enable_grad():
                unary = space.unary.detach().requires_grad_()
                log_partition = space.replace(unary, *space.potentials[1:]).logsumexp().sum()
                (marginals,) = torch.autograd.grad(log_partition, unary)
            found.append(marginals[0, begin - first : stop - first, :labels].double().numpy())
        return np.concatenate(found).clip(0, 1)

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
