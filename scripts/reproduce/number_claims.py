"""Claims on the costs of paths, and on other numbers."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean, median

from scripts.reproduce.claim import Claim, Reading

# What ``structsmooth path`` leaves: breakpoints by method, as dictionaries.
Paths = Mapping[str, Sequence[Mapping[str, float]]]
# What studies leave: numbers by name.
Numbers = Mapping[str, Sequence[float]]


@dataclass(frozen=True)
class Cheaper(Claim[Paths]):
    """A path, or a search on a grid, costs less than another in all, down to its smallest λ.

    Args:
        better: the method that should cost less.
        worse: the other.
        margin: it should cost at most this share, in oracle calls and in seconds.
    """

    better: str
    worse: str
    margin: float = 1.0

    def read(self, runs: Paths) -> Reading:
        """Compare the last breakpoints."""
        first, second = runs[self.better][-1], runs[self.worse][-1]
        calls, seconds = (first[cost] / second[cost] for cost in ("oracle_calls", "seconds"))
        seen = f"{calls:.2g} of the oracle calls and {seconds:.2g} of the seconds of {self.worse}"
        return Reading(fmean(ratio <= self.margin for ratio in (calls, seconds)), f"{self.better}: {seen}")


@dataclass(frozen=True)
class LargeAlong(Claim[Numbers]):
    """A number is large most of the time.

    Args:
        label: its name.
        low: what at least nine in ten of its values reach.
    """

    label: str
    low: float

    def read(self, runs: Numbers) -> Reading:
        """Count the values that reach it."""
        values = runs[self.label]
        share = fmean(value >= self.low for value in values)
        seen = (
            f"median {median(values):.2g}, from {min(values):.2g} to {max(values):.2g}; {share:.0%} reach {self.low:g}"
        )
        return Reading(float(share >= 0.9), seen)


@dataclass(frozen=True)
class GrowsSlowly(Claim[Numbers]):
    """The mean of a number grows by at most some factor from one size to another.

    Args:
        first: the smaller size.
        last: the larger one.
        most: the factor.
    """

    first: str
    last: str
    most: float

    def read(self, runs: Numbers) -> Reading:
        """Compare the means."""
        before, after = fmean(runs[self.first]), fmean(runs[self.last])
        return Reading(
            float(after <= self.most * before), f"{before:.3g} at {self.first}, {after:.3g} at {self.last} examples"
        )
