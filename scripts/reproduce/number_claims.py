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

    def _test(self) -> str:
        share = "no more oracle calls and seconds than"
        if self.margin != 1:
            share = f"at most {self.margin:g} times the oracle calls and seconds of"
        return f"{self.better} takes {share} {self.worse}; in part if one of the two"

    def _read(self, runs: Paths) -> Reading:
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

    def _test(self) -> str:
        return f"one-sided: nine in ten passes reach {self.low:g}"

    def _read(self, runs: Numbers) -> Reading:
        values = runs[self.label]
        share = fmean(value >= self.low for value in values)
        seen = (
            f"median {median(values):.2g}, from {min(values):.2g} to {max(values):.2g}; {share:.0%} reach {self.low:g}"
        )
        return Reading(float(share >= 0.9), seen)


@dataclass(frozen=True)
class Within(Claim[Numbers]):
    """Some share of the values of a number is below a bound, or above it.

    Args:
        label: its name.
        bound: the bound.
        share: of the values that are at most the bound, at least; at most, for ``above``.
        above: whether the claim is that few are within the bound.
    """

    label: str
    bound: float
    share: float = 1.0
    above: bool = False

    def _test(self) -> str:
        side = "at most" if self.above else "at least"
        return f"one-sided: {side} {self.share:.0%} of the {self.label} are within {self.bound:g}"

    def _read(self, runs: Numbers) -> Reading:
        values = runs[self.label]
        share = fmean(value <= self.bound for value in values)
        held = share <= self.share if self.above else share >= self.share
        return Reading(float(held), f"{share:.0%} of {len(values)}; the largest is {max(values):.3g}")


@dataclass(frozen=True)
class Smaller(Claim[Numbers]):
    """A number is smaller than another, on average.

    Args:
        first: its name.
        second: that of the other.
        most: the largest ratio.
    """

    first: str
    second: str
    most: float = 1.0

    def _test(self) -> str:
        return f"{self.first} are at most {self.most:g} times {self.second}"

    def _read(self, runs: Numbers) -> Reading:
        first, second = fmean(runs[self.first]), fmean(runs[self.second])
        return Reading(float(first <= self.most * second), f"{first:.4g} against {second:.4g}")


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

    def _test(self) -> str:
        return f"one-sided: the mean at {self.last} examples is at most {self.most:.3g} times that at {self.first}"

    def _read(self, runs: Numbers) -> Reading:
        before, after = fmean(runs[self.first]), fmean(runs[self.last])
        return Reading(
            float(after <= self.most * before), f"{before:.3g} at {self.first}, {after:.3g} at {self.last} examples"
        )
