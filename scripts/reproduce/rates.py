"""Claims on rates of convergence."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import linear_regression

from scripts.reproduce.claims import AtEachLam, medians
from structsmooth.history import History

# Share of the oracle calls before rates are fitted.
_WARM_UP = 0.1


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
        own, other = medians(runs, (self.better, self.worse), _power)
        return own < other, f"{own:.2f} against {other:.2f}", ""


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


def _power(history: History) -> float:
    """The slope of log gap over log calls, behind the first tenth of the calls."""
    last = history[-1].oracle_calls
    rows = [row for row in history if row.oracle_calls > _WARM_UP * last and row.gap is not None and row.gap > 0]
    if len(rows) < 2:
        return math.nan
    calls, gaps = [math.log(row.oracle_calls) for row in rows], [math.log(row.gap or math.nan) for row in rows]
    return linear_regression(calls, gaps).slope
