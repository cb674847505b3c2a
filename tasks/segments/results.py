"""Metrics of segments and of their boundaries, by label and of all."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from structsmooth.markup import Table
from structsmooth.metrics import MatchCounts
from structsmooth.tasks.segments.series import Segment, Series, known_segments


@dataclass
class Measures:
    """Counts of all series.

    Attributes:
        boundaries: of each label.
        segments: of each label.
        samples: marked ones, and those whose label was found, which may be none.
    """

    boundaries: dict[str, MatchCounts] = field(default_factory=dict)
    segments: dict[str, MatchCounts] = field(default_factory=dict)
    samples: list[int] = field(default_factory=lambda: [0, 0])

    @classmethod
    def of(cls, examples: Sequence[Series], outputs: Sequence[Sequence[Segment]], tolerance: float) -> "Measures":
        """Counts of found segments.

        A boundary is right if one of the same kind, start or stop, and of the same label is at most ``tolerance`` units
        of time away; each counts once. A segment is right if more than half of the union with one of the same label is
        common to both. What was found where nobody has marked anything does not count, unless it is right.

        Raises:
            ValueError: series without segments.
        """
        names = {s.label for series in examples for s in known_segments(series)}
        names |= {s.label for segments in outputs for s in segments}
        measures = cls({name: MatchCounts() for name in sorted(names)}, {name: MatchCounts() for name in sorted(names)})
        for series, found in zip(examples, outputs, strict=True):
            measures._add(series, found, tolerance)
        return measures

    def metrics(self) -> dict[str, float]:
        """``boundary_f1`` and ``segment_f1`` over all labels; ``accuracy``, the share of samples of the right label."""
        boundaries, segments = (sum(counts.values(), MatchCounts()) for counts in (self.boundaries, self.segments))
        right, all_samples = self.samples
        accuracy = right / all_samples if all_samples else 0.0
        return {"boundary_f1": boundaries.f1, "segment_f1": segments.f1, "accuracy": accuracy}

    def table(self) -> str:
        """Metrics of each label and of all."""
        lines = ["                    boundaries                    segments"]
        lines.append(f"{'':12}{'precision  recall     F1':>26}{'precision  recall     F1':>28}{'gold':>8}")
        rows = [(name, self.boundaries[name], self.segments[name]) for name in self.boundaries]
        rows.append(("all", sum(self.boundaries.values(), MatchCounts()), sum(self.segments.values(), MatchCounts())))
        for name, *both in rows:
            shares = "".join(f"{c.precision:11.2%} {c.recall:7.2%} {c.f1:7.2%} " for c in both)
            lines.append(f"{name:10.10}{shares}{both[1].gold:7}")
        return "\n".join([*lines, f"accuracy  {self.metrics()['accuracy']:11.2%}"])

    def _add(self, series: Series, found: Sequence[Segment], tolerance: float) -> None:
        gold, limit = known_segments(series), tolerance * series.rate
        for name in self.boundaries:
            true, guessed = ([s for s in segments if s.label == name] for segments in (gold, found))
            edges = ([[s.start for s in segments], [s.stop - 1 for s in segments]] for segments in (true, guessed))
            for right_edges, found_edges in zip(*edges, strict=True):
                matched = list(_matched(right_edges, found_edges, limit))
                counted = sum(is_marked(series, t) for b, t in enumerate(found_edges) if b not in matched)
                self.boundaries[name] = self.boundaries[name] + MatchCounts(
                    len(matched), len(matched) + counted, len(true)
                )
            right = [s for s in guessed if any(_iou(s, other) > 0.5 for other in true)]
            counted = sum(is_marked(series, (s.start + s.stop) // 2) for s in guessed if s not in right)
            self.segments[name] = self.segments[name] + MatchCounts(len(right), len(right) + counted, len(true))
        marked = sum(stop - start for start, stop in series.marked)
        self.samples[0] += marked - _wrong_samples(series, found)
        self.samples[1] += marked


def wrong_boundaries(series: Series, found: Sequence[Segment], tolerance: float) -> float:
    """Boundaries that are missed or wrong."""
    counts = sum(Measures.of([series], [found], tolerance).boundaries.values(), MatchCounts())
    return counts.gold + counts.predicted - 2 * counts.correct


def _matched(true: Sequence[int], found: Sequence[int], limit: float) -> Iterator[int]:
    """Numbers of those found that have partners: as many as possible. Both are in order."""
    partner = 0
    for number, sample in enumerate(found):
        while partner < len(true) and true[partner] < sample - limit:
            partner += 1
        if partner < len(true) and true[partner] <= sample + limit:
            yield number
            partner += 1


def _iou(a: Segment, b: Segment) -> float:
    common = min(a.stop, b.stop) - max(a.start, b.start)
    return max(common, 0) / (a.stop - a.start + b.stop - b.start - max(common, 0))


def is_marked(series: Series, sample: int) -> bool:
    """Whether somebody has marked what a sample is."""
    return any(start <= sample < stop for start, stop in series.marked)


def _wrong_samples(series: Series, found: Sequence[Segment]) -> int:
    """Marked samples whose label was not found."""
    both = (labels_of(segments, len(series.signal)) for segments in (series.segments or (), found))
    wrong = [gold != label for gold, label in zip(*both, strict=True)]
    return sum(sum(wrong[start:stop]) for start, stop in series.marked)


def labels_of(segments: Sequence[Segment], length: int) -> list[str]:
    """The label of each sample; empty where there is none."""
    labels = [""] * length
    for start, stop, name in segments:
        labels[start:stop] = [name] * (stop - start)
    return labels


def segment_table(measures: Measures) -> Table:
    """F1 of the boundaries and segments of each label."""
    rows = [
        (name, *(f"{share:.2%}" for c in (counts, measures.segments[name]) for share in (c.precision, c.recall, c.f1)))
        for name, counts in measures.boundaries.items()
    ]
    header = (
        "label",
        *(f"{what} {name}" for what in ("boundary", "segment") for name in ("precision", "recall", "F1")),
    )
    return Table("Boundaries and segments by label", header, rows)
