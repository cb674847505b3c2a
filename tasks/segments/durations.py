"""Durations of segments: what options and training data say, and the outputs that keep to it."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch

from structsmooth.settings import PositiveInt
from structsmooth.structures import LinearChain, SemiMarkov
from structsmooth.tasks.segments.runs import Runs
from structsmooth.tasks.segments.series import Series, known_segments

Space = LinearChain | SemiMarkov | Runs
Given = int | str | None
"""Samples for all labels, or for some of them, as in ``helix=7,strand=3``."""


def check_durations(shortest: Given, longest: Given) -> None:
    """Refuse options that no labels can have.

    Raises:
        ValueError: a text of another form, or a longest segment that is shorter than a shortest one.
    """
    # As if training data had just the labels that are named, or one that is not.
    both = {*_by_label(shortest, "min_duration")} | {*_by_label(longest, "max_duration")}
    asked_positions(shortest, longest, sorted(label for label in both if label is not None) or [""], 1)


def asked_positions(
    shortest: Given, longest: Given, labels: Sequence[str], step: int
) -> tuple[list[int | None], list[int | None]]:
    """The least and the largest number of positions of each label, where options say it.

    Args:
        shortest: samples.
        longest: samples.
        labels: those of the training data.
        step: samples of a position.

    Raises:
        ValueError: other labels, or what :func:`check_durations` refuses.
    """
    found = []
    for name, given in (("min_duration", shortest), ("max_duration", longest)):
        by_label = _by_label(given, name)
        if unknown := by_label.keys() - {*labels, None}:
            raise ValueError(f"{name}: no label {min(map(str, unknown))} in the training data, but {', '.join(labels)}")
        found.append([by_label.get(label, by_label.get(None)) for label in labels])
    for label, least, most in zip(labels, *found, strict=True):
        if least is not None and most is not None and least > most:
            what = f"max_duration of {label}" if label else "max_duration"
            raise ValueError(f"{what} must be at least min_duration, {least}, got {most}")
    # Rounded inwards, so that segments of so many positions keep to the samples, too.
    return (
        [None if samples is None else -(-samples // step) for samples in found[0]],
        [None if samples is None else max(samples // step, 1) for samples in found[1]],
    )


def _by_label(given: Given, name: str) -> dict[str | None, int | None]:
    """The samples of some labels, and by ``None`` those of all others."""
    if not isinstance(given, str):
        return {None: given}
    found = dict[str | None, int | None]()
    for pair in given.split(","):
        label, _, number = pair.strip().rpartition("=")
        if not label or not number.isdecimal() or int(number) < 1 or label in found:
            wanted = "samples for all labels, or for some, as in helix=7,strand=3"
            raise ValueError(f"{name} must be {wanted}; got {given!r}")
        found[label] = int(number)
    return found


@dataclass(frozen=True)
class Limits:
    """The least and the largest number of positions of segments of each of L labels.

    Segments that an end of the series cuts may be shorter.
    """

    shortest: list[PositiveInt]
    longest: list[PositiveInt]

    @classmethod
    def of(
        cls,
        examples: Sequence[Series],
        labels: Sequence[str],
        shortest: Sequence[int | None],
        longest: Sequence[int | None],
    ) -> "Limits":
        """Those of the segments of examples, or the numbers that are given for labels, to which the others give way."""
        sizes: dict[str, list[int]] = {label: [] for label in labels}
        for segment in (segment for series in examples for segment in known_segments(series)):
            sizes[segment.label].append(segment.stop - segment.start)
        most = [max(sizes[label]) if asked is None else asked for label, asked in zip(labels, longest, strict=True)]
        # What is asked for as the largest also bounds what training segments say of the least, and the other way round
        # below.
        least = [
            min(*sizes[label], bound) if asked is None else asked
            for label, asked, bound in zip(labels, shortest, most, strict=True)
        ]
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
        # The end always may cut a segment: it is that of the series, or of a window.
        is_cut = (t + size >= ends) | ((t == 0) & cut)
        allowed = (is_long_enough | is_cut) & (size <= longest)
        segments = torch.where(allowed, 0.0, -torch.inf).to(space.unary)
        return SemiMarkov(space.unary, space.transition, space.durations, segments, space.lengths, validate_args=False)
