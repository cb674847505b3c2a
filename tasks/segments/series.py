"""Time series and their segments."""

from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from structsmooth.tasks.base import known


class Segment(NamedTuple):
    """A stretch of a series: samples from ``start`` to before ``stop``, counted from 0."""

    start: int
    stop: int
    label: str


Stretch = tuple[int, int]
"""A stretch of a series: samples from the first number to before the second."""


@dataclass(frozen=True, eq=False)
class Series:
    """A time series.

    Attributes:
        name: of the series.
        signal: a row of channels for each sample: float32 [T, C].
        rate: samples a second, or another unit of time.
        segments: those that are marked, in order, without overlap; ``None`` if they are to be predicted.
        unmarked: stretches in which segments may be that nobody has marked, in order.
        recording: the number of what it was recorded with, if that is known; cross-validation does not part those.
    """

    name: str
    signal: NDArray[np.float32]
    rate: float = 1.0
    segments: tuple[Segment, ...] | None = None
    unmarked: tuple[Stretch, ...] = ()
    recording: int | None = None

    def __len__(self) -> int:
        """How many samples it has."""
        return len(self.signal)

    @property
    def marked(self) -> list[Stretch]:
        """The stretches that somebody has marked: those between unmarked ones, in order."""
        edges = [0, *(edge for stretch in self.unmarked for edge in stretch), len(self.signal)]
        return [(start, stop) for start, stop in zip(edges[::2], edges[1::2], strict=True) if start < stop]


def known_segments(series: Series) -> tuple[Segment, ...]:
    """The segments of a series that has marks."""
    return known(series.segments, f"{series.name} has no segments")


def resampled(series: Series, step: int) -> Series:
    """A series of means of so many samples, whose segments have a sample at least, unless others leave no room.

    The last sample may be the mean of fewer.
    """
    if step == 1:
        return series
    starts = np.arange(0, len(series.signal), step)
    sizes = np.minimum(step, len(series.signal) - starts)
    means = np.add.reduceat(series.signal.astype(np.float64), starts) / sizes[:, None]
    length = len(starts)

    def scaled(sample: int) -> int:
        return min((sample + step // 2) // step, length)

    segments, unmarked, free = [], [], 0
    for start, stop, label in series.segments or ():
        segment = Segment(max(scaled(start), free), max(scaled(stop), scaled(start) + 1, free + 1), label)
        if segment.stop <= length:
            segments.append(segment)
            free = segment.stop
    for start, stop in series.unmarked:
        first, last = scaled(start), length if stop == len(series.signal) else scaled(stop)
        if first < last:
            unmarked.append((first, last))
    return replace(
        series,
        signal=means.astype(np.float32),
        rate=series.rate / step,
        segments=None if series.segments is None else tuple(segments),
        unmarked=tuple(unmarked),
    )
