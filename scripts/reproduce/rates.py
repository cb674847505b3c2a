"""Claims on rates of convergence."""

import math
from dataclasses import dataclass
from statistics import fmean, linear_regression, median

from scripts.reproduce.claim import Claim, Reading
from scripts.reproduce.claims import Runs
from structsmooth.history import History

# Share of the oracle calls before rates are fitted.
_WARM_UP = 0.1


@dataclass(frozen=True)
class Steeper(Claim[Runs]):
    """The gap of one solver falls with a higher power of the oracle calls than that of another: its rate is better.

    Powers are slopes of log gap over log calls, by least squares over the rows of the run behind its first tenth.

    Args:
        better: the label of the solver with the better rate.
        worse: the other.
    """

    better: str
    worse: str

    @property
    def test(self) -> str:
        """Which slope is smaller."""
        return f"the slope of log gap over log oracle calls is smaller for `{self.better}` than for `{self.worse}`"

    def read(self, runs: Runs) -> Reading:
        """Compare medians over the seeds at each λ."""
        held, texts = [], []
        for lam, of_lam in runs.items():
            own, other = (median(map(_power, of_lam[label])) for label in (self.better, self.worse))
            held.append(own < other)
            texts.append(f"{own:.2f} against {other:.2f} at λ = {lam}")
        return Reading(fmean(held), f"slopes: {'; '.join(texts)}")


@dataclass(frozen=True)
class FallsLike(Claim[Runs]):
    """The gap of a solver falls at least with some power of the oracle calls; slopes are those of :class:`Steeper`.

    Args:
        label: of the solver.
        power: the largest slope.
    """

    label: str
    power: float

    @property
    def test(self) -> str:
        """The largest slope."""
        return f"one-sided: the slope of log gap over log oracle calls of `{self.label}` is at most {self.power:g}"

    def read(self, runs: Runs) -> Reading:
        """Compare the median over the seeds at each λ."""
        slopes = {lam: median(map(_power, of_lam[self.label])) for lam, of_lam in runs.items()}
        texts = [f"{slope:.2f} at λ = {lam}" for lam, slope in slopes.items()]
        return Reading(fmean(slope <= self.power for slope in slopes.values()), f"slopes: {'; '.join(texts)}")


def _power(history: History) -> float:
    """The slope of log gap over log calls, behind the first tenth of the calls."""
    last = history[-1].oracle_calls
    rows = [row for row in history if row.oracle_calls > _WARM_UP * last and row.gap is not None and row.gap > 0]
    if len(rows) < 2:
        return math.nan
    calls, gaps = [math.log(row.oracle_calls) for row in rows], [math.log(row.gap or math.nan) for row in rows]
    return linear_regression(calls, gaps).slope
