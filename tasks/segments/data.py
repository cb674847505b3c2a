"""Time series with labelled segments: archives of arrays, tables, and the electrocardiograms of LUDB."""

import csv
import math
from collections.abc import Iterable, Iterator, Sequence
from itertools import pairwise
from typing import TextIO

import numpy as np
from numpy.typing import NDArray

from structsmooth.files import csv_rows, numbered, read_lines, select
from structsmooth.tasks.arrays import Archive
from structsmooth.tasks.segments.series import Segment, Series

UNKNOWN = "?"
"""The label, in a table, of samples of which nothing is known."""

# Columns of tables that are no channels.
_SERIES, _LABEL = "series", "label"
# Names of the kinds of waves in LUDB, by number from 1, and the samples a second of its recordings.
_WAVES, _WAVES_RATE = ("P", "QRS", "T"), 500.0


def read_series(path: str | TextIO, rate: float = 1.0) -> list[Series]:
    """Series of an ``.npz`` archive, or of a table.

    An archive has ``signal`` [samples, C] or [samples], the samples of all series one after the other;
    ``series_start`` [N + 1], where series start among the samples, and how many samples there are, which may be absent
    for a single series; ``labels``, names of kinds of segments; ``segments`` [M, 4], integers: number of the series,
    first sample in the series, sample after the last one, and number of the label, all from 0; and, if there are any,
    ``unmarked`` [U, 3]: series, first sample and sample after the last one of stretches that nobody has marked. It may
    have ``rate``, samples a second, and ``names`` [N]. Without ``segments``, they are to be predicted.

    A table (``.csv``) has a header and a line for each sample: numbers in columns that are channels; in ``label`` the
    segment that the sample belongs to, nothing between segments, and ``?`` where nobody has marked anything; and in
    ``series`` the name of the series, if there are several. Two segments of one label that touch are one.

    Args:
        path: file; ``PATH#1-140`` for some of the series, counted from 1. Or an open table.
        rate: samples a second of files that do not say.

    Raises:
        ValueError: a malformed file, with its path and the array or line; a table without rows; or fewer series than
            asked for.
        FileNotFoundError: no such file.
    """
    if not isinstance(path, str):
        return _of_table("standard input", path.read().splitlines(), rate)
    source, part = select(path)
    if source.suffix == ".npz":
        archive = _Archive(str(source))
        if archive.is_ludb:
            return archive.leads(part)
        series = archive.series(rate)
    else:
        series = _of_table(str(source), read_lines(source), rate)
    return list(numbered(str(source), series, part, "series"))


class _Archive(Archive):
    """An archive of arrays with the series of a data set."""

    @property
    def is_ludb(self) -> bool:
        """Whether the archive has the electrocardiograms of LUDB."""
        return {"waves", "leads", "gain", "baseline"} <= self.arrays.keys()

    def series(self, rate: float) -> list[Series]:
        """All series, of samples with this rate if the file does not say."""
        signal = self.numbers("signal", (-1, -1) if self.array("signal").ndim > 1 else (-1,))
        signal = signal if signal.ndim > 1 else signal[:, None]
        starts = self._starts(len(signal))
        count = len(starts) - 1
        names = [str(name) for name in self.arrays.get("names", np.arange(1, count + 1)).ravel()]
        if len(names) != count:
            raise ValueError(f"{self.path}: names must be one for each of {count} series, got {len(names)}")
        if "rate" in self.arrays:
            rate = float(self.numbers("rate", ()))
        if not rate > 0:
            raise ValueError(f"{self.path}: rate must be positive, got {rate:g}")
        segments = self._segments(count) if "segments" in self.arrays else None
        unmarked = self._rows("unmarked", 3) if "unmarked" in self.arrays else np.empty((0, 3), dtype=np.int64)
        found = []
        for number, (start, stop) in enumerate(pairwise(starts)):
            rows = unmarked[unmarked[:, 0] == number, 1:].tolist()
            stretches = tuple(sorted((first, last) for first, last in rows))
            marks = None if segments is None else tuple(sorted(segments[number]))
            series = Series(names[number], signal[start:stop], rate, marks, stretches)
            _check_marks(series, self.path)
            found.append(series)
        return found

    def leads(self, part: range | None) -> list[Series]:
        """The leads of recordings of LUDB that have waves; before the first wave and after the last nothing is marked.

        Each lead is a series of its own, of one channel in millivolts.
        """
        signal, names = self.numbers("signal", (-1, -1, -1)), [str(name) for name in self.arrays["leads"]]
        gain, baseline = (self.numbers(key, (len(signal), signal.shape[2])) for key in ("gain", "baseline"))
        waves, found = self._rows("waves", 5), []
        for number in numbered(self.path, range(len(signal)), part, "series"):
            for lead, name in enumerate(names):
                rows = waves[(waves[:, 0] == number) & (waves[:, 1] == lead), 2:].tolist()
                if rows:
                    marks = tuple(sorted(Segment(first, last + 1, _WAVES[kind - 1]) for first, last, kind in rows))
                    millivolts = (signal[number, :, lead] - baseline[number, lead]) / gain[number, lead]
                    length = len(millivolts)
                    unmarked = tuple(
                        (start, stop) for start, stop in ((0, marks[0].start), (marks[-1].stop, length)) if start < stop
                    )
                    found.append(
                        Series(f"{number + 1}-{name}", millivolts[:, None], _WAVES_RATE, marks, unmarked, number)
                    )
                    _check_marks(found[-1], self.path)
        return found

    def _starts(self, samples: int) -> list[int]:
        if "series_start" not in self.arrays:
            return [0, samples]
        starts = self.integers("series_start", (-1,)).astype(np.int64)
        if len(starts) < 2 or starts[0] != 0 or starts[-1] != samples or (np.diff(starts) < 1).any():
            raise ValueError(
                f"{self.path}: series_start must rise from 0 to the number of samples, {samples}: where each series "
                "starts, then that number"
            )
        return [int(start) for start in starts]

    def _segments(self, count: int) -> list[list[Segment]]:
        names, found = [str(name) for name in self.array("labels").ravel()], [list[Segment]() for _ in range(count)]
        if len({*names} - {"", UNKNOWN}) < len(names):
            raise ValueError(f"{self.path}: labels must be different names, none of them empty or {UNKNOWN}")
        for number, start, stop, label in self._rows("segments", 4).tolist():
            if not (0 <= number < count and 0 <= label < len(names)):
                raise ValueError(
                    f"{self.path}: segments must be of series 0 to {count - 1} and labels 0 to {len(names) - 1}, got "
                    f"series {number} and label {label}"
                )
            found[number].append(Segment(start, stop, names[label]))
        return found

    def _rows(self, key: str, columns: int) -> NDArray[np.int64]:
        return self.integers(key, (-1, columns)).astype(np.int64)


def _of_table(place: str, lines: Sequence[str], rate: float) -> list[Series]:
    """Series of the lines of a table."""
    table = csv_rows(lines, place)
    _, columns = next(table, (1, []))
    channels = [name for name in columns if name not in (_SERIES, _LABEL)]
    if not channels:
        raise ValueError(f"{place}:1: expected a header with the names of the channels, and series and label")
    rows: dict[str, tuple[list[list[float]], list[str]]] = {}
    for line, cells in table:
        row = dict(zip(columns, cells, strict=False))
        signal, labels = rows.setdefault(row.get(_SERIES) or "1", ([], []))
        try:
            values = [float(row[name]) for name in channels]
        except (KeyError, ValueError):
            values = [math.nan]
        # A short row lacks a channel, or its label, which may be left out; a long one has nowhere to go.
        if not all(map(math.isfinite, values)) or len(cells) > len(columns):
            raise ValueError(f"{place}:{line}: expected {len(columns)} fields, with numbers for channels")
        signal.append(values)
        labels.append(row.get(_LABEL) or "")
    if not rows:
        raise ValueError(f"{place}: no samples")
    return [
        _with_labels(name, np.array(signal, dtype=np.float32), rate, labels if _LABEL in columns else None)
        for name, (signal, labels) in rows.items()
    ]


def _with_labels(name: str, signal: NDArray[np.float32], rate: float, labels: Sequence[str] | None) -> Series:
    if labels is None:
        return Series(name, signal, rate)
    runs = list(_runs(labels))
    unmarked = tuple((run.start, run.stop) for run in runs if run.label == UNKNOWN)
    return Series(name, signal, rate, tuple(run for run in runs if run.label not in ("", UNKNOWN)), unmarked)


def _runs(labels: Sequence[str]) -> Iterator[Segment]:
    """Stretches of equal labels."""
    edges = [0, *(t for t in range(1, len(labels)) if labels[t] != labels[t - 1]), len(labels)]
    return (Segment(start, stop, labels[start]) for start, stop in pairwise(edges))


def _check_marks(series: Series, place: str) -> None:
    """Refuse segments that are empty or not in the series, overlap, or are where nothing is marked."""
    known = [(s.start, s.stop, f"segment {s.start} to {s.stop}") for s in series.segments or ()]
    unknown = [(start, stop, f"unmarked stretch {start} to {stop}") for start, stop in series.unmarked]
    last, before = 0, "the series"
    for start, stop, what in sorted(known + unknown):
        if start < 0 or stop > len(series.signal) or start >= stop:
            raise ValueError(f"{place}: {what} of series {series.name} is not within its {len(series.signal)} samples")
        if start < last:
            raise ValueError(f"{place}: {what} of series {series.name} overlaps {before}")
        last, before = stop, what


def write_segments(rows: Iterable[tuple[str, int, Sequence[Segment]]], stream: TextIO) -> None:
    """A table of segments: series, rank of the output, start, stop and label."""
    writer = csv.writer(stream, lineterminator="\n")
    writer.writerow([_SERIES, "rank", "start", "stop", _LABEL])
    writer.writerows((name, rank, *segment) for name, rank, segments in rows for segment in segments)
