"""The true gaps of heuristic regularization paths (Osokin et al. 2016, figure 7b)."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from scripts.reproduce.number_claims import Numbers
from structsmooth import LinearProblem, RegularizationPath, SolutionPath
from structsmooth.plots.panels import panel_grid
from structsmooth.solvers import BCFW
from structsmooth.tasks import OCR

EPSILON, KAPPAS = 0.1, (0.1, 0.5, 0.7, 0.9, 0.99)
_LAM_MIN = 2.0**-15


@dataclass(frozen=True)
class _Path:
    """A path with what it costs, and the true gap at each of its breakpoints."""

    lams: list[float]
    gaps: list[float]
    calls: list[float]
    seconds: list[float]


def heuristic_paths(solver: BCFW) -> Callable[[Path, Path, bool], Numbers]:
    """A study of heuristic paths by a solver, for several κ."""

    def study(data: Path, out: Path, quick: bool) -> Numbers:
        task = OCR()
        examples = task.read(f"{data}/ocr/ocr_letters.npz#0")
        problem = task.fit(examples).problem(examples)
        lam_min = 0.1 if quick else _LAM_MIN
        found = {kappa: _followed(problem, solver, kappa, lam_min) for kappa in KAPPAS}
        _draw(found, out / "gaps.png", problem.n)
        numbers: dict[str, Sequence[float]] = {}
        for kappa, path in found.items():
            numbers |= {f"gaps, κ = {kappa:g}": path.gaps, f"calls, κ = {kappa:g}": path.calls[-1:]}
            numbers |= {f"seconds, κ = {kappa:g}": path.seconds[-1:], f"λ, κ = {kappa:g}": path.lams}
        return numbers

    return study


def _followed(problem: LinearProblem, solver: BCFW, kappa: float, lam_min: float) -> _Path:
    path = RegularizationPath(EPSILON, kappa, verified=False, solver=solver).solve(problem, lam_min=lam_min)
    points = path.breakpoints
    return _Path(
        [point.lam for point in points],
        true_gaps(problem, path),
        [float(point.oracle_calls) for point in points],
        [point.seconds for point in points],
    )


def true_gaps(problem: LinearProblem, path: SolutionPath) -> list[float]:
    """The duality gap of the weights at every breakpoint: their own objective, above the dual of the breakpoint.

    The dual is known without an oracle call, so that it is the estimate of the objective less that of the gap.
    """
    gaps = []
    for j, point in enumerate(path.breakpoints):
        weights = path.weights(j).double()
        objective = problem.loss(weights) + point.lam / 2 * float(weights @ weights)
        gaps.append(objective - (point.objective - point.gap))
    return gaps


def _draw(found: Mapping[float, _Path], picture: Path, n: int) -> None:
    figure, grid = panel_grid(3, 1, (8, 8.4), "words of fold 0, heuristic paths, ε = 0.1")
    calls, seconds, gaps = grid[:, 0]
    for kappa, path in found.items():
        calls.plot(path.lams, np.array(path.calls) / n, label=f"κ = {kappa:g}")
        seconds.plot(path.lams, path.seconds)
        gaps.plot(path.lams, path.gaps)
    gaps.axhline(EPSILON, color="grey", linestyle=":")
    for panel, name in ((calls, f"effective passes (n = {n:,} oracle calls)"), (seconds, "seconds"), (gaps, "gap")):
        panel.set(xscale="log", ylabel=name)
        panel.grid(alpha=0.3)
    for panel in (calls, seconds):
        panel.set_yscale("log")
    calls.legend()
    gaps.set_xlabel("λ")
    gaps.invert_xaxis()
    figure.savefig(picture, dpi=120)
