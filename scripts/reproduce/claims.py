"""What the papers say about their experiments, in a form that runs can confirm or not."""

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean, median
from typing import Generic, TypeVar

from structsmooth.history import History, Row, best_bound

# What ``structsmooth compare`` leaves: histories by λ and by solver, one for each seed.
Runs = Mapping[str, Mapping[str, Sequence[History]]]
# What ``structsmooth path`` leaves: breakpoints by method, as dictionaries.
Paths = Mapping[str, Sequence[Mapping[str, float]]]
# What studies leave: numbers by name.
Numbers = Mapping[str, Sequence[float]]
Evidence = TypeVar("Evidence")

_COSTS: dict[str, Callable[[Row], float]] = {
    "oracle calls": lambda row: row.oracle_calls,
    "seconds": lambda row: row.seconds,
    "passes": lambda row: row.passes,
}


@dataclass(frozen=True)
class Reading:
    """What the runs say of a claim.

    Attributes:
        share: the part of the objectives on which it holds, from 0 to 1.
        seen: the numbers.
    """

    share: float
    seen: str

    @property
    def verdict(self) -> str:
        """In words."""
        if self.share == 1:
            return "holds"
        return "holds in part" if self.share > 0 else "does not hold here"


@dataclass(frozen=True)
class Claim(ABC, Generic[Evidence]):
    """A statement of a paper.

    Args:
        says: the statement.
    """

    says: str

    @abstractmethod
    def read(self, runs: Evidence) -> Reading:
        """Hold the statement against runs."""


@dataclass(frozen=True)
class Faster(Claim[Runs]):
    """One solver needs less than another to the best value that both reach with every seed.

    Args:
        better: the label of the solver that should need less.
        worse: the other.
        cost: ``"oracle calls"``, ``"seconds"``, or ``"passes"`` of steps alone.
        value: ``"gap"`` or ``"suboptimality"``.
        margin: it should need at most this share.
    """

    better: str
    worse: str
    cost: str = "oracle calls"
    value: str = "gap"
    margin: float = 1.0

    def read(self, runs: Runs) -> Reading:
        """Compare medians over the seeds at each λ."""
        ratios, texts = [], []
        for lam, of_lam in runs.items():
            target, (first, second) = _costs(of_lam, (self.better, self.worse), self.cost, self.value)
            ratios.append(first / second if second else math.inf)
            texts.append(f"{ratios[-1]:.2g} at λ = {lam} (to {target:.2g})")
        share = fmean(ratio <= self.margin for ratio in ratios)
        return Reading(share, f"{self.cost} of {self.better}, as a share of {self.worse}: {'; '.join(texts)}")


@dataclass(frozen=True)
class Alike(Claim[Runs]):
    """Some solvers, or settings of one, need about the same to the best value that all reach with every seed.

    Args:
        labels: of the solvers.
        within: the largest ratio of their costs.
        cost: as of :class:`Faster`.
        value: likewise.
    """

    labels: tuple[str, ...]
    within: float = 1.5
    cost: str = "oracle calls"
    value: str = "suboptimality"

    def read(self, runs: Runs) -> Reading:
        """Compare medians over the seeds at each λ."""
        ratios, texts = [], []
        for lam, of_lam in runs.items():
            target, costs = _costs(of_lam, self.labels, self.cost, self.value)
            ratios.append(max(costs) / min(costs) if min(costs) else math.inf)
            texts.append(f"{ratios[-1]:.2g} at λ = {lam} (to {target:.2g})")
        return Reading(fmean(ratio <= self.within for ratio in ratios), f"largest ratio of costs: {'; '.join(texts)}")


@dataclass(frozen=True)
class MoreAlike(Claim[Runs]):
    """Some settings of a solver differ less in what they need than some other ones: they are more robust.

    Args:
        labels: of the settings that should differ less.
        others: of the others.
        cost: as of :class:`Faster`.
        value: likewise.
    """

    labels: tuple[str, ...]
    others: tuple[str, ...]
    cost: str = "oracle calls"
    value: str = "suboptimality"

    def read(self, runs: Runs) -> Reading:
        """Compare the ratios of the largest and the smallest cost at each λ."""
        held, texts = [], []
        for lam, of_lam in runs.items():
            own, other = (
                max(costs) / max(min(costs), 1e-12)
                for _, costs in (_costs(of_lam, some, self.cost, self.value) for some in (self.labels, self.others))
            )
            held.append(own <= other)
            texts.append(f"{own:.2g} against {other:.2g} at λ = {lam}")
        return Reading(fmean(held), f"largest ratios of costs: {'; '.join(texts)}")


@dataclass(frozen=True)
class ScoresAsWell(Claim[Runs]):
    """At the end, the metric of a solver is about as good as that of another, or better.

    Args:
        label: the solver that should be as good.
        rival: the other.
        metric: such as ``"test f1"``; more of it is better.
        within: what it may be behind.
    """

    label: str
    rival: str
    metric: str
    within: float = 0.01

    def read(self, runs: Runs) -> Reading:
        """Compare medians over the seeds at each λ."""
        held, texts = [], []
        for lam, of_lam in runs.items():
            own, other = (
                median(history[-1].metrics[self.metric] for history in of_lam[label])
                for label in (self.label, self.rival)
            )
            held.append(own >= other - self.within)
            texts.append(f"{own:.3f} against {other:.3f} at λ = {lam}")
        return Reading(fmean(held), f"{self.metric} of {self.label} and {self.rival}: {'; '.join(texts)}")


@dataclass(frozen=True)
class Metric(Claim[Runs]):
    """A metric of a solver ends within a range.

    Args:
        label: the solver.
        metric: its name in the history.
        low: the smallest value.
        high: the largest value.
        over: a metric to divide by; ``"gap"`` for the duality gap.
    """

    label: str
    metric: str
    low: float = -math.inf
    high: float = math.inf
    over: str | None = None

    def read(self, runs: Runs) -> Reading:
        """Look at the median over the seeds of the last rows at each λ."""
        held, texts = [], []
        for lam, of_lam in runs.items():
            found = median(self._of(history[-1]) for history in of_lam[self.label])
            held.append(self.low <= found <= self.high)
            texts.append(f"{found:.2g} at λ = {lam}")
        name = self.metric + (f" / {self.over}" if self.over else "")
        return Reading(fmean(held), f"{name} of {self.label}: {'; '.join(texts)}")

    def _of(self, row: Row) -> float:
        values = row.as_dict()
        return float(values[self.metric]) / (float(values[self.over]) if self.over else 1.0)


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


def _costs(
    of_lam: Mapping[str, Sequence[History]], labels: Sequence[str], cost: str, value: str
) -> tuple[float, list[float]]:
    """The best value that all runs of some solvers reach, and the median cost of each to get there."""
    bound = best_bound(history for histories in of_lam.values() for history in histories)

    def measured(row: Row) -> float:
        found = row.gap if value == "gap" else row.objective - bound
        return math.inf if found is None or math.isnan(found) else found

    target = max(min(map(measured, history)) for label in labels for history in of_lam[label])
    paid = [
        median(next(_COSTS[cost](row) for row in history if measured(row) <= target) for history in of_lam[label])
        for label in labels
    ]
    return target, paid
