"""Claims on the runs of ``structsmooth compare``: costs, ends and rates of convergence."""

import math
from abc import abstractmethod
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean, linear_regression, median
from typing import ClassVar

from scripts.reproduce.claim import Claim, Reading
from scripts.reproduce.objectives import hard_objective
from structsmooth.cli.comparison import best_settings, first_row
from structsmooth.history import History, Row, best_bound

# Histories by λ and by solver, one for each seed.
Runs = Mapping[str, Mapping[str, Sequence[History]]]

# Ends that differ by more than this factor are not alike.
_FAR = 10.0
# Share of the oracle calls before rates are fitted.
_WARM_UP = 0.1
_COSTS: dict[str, Callable[[Row], float]] = {
    "oracle calls": lambda row: row.oracle_calls,
    "seconds": lambda row: row.seconds,
    "passes": lambda row: row.passes,
}


@dataclass(frozen=True)
class AtEachLam(Claim[Runs]):
    """A statement that is tested at each λ by itself."""

    # Stands before the numbers; ``{0}`` is the claim.
    heading: ClassVar[str] = ""

    @abstractmethod
    def _at(self, runs: Mapping[str, Sequence[History]]) -> tuple[float, str, str]:
        """Hold the statement against the runs at one λ: the share that holds, numbers, and a note on them."""

    def _read(self, runs: Runs) -> Reading:
        found = {lam: self._at(of_lam) for lam, of_lam in runs.items()}
        texts = [f"{numbers} at λ = {lam}{note}" for lam, (_, numbers, note) in found.items()]
        return Reading(fmean(share for share, *_ in found.values()), self.heading.format(self) + "; ".join(texts))


def medians(
    runs: Mapping[str, Sequence[History]], labels: Sequence[str], value: Callable[[History], float]
) -> list[float]:
    """Medians over the seeds for some solvers."""
    return [median(map(value, runs[label])) for label in labels]


@dataclass(frozen=True)
class Faster(AtEachLam):
    """One solver needs less than another to the best value that both reach with every seed.

    Args:
        better: the label of the solver that should need less.
        worse: the other.
        cost: ``"oracle calls"``, ``"seconds"``, or ``"passes"`` of steps alone.
        value: ``"gap"``; ``"suboptimality"``, above the best lower bound of all runs; or ``"hard objective"``, that of
            soft runs without their penalty, whose bounds are for other problems.
        margin: it should need at most this share.
    """

    better: str
    worse: str
    cost: str = "oracle calls"
    value: str = "gap"
    margin: float = 1.0

    def _test(self) -> str:
        share = f"no more {self.cost} than" if self.margin == 1 else f"at most {self.margin:g} of the {self.cost} of"
        return f"`{self.better}` needs {share} `{self.worse}` to the best {self.value} of both"

    def _at(self, runs: Mapping[str, Sequence[History]]) -> tuple[float, str, str]:
        target, (first, second) = _costs(runs, (self.better, self.worse), self.cost, self.value)
        found = _compared({self.better: first, self.worse: second}, self.cost)
        return first < math.inf and first <= self.margin * second, found, f" (to {target:.3g})"


@dataclass(frozen=True)
class Alike(AtEachLam):
    """Some solvers, or settings of one, need about the same to the best value that all reach with every seed.

    If one ends far below another, the claim holds in part at best.

    Args:
        labels: of the solvers.
        within: the largest ratio of their costs.
        cost: as of :class:`Faster`.
        value: likewise.
    """

    heading = "at most "
    labels: tuple[str, ...]
    within: float = 1.5
    cost: str = "oracle calls"
    value: str = "suboptimality"

    def _test(self) -> str:
        return (
            f"none needs more than {self.within:g} times the {self.cost} of another to the best {self.value} of all; "
            f"in part if they end more than a factor of {_FAR:g} apart"
        )

    def _at(self, runs: Mapping[str, Sequence[History]]) -> tuple[float, str, str]:
        target, costs = _costs(runs, self.labels, self.cost, self.value)
        ratio = max(costs) / min(costs) if min(costs) else math.inf
        measured = _measured(runs, self.value)
        ends = medians(runs, self.labels, lambda history: measured(history[-1]))
        share = (1.0 if max(ends) <= _FAR * min(ends) else 0.5) if ratio <= self.within else 0.0
        note = f" (to {target:.3g}; they end from {min(ends):.2g} to {max(ends):.2g})"
        return share, f"{ratio:.2g} times the least {self.cost}", note


@dataclass(frozen=True)
class MoreAlike(AtEachLam):
    """Some settings of a solver differ less in what they need than some other ones: they are more robust.

    Args:
        labels: of the settings that should differ less.
        others: of the others.
        cost: as of :class:`Faster`.
        value: likewise.
    """

    heading = "largest ratios of costs: "
    labels: tuple[str, ...]
    others: tuple[str, ...]
    cost: str = "oracle calls"
    value: str = "suboptimality"

    def _test(self) -> str:
        return f"largest over smallest {self.cost} to the best {self.value} of all is no larger than of the others"

    def _at(self, runs: Mapping[str, Sequence[History]]) -> tuple[float, str, str]:
        both = [_costs(runs, some, self.cost, self.value)[1] for some in (self.labels, self.others)]
        first, second = (max(costs) / max(min(costs), 1e-12) for costs in both)
        return first <= second, f"{first:.2g} against {second:.2g}", ""


@dataclass(frozen=True)
class EndsBelow(AtEachLam):
    """At the end, the objective of a soft solver without its penalty is below that of another.

    Args:
        better: the label of the solver whose objective should be smaller.
        worse: the other.
    """

    heading = "objective without penalty: "
    better: str
    worse: str

    def _test(self) -> str:
        return f"one-sided: the objective without penalty of `{self.better}` ends below that of `{self.worse}`"

    def _at(self, runs: Mapping[str, Sequence[History]]) -> tuple[float, str, str]:
        better, worse = medians(runs, (self.better, self.worse), lambda history: hard_objective(history[-1]))
        return better < worse, f"{better:.4g} against {worse:.4g}", ""


@dataclass(frozen=True)
class ScoresAsWell(AtEachLam):
    """At the end, the metric of a solver is about as good as that of another, or better.

    Args:
        label: the solver that should be as good.
        rival: the other.
        metric: such as ``"test f1"``; more of it is better.
        within: what it may be behind, or ahead, if the test has two sides.
        two_sided: whether being better by more than that speaks against the claim, too.
    """

    heading = "{0.metric}: "
    label: str
    rival: str
    metric: str
    within: float = 0.01
    two_sided: bool = False

    def _test(self) -> str:
        if self.two_sided:
            return f"{self.metric} of `{self.label}` and `{self.rival}` end within {self.within:g}"
        return (
            f"one-sided: {self.metric} of `{self.label}` ends no more than {self.within:g} below that of `{self.rival}`"
        )

    def _at(self, runs: Mapping[str, Sequence[History]]) -> tuple[float, str, str]:
        score, rival = medians(runs, (self.label, self.rival), lambda history: history[-1].metrics[self.metric])
        held = score >= rival - self.within and (score <= rival + self.within or not self.two_sided)
        return held, f"{score:.3f} against {rival:.3f}", ""


@dataclass(frozen=True)
class SameChoice(Claim[Runs]):
    """One setting of a grid is the best at every λ.

    Args:
        grid: the settings.
        metric: on held-out data, see :func:`chosen`.
    """

    grid: Sequence[str]
    metric: str | None = None

    def _test(self) -> str:
        good = f" of those whose {self.metric} is within 1 % of the best" * bool(self.metric)
        return f"one setting ends lowest{good}"

    def _read(self, runs: Runs) -> Reading:
        grids = {lam: {label: of_lam[label] for label in self.grid} for lam, of_lam in runs.items()}
        best = {lam: chosen(grid, self.metric) for lam, grid in grids.items()}
        (_, same), *_ = Counter(best.values()).most_common()
        texts = [
            f"`{label}` at λ = {lam} (the grid ends from {min(ends):.3g} to {max(ends):.3g})"
            for lam, label in best.items()
            if (ends := [history.best().objective for histories in grids[lam].values() for history in histories])
        ]
        return Reading((same - 1) / (len(best) - 1) if len(best) > 1 else 1.0, "; ".join(texts))


@dataclass(frozen=True)
class Metric(AtEachLam):
    """A metric of a solver ends within a range.

    Args:
        label: the solver.
        metric: its name in the history.
        low: the smallest value.
        high: the largest value.
        over: a metric to divide by; ``"gap"`` for the duality gap.
    """

    heading = "{0.name}: "
    label: str
    metric: str
    low: float = -math.inf
    high: float = math.inf
    over: str | None = None

    def _test(self) -> str:
        ends = {f"no less than {self.low:g}": self.low, f"no more than {self.high:g}": self.high}
        bounds = [text for text, end in ends.items() if math.isfinite(end)]
        sides = "one-sided: " if len(bounds) == 1 else ""
        return f"{sides}{self.name} of `{self.label}` ends at {' and '.join(bounds)}"

    @property
    def name(self) -> str:
        """What is measured."""
        return self.metric + (f" / {self.over}" if self.over else "")

    def _at(self, runs: Mapping[str, Sequence[History]]) -> tuple[float, str, str]:
        (found,) = medians(runs, (self.label,), lambda history: self._of(history[-1]))
        return self.low <= found <= self.high, f"{found:.2g}", ""

    def _of(self, row: Row) -> float:
        values = row.as_dict()
        return float(values[self.metric]) / (float(values[self.over]) if self.over else 1.0)


@dataclass(frozen=True)
class Steeper(AtEachLam):
    """The gap of one solver falls with a higher power of the oracle calls than that of another: its rate is better.

    Powers are slopes of log gap over log calls, by least squares over the rows of the run behind its first tenth.

    Args:
        better: the label of the solver with the better rate.
        worse: the other.
    """

    heading = "slopes: "
    better: str
    worse: str

    def _test(self) -> str:
        return f"the slope of log gap over log oracle calls is smaller for `{self.better}` than for `{self.worse}`"

    def _at(self, runs: Mapping[str, Sequence[History]]) -> tuple[float, str, str]:
        better, worse = medians(runs, (self.better, self.worse), _power)
        return better < worse, f"{better:.2f} against {worse:.2f}", ""


@dataclass(frozen=True)
class FallsLike(AtEachLam):
    """The gap of a solver falls at least with some power of the oracle calls; slopes are those of :class:`Steeper`.

    Args:
        label: of the solver.
        power: the largest slope.
    """

    heading = "slopes: "
    label: str
    power: float

    def _test(self) -> str:
        return f"one-sided: the slope of log gap over log oracle calls of `{self.label}` is at most {self.power:g}"

    def _at(self, runs: Mapping[str, Sequence[History]]) -> tuple[float, str, str]:
        (slope,) = medians(runs, (self.label,), _power)
        return slope <= self.power, f"{slope:.2f}", ""


def chosen(grid: Mapping[str, Sequence[History]], metric: str | None) -> str:
    """The best setting of one solver: that of the lowest objective among those whose metric is within 1 % of the best.

    Args:
        grid: histories by setting.
        metric: on held-out data; more of it is better. Without one, the objective decides.

    Reference:
        Pillutla et al. (2019), section 7.3, "Tuning Criteria".
    """
    (best,) = best_settings(grid, metric)
    return best


def _compared(costs: Mapping[str, float], cost: str) -> str:
    """The ratio of the costs of two solvers, unless one never gets there."""
    never = [f"`{label}`" for label, paid in costs.items() if paid == math.inf]
    if never:
        return f"{' and '.join(never)} never below the start"
    first, second = costs.values()
    return f"{first / second if second else math.inf:.2g} times the {cost}"


def _costs(
    of_lam: Mapping[str, Sequence[History]], labels: Sequence[str], cost: str, value: str
) -> tuple[float, list[float]]:
    """The best value that all runs of some solvers reach, and the median cost of each to get there.

    A start that is free is no achievement: the value is below every start of the solvers, and what a solver pays that
    does not get there is infinite.
    """
    measured = _measured(of_lam, value)
    histories = [history for label in labels for history in of_lam[label]]
    target = max(min(map(measured, history)) for history in histories)
    start = min((measured(history[0]) for history in histories if _COSTS[cost](history[0]) == 0), default=math.inf)
    target = min(target, math.nextafter(start, -math.inf))

    def paid(history: History) -> float:
        row = first_row(history, target, measured)
        return math.inf if row is None else _COSTS[cost](row)

    return target, medians(of_lam, labels, paid)


def _measured(of_lam: Mapping[str, Sequence[History]], value: str) -> Callable[[Row], float]:
    """The value of a row; suboptimality is above the best lower bound of all runs."""
    bound = best_bound(history for histories in of_lam.values() for history in histories)

    def measured(row: Row) -> float:
        found = {"gap": row.gap, "suboptimality": row.objective - bound, "hard objective": hard_objective(row)}[value]
        return math.inf if found is None or math.isnan(found) else found

    return measured


def _power(history: History) -> float:
    """The slope of log gap over log calls, behind the first tenth of the calls."""
    last = history[-1].oracle_calls
    rows = [row for row in history if row.oracle_calls > _WARM_UP * last and row.gap is not None and row.gap > 0]
    if len(rows) < 2:
        return math.nan
    calls, gaps = [math.log(row.oracle_calls) for row in rows], [math.log(row.gap or math.nan) for row in rows]
    return linear_regression(calls, gaps).slope
